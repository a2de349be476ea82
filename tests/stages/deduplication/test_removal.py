"""Removal by ids: any type of id, more ids than memory, and what is dropped is recorded."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.backends.local import LocalExecutor
from tamis.errors import ColumnError, DataError
from tamis.pipeline import Pipeline
from tamis.stages.deduplication import id_index
from tamis.stages.deduplication.id_index import IdIndex
from tamis.stages.deduplication.removal import RemoveByIds
from tamis.stages.io import ParquetReader
from tamis.stages.text.deduplication.removal import TextDuplicatesRemovalStage
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage


def write_ids(folder: Path, *parts: Any, name: str = "id") -> str:
    folder.mkdir(exist_ok=True)
    for number, ids in enumerate(parts):
        column = ids if isinstance(ids, pa.Array) else pa.array(ids)
        pq.write_table(pa.table({name: column}), folder / f"part.{number}.parquet", row_group_size=3)
    return str(folder)


@examples(40)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.lists(st.integers(-(2**63), 2**63 - 1)), st.integers(1, 8))
def test_numbers_are_found_whatever_the_memory(
    tmp_path_factory: pytest.TempPathFactory, listed: list[int], asked: list[int], ranges: int
) -> None:
    path = str(tmp_path_factory.mktemp("index") / "ids")
    pieces = [pa.chunked_array([pa.array(listed[i::3], pa.int64())]) for i in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_index, "_SAMPLE", 16 * max(1, len(listed) // ranges))
        index = IdIndex.build(path, "numbers", [pieces], budget=1)
    assert len(index) == len(set(listed))
    column = pa.chunked_array([pa.array([*asked, *listed, None], pa.int64())])
    assert index.contains(column).tolist() == [n in set(listed) for n in [*asked, *listed]] + [False]


@examples(40)
@given(st.lists(st.text()), st.lists(st.text()), st.booleans())
def test_texts_are_found(
    tmp_path_factory: pytest.TempPathFactory, listed: list[str], asked: list[str], same_halves: bool
) -> None:
    path = str(tmp_path_factory.mktemp("index") / "ids")
    with pytest.MonkeyPatch.context() as patch:
        if same_halves:  # the first halves of all hashes are equal: the second must decide
            real = id_index.hash_text_128
            patch.setattr(id_index, "hash_text_128", lambda column: real(column) * np.array([0, 1], np.uint64))
        pieces = [pa.chunked_array([pa.array(listed, pa.string())])]
        index = IdIndex.build(path, "texts", [pieces], budget=1)
        column = pa.chunked_array([pa.array([*asked, *listed], pa.large_string())])
        assert index.contains(column).tolist() == [text in set(listed) for text in [*asked, *listed]]


def rows_of(ids: list[Any], kind: pa.DataType | None = None) -> list[DocumentBatch]:
    table = pa.table({"doc": pa.array(ids, kind), "n": list(range(len(ids)))})
    return [DocumentBatch(table.slice(0, 4)), DocumentBatch(table.slice(4))]


@pytest.mark.parametrize(
    ("listed", "there"),
    [
        (pa.array([5, 3, 3], pa.int64()), pa.int32()),
        (pa.array([5, None, 3], pa.uint8()), pa.int64()),
        (pa.array(["5", "3"]), pa.large_string()),
        (pa.array([b"5", b"3"]), pa.string()),
        (pa.array(["3", "5"]).dictionary_encode(), pa.string()),
    ],
    ids=str,
)
def test_types_of_ids(tmp_path: Path, listed: pa.Array, there: pa.DataType) -> None:
    ids = write_ids(tmp_path / "ids", listed)
    is_number = pa.types.is_integer(there)
    given = [n if is_number else str(n) for n in range(8)]
    run = run_stage(RemoveByIds(ids, id_field="doc"), rows_of([*given, None], there))
    assert [row["n"] for row in run] == [0, 1, 2, 4, 6, 7, 8]
    assert [(drop.row["n"], drop.reason) for drop in run.dropped] == [(3, "duplicate"), (5, "duplicate")]


def test_ids_of_uuids_in_several_workers(tmp_path: Path) -> None:
    ids = [uuid.uuid5(uuid.NAMESPACE_URL, str(n)).bytes for n in range(3000)]
    column = pa.array(ids, pa.binary(16))
    pq.write_table(pa.table({"doc": column, "n": list(range(3000))}), tmp_path / "in.parquet", row_group_size=100)
    listed = write_ids(tmp_path / "ids", column.take(pa.array(range(0, 3000, 3))), column.slice(0, 10), name="doc")
    reader = ParquetReader(str(tmp_path / "in.parquet"), blocksize="2KiB")
    stage = RemoveByIds(listed, id_field="doc", drop_id_field=True)
    result = Pipeline("p", [reader, stage]).run(LocalExecutor(workers=3), run_dir=tmp_path / "run", progress="off")
    tables = [task.data for task in result]
    assert {name for table in tables for name in table.column_names} == {"n"}
    assert [n for table in tables for n in table["n"].to_pylist()] == [n for n in range(10, 3000) if n % 3]
    assert sum(result.stage("RemoveByIds").dropped.values()) == 3000 - len([n for n in range(10, 3000) if n % 3])
    assert result.drops().num_rows == sum(result.stage("RemoveByIds").dropped.values())


def test_the_column_of_the_files_is_found(tmp_path: Path) -> None:
    one = write_ids(tmp_path / "one", [1], name="_curator_dedup_id")
    assert [row["n"] for row in run_stage(RemoveByIds(one, id_field="doc"), rows_of([0, 1, 2]))] == [0, 2]
    stage = TextDuplicatesRemovalStage(one, id_field="doc")
    assert [row["n"] for row in run_stage(stage, rows_of([0, 1, 2]))] == [0, 2]
    pq.write_table(pa.table({"id": [0], "doc": [1]}), tmp_path / "both.parquet")
    both = RemoveByIds(tmp_path / "both.parquet", id_field="doc")
    assert [row["n"] for row in run_stage(both, rows_of([0, 1, 2]))] == [0, 2]
    pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "two.parquet")
    two = RemoveByIds(tmp_path / "two.parquet", id_field="doc")
    with pytest.raises(ColumnError, match=r"has no column 'doc' of ids, only a, b"):
        run_stage(two, rows_of([0]))


def test_an_index_can_be_used_when_its_file_is_gone(tmp_path: Path) -> None:
    """Workers share the file, and the first that ends removes it."""
    index = IdIndex.build(str(tmp_path / "ids"), "numbers", [[pa.chunked_array([[3, 1]])]], 2**20).opened()
    (tmp_path / "ids").unlink()
    assert index.contains(pa.chunked_array([[1, 2, 3]])).tolist() == [True, False, True]


def test_an_empty_directory_removes_nothing_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "ids").mkdir()
    stages = [RemoveByIds(tmp_path / "ids", id_field="doc")]
    result = Pipeline("p", stages).run(initial_tasks=rows_of([1, 2]), run_dir=tmp_path / "run", progress="off")
    assert sum(task.num_items for task in result) == 2
    assert [note for note in result.summary.notes if "no files of ids" in note]
    with pytest.raises(DataError, match="nowhere"):
        Pipeline("p", [RemoveByIds(tmp_path / "nowhere", id_field="doc")]).plan(initial=DocumentBatch)


def test_ids_that_can_never_be_equal_are_refused(tmp_path: Path) -> None:
    ids = write_ids(tmp_path / "ids", ["a"])
    with pytest.raises(Exception, match="they can never be equal"):
        run_stage(RemoveByIds(ids, id_field="doc"), rows_of([1]))
    with pytest.raises(ColumnError, match="ids are integers, texts or bytes"):
        run_stage(RemoveByIds(write_ids(tmp_path / "floats", [1.5]), id_field="doc"), rows_of([1]))


def test_other_ids_are_another_run(tmp_path: Path) -> None:
    """A run that is started again after the files of ids have changed does its work again."""
    reader_rows = pa.table({"doc": [1, 2, 3]})
    pq.write_table(reader_rows, tmp_path / "in.parquet")

    def left(*listed: int) -> list[int]:
        ids = write_ids(tmp_path / "ids", list(listed))
        stages = [ParquetReader(str(tmp_path / "in.parquet")), RemoveByIds(ids, id_field="doc")]
        result = Pipeline("p", stages).run(run_dir=tmp_path / "run", progress="off")
        return [n for task in result for n in task.data["doc"].to_pylist()]

    assert left(1) == [2, 3]
    assert left(1, 3) == [2]
