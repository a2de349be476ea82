"""Rows that make a stage raise, crash, exhaust its memory or hang are set aside alone; the others go on."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tamis import DocumentBatch, LocalExecutor, Pipeline, ProcessingStage
from tamis.errors import FailureBudgetError, PlanError, RunInterrupted, StageError
from tamis.runs.directory import RunDirectory
from tamis.runs.result import RunResult
from tamis.stages.flow import Route
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.tasks import FileGroup

FILES, PER_FILE = 10, 10_000
RAISE = {5_000 * k + 17 for k in range(17)}
CRASHES, EXHAUSTS, HANGS = 33_333, 44_444, 44_445
LIMIT = 4 * 2**30


class Poisoned(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Fails on some rows, each in another way."""

    name = "poisoned"
    timeout_s = 3.0

    def process(self, task: DocumentBatch) -> DocumentBatch:
        numbers = task["n"].to_pylist()
        bad = sorted(RAISE.intersection(numbers))
        if bad:
            raise ValueError(f"row {bad[0]} is bad")
        if CRASHES in numbers:
            ctypes.string_at(0)
        if EXHAUSTS in numbers:
            resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
            bytearray(2 * LIMIT)
        if HANGS in numbers:
            time.sleep(1000)
        return task


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    for file in range(FILES):
        numbers = range(file * PER_FILE, (file + 1) * PER_FILE)
        (folder / f"{file}.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in numbers))
    return folder


def check(result: RunResult) -> None:
    """All 20 rows are in the quarantine with their causes, all others in the output."""
    assert result.state == "done with failures"
    written = [n for p in sorted(Path(result.run_dir, "../out").glob("*.jsonl")) for n in read_numbers(p)]
    expected = {*RAISE, CRASHES, EXHAUSTS, HANGS}
    assert len(written) == FILES * PER_FILE - 20
    assert expected.isdisjoint(written)
    assert len(set(written)) == len(written)
    tables = [pq.read_table(p) for p in Path(result.run_dir, "quarantine").glob("*.parquet")]
    rows = {row["n"]: row for table in tables for row in table.to_pylist()}
    assert rows.keys() == expected
    assert {rows[n]["error"] for n in RAISE} == {"ValueError"}
    assert rows[17]["message"] == "row 17 is bad"
    assert 'raise ValueError(f"row {bad[0]} is bad")' in rows[17]["traceback"]
    assert (rows[CRASHES]["error"], "signal 11" in rows[CRASHES]["message"]) == ("WorkerDied", True)
    assert rows[EXHAUSTS]["error"] == "MemoryError"
    assert "longer than the 3 s of timeout_s" in rows[HANGS]["message"]
    assert {row["stage"] for row in rows.values()} == {"poisoned"}
    assert all(row["source"].endswith(f"{n // PER_FILE}.jsonl") for n, row in rows.items())
    stats = result.stage("poisoned")
    assert (stats.rows_in, stats.rows_out, stats.quarantined) == (FILES * PER_FILE, FILES * PER_FILE - 20, 20)
    assert (result.summary.rows_set_aside, result.summary.tasks_set_aside) == (20, 0)


def read_numbers(path: Path) -> list[int]:
    return [json.loads(line)["n"] for line in path.read_text().splitlines()]


def start(many: Path, folder: Path, executor: Any, stage: ProcessingStage[Any, Any] | None = None) -> RunResult:
    reader = JsonlReader(str(many), files_per_partition=1)
    stages = [reader, stage or Poisoned(), JsonlWriter(str(folder / "out"))]
    return Pipeline("poisoned", stages=stages).run(executor, run_dir=folder / "run", progress="off")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no memory limit for a process")
def test_twenty_rows_of_a_hundred_thousand_on_processes(many: Path, tmp_path: Path) -> None:
    check(start(many, tmp_path, LocalExecutor(2, "processes")))


@pytest.mark.usefixtures("ray_cluster")
def test_twenty_rows_of_a_hundred_thousand_on_ray(many: Path, tmp_path: Path) -> None:
    from tamis.backends.streaming import StreamingExecutor

    check(start(many, tmp_path, StreamingExecutor()))


class Refuses(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Raises for some numbers."""

    name = "refuses"

    def __init__(self, *refused: int, error: type[Exception] = ValueError) -> None:
        self.refused, self.error = refused, error

    def process(self, task: DocumentBatch) -> DocumentBatch:
        for n in task["n"].to_pylist():
            if n in self.refused:
                raise self.error(f"{n} is refused")
        return task


def run(folder: Path, *stages: Any, batches: int = 4, executor: Any = None, **settings: Any) -> RunResult:
    tasks = [DocumentBatch({"n": list(range(10 * i, 10 * i + 10))}) for i in range(batches)]
    pipeline = Pipeline("p", stages=list(stages))
    return pipeline.run(executor or LocalExecutor(2, "threads"), tasks, run_dir=folder, progress="off", **settings)


def numbers(result: RunResult) -> list[int]:
    return sorted(n for task in result for n in task.data["n"].to_pylist())


@pytest.mark.parametrize("substrate", ["inline", "threads", "processes"])
def test_the_rest_of_a_batch_goes_on_as_one_batch(tmp_path: Path, substrate: Any) -> None:
    executor = LocalExecutor(0 if substrate == "inline" else 2, substrate)
    result = run(tmp_path / "run", Refuses(3, 14), executor=executor)
    assert numbers(result) == [n for n in range(40) if n not in (3, 14)]
    assert len(result) == 4
    assert [task.order for task in result] == [(0,), (1,), (2,), (3,)]


def test_every_stage_of_a_worker_has_its_own_rows(tmp_path: Path) -> None:
    stages = [Refuses(3), Refuses(4, error=KeyError).with_(name="second"), Refuses(5).with_(name="third")]
    result = run(tmp_path / "run", *stages)
    assert numbers(result) == [n for n in range(40) if n not in (3, 4, 5)]
    assert [result.stage(name).quarantined for name in ("refuses", "second", "third")] == [1, 1, 1]
    assert [result.stage(name).rows_in for name in ("refuses", "second", "third")] == [40, 39, 38]


def test_the_first_batch_may_fail_as_a_whole_if_the_stage_works_later(tmp_path: Path) -> None:
    result = run(tmp_path / "run", Refuses(*range(10)), executor=LocalExecutor(0))
    assert numbers(result) == list(range(10, 40))
    assert result.stage("refuses").quarantined == 10
    (aside,) = RunDirectory(result.run_dir).tasks_set_aside()
    assert (aside.error, aside.rows, aside.place) == ("ValueError", 10, "000000")


class Singles(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Makes a batch of each row."""

    name = "singles"

    def process(self, task: DocumentBatch) -> Iterator[DocumentBatch]:
        yield from task.split(task.num_items)


@pytest.mark.parametrize("substrate", ["inline", "threads", "processes"])
def test_one_of_several_batches_of_a_task_may_fail_as_a_whole(tmp_path: Path, substrate: Any) -> None:
    executor = LocalExecutor(0 if substrate == "inline" else 2, substrate)
    result = run(tmp_path / "run", Singles(), Refuses(3, 14), executor=executor)
    assert numbers(result) == [n for n in range(40) if n not in (3, 14)]
    assert (result.summary.rows_set_aside, result.summary.tasks_set_aside) == (2, 0)
    assert sorted((each.kind, each.message) for each in result.failures) == [
        ("row", "14 is refused"),
        ("row", "3 is refused"),
    ]


@pytest.mark.parametrize("refused", [1, 150])
def test_what_fails_in_one_branch_does_not_hold_up_the_others(tmp_path: Path, refused: int) -> None:
    rows = [{"n": n, "lang": "de" if n < refused else "en"} for n in range(1000)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    branches = {"de": [Refuses(*range(refused)), JsonlWriter(str(tmp_path / "de"))]}
    route = Route("lang", branches, otherwise=[JsonlWriter(str(tmp_path / "en"))])
    pipeline = Pipeline("p", stages=[JsonlReader(str(tmp_path / "in.jsonl")), route])
    result = pipeline.run(LocalExecutor(1), run_dir=tmp_path / "run", progress="off", failure_budget=None)
    assert sorted(n for p in (tmp_path / "en").glob("*.jsonl") for n in read_numbers(p)) == list(range(refused, 1000))
    assert (result.summary.rows_set_aside, result.summary.tasks_set_aside) == (refused, 0)
    assert result.failures[0].message == "0 is refused"
    assert ("not tried alone, as 1" in result.failures[-1].message) == (refused > 100)


def test_if_all_batches_of_all_tasks_fail_the_stage_is_at_fault(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"stage 'refuses', task 0000\d\d, tried 3 times: ValueError"):
        run(tmp_path / "run", Singles(), Refuses(*range(1000)), batches=10)
    assert not list(tmp_path.glob("run/quarantine/*"))


def test_a_stage_that_always_raises_ends_the_run_at_once(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"stage 'refuses', task 0000\d\d, tried 3 times: ValueError: \d+ is refused"):
        run(tmp_path / "run", Refuses(*range(1000)), batches=100)
    assert not list(tmp_path.glob("run/quarantine/*"))


def test_a_mistake_in_the_pipeline_is_not_put_on_the_rows(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="14 is refused"):
        run(tmp_path / "run", Refuses(14, error=PlanError))


def test_a_full_disk_ends_the_run(tmp_path: Path) -> None:
    class Full(OSError):
        def __init__(self, words: str) -> None:
            super().__init__(28, words)

    with pytest.raises(Exception, match=r"14 is refused|no space|disk is full"):
        run(tmp_path / "run", Refuses(14, error=Full))


def test_the_budget_ends_the_run_and_keeps_what_is_finished(tmp_path: Path) -> None:
    with pytest.raises(FailureBudgetError, match=r"3 of \d+ rows could not be processed \(3 in 'refuses'\).*budget=2"):
        run(tmp_path / "run", Refuses(3, 13, 23), executor=LocalExecutor(0), failure_budget=2)
    result = run(tmp_path / "run", Refuses(3, 13, 23), executor=LocalExecutor(0), failure_budget=3)
    assert (result.state, result.summary.tasks_before) == ("done with failures", 3)
    assert numbers(result) == [n for n in range(40) if n not in (3, 13, 23)]


def test_without_a_budget_the_first_failure_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="tried 2 times: ValueError: 3 is refused"):
        run(tmp_path / "run", Refuses(3), failure_budget=0)


@pytest.mark.parametrize("budget", [-1, 1.5, True])
def test_a_budget_must_be_a_number_of_rows_or_a_share(tmp_path: Path, budget: Any) -> None:
    with pytest.raises(PlanError, match="failure_budget"):
        run(tmp_path / "run", Refuses(3), failure_budget=budget)


def test_an_error_that_passes_is_waited_for(tmp_path: Path) -> None:
    class Busy(ProcessingStage[DocumentBatch, DocumentBatch]):
        name = "busy"

        def process(self, task: DocumentBatch) -> DocumentBatch:
            tries = tmp_path / "tries"
            tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
            if len(tries.read_text()) < 4:
                raise ConnectionError("the server is busy")
            return task

    result = run(tmp_path / "run", Busy(), batches=1, executor=LocalExecutor(0))
    assert (result.state, result.stage("busy").retries) == ("done", 3)


class Closed(ProcessingStage[FileGroup, DocumentBatch]):
    """Reads files; one of them cannot be read."""

    name = "closed"

    def process(self, task: FileGroup) -> DocumentBatch:
        if "b.txt" in task.data:
            raise EOFError("it is damaged")
        return DocumentBatch({"text": list(task.data)})


def test_a_file_that_cannot_be_read_is_set_aside_alone(tmp_path: Path) -> None:
    task = FileGroup(["a.txt", "b.txt", "c.txt"])
    result = Pipeline("p", stages=[Closed()]).run(LocalExecutor(0), [task], run_dir=tmp_path / "run", progress="off")
    assert [t for task in result for t in task.data["text"].to_pylist()] == ["a.txt", "c.txt"]
    (aside,) = RunDirectory(result.run_dir).tasks_set_aside()
    assert (aside.files, aside.error, aside.stage) == (["b.txt"], "EOFError", "closed")
    assert aside.read().data == ["b.txt"]
    assert (result.summary.tasks_set_aside, result.summary.tasks_uncounted) == (1, 1)


class Waits(ProcessingStage[DocumentBatch, DocumentBatch]):
    """An ``async`` stage that raises for one row."""

    name = "waits"

    async def process(self, task: DocumentBatch) -> DocumentBatch:  # type: ignore[override]  # awaited
        if 14 in task["n"].to_pylist():
            raise LookupError("no answer")
        return task


def test_rows_of_an_async_stage_are_found_too(tmp_path: Path) -> None:
    result = run(tmp_path / "run", Waits())
    assert numbers(result) == [n for n in range(40) if n != 14]


def test_columns_of_the_rows_keep_their_names(tmp_path: Path) -> None:
    tasks = [DocumentBatch({"n": [1, 2], "stage": ["x", "y"], "error": ["e", "f"]})]
    pipeline = Pipeline("p", stages=[Refuses(2)])
    result = pipeline.run(LocalExecutor(0), tasks, run_dir=tmp_path / "run", progress="off")
    (path,) = Path(result.run_dir, "quarantine").glob("*.parquet")
    (row,) = pq.read_table(path).to_pylist()
    assert (row["stage"], row["tamis_stage"], row["error"], row["tamis_error"]) == ("y", "refuses", "f", "ValueError")
    assert result.summary.quarantine[0]["problem"] == "ValueError: 2 is refused"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_ctrl_c_before_a_stage_has_worked_is_no_failure(tmp_path: Path) -> None:
    """Whether the stage is broken is not known yet: the next start tries these rows again."""
    mended = tmp_path / "mended"

    class Interrupted(ProcessingStage[DocumentBatch, DocumentBatch]):
        name = "interrupted"

        def process(self, task: DocumentBatch) -> DocumentBatch:
            if mended.exists():
                return task
            if not (tmp_path / "sent").exists():
                (tmp_path / "sent").touch()
                os.kill(os.getpid(), signal.SIGINT)
            raise ValueError("not yet")

    with pytest.raises(RunInterrupted):
        run(tmp_path / "run", Interrupted())
    mended.touch()
    result = run(tmp_path / "run", Interrupted())
    assert (result.state, numbers(result)) == ("done", list(range(40)))
