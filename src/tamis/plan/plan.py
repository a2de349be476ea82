"""The plan that an executor is given."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tamis.errors import PlanError
from tamis.plan.check import check_graph
from tamis.plan.describe import describe
from tamis.plan.graph import END, Stage, Vertex, build_graph
from tamis.stages.batch_limit import BatchLimit
from tamis.stages.emit import MAIN
from tamis.stages.flow import BranchStage
from tamis.stages.resources import Resources
from tamis.stages.spill import LoadSpilled, Spill, Spilled
from tamis.stages.task_types import task_types
from tamis.tasks import EmptyTask, FileGroup, Task
from tamis.tasks.base import digest


@dataclass(frozen=True)
class Sizing:
    """How many workers a stage may have; without any limit the executor decides.

    Args:
        least, most: The fewest and the most workers; a fixed number if equal.
        per_node: A fixed number for each machine instead.

    >>> str(Sizing(2, 2)), str(Sizing(most=8)), str(Sizing(per_node=2)), str(Sizing())
    ('2 workers', 'up to 8 workers', '2 workers per machine', '')
    """

    least: int | None = None
    most: int | None = None
    per_node: float | None = None

    @classmethod
    def of(cls, stage: Stage) -> Sizing:
        """The limits of a stage: :meth:`num_workers`, :meth:`num_workers_per_node` or its settings for Ray."""
        spec = stage.ray_stage_spec()
        limits = {"num_workers": stage.num_workers(), "num_workers_per_node": stage.num_workers_per_node()}
        limits["min_workers/max_workers"] = spec.get("min_workers") or spec.get("max_workers")
        given = [name for name, value in limits.items() if value is not None]
        if len(given) > 1:
            raise PlanError(f"stage {stage.name!r} sets {' and '.join(given)}; set only one of them")
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
            return f"{self.per_node:g} workers per machine"
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
        stage: The stage that is called instead of them.
    """

    vertices: tuple[int, ...]
    stage: Stage


@dataclass(frozen=True)
class Group:
    """Stages that run together in one worker, on one task after the other.

    Args:
        index: Its number in the plan.
        entry: The vertex its tasks arrive at.
        vertices: All its vertices; tasks pass between them inside the worker.
        is_source: Whether the driver lists its tasks.
        targets: The groups its outputs go to.
        inputs: The groups its tasks come from.
        resources: What one worker holds.
        releases_gil: Whether all its stages release the GIL.
        workers: How many workers there may be.
        runtime_env: The Ray runtime environment of its workers.
        timeout_s: Seconds that one task, or batch of tasks, may take.
        batch_size: The most tasks in one assignment; ``None``: no limit.
        batch_bytes: The most bytes in one assignment, by weight.
        batch_rows: The most rows in one assignment.
        ordered: Whether batches must be made of consecutive tasks, in the order of the input.
        is_async: Whether the entry stage is ``async``.
        in_flight: How many assignments a worker runs at the same time: one unless the entry stage is ``async``.
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
    batch_size: int | None = 1
    batch_bytes: int | None = None
    batch_rows: int | None = None
    ordered: bool = False
    is_async: bool = False
    in_flight: int = 1
    merged: dict[int, Merged] = field(default_factory=dict)

    @property
    def is_last(self) -> bool:
        """Whether its outputs go to no other group."""
        return not self.targets


@dataclass
class Plan:
    """A pipeline as a graph of stages, cut into groups that each run in one worker. ``str(plan)`` shows it."""

    name: str
    vertices: list[Vertex]
    groups: list[Group]
    group_of: list[int]
    columns: list[frozenset[str] | None] = field(default_factory=list)

    @property
    def fingerprint(self) -> str:
        """A digest of the stages and their parameters: equal for equal pipelines, in every process and every mode.

        Barriers of batch mode are not part of it, nor is the first stage, which may list an input that grows.
        """
        own = [v for v in self.vertices[1:] if not isinstance(v.stage, Spill | Spilled | LoadSpilled)]
        first = [] if self.vertices[0].stage.internal else self.vertices[:1]
        return digest(*((v.name, describe(v.stage)) for v in (*first, *own)))

    def __str__(self) -> str:
        lines = [f"Plan of {self.name!r}: {_count(len(self.vertices), 'stage')} in {_count(len(self.groups), 'group')}"]
        for group in self.groups:
            lines.append(f"\n  {group.index + 1}. {self._heading(group)}")
            lines += [f"       {self._line(self.vertices[v])}" for v in group.vertices]
        lines += [f"\n  note: {v.name}: {note}" for v in self.vertices for note in v.stage.notes()]
        return "\n".join(lines)

    def _heading(self, group: Group) -> str:
        if group.is_source:
            when = "when everything before it is done" if group.inputs else "lists the input"
            return f"on the driver, {when}"
        need = group.resources
        words = [f"{need.cpus:g} cpu"]
        if need.gpus:
            words.append(f"{need.gpus:g} gpu")
        if need.gpu_memory_gb:
            words.append(f"{need.gpu_memory_gb:g} GB of gpu memory")
        waits = group.is_async and group.timeout_s is None
        words.append("threads" if (group.releases_gil or waits) and not need.requires_gpu else "processes")
        if str(group.workers):
            words.append(str(group.workers))
        if group.timeout_s is not None:
            words.append(f"at most {group.timeout_s:g} s per task")
        limit = BatchLimit.of(self.vertices[group.entry].stage)
        if limit is not None:
            words.append(str(limit))
        if group.is_async:
            words.append(f"up to {group.in_flight} calls in flight")
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
    has_gpus: Callable[[], bool] | None = None,
) -> Plan:
    """Plan a pipeline: unfold composites, add branches, check types and columns, fuse neighbours.

    Args:
        name: The pipeline's name.
        stages: Its stages.
        initial: What the first stage is given, if it is not a source.
        fuse: Whether neighbouring stages may run in one worker, without data moving between them.
        batch: Whether each stage waits until the one before it has processed all data.
        has_gpus: Says whether there is a GPU. Asked only if a stage can do without the one that it asks for.
    """
    if not stages:
        raise PlanError(f"pipeline {name!r} has no stages: add some with add_stage()")
    vertices = build_graph(stages)
    columns = check_graph(vertices, initial)
    if batch:
        vertices = build_graph(stages, batch=True)
        columns = check_graph(vertices, initial)
    wanting = [v for v in vertices if v.stage.gpu_is_optional and v.stage.resources.requires_gpu]
    if wanting and has_gpus is not None and not has_gpus():
        for vertex in wanting:
            vertex.stage = vertex.stage.without_gpu()
    group_of = _fuse(vertices, fuse)
    return Plan(name, vertices, _groups(vertices, group_of), group_of, columns)


def _fuse(vertices: list[Vertex], fuse: bool) -> list[int]:
    """The number of the group of each vertex."""
    group_of: list[int] = []
    needs: list[Resources] = []  # what one worker of each group holds
    for vertex in vertices:
        homes = {group_of[i] for i in vertex.inputs}
        joined = None
        if len(homes) == 1 and not vertex.is_source:
            (home,) = homes
            held = [_joined(vertices[i], needs[home], vertex, fuse) for i in vertex.inputs]
            joined = held[0] if all(each is not None for each in held) else None
        if joined is not None:
            group_of.append(home)
            needs[home] = joined
        else:
            group_of.append(len(needs))
            needs.append(vertex.stage.resources)
    return group_of


def _joined(before: Vertex, held: Resources, after: Vertex, fuse: bool) -> Resources | None:
    """What a worker that runs a stage and its neighbour holds; ``None`` if they should not share a worker.

    Args:
        before: The stage.
        held: What a worker of its group holds.
        after: The neighbour.
        fuse: Whether stages may share a worker at all.
    """
    a, b = before.stage, after.stage
    if a.is_sink_stage:
        return None  # its files exist only once the task is done
    if before.is_source or b.is_async or (_batches(b) and not _batch_alike(a, b)):
        return None
    if isinstance(b, BranchStage) and a.runtime_env == b.runtime_env:
        return held  # a branch itself does no work
    alike = (
        fuse
        and a.fuse
        and b.fuse
        and not a.is_async
        and not _fans_out(a)
        and Sizing.of(a) == Sizing.of(b)
        and a.runtime_env == b.runtime_env
        and a.timeout_s is b.timeout_s is None
    )
    if not alike:
        return None
    if a.resources.requires_gpu or b.resources.requires_gpu:
        return _on_one_card(a.resources, held, b.resources)
    return max(held, b.resources, key=lambda needs: needs.cpus) if _cpus(a) == _cpus(b) else None


def _on_one_card(a: Resources, held: Resources, b: Resources) -> Resources | None:
    """What a worker of two GPU stages with equal needs holds, so that data stays on the card between them.

    Whole cards are held once. Shares of a card add up, since the worker holds the memory of both stages, and must fit
    on one card. If memory is given in GB, it is not known here whether both fit.
    """
    if a != b or a.gpu_memory_gb:
        return None
    if a.gpus >= 1:
        return held
    gpus = round(held.gpus + b.gpus, 9)
    return replace(held, gpus=gpus) if gpus <= 1 else None


def _cpus(stage: Stage) -> float:
    """CPUs for the comparison: stages that want a core or less count as equal."""
    return max(1.0, stage.resources.cpus)


def _batches(stage: Stage) -> bool:
    return BatchLimit.of(stage) is not None


def _batch_alike(a: Stage, b: Stage) -> bool:
    """Whether two GPU stages take as many rows, bytes or tokens at once: the second can take the first one's tasks."""
    limit = BatchLimit.of(a)
    on_gpus = a.resources.requires_gpu and b.resources.requires_gpu
    return on_gpus and limit is not None and limit.unit != "tasks" and limit == BatchLimit.of(b)


def _fans_out(stage: Stage) -> bool:
    """Whether a stage makes many tasks of one, which should spread over the workers.

    Readers do not count: the batches of one file are best processed where they are read.
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
    limit = BatchLimit.of(entry.stage)
    return Group(
        index=index,
        entry=entry.index,
        vertices=tuple(v.index for v in inside),
        is_source=entry.is_source,
        targets=tuple(sorted(targets)),
        inputs=tuple(sorted(inputs)),
        resources=_held(inside),
        releases_gil=all(s.releases_gil for s in stages),
        workers=_workers(entry.stage),
        runtime_env=entry.stage.runtime_env,
        timeout_s=entry.stage.timeout_s,
        batch_size=1 if limit is None else limit.tasks,
        batch_bytes=limit.nbytes if limit else None,
        batch_rows=limit.rows if limit else None,
        ordered=limit is not None,
        is_async=entry.stage.is_async,
        in_flight=entry.stage.max_in_flight if entry.stage.is_async else 1,
        merged=_merged(inside),
    )


def _workers(stage: Stage) -> Sizing:
    """How many workers a stage may have. An ``async`` stage has one unless it asks for more: it only waits."""
    sizing = Sizing.of(stage)
    return Sizing(1, 1) if stage.is_async and not sizing else sizing


def _held(inside: list[Vertex]) -> Resources:
    """What one worker of a group holds."""
    held = inside[0].stage.resources
    for vertex in inside[1:]:
        needs = vertex.stage.resources
        if needs.requires_gpu:
            held = _on_one_card(needs, held, needs) or held
        elif needs.cpus > held.cpus and not held.requires_gpu:
            held = needs
    return held


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
