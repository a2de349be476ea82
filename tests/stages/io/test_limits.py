"""Hostile input: files that are small and hold much, and rows without an end, are read in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tamis.errors import DataError
from tamis.stages.io import CsvReader, JsonlReader, ParquetReader, TextReader
from tamis.stages.io.byte_streams import byte_stream
from tamis.tasks import FileSlice

COMPRESS = {
    ".gz": lambda data: gzip.compress(data, 1),
    ".zst": zstandard.compress,
    ".bz2": lambda data: bz2.compress(data, 1),
    ".xz": lambda data: lzma.compress(data, preset=0),
}
MEGABYTES = {"": 100, ".gz": 100, ".zst": 100, ".bz2": 20, ".xz": 40}
"""How many zeros a test compresses: as many as take no long time."""

PEAK = """
import resource, sys
from tamis.errors import DataError
from tamis.stages.base import emissions
from tamis.stages.io import JsonlReader, ParquetReader, TextReader

def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def read(reader):
    partitioning, stage = reader.decompose()
    rows = 0
    for group in partitioning.splits(""):
        for batch in emissions(stage.process(group)):
            rows += batch.num_items
    return rows

folder = sys.argv[1]
for name in ("small.jsonl.zst", "small.parquet"):  # loads what any file needs
    read((ParquetReader if "parquet" in name else JsonlReader)(f"{folder}/{name}"))
before = peak_mb()
for name in ("a.jsonl.gz", "a.jsonl.zst", "a.jsonl.bz2", "a.jsonl.xz", "a.jsonl"):
    for reader in (JsonlReader, TextReader):
        try:
            read(reader(f"{folder}/{name}", max_row_bytes="8MiB"))
            raise AssertionError(name)
        except DataError as e:
            assert "is larger than 8 MiB (max_row_bytes=8388608)" in str(e), e
            assert 'max_row_bytes="32MiB" of the reader allows more' in str(e), e
assert read(ParquetReader(f"{folder}/repeated.parquet", blocksize="8MiB")) == 200_000
assert read(ParquetReader(f"{folder}/numbers.parquet", blocksize="8MiB")) == 20_000_000
print(peak_mb() - before)
"""


def test_memory_is_bounded_by_the_limits_and_not_by_the_input(tmp_path: Path) -> None:
    for ending, compress in {"": bytes, **COMPRESS}.items():
        (tmp_path / f"a.jsonl{ending}").write_bytes(compress(bytes(MEGABYTES[ending] * 10**6)))
    (tmp_path / "small.jsonl.zst").write_bytes(zstandard.compress(b'{"text": "a", "n": [{}]}\n' * 1000))
    pq.write_table(pa.table({"text": ["a", "b"] * 1000}), tmp_path / "small.parquet")
    # One value, stored once: 200 MB in 20 kB.
    pq.write_table(pa.table({"text": ["0" * 1000] * 200_000}), tmp_path / "repeated.parquet")
    pq.write_table(pa.table({"n": pa.repeat(7, 20_000_000)}), tmp_path / "numbers.parquet")
    assert (tmp_path / "repeated.parquet").stat().st_size < 50_000
    done = subprocess.run([sys.executable, "-c", PEAK, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 150  # megabytes; it was 4,500 for 1 GB of zeros


@pytest.mark.parametrize("ending", COMPRESS)
def test_decompressed_pieces_are_bounded(tmp_path: Path, ending: str) -> None:
    size = MEGABYTES[ending] * 10**6
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(COMPRESS[ending](bytes(size)) * 2)
    sizes = [len(piece) for piece in byte_stream(FileSlice(str(path)), {})]
    assert sum(sizes) == 2 * size
    assert max(sizes) <= 34 * 10**6


ROWS = [{"text": "a"}, {"text": "b" * 5000}, {"text": "c"}, {"text": "d" * 3000}]
DATA = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


@pytest.mark.parametrize("blocksize", [10, 700, 4096, 10**6])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_lines_that_are_too_long_are_set_aside_whatever_the_blocks(
    tmp_path: Path, read: Any, blocksize: int, ending: str
) -> None:
    (tmp_path / f"a.jsonl{ending}").write_bytes(gzip.compress(DATA) if ending else DATA)
    settings = {"blocksize": blocksize, "max_row_bytes": 3012}
    result = read(JsonlReader(str(tmp_path), on_error="quarantine", **settings))
    assert result.rows == [ROWS[0], ROWS[2], ROWS[3]]
    [bad] = result.bad
    assert (bad.byte, len(bad.raw)) == (14, min(1000, len(bad.raw)))
    assert bad.problem == "the line is larger than 2.9 KiB (max_row_bytes=3012)"
    with pytest.raises(DataError, match=r"byte 14: the line is larger than .*\n  max_row_bytes=.*allows more"):
        read(JsonlReader(str(tmp_path), **settings))
    assert read(JsonlReader(str(tmp_path), blocksize=blocksize)).rows == ROWS


@pytest.mark.parametrize("blocksize", [4096, 10**6])
def test_a_last_line_without_an_end_is_bounded_too(tmp_path: Path, read: Any, blocksize: int) -> None:
    (tmp_path / "a.jsonl").write_bytes(DATA + b'{"text": "' + b"x" * 50_000)
    result = read(JsonlReader(str(tmp_path), on_error="quarantine", blocksize=blocksize, max_row_bytes=10_000))
    assert result.rows == ROWS
    assert [bad.byte for bad in result.bad] == [len(DATA)]


def test_rows_of_other_formats_are_bounded(tmp_path: Path, read: Any) -> None:
    long = "x" * 200_000
    (tmp_path / "a.csv").write_text(f"text\nshort\n{long}\n")
    with pytest.raises(DataError, match=r"a.csv: a row is larger than 64 KiB \(blocksize=65536\)"):
        read(CsvReader(str(tmp_path / "a.csv"), blocksize="64KiB"))
    with pytest.raises(DataError, match=r"the line is larger than 64 KiB"):
        read(CsvReader(str(tmp_path / "a.csv"), newlines_in_values=False, max_row_bytes="64KiB"))
    (tmp_path / "a.txt").write_text(f"short\n\n{long}\n")
    for unit, what in (("file", "text of this file"), ("line", "line"), ("paragraph", "line")):
        with pytest.raises(DataError, match=f"the {what} is larger than 64 KiB"):
            read(TextReader(str(tmp_path / "a.txt"), unit=unit, max_row_bytes="64KiB"))
    (tmp_path / "b.txt").write_text("short\n" * 20_000)
    with pytest.raises(DataError, match="the paragraph is larger than 64 KiB"):
        read(TextReader(str(tmp_path / "b.txt"), unit="paragraph", blocksize="16KiB", max_row_bytes="64KiB"))


def test_rows_of_parquet_are_bounded(tmp_path: Path, read: Any) -> None:
    pq.write_table(pa.table({"text": ["x" * 500_000]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"text": ["a"] * 100 + ["y" * 500_000]}), tmp_path / "b.parquet")
    for name, what in (("a", "average row of row group 0"), ("b", "a row of row group 0")):
        reader = ParquetReader(str(tmp_path / f"{name}.parquet"), blocksize="64KiB", max_row_bytes="100KiB")
        with pytest.raises(DataError, match=f"{what} is larger than 100 KiB"):
            read(reader)
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "c.parquet")
    settings: dict[str, Any] = {"blocksize": "64KiB", "max_row_bytes": "100KiB", "on_error": "quarantine"}
    result = read(ParquetReader(str(tmp_path), **settings))
    assert result.rows[-1] == {"text": "a"}
    assert len(result.bad) == 2


def test_dictionaries_of_nested_columns_count(tmp_path: Path, read: Any) -> None:
    rows = [{"tags": ["t" * 1000, None], "meta": {"k": "v" * 500}}] * 3000
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    result = read(ParquetReader(str(tmp_path), blocksize="256KiB"))
    assert result.rows == rows
    assert max(batch.nbytes for batch in result.batches) < 600_000


def test_a_compressed_file_with_the_wrong_name_gets_a_hint(tmp_path: Path, read: Any) -> None:
    for ending, compress in COMPRESS.items():
        for name, reader in (("a.jsonl", JsonlReader), ("a.csv", CsvReader), ("a.txt", TextReader)):
            (tmp_path / name).write_bytes(compress(DATA))
            with pytest.raises(DataError, match=rf"but its name does not end in \{ending}\n  Rename it"):
                read(reader(str(tmp_path / name)))
