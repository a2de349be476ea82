"""What a decision of the coordinator costs as tasks, stages and workers grow, on a simulated cluster.

    python benchmarks/scheduler.py [--tasks 10000,100000,1000000] [--stages 3,10,30] [--workers 10,100,1000]

A decision is one task at one stage: taking it from its queue, finding a worker, sending it there, hearing that it is
done, sending on what came of it. Tasks are references without data; workers exist on paper, 16 to a machine, and take
between half a second and one and a half on a virtual clock, so that almost every turn of the loop has one event: the
most expensive case. What the simulation itself costs is measured without the coordinator and taken off.

Prints CPU microseconds per decision, and the ratio to the smallest of each row. The aim is that it stays flat.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tamis.backends.contracts import Limits
from tamis.backends.coordinator import Coordinator
from tamis.backends.outcome import Outcome
from tamis.backends.payload import Envelope
from tamis.backends.substrates.base import Done
from tamis.backends.substrates.simulated import SimulatedSubstrate, Work
from tamis.backends.worker_registry import Pool, WorkerRegistry
from tamis.plan import END, Group, Plan, Vertex
from tamis.stages.base import ProcessingStage, SourceStage
from tamis.stages.emit import Publish
from tamis.stages.resources import Resources
from tamis.tasks import Task

CPUS_PER_NODE = 16
DRAWN = 4096


class Numbers(SourceStage[Any, Any]):
    """Makes tasks without data, one after the other."""

    def __init__(self, count: int) -> None:
        self.count = count

    def splits(self, scratch: str) -> Iterator[Task[None]]:
        for _ in range(self.count):
            yield Task(None)


class Nothing(ProcessingStage[Any, Any]):
    """Stands for any stage."""


@dataclass
class Model:
    """How work goes: each task makes one for the next stage, after some time."""

    stages: int

    def __post_init__(self) -> None:
        draw = random.Random(0)
        self._seconds = [draw.uniform(0.5, 1.5) for _ in range(DRAWN)]
        self._count = 0

    def work(self, group: int, batch: list[Envelope]) -> Work:
        self._count += 1
        seconds = self._seconds[self._count % DRAWN]
        target = group + 1 if group < self.stages else END
        outputs = [Envelope(target, e.task_id, e.order, e.nbytes, e.weight, 1, None) for e in batch]
        return Work(seconds, Outcome(outputs=outputs, seconds=seconds))


class Tally:
    """A journal that counts."""

    def __init__(self) -> None:
        self.outputs = 0

    def record(self, stage: str, task_ids: list[str], published: list[Publish], drops: Any = None) -> None:
        pass

    def output(self, envelope: Envelope) -> None:
        self.outputs += 1

    def flush(self) -> None:
        pass

    def discard(self, published: Iterable[Publish]) -> None:
        pass


class Never:
    """Never asks to stop."""

    level = 0
    announced = False


def make_plan(tasks: int, stages: int) -> Plan:
    """A source and a chain of stages behind it, each a group of its own."""
    vertices, groups = [], []
    for i in range(stages + 1):
        stage: ProcessingStage[Any, Any] = Nothing() if i else Numbers(tasks)
        after = i + 1 if i < stages else END
        before = [i - 1] if i else []
        vertices.append(Vertex(i, stage, f"stage {i}", {"out": after}, before))
        targets = () if after == END else (after,)
        groups.append(Group(i, i, (i,), not i, targets, tuple(before), Resources(), releases_gil=True))
    return Plan("scheduler", vertices, groups, list(range(stages + 1)))


def through_the_coordinator(tasks: int, stages: int, workers: int) -> float:
    """CPU seconds for all tasks through all stages."""
    plan, tally, substrate = make_plan(tasks, stages), Tally(), SimulatedSubstrate(Model(stages))
    nodes = {f"node {n}": float(CPUS_PER_NODE) for n in range(-(-workers // CPUS_PER_NODE))}
    pool = Pool(frozenset(range(1, stages + 1)), 0)
    registry = WorkerRegistry(substrate, [pool], nodes, elastic=True)
    for worker in range(workers):
        registry.start_worker(0, f"node {worker % len(nodes)}")
    coordinator = Coordinator(plan, substrate, registry, tally, Limits(workers, 2**40), stop=Never())
    began = time.process_time()
    assert coordinator.run()
    seconds = time.process_time() - began
    assert tally.outputs == tasks
    return seconds


def without_it(decisions: int, workers: int) -> float:
    """CPU seconds that the simulation takes for as much work, given out by a bare loop."""
    substrate, envelope = SimulatedSubstrate(Model(1)), Envelope(1, "", (0,), 0, 0, 1, None)
    began = time.process_time()
    for worker in range(workers):
        substrate.start_worker(worker, frozenset([1]))
        substrate.submit(worker, worker, 1, [envelope])
    given, done = workers, 0
    while done < decisions:
        for event in substrate.poll(10.0):
            if isinstance(event, Done):
                done += 1
                if given < decisions:
                    substrate.submit(event.ticket % workers, event.ticket + workers, 1, [envelope])
                    given += 1
    return time.process_time() - began


def cost(tasks: int, stages: int, workers: int) -> float:
    """CPU microseconds per task and stage."""
    decisions = tasks * stages
    sample = max(10 * workers, min(decisions, 100_000))
    bare = without_it(sample, workers) / sample
    return 1e6 * (through_the_coordinator(tasks, stages, workers) / decisions - bare)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def row(what: str, sizes: list[int], costs: list[float]) -> None:
    print(f"\n{what}")
    for size, microseconds in zip(sizes, costs, strict=True):
        print(f"  {size:>12,}{microseconds:>10.1f} us{microseconds / costs[0]:>8.2f} x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=numbers, default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--stages", type=numbers, default=[3, 10, 30])
    parser.add_argument("--workers", type=numbers, default=[10, 100, 1_000])
    arguments = parser.parse_args()
    tasks, stages, workers = arguments.tasks, arguments.stages, arguments.workers
    middle = tasks[len(tasks) // 2]
    few, some = stages[0], workers[len(workers) // 2]
    row(f"tasks ({few} stages, {some} workers)", tasks, [cost(n, few, some) for n in tasks])
    # As many decisions whatever the number of stages.
    row(f"stages ({some} workers)", stages, [cost(max(1, middle * few // n), n, some) for n in stages])
    row(f"workers ({middle:,} tasks, {few} stages)", workers, [cost(middle, few, n) for n in workers])
    everything = cost(tasks[-1], few, workers[-1])
    print(f"\n{tasks[-1]:,} tasks, {few} stages, {workers[-1]:,} workers: {everything:.1f} us per decision")


if __name__ == "__main__":
    main()
