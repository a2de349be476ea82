"""Output in files of about equal size."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from property_tests import examples

from tamis.errors import PlanError
from tamis.stages.base import WorkerMetadata
from tamis.stages.emit import Publish
from tamis.stages.io import CsvReader, CsvWriter, JsonlReader, JsonlWriter, ParquetReader, ParquetWriter, TextWriter
from tamis.tasks import DocumentBatch


def batches(sizes: list[int]) -> list[pa.Table]:
    start, tables = 0, []
    for size in sizes:
        tables.append(pa.table({"text": [f"row {i:06d}" for i in range(start, start + size)]}))
        start += size
    return tables


def rows_of(tables: list[pa.Table]) -> list[dict[str, Any]]:
    return [row for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("compression", [None, "gz", "zst"])
@pytest.mark.parametrize(("writer", "reader"), [(JsonlWriter, JsonlReader), (CsvWriter, CsvReader)])
def test_small_outputs_are_put_together(
    tmp_path: Path, read: Any, write: Any, writer: Any, reader: Any, compression: str | None
) -> None:
    tables = batches([50] * 40)
    groups = write(writer(str(tmp_path / "out"), shard_bytes="4kB", compression=compression), tables)
    sizes = [g.slices[0].size for g in groups]
    assert 1 < len(sizes) < 30
    assert max(sizes) <= 4000
    assert [Path(g.data[0]).name for g in groups] == sorted(Path(g.data[0]).name for g in groups)
    assert read(reader(str(tmp_path / "out"))).rows == rows_of(tables)


def test_parquet_shards_keep_row_groups(tmp_path: Path, read: Any, write: Any) -> None:
    tables = batches([500] * 10)
    groups = write(ParquetWriter(str(tmp_path / "out"), shard_bytes="6kB"), tables)
    assert 1 < len(groups) < 10
    assert pq.ParquetFile(groups[0].data[0]).num_row_groups > 1
    assert read(ParquetReader(str(tmp_path / "out"))).rows == rows_of(tables)


def test_text_shards(tmp_path: Path, write: Any) -> None:
    [group] = write(TextWriter(str(tmp_path / "out"), shard_bytes="1MB"), batches([2, 1]))
    assert Path(group.data[0]).read_text() == "row 000000\nrow 000001\nrow 000002\n"


@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 400), min_size=1, max_size=12), limit=st.integers(200, 5000))
def test_no_shard_is_too_large_and_no_row_is_lost(
    tmp_path: Path, read: Any, write: Any, sizes: list[int], limit: int
) -> None:
    target = tmp_path / f"{sum(sizes)}-{limit}-{len(sizes)}"
    groups = write(JsonlWriter(str(target), shard_bytes=limit, mode="overwrite"), batches(sizes))
    assert all(g.slices[0].size <= limit for g in groups)
    found = read(JsonlReader(str(target))).rows if groups else []
    assert found == rows_of(batches(sizes))


def test_a_large_batch_is_divided(tmp_path: Path, read: Any, write: Any) -> None:
    [table] = batches([2000])
    groups = write(JsonlWriter(str(tmp_path / "out"), shard_bytes=5000), [table])
    assert len(groups) > 5
    assert all(g.slices[0].size <= 5000 for g in groups)
    assert read(JsonlReader(str(tmp_path / "out"))).rows == table.to_pylist()


def test_a_single_row_may_be_larger_than_a_shard(tmp_path: Path, read: Any, write: Any) -> None:
    table = pa.table({"text": ["x" * 5000, "y"]})
    write(JsonlWriter(str(tmp_path / "out"), shard_bytes=100), [table])
    assert read(JsonlReader(str(tmp_path / "out"))).rows == table.to_pylist()


def test_a_shard_is_named_after_its_first_piece(tmp_path: Path, write: Any) -> None:
    groups = write(JsonlWriter(str(tmp_path / "out"), shard_bytes="1MB"), batches([3, 3]), orders=[(7,), (8, 2)])
    assert [Path(g.data[0]).name for g in groups] == ["part-000007-0000.jsonl"]


def test_the_same_pieces_give_the_same_bytes(tmp_path: Path, write: Any) -> None:
    for name in ("one", "two"):
        write(JsonlWriter(str(tmp_path / name), shard_bytes="4kB", compression="gz"), batches([50] * 20))
    one = {p.name: p.read_bytes() for p in (tmp_path / "one").glob("part-*")}
    assert one == {p.name: p.read_bytes() for p in (tmp_path / "two").glob("part-*")}


def test_a_csv_shard_has_one_header(tmp_path: Path, write: Any) -> None:
    [group] = write(CsvWriter(str(tmp_path / "out"), shard_bytes="1MB", compression="gz"), batches([1, 1, 1]))
    assert gzip.decompress(Path(group.data[0]).read_bytes()).count(b"text") == 1


def test_csv_batches_with_other_columns_go_to_other_shards(tmp_path: Path, write: Any) -> None:
    tables = [pa.table({"a": ["x"]}), pa.table({"b": ["y"]}), pa.table({"a": ["z"]})]
    assert len(write(CsvWriter(str(tmp_path / "out"), shard_bytes="1MB"), tables)) == 2


def test_parquet_batches_with_other_types_share_a_shard(tmp_path: Path, write: Any) -> None:
    tables = [pa.table({"a": [1], "m": [{}]}), pa.table({"b": ["y"], "m": [{"k": 1}]}), pa.table({"a": [0.5]})]
    [group] = write(ParquetWriter(str(tmp_path / "out"), shard_bytes="1MB"), tables)
    assert pq.read_table(group.data[0]).to_pylist() == [
        {"a": 1.0, "m": {"k": None}, "b": None},
        {"a": None, "m": {"k": 1}, "b": "y"},
        {"a": 0.5, "m": None, "b": None},
    ]


def test_shards_for_each_value(tmp_path: Path, write: Any) -> None:
    tables = [pa.table({"text": [f"{i}", f"{i}!"], "lang": ["en", "de"]}) for i in range(3)]
    groups = write(JsonlWriter(str(tmp_path / "out"), shard_bytes="1MB", partition_by="lang"), tables)
    found = {str(Path(g.data[0]).relative_to(tmp_path / "out")): g.data[0] for g in groups}
    assert sorted(Path(name).parent.name for name in found) == ["lang=de", "lang=en"]
    english = next(path for path in found.values() if "lang=en" in path)
    assert [json.loads(line)["text"] for line in Path(english).read_text().splitlines()] == ["0", "1", "2"]


def test_rows_are_counted(tmp_path: Path) -> None:
    pieces, merge = JsonlWriter(str(tmp_path / "out"), shard_bytes="1MB").decompose()
    pieces.setup(WorkerMetadata(scratch=str(tmp_path / "scratch")))
    made = []
    for i, table in enumerate(batches([3, 4])):
        [piece] = pieces.process(DocumentBatch(table, order=(i,), task_id=f"t{i}"))  # type: ignore[misc]  # an iterator
        made.append(piece)
    finished = next(iter(merge.process_batch(made)))
    assert isinstance(finished, Publish)
    assert finished.rows == 7


def test_pieces_are_in_the_directory_of_the_run_and_stay_there(tmp_path: Path, write: Any) -> None:
    write(JsonlWriter(str(tmp_path / "out"), shard_bytes="1MB"), batches([3, 3]))
    assert len([p for p in (tmp_path / "scratch").rglob("*") if p.is_file()]) == 2


def test_two_writers_do_not_share_pieces(tmp_path: Path, read: Any, write: Any) -> None:
    table = pa.table({"a": ["x"], "b": ["y"]})
    for field in ("a", "b"):
        write(JsonlWriter(str(tmp_path / field), fields=[field], shard_bytes="1MB"), [table])
    pieces = [p.read_text() for p in (tmp_path / "scratch").rglob("*.jsonl")]
    assert sorted(pieces) == ['{"a":"x"}\n', '{"b":"y"}\n']


def test_shards_need_a_run_directory(tmp_path: Path) -> None:
    pieces, _ = JsonlWriter(str(tmp_path), shard_bytes="1MB").decompose()
    with pytest.raises(PlanError, match="shard_bytes needs a run directory"):
        pieces.setup(WorkerMetadata())
