"""Runs of the coordinator and its autoscaler on simulated clusters."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from journals import MemoryJournal

from tamis.backends.autoscaler import Autoscaler, has_dedicated_workers
from tamis.backends.contracts import Limits
from tamis.backends.coordinator import Coordinator
from tamis.backends.gpu_placement import Node
from tamis.backends.outcome import Failure, Outcome
from tamis.backends.payload import Envelope
from tamis.backends.substrates.simulated import SimulatedCluster, Start, Work
from tamis.backends.worker_registry import Pool, WorkerRegistry
from tamis.plan import END, Group, Plan, Vertex
from tamis.plan.plan import Sizing
from tamis.runs.finished_work import FinishedBatch
from tamis.stages.base import ProcessingStage, SourceStage
from tamis.stages.emit import Publish
from tamis.stages.resources import Resources
from tamis.tasks import Task
from tamis.tasks.base import digest

MIB = 2**20
ONE_CPU = Resources()
ANY_NUMBER = Sizing()


@dataclass
class SizedTask(Task[None]):
    data: None = None
    size: int = MIB

    @property
    def nbytes(self) -> int:
        return 0

    @property
    def weight(self) -> int:
        return self.size


class Numbers(SourceStage[Any, Any]):
    """Makes tasks of a size."""

    def __init__(self, count: int, size: int = MIB) -> None:
        self.count, self.size = count, size

    def splits(self, scratch: str) -> Iterator[SizedTask]:
        for _ in range(self.count):
            yield SizedTask(size=self.size)


class Nothing(ProcessingStage[Any, Any]):
    """Stands for any stage."""

    def process(self, task: Any) -> Any:
        return task


@dataclass(frozen=True)
class Step:
    """A stage on paper.

    Args:
        seconds: How long it takes for a task.
        resources: What a worker needs.
        inputs: The stages before it, by their numbers; 0 is the source. By default the one before it in the list.
        setup_s: How long a worker takes to set it up.
        workers, timeout_s, batch_size: As in :class:`~tamis.plan.Group`.
    """

    seconds: float = 1.0
    resources: Resources = ONE_CPU
    inputs: tuple[int, ...] | None = None
    setup_s: float = 0.0
    workers: Sizing = ANY_NUMBER
    timeout_s: float | None = None
    batch_size: int = 1


def plan_of(steps: Sequence[Step], tasks: int, size: int = MIB) -> Plan:
    """A source and the steps behind it, each a group of its own."""
    inputs: list[tuple[int, ...]] = [()]
    inputs += [(n,) if step.inputs is None else step.inputs for n, step in enumerate(steps)]
    count = len(steps) + 1
    vertices, groups = [], []
    for i in range(count):
        edges = {f"to{j}": j for j in range(i + 1, count) if i in inputs[j]} or {"out": END}
        stage: Any = Nothing() if i else Numbers(tasks, size)
        vertices.append(Vertex(i, stage, f"v{i}", edges, list(inputs[i])))
        targets = tuple(t for t in edges.values() if t != END)
        step = steps[i - 1] if i else Step()
        groups.append(
            Group(
                i,
                i,
                (i,),
                not i,
                targets,
                inputs[i],
                step.resources,
                releases_gil=True,
                workers=step.workers,
                timeout_s=step.timeout_s,
                batch_size=step.batch_size,
                ordered=step.batch_size > 1,
            )
        )
    return Plan("simulated", vertices, groups, list(range(count)))


@dataclass
class Trade:
    """How work goes: every task makes one for each stage that follows, of the same size, after the step's time.

    Args:
        plan: The plan.
        steps: Its steps.
        start_s: How long a worker takes to start, before it sets its stage up.
    """

    plan: Plan
    steps: Sequence[Step]
    start_s: float = 1.0

    def seconds(self, group: int, batch: list[Envelope]) -> float:
        """How long it takes."""
        return self.steps[group - 1].seconds * len(batch)

    def children(self, group: int, batch: list[Envelope]) -> list[Envelope]:
        """What comes of tasks: depends on the tasks alone."""
        return [
            Envelope(t, digest(e.task_id, group, t), e.order, 0 if t == END else e.weight, e.weight, 1, None)
            for e in batch
            for t in self.plan.vertices[group].edges.values()
        ]

    def start(self, groups: frozenset[int], node: str) -> Start:
        """How a worker starts: those of one group set it up."""
        setup_s = self.steps[min(groups) - 1].setup_s if len(groups) == 1 else 0.0
        return Start(self.start_s + setup_s)

    def work(self, group: int, batch: list[Envelope]) -> Work:
        """How an assignment goes."""
        seconds = self.seconds(group, batch)
        first = f"{group}/{batch[0].task_id}"
        published = [Publish(f"tmp {first}", first, 1, 1)]
        return Work(seconds, Outcome(outputs=self.children(group, batch), published=published, seconds=seconds))


class Books(MemoryJournal):
    """A journal that remembers what was done and published, and how often."""

    def __init__(self) -> None:
        super().__init__()
        self.done: Counter[tuple[str, str]] = Counter()
        self.published: Counter[str] = Counter()
        self.discarded: Counter[str] = Counter()
        self.outputs: Counter[str] = Counter()

    def record(self, batch: FinishedBatch, published: list[Publish], drops: Any = None) -> None:
        self.done.update((batch.stage, t) for t in batch.tasks)
        self.published.update(p.final for p in published)

    def output(self, envelope: Envelope) -> None:
        self.outputs[envelope.task_id] += 1

    def discard(self, published: Iterable[Publish]) -> None:
        self.discarded.update(p.final for p in published)


class Auditor:
    """Looks at memory and workers at every turn."""

    def __init__(self) -> None:
        self.look: Callable[[], None] = lambda: None
        self.messages: list[str] = []

    def update(self, snapshot: Any) -> None:
        self.look()

    def message(self, text: str) -> None:
        self.messages.append(text)


@dataclass
class Run:
    """A run on a simulated cluster, ready to go.

    Args:
        plan: The plan.
        model: How work goes.
        machines: The machines at first.
        budget: Memory for tasks between stages, in bytes.
        seen_after_s: How long it takes until the driver knows of machines that came or went.
        quarantine: Where tasks that are given up go.
        retries, death_retries: How often tasks are tried again.
    """

    plan: Plan
    model: Any
    machines: Sequence[Node]
    budget: int = 2**40
    seen_after_s: float = 0.0
    quarantine: str = ""
    retries: int = 1
    death_retries: int = 2
    level: int = 0
    announced: bool = False
    books: Books = field(default_factory=Books)
    auditor: Auditor = field(default_factory=Auditor)

    def __post_init__(self) -> None:
        work = [g for g in self.plan.groups if not g.is_source]
        self.dedicated = [g for g in work if has_dedicated_workers(g)]
        self.shared = frozenset(g.index for g in work if not has_dedicated_workers(g))
        pools = [Pool(frozenset({g.index}), 0, reserved_cpus=g.resources.cpus) for g in self.dedicated]
        pools += [Pool(self.shared, 0)] if self.shared else []
        needs = {g.index: g.resources for g in work}
        self.cluster = SimulatedCluster(self.model, self.machines, needs, self.seen_after_s)
        self.registry = WorkerRegistry(self.cluster, pools, {n.id: n.cpus for n in self.machines}, elastic=True)
        limits = Limits(
            max(n.cpus for n in self.machines), self.budget, self.retries, self.death_retries, least_cpus=0.1
        )
        self.autoscaler = Autoscaler(self.plan, self.registry, self.cluster.nodes, self.cluster.now)
        self.coordinator = Coordinator(
            self.plan,
            self.cluster,
            self.registry,
            self.books,
            limits,
            quarantine=self.quarantine,
            stop=self,
            watcher=self.auditor,
            manager=self.autoscaler,
        )

    def go(self) -> bool:
        """Run to the end; virtual time that never ends is refused."""
        return self.coordinator.run()


def failure(error: str = "boom") -> Failure:
    return Failure("v", error)


def drawn(key: str) -> random.Random:
    """Chance that depends on a key alone."""
    return random.Random(key)
