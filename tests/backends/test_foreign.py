"""The driver of foreign engines, on an engine in this process that does what real ones do now and then: all out of
order, some of it twice, and some of it not at all."""

from __future__ import annotations

import queue
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from parity_pipelines import PIPELINES, failing, run_on, write_input

from tamis.backends.base import Run
from tamis.backends.carry_out import places_of
from tamis.backends.foreign.kit import Kit, group_specs, run_on_engine
from tamis.backends.foreign.operator import Operator, OperatorSpec, Parcel
from tamis.backends.local import LocalExecutor
from tamis.backends.substrates.processes import pickled_stages
from tamis.errors import StageError
from tamis.plan import Group, Plan
from tamis.runs.directory import RunDirectory
from tamis.stages.base import WorkerMetadata


class Box:
    """A mailbox in this process."""

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def post(self, message: bytes) -> None:
        self._messages.put(message)

    def take(self, wait_s: float) -> list[bytes]:
        try:
            return [self._messages.get(timeout=wait_s)]
        except queue.Empty:
            return []

    def close(self) -> None:
        pass


class ShakyEngine:
    """Works parcels off in any order; repeats some, or loses one."""

    workers = 1

    def __init__(self, kit: Kit, box: Box, seed: int, loses: bool, keep_failed: bool) -> None:
        self._kit, self._box, self._loses, self._keep_failed = kit, box, loses, keep_failed
        self._random = random.Random(seed)

    def operator(self, group: Group, inside: frozenset[int]) -> OperatorSpec:
        return self._kit.operator(group, inside, keep_failed=self._keep_failed)

    def take(self, wait_s: float) -> list[bytes]:
        return self._box.take(wait_s)

    def abort(self) -> None:
        pass

    def carry(self, groups: Sequence[Group], operators: Sequence[OperatorSpec], parcels: list[Parcel]) -> None:
        for spec in operators:
            operator = Operator(spec, self._box, WorkerMetadata(scratch=self._kit.places.scratch))
            doubled = [p for p in parcels for _ in range(self._random.choice([1, 1, 2]))]
            self._random.shuffle(doubled)
            parcels = [made for parcel in doubled for made in operator.work(parcel)]
            operator.close()
            if self._loses and parcels:
                lost = parcels[0].envelopes[0].task_id
                parcels = [p for p in parcels if p.envelopes[0].task_id != lost]


class Shaky:
    execution_mode = "streaming"

    def __init__(self, seed: int = 0, fuse: bool = True, loses: bool = False, keep_failed: bool = False) -> None:
        self.seed, self.fuse, self.loses, self.keep_failed = seed, fuse, loses, keep_failed

    def check(self, plan: Plan) -> None:
        pass

    def describe(self) -> str:
        return "shaky"

    def execute(self, plan: Plan, run: Run) -> bool:
        stages = {index: pickled_stages({index: spec}) for index, spec in group_specs(plan).items()}
        box: Any = Box()
        kit = Kit(plan, stages, places_of(run), box, (), "run")
        return run_on_engine(plan, run, ShakyEngine(kit, box, self.seed, self.loses, self.keep_failed), kit)


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
        assert list((tmp_path / f"shaky-{seed}").rglob("*.tmp")) == []  # what was done twice left nothing behind


def test_tasks_that_an_engine_loses_are_missed(source: Path, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="lost 2 tasks"):
        run_on(Shaky(fuse=False, loses=True), PIPELINES["map"], source, tmp_path)


def test_failed_tasks_are_set_aside_when_asked(source: Path, tmp_path: Path) -> None:
    found = run_on(Shaky(keep_failed=True), failing, source, tmp_path)
    assert len(found.files) == 5
    (record,) = RunDirectory(str(tmp_path / "run")).quarantined(10)
    assert (record["stage"], record["place"]) == ("raises", "000002")
    assert "47 is not here" in record["problem"]
    assert (tmp_path / "run" / "quarantine" / record["data"]).exists()
