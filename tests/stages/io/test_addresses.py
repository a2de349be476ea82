"""Other file systems than the local one, and sizes in words."""

from __future__ import annotations

import functools
import gzip
import http.server
import importlib
import io
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tamis.errors import DataError, MissingExtraError, PlanError, StorageError
from tamis.runs.publication import publish
from tamis.stages.emit import Publish
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetReader, TextReader, byte_size, destination, paths
from tamis.tasks import DocumentBatch

ROWS = [{"text": f"row {i}"} for i in range(300)]
DATA = "".join(json.dumps(r) + "\n" for r in ROWS).encode()

numbers = itertools.count()


@pytest.fixture
def memory() -> str:
    """A directory of its own in fsspec's memory."""
    return f"memory://test{next(numbers)}"


def put(address: str, data: bytes) -> None:
    fs, path = fsspec.core.url_to_fs(address)
    fs.pipe_file(path, data)


@pytest.mark.parametrize(
    ("size", "expected"), [(5, 5), ("5", 5), ("1kB", 1000), ("1KiB", 1024), ("1.5 MB", 1_500_000), ("2gib", 2 * 2**30)]
)
def test_sizes_in_words(size: int | str, expected: int) -> None:
    assert byte_size(size) == expected


def test_a_directory_in_memory(memory: str, read: Any) -> None:
    put(f"{memory}/b/2.jsonl.gz", gzip.compress(DATA))
    put(f"{memory}/a.jsonl", DATA)
    put(f"{memory}/_hidden.jsonl", b"oops")
    result = read(JsonlReader(memory, include_path="path"))
    assert [r["text"] for r in result.rows] == [r["text"] for r in ROWS] * 2
    assert {r["path"] for r in result.rows} == {f"{memory}/a.jsonl", f"{memory}/b/2.jsonl.gz"}
    assert result.batches[0].dataset_name == memory.removeprefix("memory://")


def test_patterns_in_memory(memory: str, read: Any) -> None:
    put(f"{memory}/x/a.jsonl", DATA)
    put(f"{memory}/y/b.jsonl", b"oops")
    assert read(JsonlReader(f"{memory}/x*/*.jsonl")).rows == ROWS
    assert read(JsonlReader(f"{memory}/**/a.jsonl")).rows == ROWS


def test_ranges_in_memory(memory: str, read: Any) -> None:
    put(f"{memory}/a.jsonl", DATA)
    result = read(JsonlReader(memory, blocksize=1000))
    assert len(result.batches) > 3
    assert result.rows == ROWS


def test_parquet_in_memory(memory: str, read: Any) -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), buffer, row_group_size=50)
    put(f"{memory}/a.parquet", buffer.getvalue())
    assert read(ParquetReader(memory, blocksize=1000)).rows == ROWS
    assert ParquetReader(memory).columns() == ["text"]


def test_a_missing_address_is_named(memory: str, read: Any) -> None:
    put(f"{memory}/corpus/a.jsonl", DATA)
    with pytest.raises(DataError, match=rf"{memory}/corpsu: there is no such file or directory"):
        read(JsonlReader(f"{memory}/corpsu"))


def test_errors_name_the_address(memory: str, read: Any) -> None:
    put(f"{memory}/a.jsonl", DATA + b"oops\n")
    with pytest.raises(DataError, match=rf"{memory}/a\.jsonl, line 301, byte {len(DATA)}: "):
        read(JsonlReader(memory))


@pytest.mark.parametrize("shard_bytes", [None, "2kB"])
def test_writing_to_memory(memory: str, read: Any, write: Any, shard_bytes: str | None) -> None:
    tables = [pa.Table.from_pylist(ROWS[i : i + 100]) for i in range(0, 300, 100)]
    write(JsonlWriter(f"{memory}/out", shard_bytes=shard_bytes), tables)
    assert read(JsonlReader(f"{memory}/out")).rows == ROWS
    fs = fsspec.filesystem("memory")
    assert not [name for name in fs.find(memory.removeprefix("memory:/")) if name.endswith(".tmp")]


def test_modes_in_memory(memory: str, read: Any, write: Any) -> None:
    for rows in (ROWS, ROWS[:5]):
        write(JsonlWriter(memory, mode="overwrite"), [pa.Table.from_pylist(rows)])
    assert read(JsonlReader(memory)).rows == ROWS[:5]
    with pytest.raises(PlanError, match=r"already holds files \(part-000000.jsonl\), output of another pipeline"):
        write(JsonlWriter(memory), [pa.Table.from_pylist(ROWS)], fingerprint="another")
    write(JsonlWriter(memory, mode="append"), [pa.Table.from_pylist(ROWS[5:])], fingerprint="another")
    assert read(JsonlReader(memory)).rows == ROWS


class Bucket(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Stands in for an object store, which has no rename."""

    protocol = ("bucket",)
    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec's own way
    pseudo_dirs = [""]  # noqa: RUF012 - fsspec's own way


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> str:
    fsspec.register_implementation("bucket", Bucket, clobber=True)
    monkeypatch.setattr(paths, "_OBJECT_STORES", {*paths._OBJECT_STORES, "bucket"})
    return f"bucket://b{next(numbers)}"


def test_an_object_is_written_under_its_final_name_at_once(bucket: str) -> None:
    [stage] = JsonlWriter(f"{bucket}/out").decompose()
    finished = next(iter(stage.process(DocumentBatch(pa.Table.from_pylist(ROWS), order=(0,)))))  # type: ignore[arg-type]  # an iterator
    assert isinstance(finished, Publish)
    assert finished.temporary == finished.final == f"{bucket}/out/part-000000.jsonl"
    assert fsspec.filesystem("bucket").size(f"{bucket}/out/part-000000.jsonl") == finished.nbytes
    publish(finished)


def test_a_failed_write_leaves_no_half_object(bucket: str) -> None:
    target = destination.Destination(f"{bucket}/out", ending=".jsonl")

    def fill(sink: Any) -> None:
        sink.write(b"half of it")
        raise OSError("the disk is full")

    with pytest.raises(StorageError, match=r"out/part-000000.jsonl: this cannot be written: OSError: the disk is full"):
        target.write("part-000000.jsonl", 1, fill)
    assert fsspec.filesystem("bucket").find(bucket) == []


def test_the_web_cannot_be_written_to() -> None:
    with pytest.raises(PlanError, match="a web server cannot be written to"):
        JsonlWriter("https://example.org/out")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise ImportError("Install s3fs to access S3", name="s3fs")

    monkeypatch.setattr(fsspec.core, "url_to_fs", missing)
    with pytest.raises(MissingExtraError, match=r"pip install -e '\.\[s3\]'"):
        paths.filesystem("s3://bucket/data")


@pytest.mark.parametrize(
    ("scheme", "package", "install"),
    [("hf", "huggingface_hub", "-e '.[hf]'"), ("s3", "s3fs", "-e '.[s3]'"), ("az", "adlfs", "adlfs")],
)
def test_a_missing_package_of_a_store_is_named(
    monkeypatch: pytest.MonkeyPatch, scheme: str, package: str, install: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(importlib.import_module("fsspec.registry")._registry, scheme, raising=False)
    with pytest.raises(MissingExtraError) as error:
        paths.filesystem(f"{scheme}://a/b")
    message = str(error.value)
    assert message.startswith(f"reading {scheme}:// addresses needs the package {package!r}, which is not installed.")
    assert message.endswith(f"pip install {install}")


def test_a_hub_that_cannot_be_reached(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="hf:// is read with huggingface_hub: pip install 'tamis[hf]'")
    code = (
        "from tamis.stages.io import JsonlReader\nnext(JsonlReader('hf://datasets/org/data').decompose()[0].splits(''))"
    )
    environment = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-2:]
    assert last[0].startswith("tamis.errors.DataError: hf://datasets/org/data: the server cannot be reached: ")
    assert last[1] == "  Check the address and the network."


def test_an_unknown_protocol_is_refused(read: Any) -> None:
    with pytest.raises(PlanError, match="Protocol not known: nowhere"):
        read(JsonlReader("nowhere://data/a.jsonl"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def send_head(self) -> Any:
        return self.send_error(403) if "forbidden" in self.path else super().send_head()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("aiohttp", reason="fsspec reads http:// with aiohttp: pip install -e '.[http]'")
    handler = functools.partial(Quiet, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_files_from_the_web(web: str, tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.jsonl").write_bytes(DATA)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(DATA))
    assert read(JsonlReader([f"{web}/a.jsonl", f"{web}/b.jsonl.gz"])).rows == ROWS * 2


def test_a_large_file_from_a_server_without_ranges(web: str, tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.jsonl").write_bytes(DATA)
    result = read(JsonlReader(f"{web}/a.jsonl", blocksize=1000))
    assert len(result.batches) > 3
    assert result.rows == ROWS


def test_parquet_from_a_server_without_ranges(web: str, tmp_path: Path, read: Any) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert read(ParquetReader(f"{web}/a.parquet")).rows == ROWS


def test_a_directory_page_on_the_web(web: str, tmp_path: Path, read: Any) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.txt").write_text("hello")
    assert read(TextReader(f"{web}/d/")).rows == [{"text": "hello"}]


@pytest.mark.parametrize("reader", [JsonlReader, ParquetReader, TextReader])
def test_a_server_that_refuses(web: str, read: Any, reader: Any) -> None:
    with pytest.raises(DataError, match=r"a\.x: the server cannot be reached: .*\n  Check the address and the network"):
        read(reader("http://127.0.0.1:9/a.x"))
    with pytest.raises(DataError, match=r"forbidden/a\.x: the server answers 403 Forbidden"):
        read(reader(f"{web}/forbidden/a.x"))


def test_a_page_that_is_not_there(web: str, read: Any) -> None:
    with pytest.raises(DataError, match=r"nothing\.jsonl: there is no such file"):
        read(JsonlReader(f"{web}/nothing.jsonl"))
