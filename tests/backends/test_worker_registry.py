"""The worker registry, compared with a plain list of workers."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.backends.payload import Envelope
from tamis.backends.substrates.base import Event
from tamis.backends.worker_registry import Pool, Worker, WorkerRegistry


class Silent:
    """A substrate that only records which workers were started and stopped."""

    latency_s = 0.0
    volatile = False

    def __init__(self) -> None:
        self.started: list[int] = []
        self.stopped: list[int] = []

    def start_worker(self, worker: int, groups: frozenset[int], gpu_ids: tuple[int, ...] = (), node: str = "") -> None:
        self.started.append(worker)

    def submit(self, worker: int, ticket: int, group: int, envelopes: list[Envelope], *, alone: bool = False) -> None:
        raise AssertionError("not asked for")

    def poll(self, timeout_s: float) -> list[Event]:
        return []

    def now(self) -> float:
        return 0.0

    def stop_worker(self, worker: int) -> None:
        self.stopped.append(worker)

    def kill_worker(self, worker: int, why: str) -> None:
        raise AssertionError("not asked for")

    def save_task(self, payload: object, path: str) -> None:
        raise AssertionError("not asked for")

    def close(self, *, at_once: bool) -> None:
        pass


GENERAL, RESERVED = 0, 1
NODES = ["a", "b", "c"]
CPUS = {1: 1.0, 2: 4.0, 3: 0.5, 4: 1.0}
"""Cores that a task of each group takes; group 4 has workers of its own, with cores reserved."""


def new_crew() -> tuple[WorkerRegistry, Silent]:
    substrate = Silent()
    pools = [Pool(frozenset({1, 2, 3}), 0), Pool(frozenset({4}), 0, reserved_cpus=1.0)]
    return WorkerRegistry(substrate, pools, {"a": 4.0, "b": 2.0, "c": 8.0}, elastic=True), substrate


def able(registry: WorkerRegistry, group: int, depth: int, home: str) -> list[Worker]:
    """The workers that may get a task, by the definition: idle ones whose cores are there, busy ones up to a depth."""
    found = []
    for worker in registry.workers.values():
        at_work = sum(w.cpus for w in registry.workers.values() if w.node == worker.node and w.pool == GENERAL)
        reserved = sum(w.pool == RESERVED and w.node == worker.node for w in registry.workers.values())
        room = registry.cpus.get(worker.node, 0.0) - at_work - reserved
        suits = group in registry.groups_of(worker) and worker.ready and not worker.draining
        fits = worker.pool == RESERVED or CPUS[group] <= room + 1e-9 or at_work <= 1e-9
        if suits and home in ("", worker.node) and (0 < len(worker.tickets) < depth or (not worker.tickets and fits)):
            found.append(worker)
    return found


@examples(150)
@given(st.integers(0, 2**32), st.integers(1, 120), st.sampled_from([0.0, 0.3]))
def test_the_least_busy_worker_is_found_whatever_happened_before(seed: int, events: int, losses: float) -> None:
    rng = random.Random(seed)
    registry, _ = new_crew()
    tickets = iter(range(10_000))
    for _ in range(events):
        workers = list(registry.workers.values())
        busy = [w for w in workers if w.tickets]
        what = rng.random()
        if what < 0.2 or not workers:
            registry.start_worker(rng.choice([GENERAL, GENERAL, RESERVED]), rng.choice(NODES))
        elif what < 0.4:
            for worker in workers:
                if not worker.ready and rng.random() < 0.7:
                    registry.ready(worker)
        elif what < 0.5 and busy:
            worker = rng.choice(busy)
            registry.take(worker, rng.choice(list(worker.tickets)), 0.0)
        elif what < 0.5 + 0.2 * losses:
            registry.lose(rng.choice(workers).index)
        elif what < 0.5 + 0.4 * losses:
            registry.drain(rng.choice(workers))
        elif what < 0.53 + 0.4 * losses:
            registry.cpus = {"a": rng.choice([4.0, 8.0]), "b": 2.0, "c": 8.0}
        group, depth, home = rng.choice([1, 1, 1, 2, 3, 4]), rng.choice([1, 2, 3]), rng.choice(["", *NODES])
        candidates = able(registry, group, depth, home)
        found = registry.free(group, CPUS[group], depth, home)
        assert (found is None) == (not candidates)
        if found is not None:
            assert found in candidates
            assert len(found.tickets) == min(len(w.tickets) for w in candidates)
            registry.give(found, next(tickets), CPUS[group], 0.0)


def test_a_draining_worker_finishes_its_assignments() -> None:
    registry, substrate = new_crew()
    worker = registry.start_worker(GENERAL, "a")
    registry.ready(worker)
    registry.give(worker, 0, 1.0, 0.0)
    registry.give(worker, 1, 1.0, 0.0)
    registry.drain(worker)
    assert registry.free(1, 1.0, 9) is None
    registry.take(worker, 0, 0.0)
    assert substrate.stopped == []
    registry.take(worker, 1, 0.0)
    assert substrate.stopped == [worker.index]
    assert worker.index in registry.workers, "it is there until the substrate says it is gone"


def test_a_worker_drained_before_it_is_ready_gets_no_work() -> None:
    registry, substrate = new_crew()
    worker = registry.start_worker(GENERAL, "a")
    registry.drain(worker)
    registry.ready(worker)
    assert registry.free(1, 1.0, 9) is None
    assert registry.size_for(1) == 0
    assert substrate.stopped == [worker.index]


def test_the_registry_does_not_grow_with_finished_work() -> None:
    registry, _ = new_crew()
    for node in NODES * 5:
        registry.ready(registry.start_worker(GENERAL, node))
    rng, held = random.Random(0), []
    for ticket in range(100_000):
        worker = registry.free(1, 1.0, 4)
        if worker is None or rng.random() < 0.4:
            worker, done = held.pop(rng.randrange(len(held)))
            registry.take(worker, done, 0.0)
            continue
        registry.give(worker, ticket, 1.0, 0.0)
        held.append((worker, ticket))
    sizes = [len(heap) for heap in registry._by_load.values()]
    assert sum(sizes) <= 2 * 15 * 5


def test_pools_on_one_machine_do_not_block_each_other() -> None:
    """Both kinds were turned away while the only core was busy; when it is free, either finds its worker."""
    registry = WorkerRegistry(Silent(), [Pool(frozenset({1}), 2), Pool(frozenset({2}), 2)], {"": 1.0})
    registry.start()
    first = registry.free(1, 1.0, 1)
    assert first is not None
    registry.give(first, 0, 1.0, 0.0)
    assert registry.free(1, 1.0, 1) is None
    assert registry.free(2, 1.0, 1) is None
    registry.take(first, 0, 0.0)
    assert registry.free(2, 1.0, 1) is not None
    assert registry.free(1, 1.0, 1) is not None


def test_a_worker_with_a_suspect_assignment_is_given_nothing_else() -> None:
    registry, _ = new_crew()
    worker = registry.start_worker(GENERAL, "a")
    registry.ready(worker)
    assert registry.free(1, 1.0, 4) is worker
    registry.give(worker, 7, 1.0, 0.0, alone=True)
    assert registry.free(1, 1.0, 4) is None
    registry.take(worker, 7, 1.0)
    assert registry.free(1, 1.0, 4) is worker
