"""What a run would do if it were started again: which tasks are finished, and which have to be processed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tamis.backends.bookkeeper import Bookkeeper
from tamis.backends.payload import GONE, Envelope, Maker
from tamis.backends.scheduler_state import SchedulerState
from tamis.errors import PlanError, redacted
from tamis.pipeline.outputs import Outputs
from tamis.plan import Plan
from tamis.runs.directory import RunDirectory
from tamis.runs.finished_work import FinishedWork
from tamis.runs.manifest import read_manifest
from tamis.runs.mirror import local_run
from tamis.tasks import Task

__all__ = ["GroupPreview", "preview_run"]


@dataclass
class GroupPreview:
    """What is left to do for stages that run together.

    Args:
        stages: Their names.
        finished: Tasks that are finished.
        to_do: Tasks that have to be processed.
        again: Finished tasks that are processed again, since what they made was in memory only and is needed.
        after: Whether the stages wait for others that have work left: then all of their tasks have to be processed,
            and how many there are is not known yet.
    """

    stages: list[str]
    finished: int = 0
    to_do: int = 0
    again: int = 0
    after: bool = False


def preview_run(plan: Plan, run_dir: str, initial: Sequence[Task[Any]] = ()) -> list[GroupPreview]:
    """What a start of a plan would do in a run directory. Nothing is changed.

    Args:
        plan: The plan.
        run_dir: The run directory, a path or an fsspec address.
        initial: Tasks that the run starts with.
    """
    path = local_run(run_dir)
    if not read_manifest(path):
        raise PlanError(f"{redacted(run_dir)}: there is no run in this directory to go on with")
    directory = RunDirectory(path)
    directory.run_id = read_manifest(path)["run"]
    outputs = Outputs(plan, directory, initial, "")
    try:
        if outputs.are_complete:  # then what was between stages is not needed, and was removed
            return _finished_groups(plan, outputs.finished)
        outputs.finished.check_files()
        return _Preview(plan, outputs.finished, directory).groups(initial)
    finally:
        outputs.finished.close()


def _finished_groups(plan: Plan, finished: FinishedWork) -> list[GroupPreview]:
    """The groups of a run that came to its end: nothing is left to do."""
    counts: Counter[str] = Counter()
    for batch in finished.unused():
        counts[batch.stage] += len(batch.tasks)
    groups = (group for group in plan.groups if not group.is_source)
    names = ([plan.vertices[v].name for v in group.vertices] for group in groups)
    return [GroupPreview(stages, counts[stages[0]]) for stages in names]


class _Preview:
    def __init__(self, plan: Plan, finished: FinishedWork, directory: RunDirectory) -> None:
        self._plan = plan
        self._left = [GroupPreview([plan.vertices[v].name for v in group.vertices]) for group in plan.groups]
        self._repeated: set[int] = set()
        books = Bookkeeper(plan, _Unwritten(finished))
        self._scheduler = SchedulerState(plan, books, directory.scratch, self._restore)

    def groups(self, initial: Sequence[Task[Any]]) -> list[GroupPreview]:
        """Everything that is left, by group; groups that the driver itself runs are left out."""
        scheduler = self._scheduler
        scheduler.begin(initial)
        while True:
            for state in scheduler.groups if self._has_work else ():
                self._left[state.group.index].after = state.group.is_source and bool(state.group.inputs)
            opened = False if self._has_work else scheduler.complete_sources()
            scheduler.feed(1)
            if not self._take_ready() and not opened:
                break
        for state in scheduler.groups:
            if state.ordered is not None:
                scheduler.release(state, last=True)
        self._take_ready()
        for state in scheduler.groups:
            self._left[state.group.index].finished = state.done
            before = [self._left[i] for i in state.group.inputs]
            self._left[state.group.index].after |= any(left.after for left in before)
        shown = zip(self._plan.groups, self._left, strict=True)
        return [left for group, left in shown if not group.is_source]

    @property
    def _has_work(self) -> bool:
        return any(left.to_do for left in self._left)

    def _take_ready(self) -> bool:
        """Take the batches that would be processed; whether there were any."""
        found = False
        for state in self._scheduler.groups:
            while state.ready:
                batch = state.ready.pop()
                self._left[state.group.index].to_do += len(batch)
                for envelope in batch:
                    self._scheduler.leave(state, envelope)
                found = True
        return found

    def _restore(self, envelope: Envelope, then: Callable[[], None]) -> None:
        """Count what has to be processed again to make a task."""
        maker: Maker | None = envelope.maker
        if maker is not None and id(maker.batch) not in self._repeated:
            self._repeated.add(id(maker.batch))
            self._left[maker.group].again += len(maker.batch)
            for before in maker.batch:
                if before.payload is GONE:
                    self._restore(before, lambda: None)
        then()


class _Unwritten:
    """A journal that writes nothing."""

    def __init__(self, finished: FinishedWork) -> None:
        self.finished = finished
        self.outputs = self.file_count = 0

    def _do_nothing(self, *_: Any, **__: Any) -> None:
        """A preview records nothing and removes nothing."""

    fed = record = recalled = forget = output = flush = discard = _do_nothing
