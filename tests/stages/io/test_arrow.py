"""Reading Arrow files: streams and files with an index, what is broken, and rows that are read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.feather as feather
import pytest

from tamis.errors import ColumnError, DataError
from tamis.pipeline import Pipeline
from tamis.runs.source_rows import read_rows
from tamis.stages.io import ArrowReader, ParquetReader, ParquetWriter

ROWS = pa.table({"text": [f"row {i}" for i in range(1000)], "n": range(1000)})


def save(table: pa.Table, path: Path, rows: int = 300) -> None:
    """As the package datasets does: a stream, with metadata of its own in the schema."""
    schema = table.schema.with_metadata({"huggingface": "{}"})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        writer.write_table(table.cast(schema), max_chunksize=rows)


def test_a_stream_is_read(tmp_path: Path, read: Any) -> None:
    save(ROWS, tmp_path / "data-00000-of-00001.arrow")
    (tmp_path / "state.json").write_text("{}")
    found = read(ArrowReader(str(tmp_path)))
    assert found.rows == ROWS.to_pylist()
    assert found.batches[0].data.schema.metadata is None
    assert found.batches[0].names.to_texts()[999] == f"{tmp_path}/data-00000-of-00001.arrow:999"


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_a_file_with_an_index_is_read(tmp_path: Path, read: Any, compression: str) -> None:
    feather.write_feather(ROWS, str(tmp_path / "a.feather"), compression=compression, chunksize=300)
    found = read(ArrowReader(str(tmp_path), fields=["n"]))
    assert found.table.column_names == ["n"]
    assert found.table["n"].to_pylist() == list(range(1000))


def test_batches_have_about_a_block(tmp_path: Path, read: Any) -> None:
    wide = pa.table({"text": ["x" * 1000] * 1000})
    save(wide, tmp_path / "a.arrow", rows=1000)
    found = read(ArrowReader(str(tmp_path), blocksize="100KiB"))
    assert max(batch.num_items for batch in found.batches) <= 110
    assert [name for batch in found.batches for name in batch.names.positions.tolist()] == list(range(1000))


def test_columns_have_the_types_of_other_readers(tmp_path: Path, read: Any) -> None:
    table = pa.table(
        {
            "kind": pa.array(["a", "b", "a"]).dictionary_encode(),
            "view": pa.array(["x", None, "z"], pa.string_view()),
            "id": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16] * 3, pa.binary(16))),
        }
    )
    save(table, tmp_path / "a.arrow")
    found = read(ArrowReader(str(tmp_path))).table
    assert [str(kind) for kind in found.schema.types] == ["string", "string", "fixed_size_binary[16]"]
    assert found["kind"].to_pylist() == ["a", "b", "a"]
    assert ArrowReader(str(tmp_path)).schema().types == found.schema.types


def test_a_store_is_read_like_a_disk(read: Any) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
    fsspec.filesystem("memory").pipe_file("/arrow-rows/a.arrow", sink.getvalue().to_pybytes())
    assert read(ArrowReader("memory://arrow-rows")).rows == ROWS.to_pylist()


def test_what_is_no_arrow_file_is_an_error_that_names_it(tmp_path: Path, read: Any) -> None:
    (tmp_path / "a.arrow").write_bytes(b"not an Arrow file")
    with pytest.raises(DataError, match=r"a\.arrow: this is not an Arrow file"):
        read(ArrowReader(str(tmp_path)))
    (tmp_path / "a.arrow").write_bytes(b"")
    assert len(read(ArrowReader(str(tmp_path), on_error="quarantine")).bad) == 1
    save(ROWS, tmp_path / "a.arrow")
    with pytest.raises(DataError, match=r"no column 'txt', only text, n. Did you mean 'text'"):
        read(ArrowReader(str(tmp_path), fields=["txt"]))
    with pytest.raises(ColumnError, match="have no 'txt'"):
        ArrowReader(str(tmp_path), fields=["txt"]).schema()


def test_of_a_file_that_is_cut_off_the_rows_before_are_read(tmp_path: Path, read: Any) -> None:
    path = tmp_path / "a.arrow"
    save(ROWS, path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match="rows from 300 on"):
        read(ArrowReader(str(path)))
    found = read(ArrowReader(str(path), on_error="quarantine"))
    assert found.rows == ROWS.slice(0, 300).to_pylist()
    assert "rows from 300 on (batch 1) cannot be read" in found.bad[0].problem


def test_text_that_is_not_utf8_is_not_passed_on(tmp_path: Path, read: Any) -> None:
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe"))
    save(pa.table({"text": broken}), tmp_path / "a.arrow")
    assert "rows from 0 on" in read(ArrowReader(str(tmp_path), on_error="quarantine")).bad[0].problem


def test_rows_are_found_again_by_their_names(tmp_path: Path) -> None:
    save(ROWS, tmp_path / "a.arrow")
    found = read_rows(str(tmp_path / "a.arrow"), [999, 5, 5000], ["text"])
    assert [row.values for row in found] == [{"text": "row 999"}, {"text": "row 5"}, {}]
    assert "no row starts at this position" in found[2].problem


def test_a_run_gives_what_one_over_parquet_gives(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        save(ROWS.slice(300 * number, 300), tmp_path / "in" / f"data-{number}.arrow")
    written = Pipeline("p", stages=[ArrowReader(str(tmp_path / "in")), ParquetWriter(str(tmp_path / "out"))])
    written.run(progress="off", run_dir=str(tmp_path / "run"))
    (again,) = Pipeline("q", stages=[ParquetReader(str(tmp_path / "out"))]).run(
        progress="off", run_dir=str(tmp_path / "run2")
    )
    assert again.data.to_pylist() == ROWS.slice(0, 900).to_pylist()
