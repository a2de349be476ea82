"""Gives batches to workers: the most downstream first, within the memory budget, on the machine that has the data."""

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
"""An assignment may queue after another that takes no longer than this, in seconds."""

MOMENT_S = 0.05
"""Assignments that together take no longer than this go to one worker, even if others are idle."""

MUCH_LONGER = 4.0
"""An assignment does not queue after one that takes this many times as long."""

FAR_BYTES = 2**20
"""A batch of at least this size waits for a worker on the machine that holds it."""

FAR_WAIT_S = 0.3
"""How long such a batch waits before any worker may take it."""

OVERDUE_S = 0.1
"""How often to look for assignments that take too long."""

AHEAD = 8
"""The worker of an ``async`` stage holds 1/AHEAD more assignments than it may have in flight."""

CANCEL_S = 10.0
"""How long a call of an ``async`` stage may exceed its limit before its worker is killed: usually it is cancelled."""


@dataclass
class Assignment:
    """A batch that was given to a worker, and the memory kept free for its outputs."""

    worker: Worker
    group: int
    batch: list[Envelope]
    reserved: int


@dataclass
class GroupTiming:
    """Measurements of a group, and its failures.

    Args:
        service: Seconds per task and per assignment.
        failed_setups: Workers in a row that could not be set up.
        suspects: Batches whose worker died: each is tried on a worker that holds nothing else.
        waiting_since: When the batches of each machine began to wait for a worker there.
    """

    service: ServiceTime = field(default_factory=ServiceTime)
    failed_setups: int = 0
    suspects: set[int] = field(default_factory=set)
    waiting_since: dict[str, float] = field(default_factory=dict)


class Dispatcher:
    """Gives out batches and tracks which worker has which.

    Args:
        plan: The groups.
        substrate: Where work is sent.
        registry: The workers.
        scheduler: The batches that are ready.
        limits: What the run may use.
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
        """Give out work, the most downstream first: tasks that have begun are finished before more are read."""
        downstream_busy = False
        deepest: dict[int, int] = {}  # by pool: upstream work must not take the workers that downstream work waits for
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
            if state.ready:  # a suspect needs an idle worker: upstream groups must leave one
                suspects = self.timings[state.group.index].suspects
                deepest[pool] = 1 if suspects else min(limit, self._depth(state))
            downstream_busy = downstream_busy or bool(state.running or state.ready)

    def _dispatch(self, state: GroupState, forced: bool, limit: int) -> bool:
        """Give out the first batch that a worker can take, with others from its machine; returns whether it did."""
        group, cpus, portion = state.group.index, self._cpus(state), self._portion(state)
        depth = min(limit, self._depth(state))
        free_worker = self._registry.free(group, cpus, depth)
        if free_worker is None:
            return False
        far: str | None = None  # a machine whose batches may go to workers on others
        for home in state.ready.homes():
            batch = state.ready.peek(home)
            if not forced and self._is_too_much(self._cost(state, batch)):
                return False
            large = bool(home) and sum(e.nbytes for e in batch) >= FAR_BYTES
            if self._is_suspect(state, batch):
                depth, portion = 1, 1
                free_worker = self._registry.free(group, cpus, depth)
                if free_worker is None:
                    return False
            worker = self._registry.free(group, cpus, depth, home) if large else free_worker
            if worker is not None:
                self._hand_over(worker, state, home, portion)
                return True
            if far is None and not self._waits_for(group, home):
                far = home
        if far is not None:
            self._hand_over(free_worker, state, far, portion)
        return far is not None

    def _hand_over(self, worker: Worker, state: GroupState, home: str, portion: int) -> None:
        """Give a worker the next batches from a machine: one, then up to ``portion`` while the budget lasts."""
        self._assign(worker, state, self._next_batch(state, home))
        for _ in range(portion - 1):
            if not state.ready.has_batches_on(home):
                return
            batch = state.ready.peek(home)
            if self._is_suspect(state, batch) or self._is_too_much(self._cost(state, batch)):
                return
            self._assign(worker, state, self._next_batch(state, home))

    def _next_batch(self, state: GroupState, home: str) -> list[Envelope]:
        batch = state.ready.pop(home)
        if not state.ready.has_batches_on(home):
            self.timings[state.group.index].waiting_since.pop(home, None)
        return batch

    def _is_suspect(self, state: GroupState, batch: list[Envelope]) -> bool:
        return id(batch) in self.timings[state.group.index].suspects

    def _waits_for(self, group: int, home: str) -> bool:
        """Whether a batch should wait for a worker on the machine that holds it.

        All batches of a machine wait together, FAR_WAIT_S from the first: where the workers there cannot keep up, the
        later batches do not wait again.
        """
        now = self._substrate.now()
        waited = now - self.timings[group].waiting_since.setdefault(home, now)
        return self._registry.has_worker_on(group, home) and waited < FAR_WAIT_S

    def _cost(self, state: GroupState, batch: list[Envelope]) -> int:
        """Memory that processing the batch will take beyond what the batch holds already."""
        weight = sum(e.weight for e in batch)
        held = sum(e.nbytes for e in batch)
        reading = weight - held if state.group.batch_bytes is None else 0  # batches by bytes are read piece by piece
        return int(max(reading, state.out_ratio * weight, 0))

    def _is_too_much(self, cost: int) -> bool:
        """Whether this many more bytes exceed the budget now."""
        return bool(cost) and self._scheduler.held_bytes + self.reserved_bytes + cost > self._limits.budget_bytes

    def _longest_by_pool(self) -> dict[int, float]:
        """Mean seconds of the longest kind of assignment that each pool has now."""
        longest: dict[int, float] = {}
        for state in self._scheduler.groups:
            if state.running or state.ready:
                pool = self._registry.pool_for(state.group.index)
                service = self.timings[state.group.index].service.per_assignment
                longest[pool] = max(longest.get(pool, 0.0), math.inf if service is None else service)
        return longest

    def _depth(self, state: GroupState) -> int:
        """How many assignments a worker may hold: more when they are short, so that it never waits for the driver.

        Assignments that might queue after a long one go to idle workers only, if they are few or much shorter. One
        portion may be on its way while another is processed.
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
        """How many batches a worker is given at once: enough to be worth a message, if all workers can have as many.

        Batches that together take less than MOMENT_S are not shared out.
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

    def kill_overdue(self) -> None:
        """Kill workers that have been running one assignment for longer than its stages allow."""
        now = self._substrate.now()
        if not self._timed or now - self._looked < OVERDUE_S:
            return
        self._looked = now
        for ticket, assignment in self.assignments.items():
            group, worker = self._plan.groups[assignment.group], assignment.worker
            limit = group.timeout_s
            if assignment.batch[0].isolation is not None:
                continue  # other processes try the items, each with the time limit
            if limit is None or not worker.warm or ticket not in worker.began:
                continue
            patience = CANCEL_S if group.is_async else 0.0  # the worker cancels such a call itself
            if now - worker.began[ticket] > limit + patience:
                worker.warm = False  # do not kill it twice
                why = f"it took longer than the {limit:g} s of timeout_s"
                self._substrate.kill_worker(worker.index, why, (ticket,))

    def take_back(self, ticket: int) -> Assignment | None:
        """Remove and return an assignment that is done or whose worker is gone."""
        assignment = self.assignments.pop(ticket, None)
        if assignment is not None:
            self._scheduler.groups[assignment.group].running -= 1
            self.reserved_bytes -= assignment.reserved
            self.timings[assignment.group].suspects.discard(id(assignment.batch))
        return assignment
