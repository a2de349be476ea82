"""What is measured of workers: with a simulated clock, so that every second is known."""

from __future__ import annotations

from typing import Any

import pytest
from clusters import Nothing, Numbers
from journals import MemoryJournal

from tamis.backends.contracts import Limits
from tamis.backends.coordinator import Coordinator
from tamis.backends.outcome import Failure, Outcome
from tamis.backends.payload import Envelope
from tamis.backends.substrates.simulated import SimulatedSubstrate, Work
from tamis.backends.worker_registry import Pool, WorkerRegistry
from tamis.plan import END, Group, Plan, Vertex
from tamis.runs.stats import GpuUse, StageStats
from tamis.runs.traces import TaskDone
from tamis.stages.resources import Resources


class Journal(MemoryJournal):
    def record(self, *_: Any) -> None: ...
    def output(self, *_: Any) -> None: ...


class Go:
    level, announced = 0, False


class TwoSeconds:
    """Every task takes two seconds; the first attempts may fail."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures

    def work(self, group: int, batch: list[Envelope]) -> Work:
        if self.failures:
            self.failures -= 1
            return Work(2.0, Outcome(failure=Failure("words", "boom"), seconds=2.0))
        stats = {
            1: StageStats("words", rows_in=10, bytes_in=100, rows_out=10, bytes_out=90, seconds=1.5),
            2: StageStats("write", rows_in=10, bytes_in=90, rows_out=4, bytes_out=40, seconds=0.5),
        }
        gpus = (GpuUse(0, 0.5, 2**30),)
        return Work(2.0, Outcome(stats=stats, seconds=2.0, peak_memory_bytes=1000, gpus=gpus))


def plan_of(tasks: int) -> Plan:
    """A source, and two stages that run together."""
    vertices = [
        Vertex(0, Numbers(tasks), "list", {"out": 1}, []),
        Vertex(1, Nothing(), "words", {"out": 2}, [0]),
        Vertex(2, Nothing(), "write", {"out": END}, [1]),
    ]
    groups = [
        Group(0, 0, (0,), True, (1,), (), Resources(), True),
        Group(1, 1, (1, 2), False, (), (0,), Resources(), True),
    ]
    return Plan("test", vertices, groups, [0, 1, 1])


def carried_out(tasks: int, workers: int, failures: int = 0) -> tuple[Coordinator, list[TaskDone]]:
    plan, seen = plan_of(tasks), list[TaskDone]()
    substrate = SimulatedSubstrate(TwoSeconds(failures))
    registry = WorkerRegistry(substrate, [Pool(frozenset({1}), workers)], {"": workers})
    coordinator = Coordinator(plan, substrate, registry, Journal(), Limits(workers, 2**30), stop=Go())
    coordinator.meter.on_task = seen.append
    assert coordinator.run()
    return coordinator, seen


def test_tasks_wait_until_a_worker_begins_them() -> None:
    coordinator, _ = carried_out(tasks=3, workers=1)
    queued = {stats.name: stats.queue_s for stats in coordinator.snapshot().stages}
    assert queued == {"list": 0.0, "words": pytest.approx(0 + 2 + 4, abs=0.1), "write": 0.0}


def test_with_a_worker_for_each_task_none_waits() -> None:
    coordinator, _ = carried_out(tasks=3, workers=3)
    assert coordinator.snapshot().stages[1].queue_s == pytest.approx(0.0, abs=0.1)


def test_each_worker_has_counts_of_what_entered_and_left_it() -> None:
    coordinator, _ = carried_out(tasks=4, workers=2)
    workers = coordinator.snapshot().worker_stats()
    assert [worker.worker for worker in workers] == [0, 1]
    for worker in workers:
        (stages, counts), *others = worker.work.items()
        assert (stages, others) == ("words + write", [])
        assert (counts.tasks, counts.rows_in, counts.rows_out, counts.bytes_in, counts.bytes_out) == (2, 20, 8, 200, 80)
        assert counts.seconds == 4.0
        assert worker.busy_s == pytest.approx(4.0, abs=0.2)
        assert worker.peak_memory_bytes == 1000
        assert worker.gpus == (GpuUse(0, 0.5, 2**30),)


def test_a_snapshot_says_how_many_workers_each_stage_has() -> None:
    coordinator, _ = carried_out(tasks=1, workers=2)
    assert list(coordinator.snapshot().stage_workers) == [0, 2, 2]


def test_every_attempt_is_reported_to_traces() -> None:
    coordinator, seen = carried_out(tasks=2, workers=1, failures=1)
    assert [task.error for task in seen] == ["boom", "", ""]
    assert {(task.entry, tuple(task.stages), task.worker, task.seconds) for task in seen} == {(1, (1, 2), 0, 2.0)}
    assert [task.rows for task in seen] == [0, 10, 10]
    assert coordinator.snapshot().worker_stats()[0].work["words + write"].tasks == 2
