"""Rows are found again by the names that readers gave them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tamis.runs.source_rows import ReadLimits, RowFormat, format_of, read_rows
from tamis.stages.io import CsvReader, JsonlReader, ParquetReader, TextReader
from tamis.testing import run_stage

TEXTS = ["one", "two <b>", "", "drei\u2028vier", "x" * 70_000, "last\ttab"]


def names(reader: Any) -> list[tuple[str, int, dict[str, Any]]]:
    """Source, position and values of every row, as the reader itself says."""
    found = []
    for task in run_stage(reader, []).tasks:
        for row, source, position in zip(
            task.data.to_pylist(), task.names.source_column().to_pylist(), task.names.positions.tolist(), strict=True
        ):
            found.append((source, position, row))
    return found


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


@pytest.mark.parametrize("ending", COMPRESSIONS)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
def test_json_lines_are_read_back(tmp_path: Path, ending: str, mark: bytes) -> None:
    lines = "\n\n".join(json.dumps({"text": text, "n": n}) for n, text in enumerate(TEXTS))
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(COMPRESSIONS[ending](mark + lines.encode()))
    rows = names(JsonlReader(str(path)))
    assert len(rows) == len(TEXTS)
    for chosen in (rows, rows[::-1], rows[3:4]):
        limits = ReadLimits(value_characters=10**6)
        read = read_rows(str(path), [position for _, position, _ in chosen], limits=limits)
        assert [(row.values, row.problem) for row in read] == [(values, "") for _, _, values in chosen]


def test_parquet_rows_are_read_back_from_their_row_groups(tmp_path: Path) -> None:
    table = pa.table({"text": [f"text {i}" for i in range(1000)], "n": range(1000)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=64)
    rows = names(ParquetReader(str(tmp_path)))
    chosen = [rows[i] for i in (999, 0, 64, 63, 500)]
    read = read_rows(chosen[0][0], [position for _, position, _ in chosen], ["text"])
    assert [row.values for row in read] == [{"text": values["text"]} for _, _, values in chosen]


@pytest.mark.parametrize("newlines", [True, False])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv"])
def test_csv_rows_are_read_back(tmp_path: Path, newlines: bool, ending: str) -> None:
    mark = "\t" if ending == ".tsv" else ","
    text = f'id{mark}text\n1{mark}one\n\n2{mark}"two{mark} three"\n3{mark}\u00e4\n'
    if newlines:
        text += f'4{mark}"line\nbreak"\n'
    path = tmp_path / f"a{ending}"
    path.write_bytes(COMPRESSIONS[".gz"](text.encode()) if ending.endswith(".gz") else text.encode())
    rows = names(CsvReader(str(path), delimiter=mark, newlines_in_values=newlines))
    row_format = RowFormat("csv", delimiter=mark, newlines_in_values=newlines)
    read = read_rows(rows[0][0], [position for _, position, _ in rows], row_format=row_format)
    assert [row.values for row in read] == [values for _, _, values in rows]


@pytest.mark.parametrize("unit", ["file", "line", "paragraph"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_text_is_read_back(tmp_path: Path, unit: Any, ending: str) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(COMPRESSIONS[ending](b"one\ntwo\n \n\nthree\r\n\nfour"))
    rows = names(TextReader(str(path), unit=unit))
    read = read_rows(str(path), [position for _, position, _ in rows], row_format=RowFormat("text", unit=unit))
    assert [row.values["text"] for row in read] == [values["text"].strip("\n") for _, _, values in rows]


def test_what_is_gone_or_changed_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert "is gone" in read_rows(str(path), [0])[0].problem
    path.write_text('{"text": "one"}\n{"text": "two"}\n')
    os.utime(path, (1000, 1000))
    assert read_rows(str(path), [16], changed_after=1000)[0].values == {"text": "two"}
    assert read_rows(str(path), [16], changed_after=999)[0].problem == "the source has changed since the run"
    problems = [row.problem for row in read_rows(str(path), [5, 16, 4000, -1])]
    assert [problem != "" for problem in problems] == [True, False, True, True]
    assert "has changed" in problems[0]
    path.write_text("no JSON\n")
    assert "has changed" in read_rows(str(path), [0])[0].problem
    (tmp_path / "a.parquet").write_text("no Parquet")
    assert "not a Parquet file" in read_rows(str(tmp_path / "a.parquet"), [0])[0].problem


def test_reading_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "x" * 100_000}) + "\n" + json.dumps({"text": "y" * 1000}) + "\n")
    limits = ReadLimits(row_bytes=50_000, value_characters=10)
    long, short = read_rows(str(path), [0, 100_013], limits=limits)
    assert long.problem == "the row is too long to be shown"
    assert (short.values, short.is_cut) == ({"text": "y" * 10}, True)
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    far = read_rows(str(packed), [0, 100_013], limits=ReadLimits(scan_bytes=1000))
    assert "can only be read from its start" in far[1].problem
    assert far[0].problem == ""


def test_only_files_of_known_kinds_on_this_machine_are_opened(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("{}")
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert format_of(str(tmp_path / "secret")) is None
    for source in (str(tmp_path / "secret"), "https://example.org/a.jsonl", str(tmp_path / "pipe.jsonl"), "task 0"):
        (row,) = read_rows(source, [0])
        assert row.problem
        assert row.values == {}


def test_another_machine_is_asked_only_if_allowed() -> None:
    import fsspec

    fsspec.filesystem("memory").pipe_file("/source_rows/a.jsonl", b'{"text": "far"}\n')
    assert read_rows("memory://source_rows/a.jsonl", [0])[0].problem == "the source is not on this machine"
    assert read_rows("memory://source_rows/a.jsonl", [0], allow_remote=True)[0].values == {"text": "far"}


def test_text_fields_that_hold_anything(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": {"b": [1, null]}, "c": true}\n' + b"[" * 100_000 + b"\n")
    first, deep = read_rows(str(path), [0, 35])
    assert first.values == {"a": {"b": [1, None]}, "c": True}
    assert "not a JSON object" in deep.problem
