"""The worker's side: runs the stages of one group on one task, the same way in every engine."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tamis.backends.async_calls import AsyncCalls, AwaitedResults, CallTimedOutError, WorkerLoop
from tamis.backends.children import Children
from tamis.backends.group_spec import GroupSpec, RunPaths
from tamis.backends.isolated_calls import AllItemsFailedError, IsolatedCalls
from tamis.backends.isolation import FailedItem, Isolation
from tamis.backends.outcome import Failure, Outcome, failure_of
from tamis.backends.outgoing import Outgoing, dropped_rows
from tamis.backends.row_account import RowAccount
from tamis.backends.running_stage import Marker
from tamis.backends.stage_calls import calls_of, results_of
from tamis.backends.stage_copies import StageCopies
from tamis.backends.task_records import TaskRecords
from tamis.errors import PlanError
from tamis.runs.publication import remove_unpublished, sync
from tamis.runs.stats import StageStats
from tamis.stages.base import Emission, ProcessingStage, WorkerMetadata
from tamis.stages.emit import DROPPED, MAIN, BadRows, Drop, Emit, Publish
from tamis.stages.io.bytes_read import bytes_read, forget_bytes
from tamis.tasks import FileGroup, TableTask, Task
from tamis.tasks.base import StagePerf, digest
from tamis.tasks.storage import format_order

__all__ = ["GroupRunner"]


class GroupRunner:
    """Runs one group in one worker.

    Args:
        spec: The group.
        worker: The worker it runs in.
        places: Where in the run directory it puts rows that could not be read and outputs.
        marker: Where it notes which stage is running, for the case that the worker dies.
        loop: The event loop of the worker, for an ``async`` stage.
    """

    def __init__(
        self,
        spec: GroupSpec,
        worker: WorkerMetadata,
        places: RunPaths,
        marker: Marker | None = None,
        loop: WorkerLoop | None = None,
    ) -> None:
        self._spec, self._worker, self._marker, self._loop = spec, worker, marker, loop or WorkerLoop()
        self._places, self._records = places, TaskRecords(places)
        self._outgoing = Outgoing(places)
        self._stages = StageCopies(spec, worker, self._enter)
        self._outcome = Outcome()
        self._rank = {vertex: rank for rank, vertex in enumerate(sorted(self._stages))}
        self._read = (0, 0)  # bytes of input that were read for the batches before the latest one, and including it
        self._at = spec.entry
        self._calls = AsyncCalls(spec) if spec.is_async else None
        self._isolation: Isolation | None = None
        self._worked: set[int] = set()  # vertices that did not fail on all that they were given of the task
        self._failed: dict[int, Failure] = {}  # those that failed on all of a batch, and how
        self._no_rows: set[int] = set()  # vertices that make files or other things of their rows

    @property
    def is_async(self) -> bool:
        """Whether its tasks are awaited: then :meth:`run_async` may be called for many of them at a time."""
        return self._calls is not None

    def run(self, tasks: list[Task[Any]], isolation: Isolation | None = None) -> Outcome:
        """Work on a task (or a batch for the entry stage); never raises for what a stage does.

        Args:
            tasks: The tasks.
            isolation: Asks to find items that fail, to set them aside and to process the others.
        """
        self._isolation = isolation
        if self._calls is not None:
            return self._loop.run(self.run_async(tasks, isolation))
        return self._run([_own_task(t) for t in tasks], time.perf_counter())

    async def run_async(self, tasks: list[Task[Any]], isolation: Isolation | None = None) -> Outcome:
        """The same for an ``async`` stage. While its calls are awaited, other tasks may be begun."""
        assert self._calls is not None
        stage = self._stages[self._spec.entry]
        tasks = [self._named(_own_task(t)) for t in tasks]
        failure = await self.set_up_async()
        if failure is not None:
            return Outcome(failure=failure)
        began = time.perf_counter()
        if isolation is None:
            return self._run(tasks, began, await self._calls.results(stage, tasks))
        isolated = IsolatedCalls(stage, self._names(self._spec.entry), tasks)
        made = await isolated.awaited(self._calls)
        return self._run(isolated.tasks, began, made, isolated.failed)

    def _run(
        self,
        tasks: list[Task[Any]],
        began: float,
        made: AwaitedResults | None = None,
        failed: Sequence[FailedItem] = (),
    ) -> Outcome:
        self._outcome, self._records = Outcome(), TaskRecords(self._places)
        self._outgoing.begin()
        self._worked, self._failed = set(), {}
        forget_bytes()
        try:
            if not self._stages.are_ready:
                self._stages.set_up()
                began = time.perf_counter()  # setup runs once per worker and says nothing about the next task
            self._at = self._spec.entry
            self._feed(self._spec.entry, tasks, sum(t.nbytes for t in tasks), made, failed)
            at_fault = self._failed.keys() - self._worked
            if at_fault and not (self._outcome.outputs or self._outcome.published):
                raise AllItemsFailedError(self._failed[min(at_fault)])
            published, self._outcome.drops = self._records.write(self._spec.entry, tasks[0].task_id)
            self._outcome.published += [replace(item, needs_sync=not self._places.staging) for item in published]
            if self._places.workers_sync:
                self._outcome.published = [sync(item) for item in self._outcome.published]
        except CallTimedOutError as error:
            failure = Failure(self._spec.names[self._at], str(error), died=True, timed_out=True)
            self._abandon(Outcome(failure=failure))
        except AllItemsFailedError as error:
            self._abandon(Outcome(failure=error.failure))
        except Exception as error:  # noqa: BLE001 - whatever a stage raises becomes data
            self._abandon(Outcome(failure=self._failure(error)))
        self._read = (0, 0)
        self._at = self._spec.entry
        self._outcome.seconds = time.perf_counter() - began
        return self._outcome

    def _abandon(self, failed: Outcome) -> None:
        """Report a failure instead of an outcome, of which nothing is kept."""
        for stage in self._stages.values():
            stage.take_metrics()
        for item in self._outcome.published:
            remove_unpublished(item)
        self._outcome = failed

    @property
    def running_stage(self) -> str:
        """The name of the stage that is running, or ran last."""
        return self._spec.names.get(self._at, "?")

    @property
    def _at(self) -> int:
        return self._vertex

    @_at.setter
    def _at(self, vertex: int) -> None:
        self._vertex = vertex
        if self._marker is not None:
            before, including = self._read
            # Each stage counts the same; it is a coarse figure, but it moves while a long task runs.
            done = (including - before) * self._rank.get(vertex, 0) // len(self._rank)
            self._marker.note(vertex, before + done)

    def _enter(self, vertex: int) -> None:
        self._at = vertex

    def set_up(self) -> Failure | None:
        """Set the stages up before the first task; returns what went wrong."""
        if self._calls is not None:
            return self._loop.run(self.set_up_async())
        try:
            self._stages.set_up()
        except Exception as error:  # noqa: BLE001 - whatever a stage raises becomes data
            return self._failure(error)
        return None

    async def set_up_async(self) -> Failure | None:
        """The same for an ``async`` stage, on the event loop where it will be called."""
        assert self._calls is not None
        return await self._calls.set_up(self._set_up_async)

    async def _set_up_async(self) -> Failure | None:
        try:
            await self._stages.set_up_async()
        except Exception as error:  # noqa: BLE001 - whatever a stage raises becomes data
            return self._failure(error)
        return None

    def close(self) -> None:
        """Tear the stages down."""
        if self._calls is not None:
            self._loop.run(self.close_async())
        else:
            self._stages.tear_down()

    async def close_async(self) -> None:
        """Tear the stages down on the event loop where they were set up."""
        await self._stages.tear_down_async()

    def _feed(
        self,
        vertex: int,
        tasks: list[Task[Any]],
        nbytes: int,
        made: AwaitedResults | None = None,
        failed: Sequence[FailedItem] = (),
    ) -> None:
        """Give tasks to a vertex and follow what it makes, depth first, so that little is held at a time.

        Args:
            vertex: The vertex.
            tasks: The tasks.
            nbytes: Memory that they take, in bytes: measured once, since that can be costly.
            made: What the stage made of them already, if it is ``async``.
            failed: Items that were with them and that the stage fails on.
        """
        stage, stats = self._stages[vertex], self._stats(vertex)
        self._at = vertex
        for task in tasks:
            if isinstance(task, TableTask):
                self._check_columns(vertex, task)
        stats.tasks_in += len(tasks)
        stats.bytes_in += nbytes
        tasks = [self._named(task) for task in tasks]
        began = time.perf_counter()
        if self._isolation is not None and made is None:
            isolated = IsolatedCalls(stage, self._names(vertex), tasks, all_may_fail=vertex != self._spec.entry)
            results = isolated.results(self._fresh_if_it_kills(vertex), self._worker)
            tasks, failed = isolated.tasks, isolated.failed
            if tasks:
                self._worked.add(vertex)
            elif failed:
                self._failed.setdefault(vertex, failed[0].failure)
        else:
            results = self._results(stage, tasks, made)
        account = RowAccount(tasks, stage.makes_rows)
        self._set_aside(vertex, account, failed)
        children: Children | None = None
        seconds = time.perf_counter() - began + (0.0 if made is None else made.seconds)
        while True:
            self._at = vertex
            began = time.perf_counter()
            try:
                parent, item = next(results)
            except StopIteration:
                break
            finally:
                seconds += time.perf_counter() - began
            if vertex == self._spec.entry:
                self._read = (self._read[1], bytes_read())
            if children is None or children.parent is not parent:
                self._end(vertex, children)
                children = Children(parent)
            self._handle(vertex, account, children, item)
        members = self._spec.members.get(vertex, (vertex,))
        for member in members:
            self._stats(member).seconds += seconds / len(members)
        for metric, value in stage.take_metrics().items():
            stats.custom[metric] = stats.custom.get(metric, 0) + value
        for drop in account.vanished(self._spec.names[vertex]):
            children = children or Children(tasks[0])
            self._drop(vertex, account, children, drop)
        self._end(vertex, children)
        self._count_rows(vertex, account, len(tasks))

    def _fresh_if_it_kills(self, vertex: int) -> ProcessingStage[Any, Any] | None:
        """The stage, not set up, if a worker died of it."""
        died = self._isolation.died if self._isolation is not None else ()
        return None if set(died).isdisjoint(self._names(vertex)) else self._spec.stages[vertex]

    def _names(self, vertex: int) -> list[str]:
        """The names of the stages that run as one at a vertex."""
        return [self._spec.names[member] for member in self._spec.members.get(vertex, (vertex,))]

    def _set_aside(self, vertex: int, account: RowAccount, failed: Sequence[FailedItem]) -> None:
        """Note items that fail, for the quarantine."""
        for item in failed:
            number = self._names(vertex).index(item.failure.stage)
            stats = self._stats(self._spec.members.get(vertex, (vertex,))[number])
            if isinstance(item.task, FileGroup):
                stats.tasks_set_aside += 1
                stats.tasks_uncounted += 1
            else:
                stats.quarantined += 1
                account.failed_by[number] = account.failed_by.get(number, 0) + 1
            self._records.fail(item)

    def _check_columns(self, vertex: int, task: TableTask) -> None:
        """Refuse to replace columns that the plan could not know of."""
        present = set(task.get_columns())
        for added in self._spec.added.get(vertex, ()):
            added.check(present)
            present.update(added.columns)

    def _named(self, task: Task[Any]) -> Task[Any]:
        """A task whose rows have names: rows that were made by hand are numbered under the place of their task."""
        if isinstance(task, TableTask) and not task.has_names:
            return task.named(f"task {format_order(task.order)}")
        return task

    def _count_rows(self, vertex: int, account: RowAccount, tasks: int) -> None:
        """Add up the rows of a vertex, or of the stages that run as one there. Of files they are known afterwards."""
        members = self._spec.members.get(vertex, (vertex,))
        left = account.rows_in(known_as_files=vertex in self._no_rows)
        for number, member in enumerate(members):
            stats = self._stats(member)
            stats.rows_in += left
            left -= account.dropped_by.get(number, 0) + account.failed_by.get(number, 0)
            if number:
                stats.tasks_in += tasks
            if member != members[-1]:
                stats.rows_out += left
                stats.tasks_out += tasks

    def _results(
        self, stage: ProcessingStage[Any, Any], tasks: list[Task[Any]], made: AwaitedResults | None
    ) -> Iterator[tuple[Task[Any], Emission]]:
        """What a stage makes of its tasks, one thing at a time, each with the task it was made of."""
        as_lists = stage.supports_batch_processing()
        if made is not None:
            return results_of(made.calls, made.results(), as_lists=as_lists)
        calls = list(calls_of(stage, tasks))
        return results_of(calls, (call.begin(stage) for call in calls), as_lists=as_lists)

    def _handle(self, vertex: int, account: RowAccount, children: Children, item: Emission) -> None:
        stats = self._stats(vertex)
        if isinstance(item, Publish):
            self._outcome.published.append(item)
            self._no_rows.add(vertex)
            account.makes_files = True
            if self._stages[vertex].is_sink_stage:
                stats.files += 1
                account.written += item.rows
        elif isinstance(item, BadRows):
            stats.quarantined += len(item.rows)
            account.quarantined += len(item.rows)
            self._records.quarantine(self._spec.names[vertex], item)
        elif isinstance(item, Drop):
            self._drop(vertex, account, children, item)
        else:
            port, made = (item.port, item.task) if isinstance(item, Emit) else (MAIN, item)
            if isinstance(made, TableTask):
                made = self._with_origin(vertex, account, children, made)
            account.add(made)
            for child in children.add(port, made):
                self._pass_on(vertex, children.parent, *child)

    def _with_origin(self, vertex: int, account: RowAccount, children: Children, made: TableTask) -> TableTask:
        """A batch that knows what it was made of; rows that it says were dropped on the way are booked."""
        drops, scored, made = made.dropped, made.scored, copy.copy(made)
        made.dropped, made.scored = [], []
        for drop in drops:
            self._drop(vertex, account, children, drop)
        members = self._spec.members.get(vertex, (vertex,))
        for some in scored:
            self._stats(members[some.stage]).add_scores(some)
            if self._places.scores and isinstance(children.parent, TableTask):
                self._records.score(self._spec.names[members[some.stage]], some, children.parent)
        if isinstance(children.parent, TableTask):
            made.made_of(children.parent)
        return made

    def _drop(self, vertex: int, account: RowAccount, children: Children, drop: Drop) -> None:
        """Book rows that were left out, and send them where they are wanted."""
        if not len(drop.rows):
            return  # nothing was dropped, so there is no reason to count
        if isinstance(children.parent, TableTask) and drop.batch is not children.parent:
            drop.batch.made_of(children.parent)
        if not drop.batch.has_names:
            source = f"{self._spec.names[vertex]} {format_order(children.parent.order)}"
            drop = replace(drop, batch=drop.batch.named(source))
        members = self._spec.members.get(vertex, (vertex,))
        member = members[drop.stage]
        stats = self._stats(member)
        stats.dropped[drop.reason] = stats.dropped.get(drop.reason, 0) + len(drop.rows)
        account.drop(drop)
        self._records.drop(self._spec.names[member], drop)
        if (
            member == members[-1] and DROPPED in self._spec.edges[vertex]
        ):  # of stages that run as one, the ways of the last
            children.dropped.append(dropped_rows(self._spec.names[member], drop))

    def _end(self, vertex: int, children: Children | None) -> None:
        """No more comes of a task: pass on what was held back."""
        if children is None:
            return
        for child in children.end():
            self._pass_on(vertex, children.parent, *child)

    def _pass_on(self, vertex: int, parent: Task[Any], port: str, made: Task[Any], ordinal: int | None) -> None:
        """Give a task its identity and send it on its way."""
        last = self._spec.members.get(vertex, (vertex,))[-1]
        stats = self._stats(last)
        target = self._spec.edges[vertex].get(port)
        if target is None:
            if port not in (MAIN, DROPPED):
                raise PlanError(f"stage {self._spec.names[vertex]!r} sent a task to {port!r}, which leads nowhere")
            return
        child = copy.copy(made)
        if not child.has_rows:
            self._no_rows.add(vertex)
        child.task_id = digest(parent.task_id, self._spec.names[last], port, ordinal)
        child.order = parent.order if ordinal is None else (*parent.order, ordinal)
        child._metadata = dict(child._metadata or parent._metadata)
        child.dataset_name = child.dataset_name or parent.dataset_name
        if isinstance(child, TableTask) and not child.has_names:
            child = child.named(f"{self._spec.names[last]} {format_order(child.order)}")
        nbytes = child.nbytes
        if port not in self._stages[vertex].side_ports:
            stats.tasks_out += 1
            stats.rows_out += child.num_items
            stats.bytes_out += nbytes
            child._stage_perf = [
                *parent._stage_perf,
                StagePerf(self._spec.names[last], stats.seconds, parent.num_items),
            ]
        if child.has_rows and not child.num_items:
            return  # nothing left to work on
        if target in self._stages:
            self._feed(target, [child], nbytes)
        else:
            envelope, files = self._outgoing.enclose(target, child, nbytes)
            self._outcome.outputs.append(envelope)
            self._outcome.published += files

    def _stats(self, vertex: int) -> StageStats:
        stats = self._outcome.stats.get(vertex)
        if stats is None:
            stats = self._outcome.stats[vertex] = StageStats(self._spec.names[vertex])
        return stats

    def _failure(self, error: Exception) -> Failure:
        """What is passed on of an exception, with the stage that raised it, also where several run as one."""
        members = self._spec.members.get(self._at, (self._at,))
        return failure_of(self._spec.names[members[getattr(error, "raised_by_member", 0)]], error)


def _own_task(task: Task[Any]) -> Task[Any]:
    """A copy to work on: the driver keeps the task as it was, for another try."""
    own = copy.copy(task)
    own._metadata = dict(task._metadata)
    return own
