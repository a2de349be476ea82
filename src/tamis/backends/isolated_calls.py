"""Calls of a stage on a batch that has failed before: the items that fail are found, the others are processed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tamis.backends.async_calls import AsyncCalls, AwaitedResults
from tamis.backends.isolation import FailedItem, Items, ItemSearch, Trials
from tamis.backends.outcome import Failure, failure_of, is_of_items
from tamis.backends.stage_calls import calls_of, results_of
from tamis.runs.publication import remove_unpublished
from tamis.stages.base import Emission, ProcessingStage, WorkerMetadata
from tamis.stages.emit import Publish
from tamis.tasks import Task

__all__ = ["AllItemsFailedError", "IsolatedCalls"]

Stage = ProcessingStage[Any, Any]
Made = tuple[Task[Any], Emission]


@dataclass
class IsolatedCalls:
    """The calls of one stage.

    Args:
        stage: The stage, set up.
        names: Its name in the plan; those of its members where several stages run as one.
        tasks: What it is given.
        all_may_fail: Whether the stage may fail on all of it: where the batch is one of several that were made of a
            task, that does not say that the stage is at fault.
    """

    stage: Stage
    names: Sequence[str]
    tasks: list[Task[Any]]
    all_may_fail: bool = False

    def __post_init__(self) -> None:
        self._items = Items(self.tasks)
        self.failed: list[FailedItem] = []
        """The items that fail."""

    def results(self, fresh: Stage | None, worker: WorkerMetadata) -> Iterator[Made]:
        """What the stage makes of the items that do not fail; :attr:`tasks` has only these afterwards.

        Args:
            fresh: The stage, not set up, if a worker died of it: then the items are tried in another process.
            worker: What its ``setup`` is given.
        """
        error: Exception | None = None
        if fresh is None:
            try:
                return iter(self._made(self.tasks))
            except Exception as raised:
                if len(self._items) < (1 if self.all_may_fail else 2) or not is_of_items(raised):
                    raise
                error = raised
        search = ItemSearch(len(self._items))
        if fresh is None:
            while (piece := search.piece()) is not None:
                search.tell(self._problem(self._items.select(piece)))
        else:
            self._try_elsewhere(search, fresh, worker)
        self._leave_out(search, error)
        return iter(self._made(self.tasks) if self.tasks else [])

    async def awaited(self, calls: AsyncCalls) -> AwaitedResults:
        """The same for an ``async`` stage."""
        made = await calls.results(self.stage, self.tasks)
        if made.error is None or len(self._items) < 2 or not is_of_items(made.error):
            return made
        search = ItemSearch(len(self._items))
        while (piece := search.piece()) is not None:
            tried = await calls.results(self.stage, self._items.select(piece))
            search.tell(None if tried.error is None else self._failure(tried.error))
        try:
            self._leave_out(search, made.error)
        except Exception:  # noqa: BLE001 - it is the error of the whole batch
            return made
        return await calls.results(self.stage, self.tasks)

    def _try_elsewhere(self, search: ItemSearch, fresh: Stage, worker: WorkerMetadata) -> None:
        trials = Trials(fresh, worker, self.tasks, fresh.timeout_s)
        try:
            while (piece := search.piece()) is not None:
                problem, member = trials.problem(piece)
                search.tell(None if problem is None else replace(problem, stage=self.names[member]))
        finally:
            trials.close()

    def _leave_out(self, search: ItemSearch, error: BaseException | None) -> None:
        """Go on without the items that fail: without any if too many do. Where all may not, that is raised."""
        failed = dict(search.failed)
        if search.is_hopeless:
            first = next(iter(failed.values()))
            words = f"not tried alone, as {len(failed)} others of its batch had failed, the first with {first.error}"
            untried = replace(first, error=words)
            failed = {n: failed.get(n, untried) for n in range(len(self._items))}
        kept = [n for n in range(len(self._items)) if n not in failed]
        if not (kept or self.all_may_fail) or (not failed and error is not None):
            unknown = Failure(self.names[0], "the worker died, but not with any item alone", died=True)
            raise error or AllItemsFailedError(next(iter(failed.values()), unknown))
        self.failed = [FailedItem(self._items.select([n])[0], problem) for n, problem in failed.items()]
        self.tasks = self._items.select(kept)

    def _made(self, tasks: list[Task[Any]]) -> list[Made]:
        """Everything that the stage makes; nothing is kept of it if it raises."""
        calls = list(calls_of(self.stage, tasks))
        as_lists = self.stage.supports_batch_processing()
        made: list[Made] = []
        try:
            for one in results_of(calls, (call.begin(self.stage) for call in calls), as_lists=as_lists):
                made.append(one)
        except BaseException:
            _remove(made)
            self.stage.take_metrics()
            raise
        return made

    def _problem(self, tasks: list[Task[Any]]) -> Failure | None:
        try:
            _remove(self._made(tasks))
        except Exception as error:  # noqa: BLE001 - whatever a stage raises is the answer
            return self._failure(error)
        self.stage.take_metrics()
        return None

    def _failure(self, error: BaseException) -> Failure:
        assert isinstance(error, Exception)
        return failure_of(self.names[getattr(error, "raised_by_member", 0)], error)


class AllItemsFailedError(Exception):
    """Every item of a batch fails, or too many do. It has the failure of the first."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error)
        self.failure = failure


def _remove(made: list[Made]) -> None:
    for _, item in made:
        if isinstance(item, Publish):
            remove_unpublished(item)
