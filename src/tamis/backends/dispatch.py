"""Who is given work when: the most downstream first, within the memory budget, where the data is."""

from __future__ import annotations

import itertools
import math
import sys
from dataclasses import dataclass, field

from tamis.backends.contracts import Limits
from tamis.backends.payload import Envelope
from tamis.backends.scheduler_state import GroupState, SchedulerState
from tamis.backends.substrates.base import Substrate
from tamis.backends.timing import ServiceTime
from tamis.backends.worker_registry import Worker, WorkerRegistry
from tamis.plan import Plan

MAX_DEPTH = 32
"""The most assignments that a worker of a stage that is not ``async`` may hold."""

MAX_PORTION = 16
"""The most assignments a worker is given at once."""

BRIEF_S = 0.1
"""Seconds: an assignment may wait for another one that takes no longer than this."""

MOMENT_S = 0.05
"""Assignments that take no longer together go to one worker, also where others are idle."""

MUCH_LONGER = 4.0
"""From this ratio on, the shorter of two assignments does not wait for the other."""

FAR_BYTES = 2**20
"""A batch larger than this waits a moment for a worker on the machine that holds it."""

FAR_WAIT_S = 0.3
"""That moment."""


OVERDUE_S = 0.1
"""How often to look for assignments that take too long."""

AHEAD = 8
"""The worker of an ``async`` stage holds a part of this size more than it may have in flight."""

CANCEL_S = 10.0
"""How much longer a call of an ``async`` stage may take until its worker is ended: usually the worker cancels it."""


@dataclass
class Assignment:
    """Work that was given to a worker, and the memory kept free for what it makes."""

    worker: Worker
    group: int
    batch: list[Envelope]
    reserved: int


@dataclass
class GroupTiming:
    """How a group gets on.

    Args:
        service: Seconds per task and per assignment.
        failed_setups: Workers in a row that could not be set up.
        suspects: Batches whose worker died: each is tried on a worker that holds nothing else.
        waiting_since: Since when batches have been waiting for workers on their own machine.
    """

    service: ServiceTime = field(default_factory=ServiceTime)
    failed_setups: int = 0
    suspects: set[int] = field(default_factory=set)
    waiting_since: dict[str, float] = field(default_factory=dict)


class Dispatcher:
    """Gives out what is ready and keeps the books of what is out.

    Args:
        plan: The groups.
        substrate: Where work is sent.
        registry: The workers.
        scheduler: What is ready.
        limits: What may be used.
    """

    def __init__(
        self, plan: Plan, substrate: Substrate, registry: WorkerRegistry, scheduler: SchedulerState, limits: Limits
    ) -> None:
        self._plan, self._substrate, self._registry, self._scheduler, self._limits = (
            plan,
            substrate,
            registry,
            scheduler,
            limits,
        )
        self.timings = [GroupTiming() for _ in plan.groups]
        self.assignments: dict[int, Assignment] = {}
        self.reserved_bytes = 0
        self._tickets = itertools.count()
        self._longest_s: dict[int, float] = {}
        self._timed = any(g.timeout_s is not None for g in plan.groups)
        self._looked = substrate.now()

    def give_out(self) -> None:
        """Give out work, the most downstream first, so that what is begun is finished before more is read."""
        downstream_busy = False
        deepest: dict[int, int] = {}  # by pool: work that waits for a worker must not be passed by what comes before it
        for state in self._scheduler.groups:
            if state.ordered is not None:
                self._scheduler.release(state, last=False)
        self._longest_s = self._longest_by_pool()
        for state in reversed(self._scheduler.groups):
            if not state.ready:
                downstream_busy = downstream_busy or state.running > 0
                continue
            forced = not downstream_busy and not state.running
            pool = self._registry.pool_for(state.group.index)
            limit = deepest.get(pool, sys.maxsize)
            while state.ready and self._dispatch(state, forced, limit):
                forced = False
            if state.ready:  # what needs a worker for itself gets one only if others leave one free
                suspects = self.timings[state.group.index].suspects
                deepest[pool] = 1 if suspects else min(limit, self._depth(state))
            downstream_busy = downstream_busy or bool(state.running or state.ready)

    def _dispatch(self, state: GroupState, forced: bool, limit: int) -> bool:
        """Give out the first batch that can be, with others from the same machine; tell whether there was one."""
        group, cpus, portion = state.group.index, self._cpus(state), self._portion(state)
        depth = min(limit, self._depth(state))
        anybody = self._registry.free(group, cpus, depth)
        if anybody is None:
            return False
        far: str | None = None  # the home of a batch that no worker on its own machine can take
        for home in state.ready.homes():
            batch = state.ready.peek(home)
            if not forced and self._is_too_much(self._cost(state, batch)):
                return False
            large = bool(home) and sum(e.nbytes for e in batch) >= FAR_BYTES
            if self._is_suspect(state, batch):
                depth, portion = 1, 1
                anybody = self._registry.free(group, cpus, depth)
                if anybody is None:
                    return False
            worker = self._registry.free(group, cpus, depth, home) if large else anybody
            if worker is not None:
                self._hand_over(worker, state, home, portion)
                return True
            if far is None and not self._waits_for(group, home):
                far = home
        if far is not None:
            self._hand_over(anybody, state, far, portion)
        return far is not None

    def _hand_over(self, worker: Worker, state: GroupState, home: str, portion: int) -> None:
        """Give a worker the next batch from a machine, and more of them up to a portion, as far as the budget goes."""
        self._assign(worker, state, self._next_batch(state, home))
        for _ in range(portion - 1):
            if not state.ready.lies_on(home):
                return
            batch = state.ready.peek(home)
            if self._is_suspect(state, batch) or self._is_too_much(self._cost(state, batch)):
                return
            self._assign(worker, state, self._next_batch(state, home))

    def _next_batch(self, state: GroupState, home: str) -> list[Envelope]:
        batch = state.ready.pop(home)
        if not state.ready.lies_on(home):
            self.timings[state.group.index].waiting_since.pop(home, None)
        return batch

    def _is_suspect(self, state: GroupState, batch: list[Envelope]) -> bool:
        return id(batch) in self.timings[state.group.index].suspects

    def _waits_for(self, group: int, home: str) -> bool:
        """Whether a batch should wait a moment for a worker on the machine that holds it.

        The moment is over once for all batches there, until there are none: where more is made than its own workers
        can take, the others need not wait each time.
        """
        now = self._substrate.now()
        waited = now - self.timings[group].waiting_since.setdefault(home, now)
        return self._registry.has_worker_on(group, home) and waited < FAR_WAIT_S

    def _cost(self, state: GroupState, batch: list[Envelope]) -> int:
        """Memory that working on the batch will take beyond what it holds already."""
        weight = sum(e.weight for e in batch)
        held = sum(e.nbytes for e in batch)
        reading = weight - held if state.group.batch_bytes is None else 0  # batches by bytes are worked off piecewise
        return int(max(reading, state.out_ratio * weight, 0))

    def _is_too_much(self, cost: int) -> bool:
        """Whether something of this cost does not fit into the budget now."""
        return bool(cost) and self._scheduler.held_bytes + self.reserved_bytes + cost > self._limits.budget_bytes

    def _longest_by_pool(self) -> dict[int, float]:
        """How long the longest assignments take that the workers of each pool have now."""
        longest: dict[int, float] = {}
        for state in self._scheduler.groups:
            if state.running or state.ready:
                pool = self._registry.pool_for(state.group.index)
                service = self.timings[state.group.index].service.per_assignment
                longest[pool] = max(longest.get(pool, 0.0), math.inf if service is None else service)
        return longest

    def _depth(self, state: GroupState) -> int:
        """How many assignments a worker may hold: more when they are short, so that it need not wait for us.

        Where they might wait for long, few or short assignments are kept for the first worker that is free. One portion
        may be on its way while another is worked off.
        """
        group = state.group.index
        if state.group.is_async:
            return state.group.in_flight + max(1, state.group.in_flight // AHEAD)
        service = self.timings[group].service.per_assignment
        if service is None:
            return 1
        longest = self._longest_s.get(self._registry.pool_for(group), 0.0)
        few = len(state.ready) < self._registry.size_for(group)
        if longest > BRIEF_S and (few or longest > MUCH_LONGER * service):
            return 1
        depth = min(MAX_DEPTH, max(2, 1 + math.ceil(self._substrate.latency_s / max(service, 1e-6))))
        portion = self._portion(state)
        return max(depth, 2 * portion) - portion + 1

    def _portion(self, state: GroupState) -> int:
        """How many batches a worker is given at once: what is worth a message, if there is enough for all workers.

        What takes but a moment is not worth being shared out.
        """
        service = self.timings[state.group.index].service.per_assignment
        if service is None or not self._substrate.message_s or state.group.is_async:
            return 1
        worth, moment = (round(s / max(service, 1e-6)) for s in (self._substrate.message_s, MOMENT_S))
        for_all = len(state.ready) // max(1, self._registry.size_for(state.group.index))
        return max(1, min(worth, max(for_all, moment), MAX_PORTION))

    def _cpus(self, state: GroupState) -> float:
        return min(max(self._limits.least_cpus, state.group.resources.cpus), self._limits.cpus)

    def _assign(self, worker: Worker, state: GroupState, batch: list[Envelope]) -> None:
        ticket, group, cost = next(self._tickets), state.group.index, self._cost(state, batch)
        suspect = self._is_suspect(state, batch)
        self._registry.give(worker, ticket, self._cpus(state), self._substrate.now(), alone=suspect)
        state.running += 1
        self.reserved_bytes += cost
        self.assignments[ticket] = Assignment(worker, group, batch, cost)
        alone = suspect or state.group.timeout_s is not None
        self._substrate.submit(worker.index, ticket, group, batch, alone=alone)

    def end_the_overdue(self) -> None:
        """End workers that have been at one assignment for longer than its stages allow."""
        now = self._substrate.now()
        if not self._timed or now - self._looked < OVERDUE_S:
            return
        self._looked = now
        for ticket, assignment in self.assignments.items():
            group, worker = self._plan.groups[assignment.group], assignment.worker
            limit = group.timeout_s
            if limit is None or not worker.warm or ticket not in worker.began:
                continue
            patience = CANCEL_S if group.is_async else 0.0  # the worker cancels such a call itself
            if now - worker.began[ticket] > limit + patience:
                worker.warm = False  # once is enough
                why = f"it took longer than the {limit:g} s of timeout_s"
                self._substrate.kill_worker(worker.index, why, (ticket,))

    def take_back(self, ticket: int) -> Assignment | None:
        """An assignment is no longer out: it is done, or its worker is gone."""
        assignment = self.assignments.pop(ticket, None)
        if assignment is not None:
            self._scheduler.groups[assignment.group].running -= 1
            self.reserved_bytes -= assignment.reserved
            self.timings[assignment.group].suspects.discard(id(assignment.batch))
        return assignment
