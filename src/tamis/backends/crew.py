"""The workers of a run, as the coordinator sees them: who is free, who holds what, how many cores are busy."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from tamis.backends.substrates.base import Substrate


@dataclass(frozen=True)
class Pool:
    """Workers of one kind: which groups they run, how many there are, and the GPUs of each, if any."""

    groups: frozenset[int]
    size: int
    gpu_ids: tuple[tuple[int, ...], ...] = ()


@dataclass
class Worker:
    """One worker.

    Args:
        index: Its number.
        pool: The number of its pool; -1 when it is dead.
        gpu_ids: Its GPUs.
        tickets: The assignments it holds, oldest first.
        cpus: The cores it keeps busy while it holds any.
    """

    index: int
    pool: int
    gpu_ids: tuple[int, ...] = ()
    tickets: list[int] = field(default_factory=list)
    cpus: float = 0.0


class Crew:
    """Keeps the books of all workers. What it costs to find a free one does not grow with their number.

    Args:
        substrate: Where they run.
        pools: The kinds of workers.
        cpus: Cores that may be busy at the same time.
    """

    def __init__(self, substrate: Substrate, pools: Sequence[Pool], cpus: float) -> None:
        self._substrate, self._pools, self._cpus = substrate, pools, cpus
        self._workers: list[Worker] = []
        self._by_load: list[list[tuple[int, int]]] = [[] for _ in pools]  # heaps of (load, worker); some are stale
        self._pool_of = {group: number for number, pool in enumerate(pools) for group in pool.groups}
        self._busy_cpus = 0.0

    def __len__(self) -> int:
        return len(self._workers)

    def start(self) -> None:
        """Start all workers."""
        for number, pool in enumerate(self._pools):
            for nth in range(pool.size):
                self._start_one(number, pool.gpu_ids[nth] if pool.gpu_ids else ())

    def size_for(self, group: int) -> int:
        """How many workers there are for a group."""
        return self._pools[self._pool_of[group]].size

    def free(self, group: int, cpus: float, depth: int) -> Worker | None:
        """The least busy worker for a group that holds fewer than ``depth`` assignments, if there is one."""
        heap = self._by_load[self._pool_of[group]]
        while heap:
            load, index = heap[0]
            worker = self._workers[index]
            if len(worker.tickets) != load or worker.pool < 0:
                heapq.heappop(heap)
                continue
            if load == 0:
                fits = self._busy_cpus + cpus <= self._cpus + 1e-9 or not self._busy_cpus
                return worker if fits else None
            return worker if load < depth else None
        return None

    def give(self, worker: Worker, ticket: int, cpus: float) -> None:
        """A worker gets an assignment."""
        if not worker.tickets:
            worker.cpus = cpus
            self._busy_cpus += cpus
        worker.tickets.append(ticket)
        self._note(worker)

    def take(self, worker: Worker, ticket: int) -> None:
        """A worker is done with an assignment."""
        worker.tickets.remove(ticket)
        if not worker.tickets:
            self._busy_cpus -= worker.cpus
        self._note(worker)

    def lose(self, index: int) -> list[int]:
        """A worker is dead: start another in its place; return the assignments it held."""
        worker = self._workers[index]
        pool, worker.pool = worker.pool, -1
        if pool < 0:
            return []
        held, worker.tickets = worker.tickets, []
        if held:
            self._busy_cpus -= worker.cpus
        self._start_one(pool, worker.gpu_ids)
        return held

    def _start_one(self, pool: int, gpu_ids: tuple[int, ...]) -> None:
        worker = Worker(len(self._workers), pool, gpu_ids)
        self._workers.append(worker)
        self._substrate.start_worker(worker.index, self._pools[pool].groups, gpu_ids)
        self._note(worker)

    def _note(self, worker: Worker) -> None:
        if worker.pool >= 0:
            heapq.heappush(self._by_load[worker.pool], (len(worker.tickets), worker.index))
