"""The driver of an external engine: cuts the plan into segments, runs each on the engine, and books the records.

A segment ends where the engine cannot continue by itself: at a barrier, which waits for everything before it, before a
stage that takes batches, which must be made of consecutive tasks, and after a writer, whose files the driver publishes.
Between segments the driver holds the tasks, with their data in files of the run directory. Inside a segment the engine
moves the data, and workers send records of what they did.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tamis.backends.base import Run
from tamis.backends.bookkeeper import ALWAYS_RAISE, Bookkeeper, has_sink, stage_error
from tamis.backends.contracts import FailurePolicy
from tamis.backends.external.operator import STOP, OperatorSpec, Parcel, Record
from tamis.backends.outcome import Failure
from tamis.backends.payload import GONE, Envelope, enclose, encode_payload, release_payload
from tamis.backends.queues import OrderedBatches, source_key
from tamis.backends.running_stage import RunningStage
from tamis.backends.scheduler_state import identify, numbered_barriers
from tamis.errors import StageError, WorkerDiedError
from tamis.plan import END, Group, Plan
from tamis.runs.publication import publish
from tamis.runs.stats import Snapshot
from tamis.runs.stop import STOPPING
from tamis.stages.base import SourceStage
from tamis.stages.emit import Publish
from tamis.stages.io.paths import join
from tamis.stages.scratch import touch
from tamis.tasks import Task

POLL_S = 0.1
"""How long the loop waits for records before it checks everything else again, in seconds."""

DEATH_RETRIES = 2
"""How often an engine may try a task again after its worker died."""

SET_ASIDE_ERRORS = FailurePolicy(on_error="set_aside", on_death="raise")
"""For groups whose failed tasks are set aside. A dead or stuck worker ends the run: the engine would wait for it."""


class Engine(Protocol):
    """What the driver asks of an external engine.

    Attributes:
        workers: About how many tasks it processes at the same time.
    """

    workers: int

    def operator(self, group: Group, inside: frozenset[int]) -> OperatorSpec:
        """What the workers of a group need."""
        ...

    def carry(self, groups: Sequence[Group], operators: Sequence[OperatorSpec], parcels: list[Parcel]) -> None:
        """Send the parcels through a chain of operators, one for each group. Called in a separate thread."""

    def abort(self) -> None:
        """Make :meth:`carry` return at once, even while tasks are running."""

    def take(self, wait_s: float) -> list[bytes]:
        """The records that have arrived; waits for the first one."""
        ...


@dataclass(frozen=True)
class Segment:
    """A part of the plan that an engine can run by itself.

    Args:
        sources: Groups whose tasks the driver lists when the segment begins.
        groups: Groups that do the work, in the order of the chain.
    """

    sources: list[Group]
    groups: list[Group]


def segments_of(plan: Plan) -> list[Segment]:
    """Cut a plan into segments.

    >>> from tamis.plan import make_plan
    >>> from tamis.quickstart import sample_files
    >>> from tamis.stages.deduplication.exact import ExactDeduplication
    >>> from tamis.stages.io import JsonlReader, JsonlWriter
    >>> reader = JsonlReader(sample_files(), fields=["text"])
    >>> plan = make_plan("example", [reader, ExactDeduplication(), JsonlWriter("out")])
    >>> [(len(s.sources), len(s.groups)) for s in segments_of(plan)]
    [(1, 1), (1, 1), (1, 1)]
    """
    level: list[int] = []
    for group in plan.groups:
        waits = group.is_source or group.ordered or any(has_sink(plan, plan.groups[i]) for i in group.inputs)
        before = [level[i] + (waits and not (plan.groups[i].is_source and group.ordered)) for i in group.inputs]
        level.append(max(before, default=0))
    found = []
    for number in range(max(level) + 1):
        here = [g for g in plan.groups if level[g.index] == number]
        found.append(Segment([g for g in here if g.is_source], [g for g in here if not g.is_source]))
    return found


class ExternalDriver:
    """Carries out a plan on an external engine.

    Args:
        plan: What to do.
        run: The run: its directory, journal, progress display and stop signal.
        engine: What does the work.
    """

    def __init__(self, plan: Plan, run: Run, engine: Engine) -> None:
        self.books = Bookkeeper(plan, run.journal, run.directory.quarantine, run.observer, run.failures)
        self._plan, self._run, self._engine = plan, run, engine
        self._scratch = run.directory.scratch
        self._payloads = run.directory.payloads
        self._barriers = numbered_barriers(plan)
        self._held: dict[int, list[Envelope]] = {g.index: [] for g in plan.groups}
        self._keeps_failed = run.failures.on_error == "set_aside"
        self._policies: dict[int, FailurePolicy] = {}  # by group
        self._finished: set[tuple[int, str]] = set()  # of this segment
        self._running: dict[tuple[int, str], list[Record]] = {}  # tasks not finished: a record each time they began
        self._open = 0  # tasks inside the engine
        self._used: list[Envelope] = []  # finished, but the engine may have to make their outputs again
        self._listed = False
        self._draining = False
        self._began = time.monotonic()

    def execute(self) -> bool:
        """Run to the end. Returns ``False`` if the user stopped the run before."""
        done: list[int] = []  # groups
        for segment in segments_of(self._plan):
            self.books.open_barrier(done)  # the files that a barrier lists must have their final names
            parcels = [p for p in self._fed(segment) if not self._is_finished(segment, p)]
            parcels += [p for p in self._batches(segment) if not self._is_finished(segment, p)]
            self._listed = True
            self._check_stop()
            if parcels and not self._draining:
                self._carry(segment, parcels)
            if self._draining:
                self.books.flush()
                return False
            done += [g.index for g in segment.groups]
        self.books.finish()
        return True

    def snapshot(self, state: str = "") -> Snapshot:
        """The state of the run."""
        return Snapshot(
            elapsed_s=time.monotonic() - self._began,
            stages=self.books.stats,
            fraction=self.books.fraction(self.books.weight_fed if self._listed else None),
            held_bytes=0,
            budget_bytes=0,
            running=self._open,
            workers=self._engine.workers,
            state=state or ("draining" if self._draining else "running"),
        )

    # -- input -------------------------------------------------------------------------------------------------------

    def _fed(self, segment: Segment) -> Iterator[Parcel]:
        """Parcels of the sources, and of tasks from earlier segments for stages that take one task at a time."""
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
        """Parcels of the tasks of a source, with their ids and places."""
        entry = self._plan.vertices[group.entry]
        for task in tasks:
            number = self.books.number(group, task)
            identify(task, entry.name, number, group, self._barriers.get(group.index, 0))
            self.books.fed(group, task)
            targets = list(entry.edges.values()) if group.is_source else [entry.index]
            for target in targets:
                yield from self._sent(enclose(task, target))

    def _sent(self, envelope: Envelope) -> Iterator[Parcel]:
        """A parcel for a task that the driver listed; one that must be batched first is held here."""
        if envelope.vertex == END:
            self.books.output(envelope)
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
            queue = OrderedBatches(group.batch_size, group.batch_bytes, group.batch_rows, at_the_end=True)
            for envelope in self._held.pop(group.index):
                queue.open(source_key(envelope.order))
                queue.push(envelope)
                queue.close(source_key(envelope.order))
            for batch in queue.batches(last=True):
                yield Parcel(group.entry, fresh, batch)

    # -- what earlier starts of the run have finished ------------------------------------------------------------------

    def _is_finished(self, segment: Segment, parcel: Parcel) -> bool:
        """Whether a parcel, and all that is made of it in this segment, is finished. Then it is counted here."""
        inside = {g.index for g in segment.groups if not g.ordered}
        closed = self._closed(parcel.envelopes, inside)
        if closed is None:
            return False
        for group, batch in closed:
            for envelope in self.books.recall(group, batch) or ():
                if envelope.vertex == END:
                    self.books.output(envelope)
                elif not self._plan.vertices[envelope.vertex].is_source and self._target(envelope) not in inside:
                    self._held[self._target(envelope)].append(envelope)
        return True

    def _closed(self, batch: list[Envelope], inside: set[int]) -> list[tuple[Group, list[Envelope]]] | None:
        """A batch and those made of it in this segment, if all are finished and what leaves the segment is there."""
        group = self._plan.groups[self._target(batch[0])]
        made = self.books.peek(group, batch)
        if made is None:
            return None
        closed = [(group, batch)]
        for envelope in made:
            if envelope.vertex == END or self._plan.vertices[envelope.vertex].is_source:
                continue
            if self._target(envelope) in inside:
                following = self._closed([envelope], inside)
                if following is None:
                    return None
                closed += following
            elif envelope.payload is GONE:
                return None
        return closed

    def _target(self, envelope: Envelope) -> int:
        return self._plan.group_of[envelope.vertex]

    # -- a segment ---------------------------------------------------------------------------------------------------

    def _carry(self, segment: Segment, parcels: list[Parcel]) -> None:
        """Run one segment and book its records."""
        operators = []
        for place, group in enumerate(segment.groups):
            later = frozenset(g.entry for g in segment.groups[place + 1 :] if not g.ordered)
            operator = self._engine.operator(group, later)
            operators.append(replace(operator, keep_failed=operator.keep_failed or self._keeps_failed))
        self._policies = {o.group: SET_ASIDE_ERRORS if o.keep_failed else ALWAYS_RAISE for o in operators}
        self._finished.clear()
        self._running.clear()
        self._open = sum(len(p.envelopes) for p in parcels)
        problems: list[BaseException] = []

        def work() -> None:
            try:
                self._engine.carry(segment.groups, operators, parcels)
            except BaseException as error:  # noqa: BLE001 - raised in the driver's thread
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
            raise StageError(f"the engine lost {self._open} tasks: it received them and never processed them")

    def _explained(self, problem: BaseException) -> BaseException:
        """The engine's error; if a worker died while one task was running, an error that names the task."""
        if isinstance(problem, WorkerDiedError) and len(self._running) == 1:
            return self._death(next(iter(self._running.values())), str(problem))
        return problem

    def _listen(self, wait_s: float) -> bool:
        """Book the records that have arrived; returns whether there were any."""
        messages = self._engine.take(wait_s)
        for message in messages:
            self._book(pickle.loads(message))
        self._check_stop()
        self._run.observer.update(self.snapshot())
        return bool(messages)

    def _check_stop(self) -> None:
        if self._run.stop.level >= 2:
            raise KeyboardInterrupt
        if self._run.stop.level == 1 and not self._draining:
            self._draining = True
            touch(join(self._scratch, STOP))
            self.books.tell(STOPPING)

    # -- records -----------------------------------------------------------------------------------------------------

    def _book(self, record: Record) -> None:
        key = (record.group, record.batch[0].task_id)
        if record.skipped:
            self._open -= len(record.batch)
            return
        if record.begun:
            self._begun(key, record)
            return
        if key in self._finished:  # the engine ran it twice: the first one counts
            self.books.discard(record.outcome)
            return
        self._finished.add(key)
        self._running.pop(key, None)
        group = self._plan.groups[record.group]
        self.books.retried(group, record.retries)
        if record.outcome.failure is not None:
            self._book_failure(group, record, record.outcome.failure)
        else:
            self._book_success(group, record)
        self.books.check_budget()
        self._open += len(record.inside) - len(record.batch)
        if record.inside:  # if its worker dies before the engine has all the outputs, they are made again
            # Only payloads in files are kept; the engine has the others.
            self._used += [e for e in record.batch if e.payload is not None]
            return
        for envelope in record.batch:
            release_payload(envelope.payload)

    def _begun(self, key: tuple[int, str], record: Record) -> None:
        """A worker has begun a parcel. A worker that began it before has died or was killed."""
        if key in self._finished:
            return
        before = self._running.setdefault(key, [])
        if len(before) > DEATH_RETRIES:
            raise self._death(before, "its worker died each time")
        before.append(record)

    def _death(self, begun: list[Record], why: str) -> Exception:
        """The error for a task whose worker died each time it began."""
        last = begun[-1]
        vertex = RunningStage.read(last.begun)
        name = self._plan.vertices[self._plan.groups[last.group].entry if vertex is None else vertex].name
        return stage_error(last.batch, Failure(name, why, died=True), len(begun))

    def _book_success(self, group: Group, record: Record) -> None:
        self.books.succeeded(group, record.batch, record.outcome, record.inside)
        for envelope in record.outcome.outputs:
            if envelope.vertex == END:
                self.books.output(envelope)
            else:
                self._held[self._plan.group_of[envelope.vertex]].append(envelope)

    def _book_failure(self, group: Group, record: Record, failure: Failure) -> None:
        # Stages that cannot be set up would fail with every task.
        policy = ALWAYS_RAISE if record.in_setup else self._policies[group.index]
        kept = dict(zip((e.task_id for e in record.batch), record.kept, strict=False))

        def store(envelope: Envelope, path: str) -> None:
            if envelope.task_id in kept:  # a task that could not be read has no data to keep
                publish(Publish(kept[envelope.task_id], path, 0, 0))

        self.books.failed(group, record.batch, failure, record.retries + 1, policy, store)
