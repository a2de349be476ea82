"""The event loop of a run: it feeds, dispatches, retries and drains.

It moves envelopes, never data, and knows nothing about threads, processes or clusters: those are substrates. On any
substrate, it guarantees:

- every task is processed until it is done or set aside with its cause, and its files are published once;
- the memory of tasks between stages stays within the budget (a task that does not fit runs alone);
- the pipeline cannot deadlock: a ready batch may exceed the budget if neither its stage nor a later one is busy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tamis.backends.bookkeeper import ALWAYS_RAISE, Bookkeeper, setup_error, stage_error
from tamis.backends.contracts import FailurePolicy, Journal, Limits, Manager, Stop, Watcher
from tamis.backends.dispatch import Assignment, Dispatcher
from tamis.backends.isolation import Isolation
from tamis.backends.meter import Meter
from tamis.backends.outcome import Failure, Outcome
from tamis.backends.payload import Envelope, Maker
from tamis.backends.recovery import Recovery
from tamis.backends.scheduler_state import GroupState, SchedulerState
from tamis.backends.substrates.base import Done, Event, Lost, SetupFailed, Substrate, WorkerDied, WorkerReady, WorkerUp
from tamis.backends.worker_registry import WorkerRegistry
from tamis.errors import WorkerDiedError
from tamis.plan import Plan
from tamis.runs.stats import Snapshot
from tamis.runs.stop import STOPPING
from tamis.tasks import Task

POLL_S = 0.1
"""How long the loop waits for events before it checks everything else again, in seconds."""

LOOKAHEAD = 64
"""How many tasks of a source are listed ahead of the workers."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
"""Seconds before a task is tried again after an error that may pass: the first time, and at most."""

MOST_DOUBTFUL = 20
"""How many batches may fail in a group that has never worked, before the run ends: the stage is broken."""

MAX_DEATHS_IN_A_ROW = 20
"""How many workers may die in a row, with no task finished, before the run fails (no memory, a broken install).

Workers that die on one machine of a cluster within a second count as one.
"""

MAX_FAILED_SETUPS = 3
"""How many workers in a row may fail to set up their stages before the run fails."""


class Coordinator:
    """Carries out a plan on a substrate.

    Args:
        plan: What to do.
        substrate: Where workers run.
        registry: The workers.
        journal: Where finished work is recorded and published.
        limits: What the run may use.
        scratch: The run's directory for data between stages.
        quarantine: The run's directory for tasks that are set aside; without one, a failed task ends the run.
        initial: Tasks for the first stage if it is not a source.
        stop: Whether the user wants to stop.
        watcher: Receives progress updates.
        manager: Decides how many workers there are, if that can change.
        failures: What happens to a task that has failed for good.
    """

    def __init__(
        self,
        plan: Plan,
        substrate: Substrate,
        registry: WorkerRegistry,
        journal: Journal,
        limits: Limits,
        *,
        scratch: str = "",
        quarantine: str = "",
        initial: Sequence[Task[Any]] = (),
        stop: Stop,
        watcher: Watcher | None = None,
        manager: Manager | None = None,
        failures: FailurePolicy | None = None,
    ) -> None:
        self._failures = failures or FailurePolicy()
        self.books = Bookkeeper(plan, journal, quarantine, watcher, self._failures)
        self.total_weight: int | None = None
        self._recovery = Recovery(self._repeat)
        self.scheduler = SchedulerState(plan, self.books, scratch, self._recovery.restore, substrate.now)
        self.registry, self.limits = registry, limits
        self.meter = Meter(plan, self.books.stats, registry, substrate.now)
        self._dispatcher = Dispatcher(plan, substrate, registry, self.scheduler, limits)
        self.timings = self._dispatcher.timings
        self._plan, self._substrate, self._initial = plan, substrate, initial
        self._stop, self._watcher, self._manager = stop, watcher, manager
        self._doubtful: list[tuple[GroupState, list[Envelope], Failure]] = []  # of groups that never worked so far
        self._waiting: list[tuple[float, GroupState, list[Envelope]]] = []  # until they are tried again
        self._deaths = 0  # since a task was last finished
        self._last_death: dict[str, float] = {}  # by machine
        self._began = self._shown = substrate.now()

    @property
    def held_bytes(self) -> int:
        """Memory that tasks between stages take."""
        return self.scheduler.held_bytes

    @property
    def elapsed_s(self) -> float:
        """Seconds since the run began."""
        return self._substrate.now() - self._began

    @property
    def reserved_bytes(self) -> int:
        """Memory that is kept free for the outputs of running tasks."""
        return self._dispatcher.reserved_bytes

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Run to the end. Returns ``False`` if the user stopped the run before."""
        self.registry.start()
        self.scheduler.begin(self._initial)
        while True:
            self._check_stop()
            self._try_again()
            self._advance()
            if (
                not self._dispatcher.assignments
                and not self._recovery
                and not self._waiting
                and not any(s.ready for s in self.scheduler.groups)
            ):
                if not self._doubtful or self.scheduler.draining:  # the next start of the run tries them again
                    break
                self._settle_doubts()
                continue
            if self._manager:
                self._manager.adjust(self)
            self._dispatcher.kill_overdue()
            for event in self._substrate.poll(POLL_S):
                self._on(event)
            self.show()
        if self.scheduler.draining:
            self.books.flush()
            return False
        self.books.finish()
        return True

    def _check_stop(self) -> None:
        if self._stop.level >= 2:
            raise KeyboardInterrupt
        if self._stop.level == 1 and not self.scheduler.draining:
            self.scheduler.drain(keep=self._recovery.repeats)
            if not self._stop.announced:
                self.tell(STOPPING)

    def _advance(self) -> None:
        """Feed and dispatch until nothing more can be dispatched."""
        while True:
            self.scheduler.feed(LOOKAHEAD + 4 * len(self.registry))
            self._dispatcher.give_out()
            if not self.scheduler.complete_sources():
                return

    def snapshot(self, state: str = "") -> Snapshot:
        """The state of the run."""
        total = self.total_weight
        if total is None and self.scheduler.exhausted():
            total = self.books.weight_fed
        return Snapshot(
            elapsed_s=self.elapsed_s,
            stages=self.books.stats,
            fraction=self.books.fraction(total, self._running_bytes() if total else 0),
            held_bytes=self.held_bytes,
            budget_bytes=self.limits.budget_bytes,
            running=len(self._dispatcher.assignments),
            workers=len(self.registry),
            state=state or ("draining" if self.scheduler.draining else "running"),
            stage_workers=self.meter.stage_workers(),
            worker_stats=self.meter.worker_stats,
        )

    def _running_bytes(self) -> int:
        """Bytes of input that workers have processed of the tasks they are running."""
        largest: dict[int, int] = {}  # a worker cannot have processed more than its largest assignment
        for assignment in self._dispatcher.assignments.values():
            if self.books.takes_input(assignment.group):
                worker, weight = assignment.worker.index, sum(e.weight for e in assignment.batch)
                largest[worker] = max(largest.get(worker, 0), weight)
        return sum(min(most, self._substrate.processed_bytes(worker)) for worker, most in largest.items())

    def tell(self, text: str) -> None:
        """Show a message to the user."""
        self.books.tell(text)

    def show(self) -> None:
        """Show the state of the run, if it was not shown a moment ago."""
        now = self._substrate.now()
        if self._watcher and now - self._shown >= POLL_S:
            self._shown = now
            self._watcher.update(self.snapshot())

    # -- events ------------------------------------------------------------------------------------------------------

    def _on(self, event: Event) -> None:
        if isinstance(event, Done):
            self._on_done(event)
        elif isinstance(event, WorkerDied):
            self._on_death(event)
        elif isinstance(event, Lost):
            self._on_lost(event)
        elif isinstance(event, WorkerReady):
            worker = self.registry.workers.get(event.worker)
            if worker is not None:
                worker.is_set_up(self._substrate.now())
                for group in self.registry.groups_of(worker):
                    self.timings[group].failed_setups = 0
                self.registry.ready(worker)
                if self._manager:
                    self._manager.ready(worker, event.seconds)
        elif isinstance(event, WorkerUp):
            worker = self.registry.workers.get(event.worker)
            if worker is not None and self._manager:
                worker.up = True
                self._manager.up(worker)
        elif isinstance(event, SetupFailed):
            self._on_failed_setup(event)
        else:
            self._lose(event.worker)

    def _lose(self, worker: int) -> None:
        """A worker is gone, through no fault of the assignments that it held: others get them."""
        for ticket in self.registry.lose(worker):
            assignment = self._dispatcher.take_back(ticket)
            assert assignment is not None
            self.scheduler.groups[assignment.group].ready.push(assignment.batch)

    def _on_done(self, event: Done) -> None:
        assignment = self._dispatcher.take_back(event.ticket)
        outcome = event.outcome
        if assignment is None:  # the worker was given up, and another has the task
            self.books.discard(outcome)
            return
        self.meter.done(assignment, event.ticket, outcome)
        self.registry.take(assignment.worker, event.ticket, self._substrate.now())
        if outcome.failure is not None:
            self._on_failure(assignment, outcome.failure)
        elif self._recovery.repeats(assignment.batch):
            self.books.repeated(outcome)
            self.scheduler.end_repetition(self.scheduler.groups[assignment.group], assignment.batch)
            self._deaths = 0
            for envelope in assignment.batch:
                envelope.attempt, envelope.deaths, envelope.isolation = 0, 0, None
            self._recovery.done(assignment.batch, outcome)
        else:
            self._on_success(assignment, outcome)

    def _on_success(self, assignment: Assignment, outcome: Outcome) -> None:
        state, batch = self.scheduler.groups[assignment.group], assignment.batch
        self._deaths = 0
        self.books.succeeded(state.group, batch, outcome)
        maker = Maker(assignment.group, batch) if self._substrate.volatile else None
        for envelope in outcome.outputs:
            envelope.maker = maker
        weight, made = sum(e.weight for e in batch), sum(e.nbytes for e in outcome.outputs)
        if weight and made:
            state.out_ratio = max(state.out_ratio, made / weight)
        self.timings[assignment.group].service.add(outcome.seconds, len(batch))
        for envelope in batch:
            envelope.attempt = envelope.deaths = 0  # if its outputs are lost, the repetition counts from zero
            envelope.isolation = None
        self.scheduler.pass_on(state, batch, outcome.outputs)
        self.books.check_budget()
        if self._doubtful:
            self._settle_doubts(state)

    def _on_failure(self, assignment: Assignment, failure: Failure) -> None:
        state, batch = self.scheduler.groups[assignment.group], assignment.batch
        for envelope in batch:
            envelope.deaths += failure.died
            envelope.attempt += not failure.died
        first = batch[0]
        if failure.transient and first.attempt <= self.limits.transient_retries:
            self.books.retried(state.group)
            pause = min(FIRST_PAUSE_S * 2 ** (first.attempt - 1), LONGEST_PAUSE_S)
            self._waiting.append((self._substrate.now() + pause, state, batch))
            return
        too_often = first.deaths > self.limits.death_retries or first.attempt > self.limits.retries
        if failure.permanent or too_often:
            first.isolation = self._isolation(state, batch, failure)
            if first.isolation is None:
                self._give_up(state, batch, failure)
                return
        self.books.retried(state.group)
        if failure.died and not failure.timed_out:
            self.timings[assignment.group].suspects.add(id(batch))
        state.ready.push(batch)

    def _try_again(self) -> None:
        """Queue batches again whose pause is over."""
        now = self._substrate.now()
        due = [(state, batch) for at, state, batch in self._waiting if at <= now or self.scheduler.draining]
        if due:
            self._waiting = [item for item in self._waiting if not (item[0] <= now or self.scheduler.draining)]
            for state, batch in due:
                state.ready.push(batch)

    def _isolation(self, state: GroupState, batch: list[Envelope], failure: Failure) -> Isolation | None:
        """How to find the items of a batch that fail; ``None`` if that was tried, or is of no use."""
        tried = batch[0].isolation
        if self._failures.action(failure) == "raise":
            return None
        died = tried.died if tried is not None else ()
        if failure.died or state.group.timeout_s is not None:  # a worker cannot end a call of its own that hangs
            return None if failure.stage in died else Isolation((*died, failure.stage))
        return None if tried is not None else Isolation()

    def _give_up(self, state: GroupState, batch: list[Envelope], failure: Failure) -> None:
        """Set a batch aside, or raise. A stage that raised for everything so far may be broken: that is seen later."""
        sets_aside = not self._recovery.repeats(batch) and self._failures.action(failure) == "set_aside"
        if sets_aside and not failure.died and not self.books.has_worked(state.group):
            self._doubtful.append((state, batch, failure))
            if len(self._doubtful) > MOST_DOUBTFUL:
                self._raise_doubt()
            return
        policy = ALWAYS_RAISE if self._recovery.repeats(batch) else self._failures
        attempts = batch[0].deaths + batch[0].attempt
        self.books.failed(state.group, batch, failure, attempts, policy, self._save)
        for envelope in batch:
            self.scheduler.leave(state, envelope)
        self.books.check_budget()

    def _settle_doubts(self, worked: GroupState | None = None) -> None:
        """Set aside the batches of a group that has worked by now; without one, at the end of the run, all of them."""
        if worked is None and not self.books.has_result:
            self._raise_doubt()
        doubtful, self._doubtful = self._doubtful, []
        for state, batch, failure in doubtful:
            if worked is not None and state is not worked:
                self._doubtful.append((state, batch, failure))
                continue
            attempts = batch[0].deaths + batch[0].attempt
            self.books.failed(state.group, batch, failure, attempts, self._failures, self._save)
            for envelope in batch:
                self.scheduler.leave(state, envelope)
        self.books.check_budget()

    def _raise_doubt(self) -> None:
        _, batch, failure = self._doubtful[0]
        raise stage_error(batch, failure, batch[0].deaths + batch[0].attempt)

    def _save(self, envelope: Envelope, path: str) -> None:
        self._substrate.save_task(envelope.payload, path)

    def _on_death(self, event: WorkerDied) -> None:
        """Give the dead worker's tasks to others. Only the running task counts as a failed attempt."""
        worker, now = self.registry.workers.get(event.worker), self._substrate.now()
        for ticket in self.registry.lose(event.worker):
            assignment = self._dispatcher.take_back(ticket)
            assert assignment is not None
            if event.running == (ticket,):
                name = event.stage or self._plan.vertices[self._plan.groups[assignment.group].entry].name
                self._on_failure(assignment, Failure(name, event.why, died=True))
            else:
                if ticket in event.running:
                    self.timings[assignment.group].suspects.add(id(assignment.batch))
                self.scheduler.groups[assignment.group].ready.push(assignment.batch)
        if worker is not None and worker.node:  # a lost machine, with all its workers, counts once
            self._deaths += now - self._last_death.get(worker.node, -math.inf) > 1.0
            self._last_death[worker.node] = now
        else:
            self._deaths += 1
        if self._deaths > MAX_DEATHS_IN_A_ROW:
            raise WorkerDiedError(f"{self._deaths} workers died in a row, and no task was finished: {event.why}")

    def _on_failed_setup(self, event: SetupFailed) -> None:
        worker = self.registry.workers.get(event.worker)
        self._lose(event.worker)
        if worker is None:
            return
        for group in self.registry.groups_of(worker):
            timing = self.timings[group]
            timing.failed_setups += 1
            if event.failure.permanent or timing.failed_setups >= MAX_FAILED_SETUPS:
                raise setup_error(event.failure, timing.failed_setups)

    # -- lost data ---------------------------------------------------------------------------------------------------

    def _on_lost(self, event: Lost) -> None:
        assignment = self._dispatcher.take_back(event.ticket)
        if assignment is None:
            return
        self.registry.take(assignment.worker, event.ticket, self._substrate.now())
        batch, state = assignment.batch, self.scheduler.groups[assignment.group]
        lost = [e for e in batch if any(e.payload is p for p in event.payloads)]
        if not lost:  # the driver has the data and sends it again
            state.ready.push(batch)
            return
        if self._recovery.repeats(batch):
            self.scheduler.end_repetition(state, batch)
            self._recovery.lost_again(batch, lost)
            return
        missing = len(lost)

        def one_restored() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                state.ready.push(batch)

        for envelope in lost:
            self._recovery.restore(envelope, one_restored)

    def _repeat(self, maker: Maker) -> None:
        self.books.check_repetition(self._plan.groups[maker.group], maker.batch)
        self.scheduler.begin_repetition(self.scheduler.groups[maker.group], maker.batch)


__all__ = ["Coordinator"]
