"""The driver's side of a external engine: cut the plan into segments, feed each to the engine, book what comes back.

A segment ends where the engine cannot go on by itself: at a barrier, which waits for everything before it, and before a
stage that takes batches, which must be made of neighbours in the input. Between segments tasks are held here, their
data in files of the run directory. Inside of one the engine moves the data; what was done comes as records.
"""

from __future__ import annotations

import itertools
import pickle
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tamis.backends.base import Run
from tamis.backends.external.operator import STOP, OperatorSpec, Parcel, Record
from tamis.backends.failures import set_aside, stage_error
from tamis.backends.payload import Envelope, enclose, encode_payload, release_payload
from tamis.backends.queues import OrderedBatches, source_key
from tamis.backends.runner import Failure
from tamis.backends.scheduler_state import identify, numbered_barriers
from tamis.errors import StageError, WorkerDiedError
from tamis.plan import END, Group, Plan
from tamis.runs.stats import Snapshot, StageStats
from tamis.stages.base import SourceStage
from tamis.stages.emit import Publish
from tamis.stages.io.paths import join, publish
from tamis.stages.scratch import touch
from tamis.tasks import Task
from tamis.tasks.storage import format_order

POLL_S = 0.1
"""How long the loop waits for news before it looks around again."""

DEATH_RETRIES = 2
"""How often a task is tried again after its worker died, where the engine does that."""


class Engine(Protocol):
    """What the driver asks of a external engine.

    Attributes:
        workers: About how many tasks it works on at the same time.
    """

    workers: int

    def operator(self, group: Group, inside: frozenset[int]) -> OperatorSpec:
        """What the workers of a group must know."""
        ...

    def carry(self, groups: Sequence[Group], operators: Sequence[OperatorSpec], parcels: list[Parcel]) -> None:
        """Send the parcels through a row of operators, one for each group. Called in a thread of its own."""

    def abort(self) -> None:
        """Let :meth:`carry` end at once, whatever is in flight."""

    def take(self, wait_s: float) -> list[bytes]:
        """The records that have come in; waits for the first."""
        ...


@dataclass(frozen=True)
class Segment:
    """A part of the plan that an engine can run by itself.

    Args:
        sources: Groups whose tasks the driver makes when it begins.
        groups: Groups that do the work, in the order of the row.
    """

    sources: list[Group]
    groups: list[Group]


def segments_of(plan: Plan) -> list[Segment]:
    """Cut a plan into segments.

    >>> from tamis.plan import make_plan
    >>> from tamis.stages.deduplication.exact import ExactDeduplication
    >>> from tamis.stages.io import JsonlReader, JsonlWriter
    >>> plan = make_plan("example", [JsonlReader("in", fields=["text"]), ExactDeduplication(), JsonlWriter("out")])
    >>> [(len(s.sources), len(s.groups)) for s in segments_of(plan)]
    [(1, 1), (1, 1), (1, 1)]
    """
    level: list[int] = []
    for group in plan.groups:
        waits = group.is_source or group.ordered
        before = [level[i] + (waits and not (plan.groups[i].is_source and group.ordered)) for i in group.inputs]
        level.append(max(before, default=0))
    found = []
    for number in range(max(level) + 1):
        here = [g for g in plan.groups if level[g.index] == number]
        found.append(Segment([g for g in here if g.is_source], [g for g in here if not g.is_source]))
    return found


class ExternalDriver:
    """Carries out a plan on a external engine.

    Args:
        plan: What to do.
        run: The run: where finished work goes, who looks on, whether to stop.
        engine: Who does it.
    """

    def __init__(self, plan: Plan, run: Run, engine: Engine) -> None:
        self.stats = [StageStats(v.name, internal=v.stage.internal) for v in plan.vertices]
        self._plan, self._run, self._engine = plan, run, engine
        self._scratch = run.directory.scratch
        self._payloads = run.directory.payloads
        self._barriers = numbered_barriers(plan)
        self._held: dict[int, list[Envelope]] = {g.index: [] for g in plan.groups}
        self._keeps: set[int] = set()  # groups whose failed tasks are set aside
        self._seen: set[tuple[int, str]] = set()
        self._running: dict[tuple[int, str], tuple[int, Envelope]] = {}  # begun how often, and not done
        self._open = 0  # tasks inside the engine
        self._used: list[Envelope] = []  # done with, but the engine may want to make what came of them again
        self._weight_fed = self._weight_done = 0
        self._listed = False
        self._draining = False
        self._began = time.monotonic()

    def execute(self) -> bool:
        """Run to the end; return whether it got there (``False``: the user stopped it)."""
        for segment in segments_of(self._plan):
            self._run.journal.flush()  # what a barrier waited for must be there to be listed
            parcels = [*self._fed(segment), *self._batches(segment)]
            self._listed = True
            self._heed_stop()
            if parcels and not self._draining:
                self._carry(segment, parcels)
            if self._draining:
                break
        self._run.journal.flush()
        return not self._draining

    def snapshot(self, state: str = "") -> Snapshot:
        """The state of the run."""
        total = self._weight_fed if self._listed else None
        return Snapshot(
            elapsed_s=time.monotonic() - self._began,
            stages=self.stats,
            fraction=min(1.0, self._weight_done / total) if total else None,
            held_bytes=0,
            budget_bytes=0,
            running=self._open,
            workers=self._engine.workers,
            state=state or ("draining" if self._draining else "running"),
        )

    # -- what goes in ------------------------------------------------------------------------------------------------

    def _fed(self, segment: Segment) -> Iterator[Parcel]:
        """Parcels of the sources, and of what earlier segments left for stages that take one task at a time."""
        for group in segment.groups:
            if not group.ordered:
                yield from (Parcel(e.vertex, False, [e]) for e in self._held.pop(group.index))
        for group in segment.sources:
            stage = self._plan.vertices[group.entry].stage
            assert isinstance(stage, SourceStage)
            yield from self._made(group, stage.splits(self._scratch))
        first = self._plan.groups[0]
        if first in segment.groups:
            yield from self._made(first, iter(self._run.initial))

    def _made(self, group: Group, tasks: Iterator[Task[Any]]) -> Iterator[Parcel]:
        """Give the tasks of a source their identity and send them off."""
        entry = self._plan.vertices[group.entry]
        for number, task in enumerate(tasks):
            identify(task, entry.name, number, group, self._barriers.get(group.index, 0))
            if not group.inputs:
                self._weight_fed += task.weight
            if group.is_source:
                self.stats[entry.index].tasks_out += 1
                self.stats[entry.index].rows_out += task.num_items
            targets = list(entry.edges.values()) if group.is_source else [entry.index]
            for target in targets:
                yield from self._sent(enclose(task, target))

    def _sent(self, envelope: Envelope) -> Iterator[Parcel]:
        """Where a task of the driver's goes: into a parcel, or into one of the queues here."""
        if envelope.vertex == END:
            self._run.journal.output(envelope)
        elif not self._plan.vertices[envelope.vertex].is_source:
            envelope.payload = encode_payload(envelope.payload, self._payloads)
            group = self._plan.groups[self._plan.group_of[envelope.vertex]]
            if group.ordered:
                self._held[group.index].append(envelope)
            else:
                yield Parcel(envelope.vertex, True, [envelope])

    def _batches(self, segment: Segment) -> Iterator[Parcel]:
        """Batches of consecutive tasks, for the stages that take them."""
        for group in (g for g in segment.groups if g.ordered):
            fresh = all(self._plan.groups[i].is_source for i in group.inputs)
            queue = OrderedBatches(group.batch_size, group.batch_bytes, at_the_end=True)
            for envelope in self._held.pop(group.index):
                queue.open(source_key(envelope.order))
                queue.push(envelope)
                queue.close(source_key(envelope.order))
            for batch in queue.batches(last=True):
                yield Parcel(group.entry, fresh, batch)

    # -- what happens meanwhile --------------------------------------------------------------------------------------

    def _carry(self, segment: Segment, parcels: list[Parcel]) -> None:
        """Run one segment and book what comes out of it."""
        operators = []
        for place, group in enumerate(segment.groups):
            behind = frozenset(g.entry for g in segment.groups[place + 1 :] if not g.ordered)
            operators.append(self._engine.operator(group, behind))
        self._keeps = {o.group for o in operators if o.keep_failed}
        self._seen.clear()
        self._running.clear()
        self._open = sum(len(p.envelopes) for p in parcels)
        problems: list[BaseException] = []

        def work() -> None:
            try:
                self._engine.carry(segment.groups, operators, parcels)
            except BaseException as error:  # noqa: BLE001 - handed over to the driver's thread
                problems.append(error)

        thread = threading.Thread(target=work, name="tamis-engine", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                self._listen(POLL_S)
            while self._listen(0.01):
                pass
        except BaseException:
            self._engine.abort()
            thread.join(30)
            raise
        if problems:
            raise self._explained(problems[0])
        for envelope in self._used:
            release_payload(envelope.payload)
        self._used.clear()
        if self._open and not self._draining:
            raise StageError(f"the engine lost {self._open} tasks on the way: they went in and nothing came of them")

    def _explained(self, problem: BaseException) -> BaseException:
        """An engine that gave up because a worker died: say which task that was, if only one comes into question."""
        if isinstance(problem, WorkerDiedError) and len(self._running) == 1:
            return self._death(next(iter(self._running)), str(problem))
        return problem

    def _listen(self, wait_s: float) -> bool:
        """Book the records that have come in; returns whether there were any."""
        messages = self._engine.take(wait_s)
        for message in messages:
            self._book(pickle.loads(message))
        self._run.journal.flush()
        self._heed_stop()
        self._run.observer.update(self.snapshot())
        return bool(messages)

    def _heed_stop(self) -> None:
        if self._run.stop.level >= 2:
            raise KeyboardInterrupt
        if self._run.stop.level == 1 and not self._draining:
            self._draining = True
            touch(join(self._scratch, STOP))
            self._run.observer.message("Stopping: finishing what is in flight. Press Ctrl-C again to stop at once.")

    # -- what comes out ----------------------------------------------------------------------------------------------

    def _book(self, record: Record) -> None:
        key = (record.group, record.batch[0].task_id)
        if record.skipped:
            self._open -= len(record.batch)
            return
        if record.begun:
            self._begun(key, record)
            return
        if key in self._seen:  # the engine did it twice: the first counts
            self._run.journal.forget(record.outcome.published)
            for envelope in record.outcome.outputs:
                release_payload(envelope.payload)
            return
        self._seen.add(key)
        self._running.pop(key, None)
        group = self._plan.groups[record.group]
        self.stats[group.entry].retries += record.retries
        if record.outcome.failure is not None:
            self._book_failure(group, record)
        else:
            self._book_success(group, record)
        self._open += record.passed - len(record.batch)
        if record.passed:  # should its worker die before the engine has all of that, it is made again
            self._used += [e for e in record.batch if e.payload is not None]  # those in files; others are the engine's
            return
        for envelope in record.batch:
            release_payload(envelope.payload)

    def _begun(self, key: tuple[int, str], record: Record) -> None:
        """A worker has begun with a parcel. If others did before, they died of it, or something killed them."""
        if key in self._seen:
            return
        times = self._running[key][0] + 1 if key in self._running else 1
        self._running[key] = (times, record.batch[0])
        if times > DEATH_RETRIES + 1:
            raise self._death(key, "its worker died each time")

    def _death(self, key: tuple[int, str], why: str) -> Exception:
        times, envelope = self._running[key]
        name = self._plan.vertices[self._plan.groups[key[0]].entry].name
        return stage_error([envelope], Failure(name, why, died=True), times)

    def _book_success(self, group: Group, record: Record) -> None:
        for vertex, stats in record.outcome.stats.items():
            self.stats[vertex].add(stats)
        name = self._plan.vertices[group.entry].name
        self._run.journal.record(name, [e.task_id for e in record.batch], record.outcome.published)
        for envelope in record.outcome.outputs:
            if envelope.vertex == END:
                self._run.journal.output(envelope)
            else:
                self._held[self._plan.group_of[envelope.vertex]].append(envelope)
        if all(self._plan.groups[i].is_source and not self._plan.groups[i].inputs for i in group.inputs):
            self._weight_done += sum(e.weight for e in record.batch)

    def _book_failure(self, group: Group, record: Record) -> None:
        failure = record.outcome.failure
        assert failure is not None
        # Whoever takes too long does not come back, and stages that cannot be set up would fail with every task.
        if failure.died or record.in_setup or group.index not in self._keeps:
            raise stage_error(record.batch, failure, record.retries + 1)
        paths = set_aside(record.batch, failure, self._run.directory.quarantine)
        for kept, path in itertools.zip_longest(record.kept, paths):
            if kept is not None:
                publish(Publish(kept, path, 0, 0))
        self._run.observer.message(
            f"{failure.stage}: task {format_order(record.batch[0].order)} set aside in "
            f"{self._run.directory.quarantine}: {failure.error}"
        )
        entry, rows = self.stats[group.entry], sum(e.rows for e in record.batch)
        entry.tasks_in += len(record.batch)
        entry.rows_in += rows
        entry.quarantined += rows
