"""The workers of a run: which are free, which assignments each holds, how many cores are busy."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tamis.backends.substrates.base import Substrate
from tamis.runs.stats import GpuUse, WorkCounts


@dataclass(frozen=True)
class Pool:
    """Workers of one kind.

    Args:
        groups: The groups they run.
        size: How many workers there are from the start.
        gpu_ids: The GPUs of each worker, if any.
        reserved_cpus: Cores that each worker holds as long as it exists. Without it a worker takes cores only while it
            is busy, as many as its group asks for.
        in_flight: How many assignments a worker runs at the same time.
    """

    groups: frozenset[int]
    size: int
    gpu_ids: tuple[tuple[int, ...], ...] = ()
    reserved_cpus: float | None = None
    in_flight: int = 1


@dataclass(eq=False)
class Worker:
    """One worker.

    Args:
        index: Its number.
        pool: The number of its pool.
        node: The machine it is on.
        gpu_ids: Its GPUs.
        up: Whether its process has started.
        ready: Whether it can be given work.
        draining: Whether it stops once its assignments are done.
        alone: Whether it is given nothing else, so that its death can be traced to the assignment it holds.
        in_flight: How many assignments it runs at the same time.
        tickets: The assignments it holds. It begins them in this order, and may finish them in any.
        began: When it began each assignment that it is running.
        cpus: The cores it takes now.
        warm: Whether its stages are known to be set up.
        noted: Its entries in the lists of workers by load: the machine (``None`` for the list of all) and the load.
        busy_since: Since when it has held an assignment; ``None`` if it holds none.
        was_busy_s: Seconds in which it held one before.
        work: What it did in each group.
        peak_memory_bytes: Highest resident memory of its process, as far as the worker has reported it.
        gpus: What its GPUs were doing when the worker last reported it.
    """

    index: int
    pool: int
    node: str = ""
    gpu_ids: tuple[int, ...] = ()
    up: bool = False
    ready: bool = False
    draining: bool = False
    alone: bool = False
    in_flight: int = 1
    tickets: dict[int, None] = field(default_factory=dict)
    began: dict[int, float] = field(default_factory=dict)
    cpus: float = 0.0
    warm: bool = False
    noted: set[tuple[str | None, int]] = field(default_factory=set)
    busy_since: float | None = None
    was_busy_s: float = 0.0
    work: dict[int, WorkCounts] = field(default_factory=dict)
    peak_memory_bytes: int = 0
    gpus: tuple[GpuUse, ...] = ()

    def begin(self, now: float) -> None:
        """Record the assignments it begins now: the oldest, up to ``in_flight``."""
        if len(self.began) < self.in_flight and len(self.began) < len(self.tickets):
            for ticket in itertools.islice(self.tickets, self.in_flight):
                self.began.setdefault(ticket, now)

    def is_set_up(self, now: float) -> None:
        """Its stages are set up: the time of its assignments counts from now on."""
        self.warm, self.began = True, dict.fromkeys(self.began, now)

    def busy_s(self, now: float) -> float:
        """How long it has been running its oldest assignment, in seconds."""
        return now - min(self.began.values(), default=now)

    def total_busy_s(self, now: float) -> float:
        """How long it has held at least one assignment, since it was started, in seconds."""
        return self.was_busy_s + (0.0 if self.busy_since is None else now - self.busy_since)


class WorkerRegistry:
    """Tracks all workers. The cost of finding a free one does not grow with their number.

    Args:
        substrate: Where workers run.
        pools: The kinds of workers.
        cpus: Cores of each machine; a single machine is called ``""``.
        elastic: Whether a manager starts and stops workers: then none is started beforehand, and none is replaced.
    """

    def __init__(
        self, substrate: Substrate, pools: Sequence[Pool], cpus: dict[str, float], *, elastic: bool = False
    ) -> None:
        self._substrate, self._pools, self._elastic = substrate, pools, elastic
        self._cpus = dict(cpus)
        self.workers: dict[int, Worker] = {}
        self._count = 0
        # Heaps of (load, worker), of a pool on one machine and everywhere (None); some entries are stale.
        self._by_load: dict[tuple[int, str | None], list[tuple[int, int]]] = {}
        # By machine and pool: idle workers that are off the lists, since the machine has no free core.
        self._parked: dict[str, dict[int, dict[int, None]]] = {}
        self._least_cpus = [math.inf for _ in pools]
        self._sizes = [0 for _ in pools]
        self._pool_of = {group: number for number, pool in enumerate(pools) for group in pool.groups}
        self._members: list[dict[str, set[int]]] = [{} for _ in pools]  # workers of a pool that may get work, by node
        self._reserved: dict[str, float] = {}
        self._working: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self.workers)

    @property
    def cpus(self) -> dict[str, float]:
        """Cores of each machine."""
        return self._cpus

    @cpus.setter
    def cpus(self, cpus: dict[str, float]) -> None:
        if cpus != self._cpus:
            self._cpus = dict(cpus)
            for node in list(self._parked):
                while node in self._parked:
                    self._unpark(node)

    def start(self) -> None:
        """Start the workers that are there from the beginning."""
        for number, pool in enumerate(self._pools):
            for nth in range(0 if self._elastic else pool.size):
                self.ready(self.start_worker(number, gpu_ids=pool.gpu_ids[nth] if pool.gpu_ids else ()))

    def start_worker(self, pool: int, node: str = "", gpu_ids: tuple[int, ...] = ()) -> Worker:
        """Start a worker. It gets no work before it is :meth:`ready`."""
        worker = Worker(self._count, pool, node, gpu_ids, in_flight=self._pools[pool].in_flight)
        self._count += 1
        self.workers[worker.index] = worker
        reserved = self._pools[pool].reserved_cpus
        if reserved is not None:
            worker.cpus = reserved
            self._reserved[node] = self._reserved.get(node, 0.0) + reserved
        self._substrate.start_worker(worker.index, self._pools[pool].groups, gpu_ids, node)
        return worker

    def ready(self, worker: Worker) -> None:
        """A worker can be given work."""
        worker.up = worker.ready = True
        if not worker.draining:
            members = self._members[worker.pool].setdefault(worker.node, set())
            self._sizes[worker.pool] += worker.index not in members
            members.add(worker.index)
            self._note(worker)

    def drain(self, worker: Worker) -> None:
        """Let a worker finish its assignments, then stop it. It is listed until the substrate reports it gone."""
        if not worker.draining:
            worker.draining = True
            self._leave_members(worker)
            self._unpark(worker.node)  # this worker may have been the unparked one
            if not worker.tickets:
                self._substrate.stop_worker(worker.index)

    def size_for(self, group: int) -> int:
        """How many workers may be given work of a group."""
        return self._sizes[self._pool_of[group]]

    def pool_for(self, group: int) -> int:
        """The number of the pool that runs a group."""
        return self._pool_of[group]

    def groups_of(self, worker: Worker) -> frozenset[int]:
        """The groups a worker runs."""
        return self._pools[worker.pool].groups

    def of_pool(self, pool: int) -> Iterator[Worker]:
        """All workers of a pool, including those that are starting or draining."""
        return (w for w in self.workers.values() if w.pool == pool)

    def has_worker_on(self, group: int, node: str) -> bool:
        """Whether a worker for the group is on this machine."""
        return bool(self._members[self._pool_of[group]].get(node))

    def room(self, node: str) -> float:
        """Cores of a machine that no worker has taken."""
        return self._cpus.get(node, 0.0) - self._reserved.get(node, 0.0) - self._working.get(node, 0.0)

    def unreserved(self, node: str) -> float:
        """Cores of a machine that workers without a reservation share."""
        return self._cpus.get(node, 0.0) - self._reserved.get(node, 0.0)

    def free(self, group: int, cpus: float, depth: int, home: str = "") -> Worker | None:
        """The least busy worker for a group that holds fewer than ``depth`` assignments, if there is one.

        Args:
            group: The group of the work.
            cpus: Cores that the work takes.
            depth: How many assignments a worker may hold.
            home: Look on this machine only.
        """
        pool = self._pool_of[group]
        if cpus < self._least_cpus[pool]:
            self._least_cpus[pool] = cpus
            for node in list(self._parked):
                self._unpark(node)
        heap = self._by_load.get((pool, home or None), [])
        passed_over: list[tuple[int, int]] = []
        found = None
        while heap and found is None:
            load, index = heap[0]
            worker = self.workers.get(index)
            if worker is None or len(worker.tickets) != load or worker.draining or worker.alone:
                self._strike(heap, worker, home or None)
            elif load == 0 and not self._fits(worker, cpus):
                if self.room(worker.node) + 1e-9 < self._least_cpus[pool]:
                    self._strike(heap, worker, home or None)
                    self._parked.setdefault(worker.node, {}).setdefault(pool, {})[index] = None
                else:  # there is room, but not enough for this group
                    passed_over.append(heapq.heappop(heap))
            elif load and load >= depth:
                break
            else:
                found = worker
        for entry in passed_over:
            heapq.heappush(heap, entry)
        return found

    def give(self, worker: Worker, ticket: int, cpus: float, now: float, *, alone: bool = False) -> None:
        """Give a worker an assignment; while it holds one that runs ``alone``, it gets no other."""
        worker.alone = alone
        if not worker.tickets and self._pools[worker.pool].reserved_cpus is None:
            worker.cpus = cpus
            self._working[worker.node] = self._working.get(worker.node, 0.0) + cpus
            self._unpark(worker.node)  # there may be room for one more
        if not worker.tickets:
            worker.busy_since = now
        worker.tickets[ticket] = None
        worker.begin(now)
        self._note(worker)

    def take(self, worker: Worker, ticket: int, now: float) -> None:
        """A worker is done with one of its assignments."""
        del worker.tickets[ticket]
        worker.began.pop(ticket, None)
        worker.begin(now)
        if not worker.tickets:
            worker.was_busy_s, worker.busy_since = worker.total_busy_s(now), None
            worker.alone = False
            self._release(worker)
            if worker.draining:
                self._substrate.stop_worker(worker.index)
        self._note(worker)

    def lose(self, index: int) -> list[int]:
        """A worker is gone: return the assignments it held. Replace it, unless the registry is elastic or the worker
        was never ready."""
        worker = self.workers.pop(index, None)
        if worker is None:
            return []
        held, worker.tickets, worker.began = list(worker.tickets), {}, {}
        if held:
            self._release(worker)
        if self._pools[worker.pool].reserved_cpus is not None:
            self._reserved[worker.node] -= worker.cpus
        self._unpark(worker.node)
        self._leave_members(worker)
        if not self._elastic and not worker.draining and worker.ready:
            self.ready(self.start_worker(worker.pool, worker.node, worker.gpu_ids))
        return held

    def _release(self, worker: Worker) -> None:
        if self._pools[worker.pool].reserved_cpus is None:
            self._working[worker.node] -= worker.cpus
            worker.cpus = 0.0
            self._unpark(worker.node)

    def _leave_members(self, worker: Worker) -> None:
        on_node = self._members[worker.pool].get(worker.node, set())
        self._sizes[worker.pool] -= worker.index in on_node
        on_node.discard(worker.index)
        if not on_node:
            self._members[worker.pool].pop(worker.node, None)

    def _fits(self, worker: Worker, cpus: float) -> bool:
        """Whether an idle worker may begin: its cores are reserved or free, or no other unreserved worker is busy.

        The last condition keeps a machine going whose cores are all reserved: few cores are shared.
        """
        if self._pools[worker.pool].reserved_cpus is not None:
            return True
        return cpus <= self.room(worker.node) + 1e-9 or self._working.get(worker.node, 0.0) <= 1e-9

    def _unpark(self, node: str) -> None:
        """Put one idle worker of each pool on a machine back on the lists: a core may be free for it."""
        by_pool = self._parked.pop(node, {})
        left = {}
        for pool, parked in by_pool.items():
            while parked:
                worker = self.workers.get(parked.popitem()[0])
                if worker is not None and not worker.tickets and not worker.draining:
                    self._note(worker)
                    break
            if parked:
                left[pool] = parked
        if left:
            self._parked[node] = left

    def _strike(self, heap: list[tuple[int, int]], worker: Worker | None, scope: str | None) -> None:
        """Remove the first entry of a list."""
        load, _ = heapq.heappop(heap)
        if worker is not None:
            worker.noted.discard((scope, load))

    def _note(self, worker: Worker) -> None:
        """Put a worker on the lists under its current load, unless it is there."""
        if not worker.ready or worker.draining:
            return
        load = len(worker.tickets)
        for scope in (None, worker.node) if worker.node else (None,):
            if (scope, load) not in worker.noted:
                worker.noted.add((scope, load))
                heapq.heappush(self._by_load.setdefault((worker.pool, scope), []), (load, worker.index))
