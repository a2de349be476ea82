"""What can go wrong on a cluster, really done: no task is lost, none is written twice, nothing is left behind."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from parity_pipelines import Builder, KeepEven, Result, halves, run_on, write_input
from ray_faults import VICTIM, FailsToSetUp, Faulty, Grow, wait_for, worker_processes

from tamis.backends.local import LocalExecutor
from tamis.backends.streaming import StreamingExecutor
from tamis.errors import StageError
from tamis.pipeline import Pipeline
from tamis.runs.quarantine import quarantined_rows
from tamis.stages.base import ProcessingStage
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.tasks import DocumentBatch

pytestmark = pytest.mark.usefixtures("ray_cluster")

Stage = ProcessingStage[Any, Any]


@pytest.fixture(autouse=True)
def _no_worker_is_left() -> Iterator[None]:
    yield
    wait_for(lambda: not worker_processes(), "a worker outlived its run")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(tmp_path_factory.mktemp("input"), files=12)


@pytest.fixture(scope="module")
def short_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with few rows, for tests that find one of them by trying halves: each try may take a worker."""
    return write_input(tmp_path_factory.mktemp("short"), files=12, rows=4)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def pipeline(*stages: Stage) -> Builder:
    def build(source: Path, target: Path) -> Pipeline:
        reader = JsonlReader(str(source), files_per_partition=1)
        return Pipeline("faults", stages=[reader, *stages, KeepEven(), JsonlWriter(str(target))])

    return build


def on_ray(source: Path, work: Path, *stages: Stage, **settings: Any) -> Result:
    """A run in which no stage shares a worker's turn with another, so that tasks pass through the object store."""
    given = {name: settings.pop(name) for name in ("failure_budget",) if name in settings}
    return run_on(StreamingExecutor(fuse=False, **settings), pipeline(*stages), source, work / "ray", **given)


def as_if_nothing_had_happened(found: Result, source: Path, work: Path, *stages: Stage) -> None:
    """Compare with a run on one thread, without the fault."""
    expected = run_on(LocalExecutor(workers=0, fuse=False), pipeline(*stages), source, work / "local")
    for stats in found.stats:
        stats["retries"] = 0
    assert dataclasses.asdict(found) == dataclasses.asdict(expected)


def retries(found: Result, stage: str) -> int:
    return next(int(s["retries"]) for s in found.stats if s["name"] == stage)


# -- a worker dies ---------------------------------------------------------------------------------------------------


def test_a_worker_that_is_killed_from_outside_is_replaced(source: Path, tmp_path: Path, notes: Path) -> None:
    def kill() -> None:
        wait_for(lambda: list(notes.glob("pid-*")), "the stage was not reached")
        (note,) = notes.glob("pid-*")
        os.kill(int(note.name.removeprefix("pid-")), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    found = on_ray(source, tmp_path, halves, Faulty("hang", notes))
    assert list(notes.glob("pid-*"))
    as_if_nothing_had_happened(found, source, tmp_path, halves, Faulty())


def test_a_worker_that_dies_of_its_task_once_is_replaced(source: Path, tmp_path: Path, notes: Path) -> None:
    found = on_ray(source, tmp_path, Grow(), Faulty("die", notes))
    assert retries(found, "faulty") in (0, 1)  # sent together with others it is not known which of them was to blame
    as_if_nothing_had_happened(found, source, tmp_path, Grow(), Faulty())


def test_a_row_that_kills_every_worker_is_set_aside_and_the_rest_is_done(
    short_files: Path, tmp_path: Path, notes: Path
) -> None:
    executor = StreamingExecutor()  # reads, kills and writes in one worker
    found = run_on(executor, pipeline(Faulty("die", notes, always=True)), short_files, tmp_path / "ray")
    (failed,) = quarantined_rows(str(tmp_path / "ray" / "run" / "quarantine"))
    assert (failed.stage, failed.errors, failed.rows["n"].to_pylist()) == ("faulty", ["WorkerDied"], [VICTIM])
    assert "killed" in failed.messages[0]
    expected = run_on(LocalExecutor(workers=0, fuse=False), pipeline(Faulty()), short_files, tmp_path / "local")
    assert len(expected.files) == 12
    assert found.files == expected.files  # a later stage drops this row
    counts = next(s for s in found.stats if s["name"] == "faulty")
    assert (counts["tasks_set_aside"], counts["tasks_uncounted"], counts["quarantined"]) == (0, 0, 1)


def test_many_short_tasks_are_not_blamed_for_one_that_kills_its_worker(tmp_path: Path, notes: Path) -> None:
    given = [DocumentBatch({"n": [i]}) for i in range(300)]
    short = Pipeline("short", stages=[Faulty(), Faulty("die", notes, always=True)])
    result = short.run(StreamingExecutor(fuse=False), given, run_dir=str(tmp_path / "run"), progress="off")
    assert [t.data["n"].to_pylist() for t in result] == [[i] for i in range(300) if i != VICTIM]


# -- a stage goes wrong ----------------------------------------------------------------------------------------------


def test_a_stage_that_raises_once_is_tried_again(source: Path, tmp_path: Path, notes: Path) -> None:
    found = on_ray(source, tmp_path, Faulty("raise", notes))
    assert retries(found, "faulty") == 1
    as_if_nothing_had_happened(found, source, tmp_path, Faulty())


def test_without_a_budget_an_error_ends_the_run_as_it_does_locally(source: Path, tmp_path: Path, notes: Path) -> None:
    with pytest.raises(StageError) as there:
        on_ray(source, tmp_path, Faulty("raise", notes, always=True), failure_budget=0)
    faulty = pipeline(Faulty("raise", notes, always=True))
    with pytest.raises(StageError) as here:
        run_on(LocalExecutor(workers=0), faulty, source, tmp_path / "local", failure_budget=0)
    assert str(there.value) == str(here.value)
    assert "'faulty'" in str(there.value)
    assert "KeyError: '47 is not here'" in str(there.value)
    assert there.value.__notes__[0] == here.value.__notes__[0]
    assert "in go_wrong" in there.value.__notes__[0]


def test_an_error_while_reading_names_the_file(tmp_path: Path) -> None:
    broken = write_input(tmp_path / "in", files=2)
    (broken / "01.jsonl").write_bytes(b"\x1f\x8b not gzip at all")
    with pytest.raises(Exception, match=r"01\.jsonl"):
        on_ray(broken, tmp_path, Faulty())


def test_a_stage_that_hangs_once_is_ended_and_tried_again(source: Path, tmp_path: Path, notes: Path) -> None:
    found = on_ray(source, tmp_path, Faulty("hang", notes).with_(timeout_s=1.0))
    assert retries(found, "faulty") >= 1  # on a busy machine others may take too long, too
    as_if_nothing_had_happened(found, source, tmp_path, Faulty())


def test_a_row_that_always_hangs_is_set_aside(short_files: Path, tmp_path: Path, notes: Path) -> None:
    found = on_ray(short_files, tmp_path, Faulty("hang", notes, always=True).with_(timeout_s=1.0))
    (failed,) = quarantined_rows(str(tmp_path / "ray" / "run" / "quarantine"))
    assert failed.rows["n"].to_pylist() == [VICTIM]
    assert "timeout_s" in failed.messages[0]
    assert len(found.files) == 12


# -- a stage cannot be set up ----------------------------------------------------------------------------------------


EVERY_SETUP = [
    ("setup", None),
    pytest.param("setup", 2, marks=pytest.mark.exhaustive),
    pytest.param("setup_on_node", None, marks=pytest.mark.exhaustive),
]


@pytest.mark.parametrize(("where", "workers"), EVERY_SETUP)
def test_a_set_up_that_fails_once_is_tried_again(
    source: Path, tmp_path: Path, notes: Path, where: str, workers: int | None
) -> None:
    found = on_ray(source, tmp_path, FailsToSetUp(where, notes).with_(num_workers=workers))
    assert (notes / where).exists()
    as_if_nothing_had_happened(found, source, tmp_path, FailsToSetUp())


@pytest.mark.parametrize(("where", "workers"), EVERY_SETUP)
def test_a_set_up_that_always_fails_ends_the_run_with_its_cause(
    source: Path, tmp_path: Path, notes: Path, where: str, workers: int | None
) -> None:
    stage = FailsToSetUp(where, notes, always=True).with_(num_workers=workers)
    with pytest.raises(StageError, match=r"'no_model'.*FileNotFoundError: the model's weights are not there") as caught:
        on_ray(source, tmp_path, stage)
    assert "raise FileNotFoundError" in "\n".join(caught.value.__notes__)
