"""Ids of documents: they follow from file and row, whatever the blocks, the workers and what was added later."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import LocalExecutor
from tamis.errors import DataError, PlanError
from tamis.pipeline import Pipeline
from tamis.stages.deduplication.id_generator import (
    CURATOR_DEDUP_ID_STR,
    IDS_PER_FILE,
    IdGenerator,
    create_id_generator_actor,
    get_id_generator_actor,
    kill_id_generator_actor,
    write_id_generator_to_disk,
)
from tamis.stages.io import JsonlReader, ParquetReader
from tamis.stages.io.readers import Reader


@pytest.fixture
def actor() -> Iterator[None]:
    create_id_generator_actor()
    yield
    kill_id_generator_actor()


def write_lines(path: Path, numbers: range) -> None:
    path.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))


def ids(tmp_path: Path, reader: Reader, workers: int = 0) -> dict[int, int]:
    """The id of each row, by its number."""
    result = Pipeline("p", [reader]).run(
        LocalExecutor(workers=workers), run_dir=tmp_path / "run", progress="off", fresh=True
    )
    rows = [row for task in result for row in task.data.to_pylist()]
    return {row["n"]: row[CURATOR_DEDUP_ID_STR] for row in rows}


def test_ranges_are_given_once() -> None:
    generator = IdGenerator()
    assert [generator.register_batch(files, 10) for files in (["a", "b"], "c", ["a", "b"])] == [0, 10, 0]
    assert generator.get_batch_range(["a", "b"]) == (0, 9)
    assert generator.get_batch_range(key=generator.hash_files("c")) == (10, 19)
    with pytest.raises(KeyError):
        generator.get_batch_range("b")


def test_the_file_is_the_one_of_nemo_curator(tmp_path: Path) -> None:
    """The key is ``uuid5(NAMESPACE_URL, "a;b")``; the file may have no sizes."""
    path = tmp_path / "ids.json"
    key = str(uuid.uuid5(uuid.NAMESPACE_URL, "a;b"))
    path.write_text(json.dumps({"next_id": 7, "batch_registry": {key: [0, 6]}}))
    again = IdGenerator.from_disk(str(path))
    assert (again.get_batch_range(["a", "b"]), again.register_batch("c", 1)) == ((0, 6), 7)
    again.to_disk(str(path))
    written = json.loads(path.read_text())
    assert written["next_id"] == 8
    assert written["batch_registry"][key] == [0, 6]
    with pytest.raises(DataError, match="NeMo Curator numbers the rows of a group"):
        again.first_of_file("c")


@pytest.mark.usefixtures("actor")
def test_ids_do_not_depend_on_blocks_and_workers(tmp_path: Path) -> None:
    for number in range(3):
        write_lines(tmp_path / f"{number}.jsonl", range(50 * number, 50 * number + 50))
    path = str(tmp_path / "*.jsonl")
    first = ids(tmp_path, JsonlReader(path, _generate_ids=True))
    assert sorted(first) == list(range(150))
    assert sorted(first.values()) == [first[n] for n in range(150)]  # in the order of the input
    assert {value // IDS_PER_FILE for value in first.values()} == {0, 1, 2}
    assert ids(tmp_path, JsonlReader(path, blocksize="100B", _assign_ids=True), workers=4) == first
    assert ids(tmp_path, JsonlReader(path, files_per_partition=2, _generate_ids=True)) == first


@pytest.mark.usefixtures("actor")
def test_files_that_are_added_change_no_id(tmp_path: Path) -> None:
    write_lines(tmp_path / "b.jsonl", range(10))
    before = ids(tmp_path, JsonlReader(str(tmp_path / "*.jsonl"), _generate_ids=True))
    write_id_generator_to_disk(str(tmp_path / "ids.json"))
    kill_id_generator_actor()
    write_lines(tmp_path / "a.jsonl", range(10, 20))
    create_id_generator_actor(str(tmp_path / "ids.json"))
    with pytest.raises(DataError, match=r"a\.jsonl: this file has no ids"):
        ids(tmp_path, JsonlReader(str(tmp_path / "*.jsonl"), _assign_ids=True))
    after = ids(tmp_path, JsonlReader(str(tmp_path / "*.jsonl"), _generate_ids=True))
    assert {n: after[n] for n in range(10)} == before
    assert len(set(after.values())) == 20


@pytest.mark.usefixtures("actor")
def test_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "a.parquet")
    assert ids(tmp_path, ParquetReader(str(tmp_path / "a.parquet"), _generate_ids=True)) == {1: 0, 2: 1}
    pq.write_table(pa.table({"n": list(range(1000))}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="has changed since its rows were given ids"):
        ids(tmp_path, ParquetReader(str(tmp_path / "a.parquet"), _assign_ids=True))


@pytest.mark.usefixtures("actor")
def test_a_file_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", range(3))
    path = str(tmp_path / "a.jsonl")
    with pytest.raises(PlanError, match="is in the input twice"):
        ids(tmp_path, JsonlReader([path, path], _generate_ids=True))


def test_without_ids_the_reader_says_what_to_do(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", range(3))
    with pytest.raises(PlanError, match="call create_id_generator_actor"):
        ids(tmp_path, JsonlReader(str(tmp_path / "a.jsonl"), _generate_ids=True))
    with pytest.raises(PlanError, match="set only one"):
        JsonlReader("a", _generate_ids=True, _assign_ids=True)
    with pytest.raises(PlanError):
        get_id_generator_actor()
