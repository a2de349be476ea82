"""Pipelines on a real Ray Data, compared with the local executor."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from parity_pipelines import failing, run_on, write_input
from ray_faults import first_time

from tamis.backends.experimental.ray_data import RayDataExecutor
from tamis.backends.local import LocalExecutor
from tamis.errors import PlanError, ResourceError, RunInterrupted, StageError, WorkerDiedError
from tamis.pipeline import Pipeline
from tamis.runs.progress import NoProgress
from tamis.runs.stats import Snapshot
from tamis.stages.base import NodeInfo, ProcessingStage, WorkerMetadata
from tamis.stages.io import JsonlWriter
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(tmp_path_factory.mktemp("input"))


class Counting(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Notes in files what it is asked to do."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def _note(self, what: str) -> None:
        Path(self.folder, f"{what}-{os.getpid()}-{os.urandom(4).hex()}").touch()

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self._note("node")

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._note("setup")

    def teardown(self) -> None:
        self._note("teardown")

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


def batches(count: int) -> list[Any]:
    return [DocumentBatch({"n": [i]}) for i in range(count)]


def run(stages: list[Any], tmp_path: Path, initial: list[Any], **settings: Any) -> Any:
    executor = settings.pop("executor", None) or RayDataExecutor(**settings)
    return Pipeline("test", stages=stages).run(executor, initial, run_dir=str(tmp_path / "run"), progress="off")


def test_stages_are_set_up_once_per_node_and_worker_and_torn_down(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    stage = Counting(str(notes)).with_(num_workers=2)
    result = run([stage], tmp_path, batches(6))
    assert [t.data["n"].to_pylist() for t in result] == [[i] for i in range(6)]
    found = [p.name.split("-")[0] for p in notes.iterdir()]
    assert found.count("node") == 1
    assert found.count("setup") in (1, 2)  # a worker that got nothing to do sets nothing up
    assert found.count("teardown") == found.count("setup")


@pytest.mark.exhaustive
def test_more_actor_stages_than_cores_can_run(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    stages = [Counting(str(notes)).with_(name=f"s{i}", resources=Resources(cpus=2)) for i in range(5)]
    assert len(run(stages, tmp_path, batches(3), fuse=False)) == 3


def test_a_stage_that_raises_ends_the_run_as_it_does_locally(source: Path, tmp_path: Path) -> None:
    def error(executor: Any, where: Path) -> str:
        with pytest.raises(StageError) as caught:
            run_on(executor, failing, source, where, failure_budget=0)
        return str(caught.value)

    assert error(RayDataExecutor(), tmp_path / "ray") == error(LocalExecutor(workers=0), tmp_path / "local")


def test_a_row_that_fails_is_set_aside_as_it_is_locally(source: Path, tmp_path: Path) -> None:
    local = run_on(LocalExecutor(workers=0), failing, source, tmp_path / "local")
    assert len(local.quarantine) == 1
    assert run_on(RayDataExecutor(), failing, source, tmp_path / "ray") == local


class KillsItself(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Dies, each time or only the first."""

    def __init__(self, folder: str, times: int) -> None:
        self.folder, self.times = folder, times

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if task.data["n"][0].as_py() == 1 and len(list(Path(self.folder).iterdir())) < self.times:
            Path(self.folder, os.urandom(4).hex()).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task


def test_a_worker_that_dies_loses_nothing(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    result = run([KillsItself(str(marks), times=1)], tmp_path, batches(4))
    assert [t.data["n"].to_pylist() for t in result] == [[0], [1], [2], [3]]


def test_a_task_that_kills_its_worker_each_time_is_named(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    before = KillsItself(str(marks), times=0).with_(name="before")  # runs in the same worker
    with pytest.raises(WorkerDiedError, match=r"stage 'KillsItself', task 000001, tried \d times"):
        run([before, KillsItself(str(marks), times=99)], tmp_path, batches(4))


class StopsAtTheFirst(NoProgress):
    """Asks to stop as soon as something was done."""

    def update(self, snapshot: Snapshot) -> None:
        if snapshot.stages[0].tasks_in:
            os.kill(os.getpid(), signal.SIGINT)
            self.update = lambda snapshot: None  # type: ignore[method-assign]  # once is enough


class Slow(ProcessingStage[DocumentBatch, DocumentBatch]):
    def __init__(self, seconds: float = 0.3) -> None:
        self.seconds = seconds

    def process(self, task: DocumentBatch) -> DocumentBatch:
        time.sleep(self.seconds)
        return task


def test_ctrl_c_begins_nothing_new(tmp_path: Path) -> None:
    pipeline = Pipeline("test", stages=[Slow()])
    with pytest.raises(RunInterrupted):
        pipeline.run(RayDataExecutor(), batches(60), run_dir=str(tmp_path / "run"), progress=StopsAtTheFirst())
    assert 0 < len((tmp_path / "run" / "outputs.jsonl").read_text().splitlines()) < 60


def test_unknown_settings_are_refused_with_the_closest_known_one(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"'Slow'.*'max_worker'. Did you mean 'max_workers'"):
        run([Slow().with_(ray_stage_spec={"max_worker": 2})], tmp_path, batches(1))
    with pytest.raises(PlanError, match="max_calls_per_worker=0 must be a whole number, 1 or more"):
        run([Slow().with_(ray_stage_spec={"max_calls_per_worker": 0})], tmp_path, batches(1))
    with pytest.raises(PlanError, match=r"initial_workers=5 must be between .* 1 and 2"):
        run([Slow().with_(ray_stage_spec={"initial_workers": 5, "max_workers": 2})], tmp_path, batches(1))
    with pytest.raises(PlanError, match="must not have 'num_cpus'"):
        run([Slow().with_(ray_stage_spec={"ray_remote_args": {"num_cpus": 2}})], tmp_path, batches(1))


def test_too_many_gpus_are_refused_with_the_arithmetic(tmp_path: Path) -> None:
    class Alone(Slow):
        fuse = False  # a worker of its own, although its neighbour needs the same

    stages = [Alone().with_(name=f"g{i}", resources=Resources(gpus=1)) for i in range(3)]
    with pytest.raises(ResourceError, match=r"3 GPUs together \(g0: 1, g1: 1, g2: 1\), the cluster has 2"):
        run(stages, tmp_path, batches(1))


def test_a_refused_run_leaves_earlier_output_alone(tmp_path: Path) -> None:
    earlier = tmp_path / "out" / "earlier.jsonl"
    earlier.parent.mkdir()
    earlier.touch()
    stages = [Slow().with_(resources=Resources(gpus=3)), JsonlWriter(str(tmp_path / "out"), mode="overwrite")]
    with pytest.raises(ResourceError, match="asks for 3 GPUs"):
        run(stages, tmp_path, batches(1))
    assert earlier.exists()


class SendsALot(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Makes many tasks of one; its worker is killed while they are on their way, once."""

    makes_rows = "new"

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def process(self, task: DocumentBatch) -> list[DocumentBatch]:
        if first_time(self.folder, "killed"):
            threading.Timer(0.15, os.kill, [os.getpid(), signal.SIGKILL]).start()
        return [DocumentBatch({"n": [i], "ballast": ["x" * 200_000]}) for i in range(40)]


@pytest.mark.exhaustive
def test_a_worker_that_dies_while_it_sends_loses_nothing(tmp_path: Path) -> None:
    stages = [SendsALot(str(tmp_path)), Slow(0.0).with_(num_workers=1)]
    result = run(stages, tmp_path, batches(1))
    assert [t.data["n"].to_pylist() for t in result] == [[i] for i in range(40)]
