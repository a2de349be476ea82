"""Tasks that fail for good: what is counted, what is stored, and how they are run again."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tamis.backends.base import Run
from tamis.backends.contracts import FailurePolicy
from tamis.backends.local import LocalExecutor
from tamis.errors import StageError
from tamis.pipeline import Pipeline
from tamis.plan import make_plan
from tamis.runs.directory import RunDirectory
from tamis.runs.journal import RunJournal
from tamis.runs.progress import NoProgress
from tamis.runs.quarantine import quarantined_rows
from tamis.runs.report import load_summary
from tamis.runs.stop import StopSignal
from tamis.stages.base import ProcessingStage
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.tasks import DocumentBatch, EmptyTask, FileGroup, Task

Stage = ProcessingStage[Any, Any]


def write_files(folder: Path, files: int, rows: int) -> Path:
    """Files with rows numbered from 0, 10, 20 and so on."""
    folder.mkdir()
    for file in range(files):
        lines = [json.dumps({"n": 10 * file + row}) for row in range(rows)]
        (folder / f"{file}.jsonl").write_text("\n".join(lines))
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_files(tmp_path / "in", files=4, rows=4)


ALL_ROWS = [10 * file + row for file in range(4) for row in range(4)]


@processing_stage(name="before")
def before(task: DocumentBatch) -> DocumentBatch:
    return task


class Dies(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Kills its worker with some rows."""

    name = "dies"

    def __init__(self, *victims: int) -> None:
        self.victims = victims

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if set(self.victims) & set(task.data["n"].to_pylist()):
            os.kill(os.getpid(), signal.SIGKILL)
        return task


def run(source: Path, tmp_path: Path, stage: Stage, executor: LocalExecutor) -> Any:
    reader = JsonlReader(str(source), files_per_partition=1)
    stages = [reader, before, stage, JsonlWriter(str(tmp_path / "out"))]
    return Pipeline("failing", stages=stages).run(executor, run_dir=str(tmp_path / "run"), progress="off")


@pytest.fixture(scope="module", params=[True, False], ids=["fused", "not fused"])
def crashed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run in which one row of a file kills its worker, and all rows of another file do."""
    folder = tmp_path_factory.mktemp("crashed")
    source = write_files(folder / "in", files=3, rows=2)
    return run(source, folder, Dies(11, 20, 21), LocalExecutor(2, "processes", fuse=request.param))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_crash_is_counted_at_the_running_stage_with_its_row(crashed: Any) -> None:
    (failed,) = quarantined_rows(RunDirectory(crashed.run_dir).quarantine)
    assert (failed.stage, failed.errors, failed.rows["n"].to_pylist()) == ("dies", ["WorkerDied"], [11])
    assert "signal 9" in failed.messages[0]
    (counts,) = [s for s in crashed.stages if s.tasks_set_aside or s.quarantined]
    is_fused = crashed.summary.tasks_uncounted == 1
    assert (counts.name, counts.tasks_set_aside, counts.quarantined) == ("dies", 1, 1 if is_fused else 3)
    assert crashed.summary.output_rows == 3


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_task_of_which_every_row_crashes_is_set_aside_as_a_whole(crashed: Any) -> None:
    (aside,) = RunDirectory(crashed.run_dir).tasks_set_aside()
    assert (aside.stage, aside.error, aside.attempts) == ("dies", "WorkerDied", 4)
    assert "signal 9" in aside.message
    if aside.first_stage == "JsonlReader":  # fused: the task is the file, whose rows were not counted
        assert aside.rows is None
        assert [Path(file).name for file in aside.files] == ["2.jsonl"]
        assert isinstance(aside.read(), FileGroup)
    else:
        assert (aside.first_stage, aside.rows) == ("dies", 2)
        assert aside.read().data["n"].to_pylist() == [20, 21]
    assert crashed.summary.tasks_set_aside == 1
    assert crashed.summary.tasks_uncounted == (aside.first_stage == "JsonlReader")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_a_run_in_which_everything_was_set_aside_has_failed(tmp_path: Path) -> None:
    source = write_files(tmp_path / "in", files=2, rows=1)
    with pytest.raises(StageError, match=r"all 2 tasks were set aside, so the run has no result.*stage 'dies'"):
        run(source, tmp_path, Dies(*range(20)), LocalExecutor(2, "processes"))
    directory = RunDirectory(str(tmp_path / "run"))
    assert load_summary(directory.path).state == "failed"
    assert len(list(directory.tasks_set_aside())) == 2


class Strict(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Raises for one row, until it is mended."""

    name = "strict"

    def __init__(self, refused: int = -1) -> None:
        self.refused = refused

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if self.refused in task.data["n"].to_pylist():
            raise LookupError(f"{self.refused} is refused")
        return task.with_table(task.data.append_column("strict", pa.array([True] * task.num_items)))


@pytest.mark.parametrize("substrate", ["inline", "threads", "processes"])
def test_rows_that_raise_are_set_aside_and_can_be_run_again(source: Path, tmp_path: Path, substrate: str) -> None:
    executor = LocalExecutor(0 if substrate == "inline" else 2, substrate, fuse=False)  # type: ignore[arg-type]
    writer = JsonlWriter(str(tmp_path / "out"))

    def execute(name: str, stages: list[Stage], initial: Sequence[Task[Any]] = ()) -> RunDirectory:
        kind = type(initial[0]) if initial else EmptyTask
        directory = RunDirectory.create(name, str(tmp_path / name))
        with StopSignal() as stop:
            policy = FailurePolicy(on_error="set_aside")
            run = Run(directory, RunJournal(directory), NoProgress(), stop, initial, failures=policy)
            assert executor.execute(make_plan(name, stages, initial=kind, fuse=False), run)
            run.journal.close()
        return directory

    directory = execute("first", [JsonlReader(str(source), files_per_partition=1), before, Strict(23), writer])
    assert rows_in(tmp_path / "out") == [n for n in ALL_ROWS if n != 23]
    (failed,) = quarantined_rows(directory.quarantine)
    assert (failed.stage, failed.place, failed.errors) == ("strict", "000002", ["LookupError"])
    assert failed.messages == ["23 is refused"]
    assert "raise LookupError" in failed.tracebacks[0]

    assert not list(quarantined_rows(execute("again", [Strict(), writer], [failed.rows]).quarantine))
    assert failed.rows.names is not None
    assert failed.rows.names.to_texts() == [f"{source / '2.jsonl'}:30"]


def rows_in(folder: Path) -> list[int]:
    return sorted(json.loads(line)["n"] for p in folder.glob("*.jsonl") for line in p.read_text().splitlines())
