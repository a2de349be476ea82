"""A plan: what an executor is given."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis.errors import PlanError
from tamis.plan.check import check_graph
from tamis.plan.describe import describe
from tamis.plan.graph import END, Stage, Vertex, build_graph
from tamis.stages.base import task_types
from tamis.stages.emit import MAIN
from tamis.stages.flow import BranchStage
from tamis.stages.resources import Resources
from tamis.tasks import EmptyTask, FileGroup, Task
from tamis.tasks.base import digest


@dataclass(frozen=True)
class Sizing:
    """How many workers a stage may have; without any limit it is the executor's to decide.

    Args:
        least, most: Limits on their number; equal ones fix it.
        per_node: A number for each machine instead.

    >>> str(Sizing(2, 2)), str(Sizing(most=8)), str(Sizing(per_node=2)), str(Sizing())
    ('2 workers', 'up to 8 workers', '2 workers a machine', '')
    """

    least: int | None = None
    most: int | None = None
    per_node: float | None = None

    @classmethod
    def of(cls, stage: Stage) -> Sizing:
        """What a stage says, by :meth:`num_workers`, :meth:`num_workers_per_node` or its settings for Ray."""
        spec = stage.ray_stage_spec()
        limits = {"num_workers": stage.num_workers(), "num_workers_per_node": stage.num_workers_per_node()}
        limits["min_workers/max_workers"] = spec.get("min_workers") or spec.get("max_workers")
        given = [name for name, value in limits.items() if value is not None]
        if len(given) > 1:
            raise PlanError(f"stage {stage.name!r} says {' and '.join(given)}: give one of them")
        if stage.num_workers() is not None:
            return cls(stage.num_workers(), stage.num_workers())
        least, most = spec.get("min_workers"), spec.get("max_workers")
        if least is not None and most is not None and least > most:
            raise PlanError(f"stage {stage.name!r}: min_workers={least} is more than max_workers={most}")
        return cls(least, most, stage.num_workers_per_node())

    def __bool__(self) -> bool:
        return self != Sizing()

    def __str__(self) -> str:
        if self.per_node is not None:
            return f"{self.per_node:g} workers a machine"
        if self.least == self.most:
            return "" if self.most is None else _count(self.most, "worker")
        words = [f"at least {self.least}"] if self.least is not None else []
        words += [f"up to {self.most}"] if self.most is not None else []
        return f"{' and '.join(words)} workers"


@dataclass(frozen=True)
class Merged:
    """Neighbouring stages that run as one.

    Args:
        vertices: The stages, in order.
        stage: What is called instead of them.
    """

    vertices: tuple[int, ...]
    stage: Stage


@dataclass(frozen=True)
class Group:
    """Stages that run together in one worker, on one task after the other.

    Args:
        index: Its number in the plan.
        entry: The vertex its tasks arrive at.
        vertices: All its vertices; the ways between them are taken inside the worker.
        is_source: Whether the driver makes its tasks.
        targets: The groups its outputs go to.
        inputs: The groups it is fed by.
        resources: What one worker needs.
        releases_gil: Whether all of its stages do.
        workers: How many workers there may be.
        runtime_env: What their processes need beside the stages.
        timeout_s: How long one task, or batch of them, may take.
        batch_size: How many tasks the entry stage is given at once.
        batch_bytes: Or how many bytes of them, by weight.
        ordered: Whether batches must be made of consecutive tasks, in the order of the input.
        merged: Neighbouring stages that run as one, by the first of them.
    """

    index: int
    entry: int
    vertices: tuple[int, ...]
    is_source: bool
    targets: tuple[int, ...]
    inputs: tuple[int, ...]
    resources: Resources
    releases_gil: bool
    workers: Sizing = Sizing()
    runtime_env: dict[str, Any] | None = None
    timeout_s: float | None = None
    batch_size: int = 1
    batch_bytes: int | None = None
    ordered: bool = False
    merged: dict[int, Merged] = field(default_factory=dict)

    @property
    def is_last(self) -> bool:
        """Whether nothing it makes goes to another group."""
        return not self.targets


@dataclass
class Plan:
    """A pipeline as an executor is given it: a graph of stages, cut into groups that run in one worker.

    ``str(plan)`` shows it.
    """

    name: str
    vertices: list[Vertex]
    groups: list[Group]
    group_of: list[int]
    columns: list[frozenset[str] | None] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        """A digest of the stages and their parameters: equal for equal pipelines, in every process and every mode."""
        return digest(*((v.name, describe(v.stage)) for v in self.vertices if not v.stage.internal))

    def __str__(self) -> str:
        lines = [f"Plan of {self.name!r}: {_count(len(self.vertices), 'stage')} in {_count(len(self.groups), 'group')}"]
        for group in self.groups:
            lines.append(f"\n  {group.index + 1}. {self._heading(group)}")
            lines += [f"       {self._line(self.vertices[v])}" for v in group.vertices]
        return "\n".join(lines)

    def _heading(self, group: Group) -> str:
        if group.is_source:
            behind = "when everything before it is done" if group.inputs else "lists the input"
            return f"on the driver, {behind}"
        need = group.resources
        words = [f"{need.cpus:g} cpu"]
        if need.gpus:
            words.append(f"{need.gpus:g} gpu")
        if need.gpu_memory_gb:
            words.append(f"{need.gpu_memory_gb:g} GB of gpu memory")
        words.append("threads" if group.releases_gil and not need.requires_gpu else "processes")
        if str(group.workers):
            words.append(str(group.workers))
        if group.timeout_s is not None:
            words.append(f"at most {group.timeout_s:g} s a task")
        if group.batch_bytes is not None:
            words.append(f"up to {group.batch_bytes:,} bytes at once")
        elif group.batch_size > 1:
            words.append(f"{group.batch_size} tasks at once")
        return ", ".join(words)

    def _line(self, vertex: Vertex) -> str:
        takes, gives = (_type_name(t) for t in task_types(vertex.stage))
        ways = []
        for port, target in vertex.edges.items():
            if target != vertex.index + 1 or port != "out":
                to = "output" if target == END else self.vertices[target].name
                to = to.removeprefix(f"{vertex.name}[{port}] / ")
                ways.append(f"{port} -> {to}" if len(vertex.edges) > 1 or port != "out" else f"-> {to}")
        return f"{vertex.name}  ({takes} -> {gives})" + (f"  [{', '.join(ways)}]" if ways else "")


def make_plan(
    name: str,
    stages: Sequence[Stage],
    *,
    initial: type[Task[Any]] | None = EmptyTask,
    fuse: bool = True,
    batch: bool = False,
) -> Plan:
    """Plan a pipeline: unfold, lay out branches, check types and columns, fuse neighbours.

    Args:
        name: The pipeline's name.
        stages: Its stages.
        initial: What the first stage is given, when it is no source.
        fuse: Whether neighbouring stages may run in one worker, without data moving between them.
        batch: Whether each stage waits until the one before it has done the whole data.
    """
    if not stages:
        raise PlanError(f"pipeline {name!r} has no stages: add some with add_stage()")
    vertices = build_graph(stages)
    columns = check_graph(vertices, initial)
    if batch:
        vertices = build_graph(stages, batch=True)
        columns = check_graph(vertices, initial)
    group_of = _fuse(vertices, fuse)
    return Plan(name, vertices, _groups(vertices, group_of), group_of, columns)


def _fuse(vertices: list[Vertex], fuse: bool) -> list[int]:
    """The number of the group of each vertex."""
    group_of: list[int] = []
    count = 0
    for vertex in vertices:
        homes = {group_of[i] for i in vertex.inputs}
        joins = (
            len(homes) == 1 and not vertex.is_source and all(_joins(vertices[i], vertex, fuse) for i in vertex.inputs)
        )
        if joins:
            group_of.append(homes.pop())
        else:
            group_of.append(count)
            count += 1
    return group_of


def _joins(before: Vertex, after: Vertex, fuse: bool) -> bool:
    """Whether two neighbours can share a worker and lose nothing by it."""
    a, b = before.stage, after.stage
    if a.is_sink_stage:
        return False  # what it names is there only once the task is done
    if before.is_source or a.resources.requires_gpu or b.resources.requires_gpu or _batches(b):
        return False
    if isinstance(b, BranchStage) and a.runtime_env == b.runtime_env:
        return True  # a branch does no work of its own
    return (
        fuse
        and not _fans_out(a)
        and _cpus(a) == _cpus(b)
        and Sizing.of(a) == Sizing.of(b)
        and a.runtime_env == b.runtime_env
        and a.timeout_s is b.timeout_s is None
    )


def _cpus(stage: Stage) -> float:
    """CPUs for the comparison: a stage that wants a core or less shares its neighbour's worker."""
    return max(1.0, stage.resources.cpus)


def _batches(stage: Stage) -> bool:
    return (stage.batch_size > 1 and stage.supports_batch_processing()) or getattr(
        stage, "batch_bytes", None
    ) is not None


def _fans_out(stage: Stage) -> bool:
    """Whether a stage makes many tasks of one, which should then spread over the workers.

    Readers do not count: what they make of one file is a stream that is best worked off where it is read.
    """
    takes, _ = task_types(stage)
    if takes is EmptyTask:
        return True
    if takes is FileGroup or isinstance(stage, BranchStage):
        return False
    return stage.fans_out or bool(stage.ray_stage_spec().get("is_fanout_stage"))


def _groups(vertices: list[Vertex], group_of: list[int]) -> list[Group]:
    members: dict[int, list[Vertex]] = {}
    for vertex in vertices:
        members.setdefault(group_of[vertex.index], []).append(vertex)
    return [_group(index, inside, group_of) for index, inside in sorted(members.items())]


def _group(index: int, inside: list[Vertex], group_of: list[int]) -> Group:
    entry = inside[0]
    stages = [v.stage for v in inside]
    targets = {group_of[t] for v in inside for t in v.edges.values() if t != END} - {index}
    inputs = {group_of[i] for v in inside for i in v.inputs} - {index}
    batch_bytes = getattr(entry.stage, "batch_bytes", None)
    batched = _batches(entry.stage)
    return Group(
        index=index,
        entry=entry.index,
        vertices=tuple(v.index for v in inside),
        is_source=entry.is_source,
        targets=tuple(sorted(targets)),
        inputs=tuple(sorted(inputs)),
        resources=max((s.resources for s in stages), key=lambda r: (r.requires_gpu, r.cpus)),
        releases_gil=all(s.releases_gil for s in stages),
        workers=Sizing.of(entry.stage),
        runtime_env=entry.stage.runtime_env,
        timeout_s=entry.stage.timeout_s,
        batch_size=entry.stage.batch_size if batch_bytes is None else 2**31,
        batch_bytes=batch_bytes,
        ordered=batched,
        merged=_merged(inside),
    )


def _merged(inside: list[Vertex]) -> dict[int, Merged]:
    """Runs of stages that can be replaced by one: each leads to the next and nowhere else."""
    found: dict[int, Merged] = {}
    run: Merged | None = None
    for before, after in itertools.pairwise(inside):
        run = run if run is not None and run.vertices[-1] == before.index else Merged((before.index,), before.stage)
        follows = before.edges == {MAIN: after.index} and after.inputs == [before.index]
        stage = run.stage.merged_with(after.stage) if follows else None
        if stage is not None:
            run = Merged((*run.vertices, after.index), stage)
            found[run.vertices[0]] = run
        else:
            run = None
    return found


def _type_name(kind: Any) -> str:
    return "|".join(k.__name__ for k in kind) if isinstance(kind, tuple) else str(kind.__name__)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"
