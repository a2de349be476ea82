"""Reading Parquet: row groups by range, other schemas, broken files."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from property_tests import examples

from tamis.errors import DataError, PlanError
from tamis.pipeline import Pipeline
from tamis.stages.io import ParquetReader, ParquetReaderStage, ParquetWriter
from tamis.tasks import FileGroup, FileSlice

TABLE = pa.table({"text": [f"row {i}" for i in range(1000)], "n": range(1000)})


def test_a_file_is_read_whole(tmp_path: Path, read: Any) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    assert read(ParquetReader(str(tmp_path))).rows == TABLE.to_pylist()


def test_a_large_file_is_read_in_ranges(tmp_path: Path, read: Any) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=50)
    result = read(ParquetReader(str(tmp_path), blocksize=4096))
    assert len(result.batches) > 3
    assert result.rows == TABLE.to_pylist()


@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(group=st.integers(1, 400), cuts=st.lists(st.floats(0, 1), max_size=8))
def test_any_cut_into_ranges_reads_each_row_group_once(tmp_path: Path, group: int, cuts: list[float]) -> None:
    path = tmp_path / f"{group}.parquet"
    if not path.exists():
        pq.write_table(TABLE, path, row_group_size=group)
    size = path.stat().st_size
    edges = sorted({0, size, *(int(c * size) for c in cuts)})
    found = []
    for start, stop in itertools.pairwise(edges):
        task = FileGroup([str(path)], slices=[FileSlice(str(path), start, stop, size)])
        for batch in ParquetReaderStage().process(task):
            found += batch.data["n"].to_pylist()  # type: ignore[union-attr]  # no bad rows
    assert found == list(range(1000))


def test_a_row_group_larger_than_a_block_comes_in_several_batches(tmp_path: Path, read: Any) -> None:
    table = pa.table({"text": [f"{i}" + "x" * 500 for i in range(1000)]})
    pq.write_table(table, tmp_path / "a.parquet", compression="none", use_dictionary=False)
    result = read(ParquetReader(str(tmp_path), blocksize=50_000))
    assert len(result.batches) > 5
    assert result.rows == table.to_pylist()


def test_small_files_become_one_batch(tmp_path: Path, read: Any) -> None:
    for i in range(50):
        pq.write_table(TABLE.slice(i, 1), tmp_path / f"{i:02d}.parquet")
    result = read(ParquetReader(str(tmp_path), include_path="path"))
    assert len(result.batches) == 1
    assert [Path(r["path"]).stem for r in result.rows] == [f"{i:02d}" for i in range(50)]
    assert [r["n"] for r in result.rows] == list(range(50))


def test_other_columns_and_wider_types_go_together(tmp_path: Path, read: Any) -> None:
    pq.write_table(pa.table({"a": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [1.5], "b": ["x"]}), tmp_path / "b.parquet")
    assert read(ParquetReader(str(tmp_path))).rows == [{"a": 1.0, "b": None}, {"a": 1.5, "b": "x"}]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([2**60 + 1]), pa.array([1.5])),
        (pa.array([-1]), pa.array([2**64 - 1], pa.uint64())),
        (pa.array([[2**60 + 1]]), pa.array([[0.5]])),
        (pa.array([{"a": 2**60 + 1}]), pa.array([{"a": 0.5}])),
        (pa.array([1], pa.timestamp("s")), pa.array([1], pa.timestamp("ns"))),
        (pa.array(["x"]), pa.array([b"\xff"])),
    ],
)
@pytest.mark.parametrize("files_per_partition", [1, 3])
def test_files_whose_types_differ_in_what_they_can_hold_become_batches_of_their_own(
    tmp_path: Path, read: Any, one: pa.Array, other: pa.Array, files_per_partition: int
) -> None:
    for name, values in (("a", one), ("b", other), ("c", one)):
        pq.write_table(pa.table({"v": values}), tmp_path / f"{name}.parquet")
    result = read(ParquetReader(str(tmp_path), files_per_partition=files_per_partition, include_path="path"))
    assert [b.data["v"].to_pylist() for b in result.batches] == [v.to_pylist() for v in (one, other, one)]
    read_back = [pq.read_table(tmp_path / f"{name}.parquet")["v"].type for name in "abc"]
    assert [b.data["v"].type for b in result.batches] == read_back


def test_a_file_that_names_a_column_twice_is_an_error(tmp_path: Path, read: Any) -> None:
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: there are two columns 'a'"):
        read(ParquetReader(str(tmp_path)))


@pytest.mark.parametrize("broken", ["no parquet", "cut off", "empty"])
def test_a_broken_file_is_named(tmp_path: Path, read: Any, broken: str) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    content = {"no parquet": b"hello " * 100, "cut off": whole[: len(whole) // 2], "empty": b""}[broken]
    (tmp_path / "b.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"b\.parquet: this is not a Parquet file, or it is cut off: "):
        read(ParquetReader(str(tmp_path)))
    result = read(ParquetReader(str(tmp_path), on_error="quarantine"))
    assert result.table.num_rows == 1000
    [bad] = result.bad
    assert (Path(bad.path).name, bad.line, bad.byte) == ("b.parquet", None, None)


def test_a_damaged_page_is_an_error(tmp_path: Path, read: Any) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=500)
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    start = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(1).column(0).data_page_offset
    data[start : start + 60] = b"\xff" * 60
    (tmp_path / "a.parquet").write_bytes(data)
    with pytest.raises(DataError, match=r"a\.parquet: row groups? .* cannot be read"):
        read(ParquetReader(str(tmp_path)))


@pytest.mark.parametrize("blocksize", [None, 3000])
def test_row_groups_beside_a_damaged_one_are_read(tmp_path: Path, read: Any, blocksize: int | None) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=100)
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    column = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(4).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + 60] = b"\xff" * 60
    (tmp_path / "a.parquet").write_bytes(data)
    result = read(ParquetReader(str(tmp_path), on_error="quarantine", blocksize=blocksize))
    assert [r["n"] for r in result.rows] == [*range(400), *range(500, 1000)]
    [bad] = result.bad
    assert bad.problem.startswith("row group 4 of 100 rows cannot be read: ")


def test_only_chosen_columns_are_read(tmp_path: Path, read: Any) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    assert read(ParquetReader(str(tmp_path), fields=["n"])).table.column_names == ["n"]


def test_a_missing_column_is_an_error(tmp_path: Path, read: Any) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"there is no column 'txet', only text, n\. Did you mean 'text'\?"):
        read(ParquetReader(str(tmp_path), fields=["txet"]))


def test_columns_are_known_from_the_footer(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    assert ParquetReader(str(tmp_path)).columns() == ["text", "n"]
    assert ParquetReader(str(tmp_path / "missing")).columns() is None


def test_a_file_without_rows_gives_no_batch(tmp_path: Path, read: Any) -> None:
    pq.write_table(TABLE.slice(0, 0), tmp_path / "a.parquet")
    assert read(ParquetReader(str(tmp_path))).batches == []


def test_arguments_of_the_parser_are_passed_on(tmp_path: Path, read: Any) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    table = read(ParquetReader(str(tmp_path), read_kwargs={"read_dictionary": ["text"]})).table
    assert pa.types.is_dictionary(table.schema.field("text").type)
    with pytest.raises(PlanError, match=r"Did you mean 'read_dictionary'\?"):
        ParquetReader("data", read_kwargs={"read_dictionnary": ["text"]})


def test_text_that_is_no_utf8_is_refused_or_set_aside(tmp_path: Path, read: Any) -> None:
    broken = pa.StringArray.from_buffers(2, pa.py_buffer(b"\0\0\0\0\2\0\0\0\3\0\0\0"), pa.py_buffer(b"ok\xff"))
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema({"text": pa.string()})) as writer:
        writer.write_table(pa.table({"text": ["fine"]}))
        writer.write_table(pa.table({"text": broken}))
    with pytest.raises(DataError, match=r"row group 1 .*UTF8"):
        read(ParquetReader(str(tmp_path)))
    result = read(ParquetReader(str(tmp_path), on_error="quarantine"))
    assert result.rows == [{"text": "fine"}]
    assert [bad.problem.startswith("row group 1 of 2 rows") for bad in result.bad] == [True]


def test_a_file_with_one_large_row_group_gets_a_note(tmp_path: Path) -> None:
    rows = [{"text": f"{i}" * 50} for i in range(5000)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", compression="none")
    pipeline = Pipeline("p", stages=[ParquetReader(tmp_path, blocksize="16KiB")])
    note = (
        r"note: ParquetReader: .*a.parquet is .* KiB large and has only 1 row group. A row group is read by one worker"
    )
    assert re.search(note, str(pipeline.plan()))
    assert "note:" not in str(Pipeline("p", stages=[ParquetReader(tmp_path)]).plan())


def test_structs_without_fields_come_back(tmp_path: Path, write: Any, read: Any) -> None:
    kinds = {"meta": pa.struct([]), "list": pa.large_list(pa.struct([])), "in": pa.struct([("deep", pa.struct([]))])}
    rows = [{"meta": {}, "list": [{}, None], "in": {"deep": {}}}, {"meta": None, "list": [], "in": None}]
    table = pa.Table.from_pylist(rows, schema=pa.schema(kinds))
    write(ParquetWriter(tmp_path / "out"), [table])
    result = read(ParquetReader(tmp_path / "out"))
    assert result.table.schema.equals(table.schema)
    assert result.rows == rows
    assert pl.read_parquet(tmp_path / "out" / "part-000000.parquet").height == 2
