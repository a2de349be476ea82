"""Pipelines on a real cosmos-xenna, on a cluster with two cores, compared with the local executor."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from parity_pipelines import PIPELINES, failing, run_on, write_input

from tamis.backends.local import LocalExecutor
from tamis.backends.xenna import XennaExecutor
from tamis.errors import PlanError, StageError, WorkerDiedError
from tamis.pipeline import Pipeline
from tamis.runs.directory import RunDirectory
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

ray = pytest.importorskip("ray")
pytest.importorskip("cosmos_xenna")
pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(tmp_path_factory.mktemp("input"))


@pytest.mark.exhaustive
def test_batch_mode_has_the_same_results(source: Path, tmp_path: Path) -> None:
    expected = run_on(
        LocalExecutor(workers=0, execution_mode="batch"), PIPELINES["no-writer"], source, tmp_path / "local"
    )
    found = run_on(XennaExecutor({"execution_mode": "batch"}), PIPELINES["no-writer"], source, tmp_path / "xenna")
    assert found == expected


class Dies(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task: DocumentBatch) -> DocumentBatch:
        if task.data["n"][0].as_py() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return task


def test_a_task_that_kills_its_worker_is_named(tmp_path: Path) -> None:
    initial = [DocumentBatch({"n": [i]}) for i in range(2)]
    with pytest.raises(WorkerDiedError, match="died"):
        Pipeline("test", stages=[Dies()]).run(XennaExecutor(), initial, run_dir=str(tmp_path / "run"), progress="off")


class Exits(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task: DocumentBatch) -> DocumentBatch:
        sys.exit(3)


def test_a_stage_that_ends_its_process_ends_the_run(tmp_path: Path) -> None:
    initial = [DocumentBatch({"n": [1]})]
    pipeline = Pipeline("test", stages=[NotesItsProcess(str(tmp_path)), Exits()])  # in one worker
    with pytest.raises(WorkerDiedError, match="stage 'Exits', task 000000"):
        pipeline.run(XennaExecutor(), initial, run_dir=str(tmp_path / "run"), progress="off")


class NotesItsProcess(ProcessingStage[DocumentBatch, DocumentBatch]):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def process(self, task: DocumentBatch) -> DocumentBatch:
        Path(self.folder, str(os.getpid())).touch()
        return task


def test_no_process_remains(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    initial = [DocumentBatch({"n": [i]}) for i in range(3)]
    result = Pipeline("test", stages=[NotesItsProcess(str(notes))]).run(
        XennaExecutor(), initial, run_dir=str(tmp_path / "run"), progress="off"
    )
    assert [t.data["n"].to_pylist() for t in result] == [[0], [1], [2]]
    pids = [int(p.name) for p in notes.iterdir()]
    deadline = time.monotonic() + 20
    while any(psutil.pid_exists(p) and psutil.Process(p).status() != psutil.STATUS_ZOMBIE for p in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_stage_that_raises_ends_the_run_as_it_does_locally(source: Path, tmp_path: Path) -> None:
    def error(executor: Any, where: Path) -> str:
        with pytest.raises(StageError) as caught:
            run_on(executor, failing, source, where, failure_budget=0)
        return str(caught.value)

    assert error(XennaExecutor(), tmp_path / "xenna") == error(LocalExecutor(workers=0), tmp_path / "local")


def test_ignored_failures_are_set_aside_not_lost(source: Path, tmp_path: Path) -> None:
    found = run_on(XennaExecutor({"ignore_failures": True}), failing, source, tmp_path)
    assert len(found.files) == 6
    (record,) = RunDirectory(str(tmp_path / "run")).quarantined(10)
    assert (record["stage"], record["problem"]) == ("raises", "KeyError: '47 is not here'")


def test_unknown_settings_are_refused_with_the_closest_known_one(tmp_path: Path) -> None:
    stage = NotesItsProcess(str(tmp_path))
    for spec, said in (
        ({"slots_per_actors": 3}, "Did you mean 'slots_per_actor'"),
        ({"num_workers": 2}, r"with_\(num_workers"),
        ({"num_workers_per_node": 0}, "num_workers_per_node=0 must be a number, more than 0"),
    ):
        pipeline = Pipeline("test", stages=[stage.with_(xenna_stage_spec=spec)])
        with pytest.raises(PlanError, match=said):
            pipeline.run(XennaExecutor(), [DocumentBatch({"n": [1]})], run_dir=str(tmp_path / "run"), progress="off")
    with pytest.raises(ValueError, match="must be one of streaming, batch"):
        XennaExecutor({"execution_mode": "stream"})
    with pytest.raises(PlanError, match="ignore_failures='no' must be True or False"):
        XennaExecutor({"ignore_failures": "no"})
    with pytest.raises(PlanError, match="cpu_allocation_percentage=2 must be more than 0 and at most 1"):
        XennaExecutor({"cpu_allocation_percentage": 2})
