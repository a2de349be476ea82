"""Properties of the coordinator, on a simulated machine: random graphs, service times, deaths, failures, stops."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
from clusters import MIB, Nothing, Numbers, SizedTask
from hypothesis import given
from hypothesis import strategies as st
from journals import MemoryJournal
from property_tests import examples

from tamis.backends.contracts import Limits
from tamis.backends.coordinator import Coordinator
from tamis.backends.outcome import Failure, Outcome
from tamis.backends.payload import Envelope
from tamis.backends.substrates.simulated import SimulatedSubstrate, Work
from tamis.backends.worker_registry import Pool, WorkerRegistry
from tamis.errors import StageError, WorkerDiedError
from tamis.plan import END, Group, Plan, Vertex
from tamis.runs.finished_work import FinishedBatch
from tamis.stages.emit import Publish
from tamis.stages.resources import Resources
from tamis.tasks.base import digest
from tamis.tasks.storage import content_id, format_order


@dataclass
class World:
    """A random graph of groups, what each makes of a task, and what goes wrong."""

    rng: random.Random
    groups: int
    tasks: int
    workers: int
    budget: int
    death: float = 0.0
    failure: float = 0.0
    expansion: float = 1.0
    batch: int = 1
    most_in_flight: int = 1
    started: Counter[str] = field(default_factory=Counter)
    stop_after: int | None = None
    level: int = 0
    announced: bool = False

    def plan(self) -> Plan:
        """Group 0 is the source; every later one follows one or more earlier ones."""
        n = self.groups
        inputs: dict[int, list[int]] = {i: [] for i in range(n)}
        for i in range(1, n):
            for j in self.rng.sample(range(i), k=min(i, self.rng.choice([1, 1, 1, 2]))):
                inputs[i].append(j)
        barriers = {i for i in range(2, n - 1) if self.rng.random() < 0.15}
        vertices = []
        for i in range(n):
            edges = {f"to{j}": j for j in range(i + 1, n) if i in inputs[j]} or {"out": END}
            stage: Any = Numbers(self.tasks if i == 0 else 5) if i == 0 or i in barriers else Nothing()
            vertices.append(Vertex(i, stage, f"v{i}", edges, inputs[i]))
        ordered = {i for i in range(1, n) if i not in barriers and self.batch > 1 and self.rng.random() < 0.5}
        waiting = {
            i: self.rng.randint(1, self.most_in_flight)
            for i in range(1, n)
            if self.most_in_flight > 1 and i not in barriers and self.rng.random() < 0.5
        }
        groups = [
            Group(
                index=i,
                entry=i,
                vertices=(i,),
                is_source=vertices[i].is_source,
                targets=tuple(t for t in vertices[i].edges.values() if t != END),
                inputs=tuple(sorted(inputs[i])),
                resources=Resources(),
                releases_gil=True,
                batch_size=self.batch if i in ordered else 1,
                ordered=i in ordered,
                is_async=i in waiting,
                in_flight=waiting.get(i, 1),
            )
            for i in range(n)
        ]
        self.edges = {v.index: v.edges for v in vertices}
        self.names = {v.index: v.name for v in vertices}
        return Plan("random", vertices, groups, list(range(n)))

    def children(self, group: int, batch: list[Envelope]) -> list[Envelope]:
        """What a group makes of its tasks: a function of the tasks alone."""
        made = []
        for target in self.edges[group].values():
            for parent in batch:
                fate = random.Random(f"{parent.task_id}/{group}/{target}")
                count = fate.choice([0, 1, 1, 1, 2])
                for n in range(count):
                    weight = max(1, int(parent.weight * self.expansion / max(1, count)))
                    made.append(
                        Envelope(
                            target,
                            digest(parent.task_id, group, target, n),
                            (*parent.order, group, target, n),
                            0 if target == END else weight,
                            weight,
                            1,
                            None,
                        )
                    )
        return made

    def work(self, group: int, batch: list[Envelope]) -> Work:
        if self.stop_after is not None:
            self.stop_after -= 1
            self.level = 1 if self.stop_after <= 0 else 0
        for envelope in batch:
            self.started[f"{group}/{envelope.task_id}"] += 1
        seconds = self.rng.expovariate(10.0) * (10 if self.rng.random() < 0.05 else 1)
        fetch_s, hand_over_s = (self.rng.expovariate(20.0) for _ in range(2))
        if self.rng.random() < self.death:
            return Work(seconds, None, fetch_s)
        if self.rng.random() < self.failure:
            return Work(seconds, Outcome(failure=Failure(f"v{group}", "boom")))
        published = [Publish(f"tmp-{group}-{batch[0].task_id}", f"{group}/{batch[0].task_id}", 1, 1)]
        outcome = Outcome(outputs=self.children(group, batch), published=published, seconds=seconds)
        return Work(seconds, outcome, fetch_s, hand_over_s)


class KilledError(Exception):
    """The driver is killed."""


class Books(MemoryJournal):
    """A journal that remembers everything. It can stop a run after some records."""

    def __init__(self, killed_after: float = math.inf) -> None:
        super().__init__()
        self.done: Counter[tuple[str, str]] = Counter()
        self.outputs: list[tuple[tuple[int, ...], str]] = []
        self.batches: list[tuple[str, ...]] = []
        self.recorded: dict[str, FinishedBatch] = {}
        self.killed_after = killed_after

    def record(self, batch: FinishedBatch, published: list[Publish], drops: Any = None) -> None:
        if len(self.recorded) >= self.killed_after:
            raise KilledError
        assert batch.key not in self.recorded
        self.recorded[batch.key] = batch
        self.done.update((batch.stage, t) for t in batch.tasks)
        self.batches.append((batch.stage, *batch.tasks))

    def output(self, envelope: Envelope) -> None:
        self.outputs.append((envelope.order, envelope.task_id))


class Accountant:
    """Looks at the coordinator's memory at every turn."""

    def __init__(self) -> None:
        self.coordinator: Coordinator | None = None
        self.peak = 0

    def update(self, snapshot: Any) -> None:
        assert self.coordinator is not None
        assert self.coordinator.held_bytes >= 0
        assert self.coordinator.reserved_bytes >= 0
        self.peak = max(self.peak, self.coordinator.held_bytes + self.coordinator.reserved_bytes)

    def message(self, text: str) -> None:
        pass


def carry_out(world: World, retries: int = 1000, books: Books | None = None) -> tuple[Books, Accountant, bool]:
    plan = world.plan()
    books, accountant = books or Books(), Accountant()
    waiting = {g.index: g.in_flight for g in plan.groups if g.is_async}
    others = frozenset(g.index for g in plan.groups if not g.is_source and not g.is_async)
    pools = [Pool(frozenset({g}), 2, reserved_cpus=0.0, in_flight=count) for g, count in waiting.items()]
    pools += [Pool(others, world.workers)] if others else []
    limits = Limits(world.workers, world.budget, retries=retries, death_retries=retries)
    substrate = SimulatedSubstrate(world, 0.2, message_s=0.3 * (world.tasks % 2), in_flight=waiting)
    registry = WorkerRegistry(substrate, pools, {"": world.workers})
    coordinator = Coordinator(plan, substrate, registry, books, limits, stop=world, watcher=accountant)
    accountant.coordinator = coordinator
    done = coordinator.run()
    assert coordinator.held_bytes == 0 or not done
    assert coordinator.reserved_bytes == 0
    return books, accountant, done


def expected(world: World) -> tuple[Counter[tuple[str, str]], list[tuple[tuple[int, ...], str]]]:
    """What must happen, worked out without any coordinator: a plain walk over the graph."""
    plan = world.plan()
    done: Counter[tuple[str, str]] = Counter()
    outputs: list[tuple[tuple[int, ...], str]] = []

    def visit(envelope: Envelope) -> None:
        if envelope.vertex == END:
            outputs.append((envelope.order, envelope.task_id))
            return
        if plan.vertices[envelope.vertex].is_source:
            return
        done[(plan.vertices[envelope.vertex].name, envelope.task_id)] += 1
        for child in world.children(envelope.vertex, [envelope]):
            visit(child)

    barriers = {v.index: n for n, v in enumerate(v for v in plan.vertices if v.is_source)}
    for vertex in plan.vertices:
        if vertex.is_source:
            for number in range(vertex.stage.count):  # type: ignore[attr-defined]  # Numbers, see plan()
                order = (-barriers[vertex.index], number) if plan.groups[vertex.index].inputs else (number,)
                content = None if plan.groups[vertex.index].inputs else content_id(SizedTask(size=MIB))
                task_id = digest(content, format_order(order), vertex.name)
                for target in vertex.edges.values():
                    visit(Envelope(target, task_id, order, 0, MIB, 1, None))
    return done, outputs


seeds = st.integers(0, 2**32)
shapes = st.tuples(st.integers(2, 9), st.integers(0, 40), st.integers(1, 12))


@pytest.mark.slow
@examples(800)
@given(seeds, shapes, st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([0.0, 0.1]), st.sampled_from([1, 6]))
def test_no_task_is_lost_or_done_twice(
    seed: int, shape: tuple[int, int, int], death: float, failure: float, most_in_flight: int
) -> None:
    def world() -> World:
        faults = {"death": death, "failure": failure}
        return World(random.Random(seed), *shape, budget=8 * MIB, most_in_flight=most_in_flight, **faults)

    books, _, done = carry_out(world())
    must_be_done, outputs = expected(world())
    assert done
    assert books.done == must_be_done
    assert sorted(books.outputs) == sorted(outputs)


@pytest.mark.slow
@examples(300)
@given(seeds, shapes, st.lists(st.integers(0, 60), min_size=1, max_size=3), st.sampled_from([0.0, 0.1]))
def test_a_run_that_is_killed_again_and_again_does_each_batch_once(
    seed: int, shape: tuple[int, int, int], kills: list[int], death: float
) -> None:
    def world() -> World:
        return World(random.Random(seed), *shape, budget=8 * MIB, death=death)

    finished: dict[str, FinishedBatch] = {}
    for killed_after in [*kills, math.inf]:
        books = Books(killed_after)
        books.finished.batches = dict(finished)
        with contextlib.suppress(KilledError):
            carry_out(world(), books=books)
        assert finished.keys().isdisjoint(books.recorded)  # what was finished is not done again
        finished.update(books.recorded)
    must_be_done, outputs = expected(world())
    assert Counter((batch.stage, task) for batch in finished.values() for task in batch.tasks) == must_be_done
    assert sorted(books.outputs) == sorted(outputs)


@pytest.mark.slow
@examples(400)
@given(seeds, shapes, st.integers(1, 30))
def test_memory_stays_within_the_budget(seed: int, shape: tuple[int, int, int], budget_mib: int) -> None:
    world = World(random.Random(seed), *shape, budget=budget_mib * MIB)
    _, accountant, _ = carry_out(world)
    # One task that does not fit may run alone. What a group makes of its first task is not known before it ran, so
    # the tasks begun until then may make more than was set aside: each of them up to all outputs of the group.
    first_time = sum(2 * len(ways) for ways in world.edges.values()) * world.workers
    assert accountant.peak <= (budget_mib + 1 + first_time) * MIB


@examples(300)
@given(seeds, st.integers(2, 6), st.integers(1, 60), st.integers(1, 12), st.integers(1, 30))
def test_memory_of_a_chain_never_exceeds_the_budget(
    seed: int, groups: int, tasks: int, workers: int, budget_mib: int
) -> None:
    class Chain(World):
        def children(self, group: int, batch: list[Envelope]) -> list[Envelope]:
            return [
                Envelope(t, digest(e.task_id, group), e.order, 0 if t == END else e.weight, e.weight, 1, None)
                for e in batch
                for t in list(self.edges[group].values())[:1]
            ]

    _, accountant, _ = carry_out(Chain(random.Random(seed), groups, tasks, workers, budget_mib * MIB))
    assert accountant.peak <= max(budget_mib, 1) * MIB + MIB


@pytest.mark.slow
@examples(300)
@given(seeds, shapes, st.integers(2, 7))
def test_batches_do_not_depend_on_which_task_finishes_first(seed: int, shape: tuple[int, int, int], batch: int) -> None:
    def batches(service_seed: int, death: float) -> list[tuple[str, ...]]:
        world = World(random.Random(seed), *shape, budget=64 * MIB, batch=batch, death=death)
        plan = world.plan()
        world.plan = lambda: plan  # type: ignore[method-assign]  # the same graph, other service times
        world.rng = random.Random(service_seed)
        return sorted(carry_out(world)[0].batches)

    assert batches(1, 0.0) == batches(2, 0.1)


@examples(300)
@given(seeds, shapes, st.integers(0, 60))
def test_a_stop_finishes_running_tasks_and_repeats_none(seed: int, shape: tuple[int, int, int], after: int) -> None:
    world = World(random.Random(seed), *shape, budget=8 * MIB, stop_after=after)
    books, _, done = carry_out(world)
    must_be_done, outputs = expected(World(random.Random(seed), *shape, budget=8 * MIB))
    assert all(books.done[key] <= must_be_done[key] for key in books.done)
    assert not Counter(books.outputs) - Counter(outputs)
    if done:
        assert books.done == must_be_done


@examples(100)
@given(seeds, shapes)
def test_a_task_that_always_fails_ends_the_run_with_its_stage(seed: int, shape: tuple[int, int, int]) -> None:
    groups, tasks, workers = shape
    world = World(random.Random(seed), groups, tasks + 1, workers, budget=8 * MIB, failure=1.0)
    with pytest.raises(StageError, match=r"stage 'v\d+', task .*, tried 4 times: boom"):
        carry_out(world, retries=2)


def test_a_task_that_kills_every_worker_is_reported_as_such() -> None:
    world = World(random.Random(0), 2, 3, 2, budget=8 * MIB, death=1.0)
    with pytest.raises(WorkerDiedError, match="tried 4 times"):
        carry_out(world, retries=2)


def test_tasks_that_had_not_begun_do_not_count_as_failed() -> None:
    """Of the tasks a dead worker held, only the running one counts as a failed attempt."""

    class DiesOnce(World):
        deaths = 0

        def work(self, group: int, batch: list[Envelope]) -> Work:
            work = super().work(group, batch)
            if self.deaths < 3 and sum(self.started.values()) % 5 == 0:
                self.deaths += 1
                return Work(work.seconds, None)
            return work

    world = DiesOnce(random.Random(1), 2, 40, 2, budget=64 * MIB)
    books, _, done = carry_out(world, retries=1)
    assert done
    assert books.done == expected(World(random.Random(1), 2, 40, 2, budget=64 * MIB))[0]


@dataclass
class Chain(World):
    """A source and one group, whose assignments all take the same time."""

    seconds: float = 1.0
    fetch_s: float = 0.0
    hand_over_s: float = 0.0
    in_flight: int = 1
    timeout_s: float | None = None

    def plan(self) -> Plan:
        plan = super().plan()
        waits = {"is_async": self.in_flight > 1, "in_flight": self.in_flight}
        plan.groups[1] = replace(plan.groups[1], timeout_s=self.timeout_s, **waits)
        return plan

    def work(self, group: int, batch: list[Envelope]) -> Work:
        outcome = Outcome(outputs=self.children(group, batch), seconds=self.seconds)
        return Work(self.seconds, outcome, self.fetch_s, self.hand_over_s)

    def run_on_one_worker(self) -> SimulatedSubstrate:
        plan = self.plan()
        substrate = SimulatedSubstrate(self, in_flight={1: self.in_flight})
        pool = Pool(frozenset({1}), 1, reserved_cpus=0.0, in_flight=self.in_flight)
        registry = WorkerRegistry(substrate, [pool], {"": 1})
        limits = Limits(1, self.budget, death_retries=2)
        assert Coordinator(plan, substrate, registry, Books(), limits, stop=self, quarantine="").run()
        return substrate


def test_a_worker_has_as_many_calls_in_flight_as_its_stage_allows() -> None:
    clock = Chain(random.Random(0), 2, 1000, 1, 10_000 * MIB, in_flight=100).run_on_one_worker().now()
    assert 10.0 <= clock < 11.5, "1,000 calls of one second, 100 at a time"


def test_input_is_fetched_and_results_are_stored_while_a_worker_computes() -> None:
    world = Chain(random.Random(0), 2, 50, 1, 1000 * MIB, seconds=1.0, fetch_s=0.8, hand_over_s=0.8)
    assert world.run_on_one_worker().now() < 50 * 1.0 + 5.0, "one after the other it would take 130 seconds"


def test_of_many_calls_in_flight_only_the_overdue_one_counts_as_failed() -> None:
    """Its worker is ended; the others are tried again as if nothing had happened, in whatever order they come."""

    class OneHangs(Chain):
        def work(self, group: int, batch: list[Envelope]) -> Work:
            self.started[batch[0].task_id] += 1
            hangs = batch[0].order == (7,) and self.started[batch[0].task_id] <= 2
            work = super().work(group, batch)
            return replace(work, seconds=1e6) if hangs else work

    world = OneHangs(random.Random(0), 2, 30, 1, 1000 * MIB, in_flight=10, timeout_s=5.0)
    world.run_on_one_worker()
    assert len(world.started) == 30


def test_short_tasks_are_given_out_in_portions_and_no_worker_waits() -> None:
    class Short(World):
        def work(self, group: int, batch: list[Envelope]) -> Work:
            return Work(0.05, Outcome(outputs=self.children(group, batch), seconds=0.05))

    class Noting(SimulatedSubstrate):
        given: ClassVar[list[int]] = []

        def submit(self, worker: int, *assignment: Any, alone: bool = False) -> None:
            self.given.append(worker)
            super().submit(worker, *assignment, alone=alone)

    world = Short(random.Random(5), 2, 1000, 4, budget=4000 * MIB)
    plan, books = world.plan(), Books()
    substrate = Noting(world, message_s=0.2)
    registry = WorkerRegistry(substrate, [Pool(frozenset({1}), 4)], {"": 4})
    assert Coordinator(plan, substrate, registry, books, Limits(4, world.budget), stop=world).run()
    portions = [len(list(turn)) for _, turn in itertools.groupby(substrate.given)]
    assert sorted(portions)[len(portions) // 2] == 4
    assert substrate.now() < 1.05 * 1000 * 0.05 / 4


@pytest.mark.parametrize("batch", [1, 5, 300])
def test_the_first_output_comes_long_before_the_last_input_is_read(batch: int) -> None:
    class Watched(World):
        fed_at_first_output: int | None = None

    world = Watched(random.Random(3), 2, 2000, 4, budget=16 * MIB)
    plan = world.plan()
    read = 0

    class Counting(Numbers):
        def splits(self, scratch: str) -> Any:
            nonlocal read
            for task in super().splits(scratch):
                read += 1
                yield task

    plan.vertices[0].stage = Counting(2000)
    plan.groups[1] = replace(plan.groups[1], batch_size=batch, ordered=batch > 1)
    world.plan = lambda: plan  # type: ignore[method-assign]  # the same graph, a source that counts

    class FirstOutput(Books):
        def output(self, envelope: Envelope) -> None:
            if world.fed_at_first_output is None:
                world.fed_at_first_output = read
            super().output(envelope)

    books = FirstOutput()
    pool = Pool(frozenset(g.index for g in plan.groups if not g.is_source), 4)
    substrate = SimulatedSubstrate(world)
    Coordinator(
        plan, substrate, WorkerRegistry(substrate, [pool], {"": 4}), books, Limits(4, 16 * MIB), stop=world
    ).run()
    assert read == 2000
    assert world.fed_at_first_output is not None
    assert world.fed_at_first_output < max(200, 5 * batch)
