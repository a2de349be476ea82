"""The driver of external engines, on an engine in this process that reorders, repeats and loses tasks."""

from __future__ import annotations

import os
import queue
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from parity_pipelines import PIPELINES, Upper, failing, run_on, write_input
from ray_faults import FailsToSetUp, wait_for

from tamis.backends.base import Run
from tamis.backends.carry_out import run_paths
from tamis.backends.external.operator import Operator, OperatorSpec, Parcel
from tamis.backends.external.ray_session import connected
from tamis.backends.external.worker_spec import WorkerSpec, group_specs, run_on_engine
from tamis.backends.local import LocalExecutor
from tamis.backends.substrates.processes import pickled_stages
from tamis.errors import ClusterError, StageError, WorkerDiedError
from tamis.pipeline import Pipeline
from tamis.plan import Group, Plan
from tamis.runs.directory import RunDirectory
from tamis.stages.base import ProcessingStage, WorkerMetadata
from tamis.tasks import DocumentBatch


class Box:
    """A mailbox in this process."""

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._taken = 0

    def post(self, message: bytes) -> None:
        self._messages.put(message)

    def take(self, wait_s: float) -> list[bytes]:
        self._taken += 1
        try:
            return [self._messages.get(timeout=wait_s)]
        except queue.Empty:
            return []

    def wait_until_booked(self) -> None:
        """Wait until the driver has done something with all that was posted: it asks again then."""
        wait_for(self._messages.empty, "the driver does not take its messages")
        taken = self._taken
        wait_for(lambda: self._taken > taken + 1, "the driver does not ask again")

    def close(self) -> None:
        pass


class ShakyEngine:
    """Works parcels off in any order; repeats some, or loses one, or all outputs of a first try."""

    workers = 1

    def __init__(self, worker_spec: WorkerSpec, box: Box, seed: int, loses: str, keep_failed: bool) -> None:
        self._worker_spec, self._box, self._loses, self._keep_failed = worker_spec, box, loses, keep_failed
        self._random = random.Random(seed)

    def operator(self, group: Group, inside: frozenset[int]) -> OperatorSpec:
        return self._worker_spec.operator(group, inside, keep_failed=self._keep_failed)

    def take(self, wait_s: float) -> list[bytes]:
        return self._box.take(wait_s)

    def abort(self) -> None:
        pass

    def carry(self, groups: Sequence[Group], operators: Sequence[OperatorSpec], parcels: list[Parcel]) -> None:
        for spec in operators:
            operator = Operator(spec, self._box, WorkerMetadata(scratch=self._worker_spec.places.scratch))
            doubled = [p for p in parcels for _ in range(self._random.choice([1, 1, 2]))]
            self._random.shuffle(doubled)
            if self._loses == "first tries":
                for parcel in parcels:
                    list(operator.work(parcel))
                self._box.wait_until_booked()
            parcels = [made for parcel in doubled for made in operator.work(parcel)]
            operator.close()
            if self._loses == "a task" and parcels:
                lost = parcels[0].envelopes[0].task_id
                parcels = [p for p in parcels if p.envelopes[0].task_id != lost]


class Shaky:
    execution_mode = "streaming"

    def __init__(self, seed: int = 0, fuse: bool = True, loses: str = "", keep_failed: bool = False) -> None:
        self.seed, self.fuse, self.loses, self.keep_failed = seed, fuse, loses, keep_failed

    def check(self, plan: Plan) -> None:
        pass

    def describe(self) -> str:
        return "shaky"

    def execute(self, plan: Plan, run: Run) -> bool:
        stages = {index: pickled_stages({index: spec}) for index, spec in group_specs(plan).items()}
        box: Any = Box()
        worker_spec = WorkerSpec(plan, stages, run_paths(run), box, (), "run")
        return run_on_engine(
            plan, run, ShakyEngine(worker_spec, box, self.seed, self.loses, self.keep_failed), worker_spec
        )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_input(tmp_path_factory.mktemp("input"))


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("name", PIPELINES)
def test_order_and_repetition_do_not_matter(name: str, fuse: bool, source: Path, tmp_path: Path) -> None:
    expected = run_on(LocalExecutor(workers=0, fuse=fuse), PIPELINES[name], source, tmp_path / "local")
    for seed in range(3):
        found = run_on(Shaky(seed, fuse), PIPELINES[name], source, tmp_path / f"shaky-{seed}")
        assert found == expected
        assert list((tmp_path / f"shaky-{seed}").rglob("*.tmp")) == []  # repeated work left no files


def test_tasks_that_an_engine_loses_are_reported(source: Path, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="lost 2 tasks"):
        run_on(Shaky(fuse=False, loses="a task"), PIPELINES["map"], source, tmp_path)


@pytest.mark.parametrize("name", ["fan-out", "shuffle", "batches"])
def test_a_task_can_be_repeated_after_it_was_recorded(name: str, source: Path, tmp_path: Path) -> None:
    """A worker may die after the driver was told of its task, and before the engine has all that it made."""
    expected = run_on(LocalExecutor(workers=0, fuse=False), PIPELINES[name], source, tmp_path / "local")
    assert run_on(Shaky(fuse=False, loses="first tries"), PIPELINES[name], source, tmp_path / "shaky") == expected


def test_an_initial_task_can_be_repeated(tmp_path: Path) -> None:
    pipeline = Pipeline("test", stages=[Upper(), Upper().with_(name="again")])
    executor = Shaky(fuse=False, loses="first tries")
    result = pipeline.run(executor, [DocumentBatch({"text": ["a"]})], run_dir=str(tmp_path / "run"), progress="off")
    assert [t.data["text"].to_pylist() for t in result] == [["A"]]


def test_rows_that_fail_are_set_aside(source: Path, tmp_path: Path) -> None:
    found = run_on(Shaky(fuse=False, keep_failed=True), failing, source, tmp_path)
    assert len(found.files) == 6
    (record,) = RunDirectory(str(tmp_path / "run")).quarantined(10)
    assert record["stage"] == "raises"
    assert "47 is not here" in record["problem"]
    raises = next(s for s in found.stats if s["name"] == "raises")
    assert (raises["tasks_in"], raises["rows_in"], raises["quarantined"]) == (6, 120, 1)


class HoldsALock(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task: DocumentBatch) -> DocumentBatch:
        task._metadata["lock"] = threading.Lock()
        return task


class Slow(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Takes a while to set up, or for a task."""

    def __init__(self, setup_s: float = 0.0, task_s: float = 0.0) -> None:
        self.setup_s, self.task_s = setup_s, task_s

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        time.sleep(self.setup_s)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        time.sleep(self.task_s)
        return task


def run_one(stage: ProcessingStage[Any, Any], tmp_path: Path, **settings: Any) -> Any:
    initial = [DocumentBatch({"n": [1]})]
    pipeline = Pipeline("test", stages=[stage, Slow().with_(name="last")])
    return pipeline.run(Shaky(fuse=False, **settings), initial, run_dir=str(tmp_path / "run"), progress="off")


def test_the_data_of_a_task_that_cannot_travel_is_kept(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="stage 'HoldsALock', task 000000: a task cannot be sent between processes"):
        run_one(HoldsALock(), tmp_path, keep_failed=True)
    (aside,) = RunDirectory(str(tmp_path / "run")).tasks_set_aside()
    assert "cannot be sent between processes" in aside.message
    assert (aside.stage, aside.first_stage, aside.rows, aside.attempts) == ("HoldsALock", "HoldsALock", 1, 1)
    assert aside.read().data["n"].to_pylist() == [1]


@pytest.mark.parametrize("keep_failed", [True, False])
def test_stages_that_cannot_be_set_up_end_the_run(keep_failed: bool, tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"'no_model'.*weights are not there"):
        run_one(FailsToSetUp("setup", tmp_path, always=True), tmp_path, keep_failed=keep_failed)


@pytest.mark.parametrize("keep_failed", [True, False])
def test_a_stage_that_takes_too_long_ends_the_run(keep_failed: bool, tmp_path: Path) -> None:
    with pytest.raises(WorkerDiedError, match=r"'Slow', task 000000: it took longer than the 0\.1 s"):
        run_one(Slow(task_s=1.0).with_(timeout_s=0.1), tmp_path, keep_failed=keep_failed)


def test_setup_does_not_count_towards_the_time_limit_of_a_task(tmp_path: Path) -> None:
    assert len(run_one(Slow(setup_s=1.0).with_(timeout_s=0.5), tmp_path)) == 1


def test_an_address_without_a_listener_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ClusterError, match=r"no Ray cluster can be reached at 127.0.0.1:1"), connected("a test"):
        pass


@pytest.mark.ray
def test_a_cluster_that_is_started_changes_neither_signals_nor_the_environment() -> None:
    """In a process of its own: a cluster is started."""
    code = """if True:
        import os, signal, ray
        from tamis.backends.external.ray_session import connected
        def ours(*_): pass
        signal.signal(signal.SIGTERM, ours)
        before = dict(os.environ)
        with connected("a test", {"TEST_MOOD": "merry"}):
            assert signal.getsignal(signal.SIGTERM) is ours
            assert os.environ["TEST_MOOD"] == "merry"
            assert ray.is_initialized()
        assert signal.getsignal(signal.SIGTERM) is ours
        assert not ray.is_initialized()
        assert {**before, **os.environ} == before
    """
    # without what other tests in this process have made Ray set
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_") and k != "PYTHONBREAKPOINT"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)
