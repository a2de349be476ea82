"""While a worker computes, the next input is fetched and the last result is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from overlap_stages import Noted, WaitsForTheNext, wait_for

from tamis.backends.group_spec import GroupSpec, RunPaths
from tamis.backends.payload import enclose
from tamis.backends.substrates.base import Done, WorkerReady
from tamis.backends.substrates.processes import ProcessSubstrate
from tamis.plan import make_plan
from tamis.stages.base import ProcessingStage


class Last(ProcessingStage[Noted, Noted]):
    """In a group of its own, so that what the stage before makes must be handed over."""

    fuse = False

    def process(self, task: Noted) -> Noted:
        return task


def spec() -> dict[int, GroupSpec]:
    plan = make_plan("p", [WaitsForTheNext(), Last()], initial=Noted)
    return {0: GroupSpec.of(plan, plan.groups[0])}


def submit(substrate: Any, folder: Path) -> None:
    """Submit two tasks, the second while the first is computed."""
    for n in range(2):
        task = Noted([0], task_id=str(n), order=(n,), folder=str(folder), number=n)
        substrate.submit(0, n, 0, [enclose(task, 0)], alone=True)
        if n == 0:
            substrate.poll(0.0)
            wait_for(str(folder), "computing 0")


def outcomes(substrate: Any) -> dict[int, Any]:
    found: dict[int, Any] = {}
    for _ in range(2000):
        found |= {e.ticket: e.outcome for e in substrate.poll(0.1) if isinstance(e, Done)}
        if len(found) == 2:
            return found
    raise AssertionError(f"only {sorted(found)} came back")


def test_a_process_fetches_and_sends_while_it_computes(tmp_path: Path) -> None:
    substrate = ProcessSubstrate(spec(), RunPaths(str(tmp_path)), str(tmp_path / "payloads"))
    try:
        substrate.start_worker(0, frozenset({0}))
        submit(substrate, tmp_path)
        assert [outcome.failure for outcome in outcomes(substrate).values()] == [None, None]
    finally:
        substrate.close(at_once=False)


@pytest.mark.usefixtures("ray_cluster")
def test_an_actor_fetches_and_sends_while_it_computes(tmp_path: Path) -> None:
    import ray

    from tamis.backends.substrates.ray import RaySubstrate

    substrate = RaySubstrate(spec(), RunPaths(str(tmp_path)), frozenset(), {})
    try:
        substrate.start_worker(0, frozenset({0}), node=ray.nodes()[0]["NodeID"])
        while not any(isinstance(e, WorkerReady) for e in substrate.poll(1.0)):
            pass
        submit(substrate, tmp_path)
        assert [outcome.failure for outcome in outcomes(substrate).values()] == [None, None]
    finally:
        substrate.close(at_once=False)
