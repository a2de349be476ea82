"""Runs a coordinator for an executor: shows its progress, and stops the workers afterwards."""

from __future__ import annotations

import threading

from tamis.backends.base import Run
from tamis.backends.contracts import Limits, Manager
from tamis.backends.coordinator import Coordinator
from tamis.backends.group_spec import RunPaths
from tamis.backends.substrates.base import Substrate
from tamis.backends.substrates.inline import InlineSubstrate
from tamis.backends.worker_registry import WorkerRegistry
from tamis.errors import PlanError
from tamis.plan import Plan
from tamis.runs.progress import NoProgress
from tamis.stages.base import SourceStage


def run_paths(run: Run, *, workers_sync: bool = False) -> RunPaths:
    """The directories of a run that workers write to.

    Args:
        run: The run.
        workers_sync: Whether workers force output files to disk: the driver may be on another machine.
    """
    kept = run.directory
    drops = kept.drops if run.keep_drops else ""
    scores = kept.scores if run.keep_scores else ""
    return RunPaths(
        kept.scratch, kept.quarantine, kept.outputs, drops, workers_sync, kept.payloads, kept.staging, scores
    )


def carry_out(
    plan: Plan,
    run: Run,
    substrate: Substrate,
    registry: WorkerRegistry,
    limits: Limits,
    places: RunPaths,
    manager: Manager | None = None,
) -> bool:
    """Carry out a plan on a substrate. Returns ``False`` if the user stopped it before its end."""
    watchers = run.watchers
    coordinator = Coordinator(
        plan,
        substrate,
        registry,
        run.journal,
        limits,
        scratch=places.scratch,
        quarantine=places.quarantine,
        initial=run.initial,
        stop=run.stop,
        watcher=watchers,
        manager=manager,
        failures=run.failures,
    )
    run.stats = coordinator.books.stats
    coordinator.meter.on_task = run.on_task
    if run.measure_input or not isinstance(run.observer, NoProgress):
        _measure_input(plan, coordinator, places.scratch)
    if isinstance(substrate, InlineSubstrate):
        substrate.show_with(coordinator.show)
    watchers.start(coordinator.snapshot())
    state = "failed"
    try:
        done = coordinator.run()
        state = "done"
        return done
    finally:
        if state == "failed":
            run.journal.flush()  # while workers can still send the files that they hold
        substrate.close(at_once=state == "failed")
        watchers.finish(coordinator.snapshot(state))


def _measure_input(plan: Plan, coordinator: Coordinator, scratch: str) -> None:
    """Measure the input in the background, so that the display can show which share of it is done."""
    stage = plan.vertices[0].stage
    if not isinstance(stage, SourceStage):
        return

    def measure() -> None:
        try:
            coordinator.total_weight = sum(task.weight for task in stage.splits(scratch))
        except (OSError, PlanError, ValueError):
            return  # the run itself reports what is wrong with the input

    threading.Thread(target=measure, name="tamis-measure-input", daemon=True).start()
