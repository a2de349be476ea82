"""Deduplication from files to files: against plain Python, in any order of files, and going on after a change."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import LocalExecutor
from tamis.errors import ColumnError, DataError, PlanError
from tamis.pipeline import Pipeline
from tamis.pipeline.workflow import WorkflowRunResult
from tamis.stages.deduplication.exact.workflow import ExactDeduplicationWorkflow
from tamis.stages.deduplication.fuzzy import (
    BucketsToEdgesStage,
    ConnectedComponentsStage,
    FuzzyDeduplication,
    IdentifyDuplicatesStage,
    LSHStage,
    MinHashStage,
    keyed_ids,
)
from tamis.stages.deduplication.fuzzy.lsh import stage as lsh
from tamis.stages.deduplication.fuzzy.workflow import FuzzyDeduplicationWorkflow
from tamis.stages.deduplication.id_generator import CURATOR_DEDUP_ID_STR, IDS_PER_FILE, IdGenerator
from tamis.stages.io import FilePartitioningStage, JsonlReader, ParquetReader
from tamis.stages.text.deduplication import TextDuplicatesRemovalWorkflow
from tamis.tasks import FileGroup

Row = dict[str, Any]


def equal_texts(count: int) -> list[Row]:
    drawn = random.Random(3)
    return [{"n": n, "text": f"text {drawn.randrange(count // 3)}", "score": drawn.random()} for n in range(count)]


def similar_texts(count: int) -> list[Row]:
    drawn = random.Random(4)
    words = [f"word{n}" for n in range(2000)]
    originals = [drawn.choices(words, k=150) for _ in range(count // 4)]
    rows = []
    for n in range(count):
        text = list(drawn.choice(originals))
        for _ in range(drawn.choice([0, 1, 2, 40])):
            text[drawn.randrange(len(text))] = drawn.choice(words)
        rows.append({"n": n, "text": " ".join(text)})
    return rows


def write(folder: Path, rows: list[Row], files: int, kind: str = "jsonl") -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    size, paths = -(-len(rows) // files), []
    for number in range(files):
        path = folder / f"{number}.{kind}"
        some = rows[size * number : size * number + size]
        if kind == "jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in some))
        else:
            pq.write_table(pa.Table.from_pylist(some), path, row_group_size=20)
        paths.append(str(path))
    return paths


def written(folder: Path) -> list[Row]:
    rows: list[Row] = []
    for path in sorted(folder.iterdir()):
        if path.suffix == ".jsonl":
            rows += map(json.loads, path.read_text().splitlines())
        elif path.suffix == ".parquet":
            rows += pq.read_table(path).to_pylist()
    return rows


def parts(folder: Path) -> Iterator[pa.Table]:
    return (pq.read_table(path) for path in sorted(folder.rglob("part.*.parquet")))


def removed_ids(folder: Path) -> list[int]:
    return sorted(n for table in parts(folder) for n in table.column(0).to_pylist())


def firsts(rows: list[Row]) -> list[int]:
    seen: dict[str, int] = {}
    for row in rows:
        seen.setdefault(row["text"], row["n"])
    return sorted(seen.values())


# -- exact ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_exact_duplicates_are_listed_and_removed(tmp_path: Path, kind: str) -> None:
    rows = equal_texts(120)
    paths = write(tmp_path / "in", rows, 4, kind)
    found = set()
    given: list[Any] = [str(tmp_path / "in"), paths, paths[::-1]]
    for number, (source, workers) in enumerate(zip(given, (1, 4, 0), strict=True)):
        out = tmp_path / f"out{number}"
        workflow = ExactDeduplicationWorkflow(
            out, source, kind, input_blocksize=("64MiB", "500B", "1KiB")[number], perform_removal=True
        )
        result = workflow.run(executor=LocalExecutor(workers=workers), progress="off")
        kept = written(out / "deduplicated")
        assert [row["n"] for row in kept] == firsts(rows)
        assert all(row.keys() == {"n", "text", "score"} for row in kept)
        assert result.get_metadata("num_duplicates") == result.get_metadata("num_duplicates_removed")
        assert result.get_metadata("num_duplicates") == 120 - len(kept)
        assert result.get_metadata("id_generator_path") == str(out / "exact_id_generator.json")
        assert {"input_filegroups_time", "identification_time", "total_time"} <= result.metadata.keys()
        assert [task._metadata["num_removal_ids"] for task in result.pipeline_tasks["identification"]]
        ids = removed_ids(out / "ExactDuplicateIds")
        assert len(ids) == result.get_metadata("num_duplicates")
        assert all(t.column(0).to_pylist() == sorted(t.column(0).to_pylist()) for t in parts(out / "ExactDuplicateIds"))
        found.add(tuple(ids))
    assert len(found) == 1


def test_exact_by_ids_of_ones_own(tmp_path: Path) -> None:
    rows = [{**row, "doc": f"doc {row['n']}"} for row in equal_texts(60)]
    write(tmp_path / "in", rows, 2)
    workflow = ExactDeduplicationWorkflow(
        tmp_path / "out",
        tmp_path / "in",
        "jsonl",
        assign_id=False,
        id_field="doc",
        perform_removal=True,
        keep="highest:score",
    )
    result = workflow.run(executor=LocalExecutor(workers=2), progress="off")
    best: dict[str, Row] = {}
    for row in rows:
        best[row["text"]] = max(best.get(row["text"], row), row, key=lambda row: row["score"])
    assert written(tmp_path / "out" / "deduplicated") == [row for row in rows if best[row["text"]] is row]
    assert not (tmp_path / "out" / "exact_id_generator.json").exists()
    assert result.get_metadata("id_generator_path") is None


@pytest.mark.parametrize(("ids", "problem"), [([1, 1], "have the same 'doc', 1"), ([1, None], "have no 'doc'")])
def test_ids_that_would_remove_the_wrong_rows(tmp_path: Path, ids: list[int | None], problem: str) -> None:
    write(tmp_path / "in", [{"doc": doc, "text": "same"} for doc in ids], 1)
    workflow = ExactDeduplicationWorkflow(tmp_path / "out", tmp_path / "in", "jsonl", assign_id=False, id_field="doc")
    with pytest.raises(Exception, match=problem):
        workflow.run(executor=LocalExecutor(workers=0, retries=0), progress="off", failure_budget=0)


def test_what_was_done_is_not_done_again_and_new_files_are_added(tmp_path: Path) -> None:
    rows = equal_texts(90)
    write(tmp_path / "in", rows[:60], 2)

    def run() -> WorkflowRunResult:
        workflow = ExactDeduplicationWorkflow(
            tmp_path / "out", tmp_path / "in", "jsonl", input_blocksize="1KiB", perform_removal=True
        )
        return workflow.run(executor=LocalExecutor(workers=2), progress="off")

    first = run()
    before = removed_ids(tmp_path / "out" / "ExactDuplicateIds")
    again = run()
    assert again.get_metadata("num_duplicates") == first.get_metadata("num_duplicates") == len(before)
    write(tmp_path / "in" / "0 more", rows[60:], 1)  # comes first in the listing, and gets ids after the others
    run()
    after = removed_ids(tmp_path / "out" / "ExactDuplicateIds")
    assert len(after) == 90 - len({row["text"] for row in rows})
    assert max(after) // IDS_PER_FILE <= 2
    assert sorted({row["text"] for row in written(tmp_path / "out" / "deduplicated")}) == sorted(
        {row["text"] for row in rows}
    )
    assert len(written(tmp_path / "out" / "deduplicated")) == 90 - len(after)


def test_without_duplicates_everything_stays(tmp_path: Path) -> None:
    rows = [{"n": n, "text": f"{n} " * 30} for n in range(20)]
    write(tmp_path / "in", rows, 2)
    exact = ExactDeduplicationWorkflow(tmp_path / "exact", tmp_path / "in", "jsonl", perform_removal=True)
    fuzzy = FuzzyDeduplicationWorkflow(
        tmp_path / "cache", tmp_path / "fuzzy", tmp_path / "in", "jsonl", perform_removal=True
    )
    for name, workflow in (("exact", exact), ("fuzzy", fuzzy)):
        result = workflow.run(executor=LocalExecutor(workers=2), progress="off")
        assert result.get_metadata("num_duplicates") == result.get_metadata("num_duplicates_removed") == 0
        assert written(tmp_path / name / "deduplicated") == rows


# -- fuzzy ------------------------------------------------------------------------------------------------------------


def run_fuzzy(tmp_path: Path, name: str, source: Any, workers: int, **settings: Any) -> WorkflowRunResult:
    workflow = FuzzyDeduplicationWorkflow(
        tmp_path / name / "cache", tmp_path / name / "out", source, "jsonl", perform_removal=True, **settings
    )
    return workflow.run(executor=LocalExecutor(workers=workers), progress="off")


def test_the_fuzzy_workflow_removes_what_the_stage_removes(tmp_path: Path) -> None:
    rows = similar_texts(120)
    paths = write(tmp_path / "in", rows, 3)
    run = Pipeline("p", [JsonlReader(str(tmp_path / "in")), FuzzyDeduplication()]).run(
        LocalExecutor(workers=0), run_dir=tmp_path / "run", progress="off"
    )
    expected = [row for task in run for row in task.data.to_pylist()]
    assert 20 < len(expected) < 100
    first = run_fuzzy(tmp_path, "a", str(tmp_path / "in"), 1)
    second = run_fuzzy(tmp_path, "b", paths[::-1], 4, input_blocksize="9KiB", bands_per_iteration=7)
    for name, result in (("a", first), ("b", second)):
        assert written(tmp_path / name / "out" / "deduplicated") == expected
        assert result.get_metadata("num_duplicates") == 120 - len(expected)
        assert result.get_metadata("num_duplicates_removed") == 120 - len(expected)
        times = {"minhash_time", "lsh_time", "connected_components_pipeline_time", "total_time"}
        assert times <= result.metadata.keys()
        assert [*result.pipeline_tasks] == ["minhash", "lsh", "connected_components", "removal"]
    ids = [removed_ids(tmp_path / name / "out" / "FuzzyDuplicateIds") for name in "ab"]
    assert ids[0] == ids[1]


def test_the_files_between_the_steps(tmp_path: Path) -> None:
    write(tmp_path / "in", similar_texts(40), 2)
    run_fuzzy(tmp_path, "a", str(tmp_path / "in"), 2, bands_per_iteration=8)
    cache = tmp_path / "a" / "cache"
    signatures = pq.read_table([str(p) for p in (cache / "MinHashStage").glob("*.parquet")])
    assert signatures.column_names == [CURATOR_DEDUP_ID_STR, "_minhash_signature"]
    assert {len(signature) for signature in signatures["_minhash_signature"].to_pylist()} == {260}
    assert sorted(p.name for p in (cache / "LSHStage").glob("band*")) == [
        "band_0-band_8",
        "band_16-band_20",
        "band_8-band_16",
    ]
    for table in parts(cache / "LSHStage"):
        assert table.column_names == ["_bucket_id", CURATOR_DEDUP_ID_STR]
        assert all(len(ids) > 1 and ids == sorted(ids) for ids in table[CURATOR_DEDUP_ID_STR].to_pylist())
    for table in parts(cache / "BucketsToEdgesStage"):
        assert table.column_names == [f"{CURATOR_DEDUP_ID_STR}_x", f"{CURATOR_DEDUP_ID_STR}_y"]
    groups = pa.concat_tables(parts(cache / "ConnectedComponentsStage")).to_pydict()
    removed = [i for i, g in zip(groups[CURATOR_DEDUP_ID_STR], groups["_duplicate_group_id"], strict=True) if i != g]
    assert removed_ids(tmp_path / "a" / "out" / "FuzzyDuplicateIds") == sorted(removed)
    kept = IdGenerator.from_disk(str(tmp_path / "a" / "out" / "fuzzy_id_generator.json"))
    assert kept.get_batch_range(str(tmp_path / "in" / "1.jsonl")) == (IDS_PER_FILE, 2 * IDS_PER_FILE - 1)


@pytest.mark.parametrize("at_once", [50, 5000])
def test_memory_does_not_change_the_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Also where the documents of one bucket are more than a task may hold."""
    rows = [*similar_texts(30), *({"n": 30 + n, "text": "the very same text " * 5} for n in range(60))]
    write(tmp_path / "in", rows, 6)
    seen: list[int] = []
    make = lsh._buckets

    def measured(rows: Any, field: str) -> pa.Table:
        seen.append(len(rows.keys))
        return make(rows, field)

    monkeypatch.setattr(lsh, "_buckets", measured)
    real = keyed_ids.KeyCells.splits

    def few(self: Any, scratch: str) -> Iterator[FileGroup]:
        self.memory_bytes = at_once * keyed_ids._WORKING * (os.cpu_count() or 1)
        return real(self, scratch)

    monkeypatch.setattr(keyed_ids.KeyCells, "splits", few)
    settings = {"num_bands": 2, "minhashes_per_band": 4, "bands_per_iteration": 2, "lsh_num_output_partitions": 1}
    run_fuzzy(tmp_path, "b", str(tmp_path / "in"), 0, input_blocksize="1KiB", **settings)
    small = max(seen)
    monkeypatch.undo()
    run_fuzzy(tmp_path, "c", str(tmp_path / "in"), 0, **settings)
    assert written(tmp_path / "b" / "out" / "deduplicated") == written(tmp_path / "c" / "out" / "deduplicated")
    assert small < 120 or at_once > 1000


def test_the_stages_by_hand(tmp_path: Path) -> None:
    """The steps as stages of pipelines of one's own, on documents that have ids."""
    rows = [{CURATOR_DEDUP_ID_STR: 7 * row["n"], "text": row["text"]} for row in similar_texts(60)]
    write(tmp_path / "in", rows, 2, "parquet")
    out = str(tmp_path / "out")
    stages = [
        ParquetReader(str(tmp_path / "in")),
        MinHashStage(out, num_hashes=40, char_ngrams=20),
        LSHStage(10, 4, output_path=out, bands_per_iteration=10),
        BucketsToEdgesStage(out),
        ConnectedComponentsStage(out),
        IdentifyDuplicatesStage(output_path=out),
    ]
    result = Pipeline("by hand", stages).run(LocalExecutor(workers=2), run_dir=tmp_path / "run", progress="off")
    found = removed_ids(tmp_path / "out" / "FuzzyDuplicateIds")
    stage = FuzzyDeduplication(num_bands=10, minhashes_per_band=4, char_ngrams=20)
    other = Pipeline("p", [ParquetReader(str(tmp_path / "in")), stage]).run(run_dir=tmp_path / "r", progress="off")
    kept = {row[CURATOR_DEDUP_ID_STR] for task in other for row in task.data.to_pylist()}
    assert found == sorted({row[CURATOR_DEDUP_ID_STR] for row in rows} - kept)
    assert sum(task._metadata["num_removal_ids"] for task in result) == len(found) > 0


def test_signatures_of_another_length_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "in", [{CURATOR_DEDUP_ID_STR: 1, "text": "a"}], 1, "parquet")
    stages = [
        ParquetReader(str(tmp_path / "in")),
        MinHashStage(str(tmp_path)),
        LSHStage(3, 5, output_path=str(tmp_path), bands_per_iteration=1),
    ]
    with pytest.raises(DataError, match="signatures have 260 numbers, and 3 bands of 5 need 15"):
        Pipeline("p", stages).run(
            LocalExecutor(workers=0, retries=0), run_dir=tmp_path / "run", progress="off", failure_budget=0
        )


# -- arguments --------------------------------------------------------------------------------------------------------


def test_files_may_be_given_as_tasks(tmp_path: Path) -> None:
    rows = equal_texts(40)
    write(tmp_path / "in", rows, 2)
    tasks = list(FilePartitioningStage(str(tmp_path / "in"), files_per_partition=1).splits(""))
    workflow = ExactDeduplicationWorkflow(tmp_path / "out", input_filetype="jsonl")
    result = workflow.run(tasks, LocalExecutor(workers=0), progress="off")
    removal = TextDuplicatesRemovalWorkflow(
        None,
        tmp_path / "out" / "ExactDuplicateIds",
        tmp_path / "clean",
        "jsonl",
        id_generator_path=result.get_metadata("id_generator_path"),
        output_filetype="jsonl",
        output_fields=["n"],
    )
    done = removal.run(LocalExecutor(workers=0), tasks, progress="off")
    assert [row["n"] for row in written(tmp_path / "clean")] == firsts(rows)
    assert done.get_metadata("num_duplicates_removed") == 40 - len(firsts(rows))
    with pytest.raises(PlanError, match="there is no input"):
        workflow.run(progress="off")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: ExactDeduplicationWorkflow("o", "i", "csv"), "'csv' is not a file type, only 'jsonl', 'parquet'"),
        (lambda: ExactDeduplicationWorkflow("o", "i", assign_id=False), "name the column with the ids"),
        (lambda: ExactDeduplicationWorkflow("o", "i", id_field="id"), "assign_id=False to use that column"),
        (lambda: ExactDeduplicationWorkflow("o", "i", keep="last"), "keep='last': must be one of"),
        (lambda: FuzzyDeduplicationWorkflow("c", "o", "i", bands_per_iteration=21), "must be from 1 to num_bands=20"),
        (lambda: FuzzyDeduplicationWorkflow("c", "o", "i", memory_budget="1MB"), "at least 64 MiB"),
        (
            lambda: TextDuplicatesRemovalWorkflow(
                "i", "d", "o", output_fields=["id"], id_field="id", drop_id_field=True
            ),
            "'id' is in output_fields",
        ),
    ],
)
def test_wrong_arguments(make: Any, problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        make()


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_column_that_is_not_there_is_refused(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "in", similar_texts(4), 1, kind)
    workflows = (
        ExactDeduplicationWorkflow(tmp_path / "o", tmp_path / "in", kind, text_field="txt"),
        FuzzyDeduplicationWorkflow(tmp_path / "c", tmp_path / "o", tmp_path / "in", kind, text_field="txt"),
    )
    for workflow in workflows:
        with pytest.raises(ColumnError, match="Did you mean 'text'"):
            workflow.run(progress="off")


def test_short_ngrams_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="char_ngrams=5"):
        FuzzyDeduplicationWorkflow("c", "o", "i", char_ngrams=5)


def test_arguments_of_run_in_the_wrong_order() -> None:
    with pytest.raises(TypeError, match="give a list of FileGroup tasks"):
        ExactDeduplicationWorkflow("o", "i").run(LocalExecutor())
