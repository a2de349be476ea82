"""Measures what workers do: how long tasks wait, and what each worker has done. Called once per assignment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from tamis.backends.dispatch import Assignment
from tamis.backends.outcome import Outcome
from tamis.backends.payload import Envelope
from tamis.backends.worker_registry import Worker, WorkerRegistry
from tamis.plan import Group, Plan
from tamis.runs.stats import StageStats, WorkCounts, WorkerStats
from tamis.runs.traces import TaskDone

__all__ = ["Meter", "done_task"]


class Meter:
    """Measures the workers of a coordinator.

    Args:
        plan: The groups.
        stats: The counts of the stages, to which the time is added that tasks wait.
        registry: The workers.
        now: The clock, in seconds.
    """

    def __init__(
        self, plan: Plan, stats: Sequence[StageStats], registry: WorkerRegistry, now: Callable[[], float]
    ) -> None:
        self._plan, self._stats, self._registry, self._now = plan, stats, registry, now
        self._exits = [_exits(plan, group) for group in plan.groups]
        self._names = [" + ".join(plan.vertices[v].name for v in group.vertices) for group in plan.groups]
        self.on_task: Callable[[TaskDone], None] | None = None
        """Receives each finished assignment, if anybody wants to know."""

    def done(self, assignment: Assignment, ticket: int, outcome: Outcome) -> None:
        """A worker has finished an assignment. Called before the worker is given the next one."""
        worker, batch, index = assignment.worker, assignment.batch, assignment.group
        waited = max(0.0, worker.began.get(ticket, 0.0) - batch[0].ready_s)
        group = self._plan.groups[index]
        worker.peak_memory_bytes = max(worker.peak_memory_bytes, outcome.peak_memory_bytes)
        if outcome.gpus:
            worker.gpus = outcome.gpus
        if outcome.failure is None:
            counts = worker.work.get(index)
            if counts is None:
                counts = worker.work[index] = WorkCounts()
            tasks, stats = len(batch), outcome.stats
            self._stats[group.entry].queue_s += waited * tasks
            counts.queue_s += waited * tasks
            counts.tasks += tasks
            counts.seconds += outcome.seconds
            entry = stats.get(group.entry)
            if entry is not None:
                counts.rows_in += entry.rows_in
                counts.bytes_in += entry.bytes_in
            for vertex in self._exits[index]:
                last = stats.get(vertex)
                if last is not None:
                    counts.rows_out += last.rows_out
                    counts.bytes_out += last.bytes_out
        if self.on_task is not None:
            self.on_task(done_task(group, batch, outcome, waited, worker))

    def stage_workers(self) -> list[int]:
        """For each stage, the workers that can be given its tasks; 0 for sources, which the driver lists."""
        sizes = [0 if group.is_source else self._registry.size_for(group.index) for group in self._plan.groups]
        return [sizes[group] for group in self._plan.group_of]

    def worker_stats(self) -> list[WorkerStats]:
        """What each worker has done."""
        now = self._now()
        return [
            WorkerStats(
                worker.index,
                worker.node,
                worker.total_busy_s(now),
                worker.peak_memory_bytes,
                {self._names[group]: counts for group, counts in worker.work.items()},
                worker.gpus,
            )
            for worker in self._registry.workers.values()
        ]


def done_task(
    group: Group, batch: Sequence[Envelope], outcome: Outcome, waited_s: float = 0.0, worker: Worker | None = None
) -> TaskDone:
    """What a trace records of an assignment that has just been finished.

    Args:
        group: The group that ran it.
        batch: Its tasks.
        outcome: What became of it.
        waited_s: How long it waited for a worker.
        worker: The worker, where it is known.
    """
    entry = outcome.stats.get(group.entry)
    return TaskDone(
        entry=group.entry,
        stages=group.vertices,
        ended_ns=time.monotonic_ns(),
        seconds=outcome.seconds,
        queue_s=waited_s,
        task_ids=[e.task_id for e in batch],
        rows=entry.rows_in if entry else 0,
        stage_seconds={vertex: stats.seconds for vertex, stats in outcome.stats.items()},
        worker=None if worker is None else worker.index,
        node="" if worker is None else worker.node,
        error="" if outcome.failure is None else outcome.failure.error,
    )


def _exits(plan: Plan, group: Group) -> tuple[int, ...]:
    """The stages of a group whose results leave it."""
    inside = set(group.vertices)
    return tuple(v for v in group.vertices if not inside & set(plan.vertices[v].edges.values()))
