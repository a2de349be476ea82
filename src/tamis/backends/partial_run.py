"""Runs tasks through a part of a plan, in the calling thread: from a stage to the end, or up to another stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tamis.backends.group_spec import GroupSpec, RunPaths, set_up_on_node
from tamis.backends.isolation import Isolation
from tamis.backends.outcome import Failure
from tamis.backends.payload import Envelope, decode_payload
from tamis.backends.runner import GroupRunner
from tamis.errors import PlanError
from tamis.plan import END, Group, Plan
from tamis.plan.check import AddedColumns
from tamis.runs.publication import publish, remove_unpublished
from tamis.runs.stats import StageStats
from tamis.stages.base import NodeInfo, WorkerMetadata
from tamis.stages.emit import Publish
from tamis.tasks import Task

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PartialOutcome", "PartialRun", "barrier_after", "stages_after"]


@dataclass
class PartialOutcome:
    """What a part of a plan made of some tasks.

    Args:
        outputs: Tasks that left the part: at the end of the pipeline, or on their way to the stage it ends before.
        published: Files to publish.
        stats: What each vertex did.
        drops: The rows that were dropped, in pieces.
        failure: Set if some task failed as a whole; then there is nothing else.
    """

    outputs: list[Envelope] = field(default_factory=list)
    published: list[Publish] = field(default_factory=list)
    stats: dict[int, StageStats] = field(default_factory=dict)
    drops: list[pa.Table] = field(default_factory=list)
    failure: Failure | None = None

    def discard(self) -> None:
        """Remove the files that were made."""
        for item in self.published:
            remove_unpublished(item)


def stages_after(plan: Plan, vertex: int) -> set[int]:
    """The vertices that a task may come to from a vertex, and the vertex itself."""
    found: set[int] = set()
    waiting = [vertex]
    while waiting:
        number = waiting.pop()
        if number not in found and number != END:
            found.add(number)
            waiting += plan.vertices[number].edges.values()
    return found


def barrier_after(plan: Plan, vertex: int) -> str:
    """The first stage from a vertex on that cannot be run for some rows alone, in words; empty if there is none."""
    for number in sorted(stages_after(plan, vertex)):
        found = plan.vertices[number]
        if found.is_source and number != vertex:
            before = [plan.vertices[i].name for i in found.inputs]
            return f"{before[0] if before else found.name!r} brings rows of all tasks together"
        if found.stage.is_sink_stage and any(target != END for target in found.edges.values()):
            return f"there are stages after the writer {found.name}"
    return ""


class PartialRun:
    """Runs stages of a plan, each set up once. As a context manager it tears them down.

    Stages that the plan merges run one by one here: what they make is the same.

    Args:
        plan: The plan.
        places: Where files of the run go.
        until: The vertex to stop before; none to go on to the end of the pipeline.
        alone: Whether to run only the vertex that is given tasks, and nothing after it.
        is_between: Whether a file, by its path, is data between stages: such a file gets its name at once.
    """

    def __init__(
        self,
        plan: Plan,
        places: RunPaths,
        until: int | None = None,
        *,
        alone: bool = False,
        is_between: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._plan, self._places, self._until, self._is_between = plan, places, until, is_between
        self._alone = alone
        self._runners: dict[int, GroupRunner] = {}

    def __enter__(self) -> PartialRun:
        return self

    def __exit__(self, *_: object) -> None:
        for runner in self._runners.values():
            runner.close()
        self._runners.clear()

    def run(self, vertex: int, tasks: Sequence[Task[Any]], isolation: Isolation | None = None) -> PartialOutcome:
        """Give tasks to a vertex and follow what it makes.

        Args:
            vertex: The vertex.
            tasks: The tasks, with their ids and places.
            isolation: Asks to find items that fail, to set them aside and to process the others.
        """
        whole = PartialOutcome()
        waiting: dict[int, list[Task[Any]]] = {vertex: list(tasks)}
        while waiting:
            entry = min(waiting)
            for batch in self._batches(entry, waiting.pop(entry)):
                outcome = self._runner(entry).run(batch, isolation)
                if outcome.failure is not None:
                    whole.discard()
                    return PartialOutcome(failure=outcome.failure)
                for number, stats in outcome.stats.items():
                    whole.stats.setdefault(number, StageStats(stats.name)).add(stats)
                for item in outcome.published:
                    if self._is_between(item.final):
                        publish(item)
                    else:
                        whole.published.append(item)
                if outcome.drops is not None:
                    whole.drops.append(outcome.drops)
                for envelope in outcome.outputs:
                    if self._alone or envelope.vertex in (END, self._until):
                        whole.outputs.append(envelope)
                    else:
                        waiting.setdefault(envelope.vertex, []).append(decode_payload(envelope.payload))
        return whole

    def _batches(self, entry: int, tasks: list[Task[Any]]) -> Iterator[list[Task[Any]]]:
        """The tasks in batches as the plan gives them to a group: in their order, within its limits."""
        group = self._plan.groups[self._plan.group_of[entry]]
        limits = (group.batch_size, group.batch_bytes, group.batch_rows) if group.entry == entry else (1, None, None)
        most, most_bytes, most_rows = limits
        batch: list[Task[Any]] = []
        weight = rows = 0
        for task in sorted(tasks, key=lambda t: t.order):
            is_full = (
                len(batch) == most
                or (most_bytes is not None and weight + task.weight > most_bytes)
                or (most_rows is not None and rows + task.num_items > most_rows)
            )
            if batch and is_full:
                yield batch
                batch, weight, rows = [], 0, 0
            batch.append(task)
            weight, rows = weight + task.weight, rows + task.num_items
        if batch:
            yield batch

    def _runner(self, entry: int) -> GroupRunner:
        runner = self._runners.get(entry)
        if runner is None:
            if self._plan.vertices[entry].is_source:
                raise PlanError(
                    f"{self._plan.vertices[entry].name!r} brings all rows together: it cannot be run for some"
                )
            spec = self._spec(self._plan.groups[self._plan.group_of[entry]], entry)
            worker = WorkerMetadata(scratch=self._places.scratch)
            set_up_on_node(spec, NodeInfo(), worker)
            runner = self._runners[entry] = GroupRunner(spec, worker, self._places)
        return runner

    def _spec(self, group: Group, entry: int) -> GroupSpec:
        """The stages of a group from a vertex on, up to the one to stop before."""
        inside: set[int] = {entry} if self._alone else set()
        waiting = [] if self._alone else [entry]
        while waiting:
            number = waiting.pop()
            if number in group.vertices and number != self._until and number not in inside:
                inside.add(number)
                waiting += self._plan.vertices[number].edges.values()
        vertices = [self._plan.vertices[number] for number in sorted(inside)]
        return GroupSpec(
            entry,
            {v.index: v.stage for v in vertices},
            {v.index: v.name for v in vertices},
            {v.index: dict(v.edges) for v in vertices},
            added={v.index: (AddedColumns.of(v),) for v in vertices},
        )
