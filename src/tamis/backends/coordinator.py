"""The driver's side: one event loop that feeds, dispatches, retries, publishes and drains.

It moves envelopes, never data, and knows nothing of threads, processes or clusters: those are substrates. What it
guarantees, on any of them:

- every task is worked on until it is done or set aside with its cause, and its files are published once;
- tasks in memory between stages stay within the budget (a task that cannot fit runs alone);
- the pipeline cannot lock up: the most downstream work that is ready is always let through when nothing else moves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis.backends.contracts import Journal, Limits, Manager, Stop, Watcher
from tamis.backends.crew import Crew, Worker
from tamis.backends.failures import set_aside, setup_error, stage_error
from tamis.backends.payload import Envelope, Maker, discard
from tamis.backends.recovery import Recovery
from tamis.backends.runner import Failure, Outcome
from tamis.backends.substrates.base import Done, Event, Lost, SetupFailed, Substrate, WorkerDied, WorkerReady, WorkerUp
from tamis.backends.timing import ServiceTime
from tamis.backends.traffic import GroupState, Traffic
from tamis.errors import WorkerDiedError
from tamis.plan import Plan
from tamis.runs.stats import Snapshot, StageStats
from tamis.tasks import Task
from tamis.tasks.storage import format_order

POLL_S = 0.1
"""How long the loop waits for news before it looks around again."""

LOOKAHEAD = 64
"""How many tasks of a source are made ready ahead of the workers."""

MAX_DEPTH = 32
"""The most assignments a worker may hold."""

MAX_DEATHS_IN_A_ROW = 20
"""Workers that may die one after the other before the run is given up (a machine out of memory, a broken install).

Those that die on one machine of a cluster within a second count as one.
"""

MAX_FAILED_SETUPS = 3
"""Workers in a row whose stages cannot be set up before the run is given up."""

BRIEF_S = 0.1
"""It does not matter whether one has to wait behind an assignment that takes no longer."""

MUCH_LONGER = 4.0
"""From this ratio on, the shorter of two assignments is not put behind the other."""

FAR_BYTES = 2**20
"""A batch larger than this waits a moment for a worker on the machine that holds it."""

FAR_WAIT_S = 0.3
"""That moment."""


@dataclass
class _Assignment:
    worker: Worker
    group: int
    batch: list[Envelope]
    reserved: int


@dataclass
class _Pace:
    """How a group gets on.

    Args:
        service: Seconds per task and per assignment.
        failed_setups: Workers in a row that could not be set up.
        suspects: Batches that died together with others: each is tried alone.
        waiting_since: Since when batches have been waiting for workers on their own machine.
    """

    service: ServiceTime = field(default_factory=ServiceTime)
    failed_setups: int = 0
    suspects: set[int] = field(default_factory=set)
    waiting_since: dict[str, float] = field(default_factory=dict)


class Coordinator:
    """Carries out a plan on a substrate.

    Args:
        plan: What to do.
        substrate: Where.
        crew: The workers.
        journal: Where finished work goes.
        limits: What may be used.
        scratch: The run's directory for data between stages.
        quarantine: The run's directory for tasks that are set aside.
        initial: Tasks for the first stage when it is no source.
        stop: Tells when the user wants to stop.
        watcher: Is shown the state now and then.
        manager: Decides how many workers there are, where that can change.
    """

    def __init__(
        self,
        plan: Plan,
        substrate: Substrate,
        crew: Crew,
        journal: Journal,
        limits: Limits,
        *,
        scratch: str = "",
        quarantine: str = "",
        initial: Sequence[Task[Any]] = (),
        stop: Stop,
        watcher: Watcher | None = None,
        manager: Manager | None = None,
    ) -> None:
        self.stats = [StageStats(v.name, internal=v.stage.internal) for v in plan.vertices]
        self.reserved_bytes = 0
        self.total_weight: int | None = None
        self.traffic = Traffic(plan, journal, scratch, self.stats)
        self.paces = [_Pace() for _ in plan.groups]
        self.crew = crew
        self._plan, self._substrate, self._journal, self.limits = plan, substrate, journal, limits
        self._quarantine, self._initial = quarantine, initial
        self._stop, self._watcher, self._manager = stop, watcher, manager
        self._recovery = Recovery(self._repeat)
        self._tickets = itertools.count()
        self._assignments: dict[int, _Assignment] = {}
        self._deaths = 0  # since a task was last finished
        self._weight_done = 0
        self._longest_s: dict[int, float] = {}
        self._last_death: dict[str, float] = {}  # by machine
        self._timed = [g.index for g in plan.groups if g.timeout_s is not None]
        self._began = self._shown = substrate.now()

    @property
    def held_bytes(self) -> int:
        """Memory that tasks between stages take."""
        return self.traffic.held_bytes

    # -- the loop ----------------------------------------------------------------------------------------------------

    def run(self) -> bool:
        """Run to the end; return whether it got there (``False``: the user stopped it)."""
        self.crew.start()
        self.traffic.begin(self._initial)
        while True:
            self._heed_stop()
            self._advance()
            if not self._assignments and not self._recovery and not any(s.ready for s in self.traffic.groups):
                break
            if self._manager:
                self._manager.tend(self)
            self._end_the_overdue()
            for event in self._substrate.poll(POLL_S):
                self._on(event)
            self._journal.flush()
            self._show()
        self._journal.flush()
        return not self.traffic.draining

    def _heed_stop(self) -> None:
        if self._stop.level >= 2:
            raise KeyboardInterrupt
        if self._stop.level == 1 and not self.traffic.draining:
            self.traffic.drain(keep=self._recovery.repeats)
            if self._watcher:
                self._watcher.message("Stopping: finishing what is in flight. Press Ctrl-C again to stop at once.")

    def _advance(self) -> None:
        """Feed and dispatch until nothing more can be given out."""
        while True:
            self.traffic.feed(LOOKAHEAD + 4 * len(self.crew))
            self._dispatch()
            if not self.traffic.complete_sources():
                return

    def snapshot(self, state: str = "") -> Snapshot:
        """The state of the run."""
        total = self.total_weight
        if total is None and self.traffic.exhausted():
            total = self.traffic.weight_fed
        return Snapshot(
            elapsed_s=self._substrate.now() - self._began,
            stages=self.stats,
            fraction=min(1.0, self._weight_done / total) if total else None,
            held_bytes=self.held_bytes,
            budget_bytes=self.limits.budget_bytes,
            running=len(self._assignments),
            workers=len(self.crew),
            state=state or ("draining" if self.traffic.draining else "running"),
        )

    def _show(self) -> None:
        now = self._substrate.now()
        if self._watcher and now - self._shown >= POLL_S:
            self._shown = now
            self._watcher.update(self.snapshot())

    # -- dispatch ----------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Give out work, the most downstream first, so that what is begun is finished before more is read."""
        downstream_busy = False
        deepest: dict[int, int] = {}  # by pool: work that waits for a worker must not be passed by what comes before it
        for state in self.traffic.groups:
            if state.ordered is not None:
                self.traffic.release(state, last=False)
        self._longest_s = self._longest_by_pool()
        for state in reversed(self.traffic.groups):
            if not state.ready:
                downstream_busy = downstream_busy or state.running > 0
                continue
            forced = not downstream_busy and not state.running
            if state.ready:
                pool = self.crew.pool_for(state.group.index)
                limit = deepest.get(pool, MAX_DEPTH)
                while state.ready and self._dispatch_one(state, forced, limit):
                    forced = False
                if state.ready:
                    deepest[pool] = min(limit, self._depth(state))
            downstream_busy = downstream_busy or bool(state.running or state.ready)

    def _dispatch_one(self, state: GroupState, forced: bool, limit: int) -> bool:
        """Give out the first batch that can be; tell whether there was one."""
        group, cpus, depth = state.group.index, self._cpus(state), min(limit, self._depth(state))
        anybody = self.crew.free(group, cpus, depth)
        if anybody is None:
            return False
        far: tuple[str, int] | None = None  # a batch that nobody on its own machine can take
        for home in state.ready.homes():
            batch = state.ready.peek(home)
            cost = self._cost(state, batch)
            if cost and not forced and self.held_bytes + self.reserved_bytes + cost > self.limits.budget_bytes:
                return False
            large = bool(home) and sum(e.nbytes for e in batch) >= FAR_BYTES
            worker = self.crew.free(group, cpus, depth, home) if large else anybody
            if worker is not None:
                self._assign(worker, state, self._next_batch(state, home), cost)
                return True
            if far is None and not self._waits_for(group, home):
                far = home, cost
        if far is not None:
            self._assign(anybody, state, self._next_batch(state, far[0]), far[1])
        return far is not None

    def _next_batch(self, state: GroupState, home: str) -> list[Envelope]:
        batch = state.ready.pop(home)
        if not state.ready.lies_on(home):
            self.paces[state.group.index].waiting_since.pop(home, None)
        return batch

    def _waits_for(self, group: int, home: str) -> bool:
        """Whether a batch should wait a moment for a worker on the machine that holds it.

        The moment is over once for all batches there, until there are none: where more is made than its own workers
        can take, the others need not wait each time.
        """
        now = self._substrate.now()
        waited = now - self.paces[group].waiting_since.setdefault(home, now)
        return self.crew.has_worker_on(group, home) and waited < FAR_WAIT_S

    def _cost(self, state: GroupState, batch: list[Envelope]) -> int:
        """Memory that working on the batch will take beyond what it holds already."""
        weight = sum(e.weight for e in batch)
        held = sum(e.nbytes for e in batch)
        reading = weight - held if state.group.batch_bytes is None else 0  # batches by bytes are worked off piecewise
        return int(max(reading, state.out_ratio * weight, 0))

    def _longest_by_pool(self) -> dict[int, float]:
        """How long the longest assignments take that the workers of each pool have now."""
        longest: dict[int, float] = {}
        for state in self.traffic.groups:
            if state.running or state.ready:
                pool = self.crew.pool_for(state.group.index)
                service = self.paces[state.group.index].service.per_assignment
                longest[pool] = max(longest.get(pool, 0.0), math.inf if service is None else service)
        return longest

    def _depth(self, state: GroupState) -> int:
        """How many assignments a worker may hold: more when they are short, so that it need not wait for us.

        Where they might wait for long, what is few or quickly done is kept for whoever is free first.
        """
        group = state.group.index
        service = self.paces[group].service.per_assignment
        if service is None:
            return 1
        longest = self._longest_s.get(self.crew.pool_for(group), 0.0)
        few = len(state.ready) < self.crew.size_for(group)
        if longest > BRIEF_S and (few or longest > MUCH_LONGER * service):
            return 1
        return min(MAX_DEPTH, max(2, 1 + math.ceil(self._substrate.latency_s / max(service, 1e-6))))

    def _cpus(self, state: GroupState) -> float:
        return min(max(self.limits.least_cpus, state.group.resources.cpus), self.limits.cpus)

    def _assign(self, worker: Worker, state: GroupState, batch: list[Envelope], cost: int) -> None:
        ticket, group = next(self._tickets), state.group.index
        self.crew.give(worker, ticket, self._cpus(state), self._substrate.now())
        state.running += 1
        self.reserved_bytes += cost
        self._assignments[ticket] = _Assignment(worker, group, batch, cost)
        alone = state.group.timeout_s is not None or id(batch) in self.paces[group].suspects
        self._substrate.submit(worker.index, ticket, group, batch, alone=alone)

    def _end_the_overdue(self) -> None:
        """End workers that have been at one assignment for longer than its stages allow."""
        now = self._substrate.now()
        for ticket, assignment in self._assignments.items() if self._timed else ():
            limit, worker = self._plan.groups[assignment.group].timeout_s, assignment.worker
            running = worker.warm and worker.tickets[0] == ticket
            if limit is not None and running and now - worker.since > limit:
                worker.since = math.inf  # once is enough
                self._substrate.kill_worker(worker.index, f"it took longer than the {limit:g} s of timeout_s")

    # -- what comes back ---------------------------------------------------------------------------------------------

    def _on(self, event: Event) -> None:
        if isinstance(event, Done):
            self._on_done(event)
        elif isinstance(event, WorkerDied):
            self._on_death(event)
        elif isinstance(event, Lost):
            self._on_lost(event)
        elif isinstance(event, WorkerReady):
            worker = self.crew.workers.get(event.worker)
            if worker is not None:
                worker.since, worker.warm = self._substrate.now(), True
                for group in self.crew.groups_of(worker):
                    self.paces[group].failed_setups = 0
                self.crew.ready(worker)
                if self._manager:
                    self._manager.ready(worker, event.seconds)
        elif isinstance(event, WorkerUp):
            worker = self.crew.workers.get(event.worker)
            if worker is not None and self._manager:
                worker.up = True
                self._manager.up(worker)
        elif isinstance(event, SetupFailed):
            self._on_failed_setup(event)
        else:
            self.crew.lose(event.worker)

    def _on_done(self, event: Done) -> None:
        assignment = self._take_back(event.ticket)
        outcome = event.outcome
        if assignment is None:  # the work of a worker that was given up: somebody else does it
            self._throw_away(outcome)
            return
        self.crew.take(assignment.worker, event.ticket, self._substrate.now())
        if outcome.failure is not None:
            self._on_failure(assignment, outcome.failure)
        elif self._recovery.repeats(assignment.batch):
            self._journal.forget([p for p in outcome.published if p.temporary != p.final])
            self.traffic.gone_again(self.traffic.groups[assignment.group], assignment.batch)
            self._deaths = 0
            for envelope in assignment.batch:
                envelope.attempt = envelope.deaths = 0
            self._recovery.done(assignment.batch, outcome)
        else:
            self._on_success(assignment, outcome)

    def _take_back(self, ticket: int) -> _Assignment | None:
        assignment = self._assignments.pop(ticket, None)
        if assignment is not None:
            self.traffic.groups[assignment.group].running -= 1
            self.reserved_bytes -= assignment.reserved
            self.paces[assignment.group].suspects.discard(id(assignment.batch))
        return assignment

    def _throw_away(self, outcome: Outcome) -> None:
        self._journal.forget(outcome.published)
        for envelope in outcome.outputs:
            discard(envelope.payload)

    def _on_success(self, assignment: _Assignment, outcome: Outcome) -> None:
        state, batch = self.traffic.groups[assignment.group], assignment.batch
        self._deaths = 0
        for vertex, stats in outcome.stats.items():
            self.stats[vertex].add(stats)
        name = self._plan.vertices[state.group.entry].name
        self._journal.record(name, [e.task_id for e in batch], outcome.published)
        maker = Maker(assignment.group, batch) if self._substrate.volatile else None
        made = 0
        for envelope in outcome.outputs:
            made += envelope.nbytes
            envelope.maker = maker
            if envelope.vertex >= 0:
                target = self._plan.group_of[envelope.vertex]
                state.sent[target] = state.sent.get(target, 0) + 1
            self.traffic.send(envelope)
        weight = sum(e.weight for e in batch)
        if weight and made:
            state.out_ratio = max(state.out_ratio, made / weight)
        state.done += len(batch)
        self.paces[assignment.group].service.add(outcome.seconds, len(batch))
        if not self._upstream_sources(state):
            self._weight_done += weight
        for envelope in batch:
            envelope.attempt = envelope.deaths = 0  # should it be repeated, that is another matter
            self.traffic.leave(state, envelope)

    def _upstream_sources(self, state: GroupState) -> bool:
        """Whether the group is behind another one that does work (then its input was counted there)."""
        groups = self._plan.groups
        return any(not groups[i].is_source or groups[i].inputs for i in state.group.inputs)

    def _on_failure(self, assignment: _Assignment, failure: Failure) -> None:
        state, batch = self.traffic.groups[assignment.group], assignment.batch
        for envelope in batch:
            envelope.deaths += failure.died
            envelope.attempt += not failure.died
        first = batch[0]
        too_often = first.deaths > self.limits.death_retries or first.attempt > self.limits.retries
        if failure.permanent or too_often:
            if not failure.died or self._recovery.repeats(batch) or not self._quarantine:
                raise stage_error(batch, failure, first.deaths + first.attempt)
            self._set_aside(state, batch, failure)
            return
        self.stats[state.group.entry].retries += 1
        if failure.died:
            self.paces[assignment.group].suspects.add(id(batch))
        state.ready.push(batch)

    def _set_aside(self, state: GroupState, batch: list[Envelope], failure: Failure) -> None:
        """Give a batch up: its data and the cause go to the quarantine, the run goes on."""
        for envelope, path in zip(batch, set_aside(batch, failure, self._quarantine), strict=True):
            self._substrate.set_down(envelope.payload, path)
        entry = self.stats[state.group.entry]
        entry.tasks_in += len(batch)
        entry.rows_in += sum(e.rows for e in batch)
        entry.quarantined += sum(e.rows for e in batch)
        if self._watcher:
            places = ", ".join(format_order(e.order) for e in batch[:3])
            self._watcher.message(f"{failure.stage}: task {places} set aside in {self._quarantine}: {failure.error}")
        for envelope in batch:
            self.traffic.leave(state, envelope)

    def _on_death(self, event: WorkerDied) -> None:
        """Give the dead worker's tasks to others; only the one it was working on is held against."""
        worker, now = self.crew.workers.get(event.worker), self._substrate.now()
        for ticket in self.crew.lose(event.worker):
            assignment = self._take_back(ticket)
            assert assignment is not None
            if event.running == (ticket,):
                name = self._plan.vertices[self._plan.groups[assignment.group].entry].name
                self._on_failure(assignment, Failure(name, event.why, died=True))
            else:
                if ticket in event.running:
                    self.paces[assignment.group].suspects.add(id(assignment.batch))
                self.traffic.groups[assignment.group].ready.push(assignment.batch)
        if worker is not None and worker.node:  # a machine that goes takes all of its workers with it
            self._deaths += now - self._last_death.get(worker.node, -math.inf) > 1.0
            self._last_death[worker.node] = now
        else:
            self._deaths += 1
        if self._deaths > MAX_DEATHS_IN_A_ROW:
            raise WorkerDiedError(
                f"{self._deaths} workers died one after the other without finishing a task: {event.why}"
            )

    def _on_failed_setup(self, event: SetupFailed) -> None:
        worker = self.crew.workers.get(event.worker)
        for ticket in self.crew.lose(event.worker):
            assignment = self._take_back(ticket)
            assert assignment is not None
            self.traffic.groups[assignment.group].ready.push(assignment.batch)
        if worker is None:
            return
        for group in self.crew.groups_of(worker):
            pace = self.paces[group]
            pace.failed_setups += 1
            if event.failure.permanent or pace.failed_setups >= MAX_FAILED_SETUPS:
                raise setup_error(event.failure, pace.failed_setups)

    # -- lost data ---------------------------------------------------------------------------------------------------

    def _on_lost(self, event: Lost) -> None:
        assignment = self._take_back(event.ticket)
        if assignment is None:
            return
        self.crew.take(assignment.worker, event.ticket, self._substrate.now())
        batch, state = assignment.batch, self.traffic.groups[assignment.group]
        lost = [e for e in batch if any(e.payload is p for p in event.payloads)]
        if not lost:  # what the driver holds is sent again
            state.ready.push(batch)
            return
        if self._recovery.repeats(batch):
            self.traffic.gone_again(state, batch)
            self._recovery.lost_again(batch, lost)
            return
        missing = len(lost)

        def one_is_back() -> None:
            nonlocal missing
            missing -= 1
            if not missing:
                state.ready.push(batch)

        for envelope in lost:
            self._recovery.restore(envelope, one_is_back)

    def _repeat(self, maker: Maker) -> None:
        self.traffic.come_back(self.traffic.groups[maker.group], maker.batch)


__all__ = ["Coordinator"]
