"""The autoscaler and the coordinator on simulated clusters: their speed, and what they guarantee despite failures."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from clusters import MIB, Books, Run, SizedTask, Step, Trade, drawn, plan_of
from hypothesis import assume, given
from hypothesis import strategies as st
from property_tests import examples

from tamis.backends.balance import Demand, Node, check_fits
from tamis.backends.outcome import Failure
from tamis.backends.payload import Envelope
from tamis.backends.substrates.simulated import Start, Work
from tamis.errors import ResourceError, StageError
from tamis.plan import END, Plan
from tamis.plan.plan import Sizing
from tamis.runs.finished_work import FinishedBatch
from tamis.stages.emit import Publish
from tamis.stages.resources import Resources

CPU = Resources()
WHOLE = Resources(cpus=1, gpus=1)
QUARTER = Resources(cpus=1, gpus=0.25)

ONE_NODE = [Node("a", cpus=16, gpus=(0.0,) * 4)]
TWO_NODES = [Node("a", cpus=8, gpus=(0.0,) * 2), Node("b", cpus=8, gpus=(0.0,) * 2)]

# --- how fast -------------------------------------------------------------------------------------------------------

TASKS = 2000


@dataclass(frozen=True)
class Scenario:
    """A chain of stages, and how long each takes for a task (its number)."""

    steps: tuple[Step, ...]
    seconds: Callable[[int, int], float]
    changes: bool = False

    @property
    def phases(self) -> list[range]:
        half = TASKS // 2
        return [range(half), range(half, TASKS)] if self.changes else [range(TASKS)]

    def best(self, tasks: range) -> tuple[float, int, int]:
        """The fastest fixed number of workers for each stage: its rate, its slowest stage and the workers of that."""
        means = [sum(self.seconds(s, t) for t in tasks) / len(tasks) for s in range(len(self.steps))]
        choices = [range(1, 5 if step.resources.gpus == 1 else 17) for step in self.steps]

        def merit(workers: tuple[int, ...]) -> tuple[float, int]:
            return round(min(n / mean for n, mean in zip(workers, means, strict=True)), 9), -sum(workers)

        best = max(filter(self._fits, itertools.product(*choices)), key=merit)
        slowest = min(range(len(best)), key=lambda s: best[s] / means[s])
        return merit(best)[0], slowest, best[slowest]

    def _fits(self, workers: tuple[int, ...]) -> bool:
        cards = 0.0
        for step, count in zip(self.steps, workers, strict=True):
            share = step.resources.gpus
            cards += math.ceil(count * share) if share < 1 else count * share
        return sum(workers) <= 16 and cards <= 4


def _heavy_tailed(stage: int, task: int) -> float:
    return (0.2, 2.0, 0.25, 0.1)[stage] * drawn(f"{stage} {task}").lognormvariate(-0.5, 1.0)


def _scenario(*stages: tuple[float, Resources], later: dict[int, float] | None = None) -> Scenario:
    steps = tuple(Step(s, r, setup_s=5.0 if r.requires_gpu else 0.0) for s, r in stages)

    def seconds(stage: int, task: int) -> float:
        return later[stage] if later and stage in later and task >= TASKS // 2 else stages[stage][0]

    return Scenario(steps, seconds, changes=later is not None)


SLOW_CPU = _scenario((0.2, CPU), (2.0, CPU), (0.25, WHOLE), (0.1, CPU))
SCENARIOS = {
    "slow CPU stage, fast GPU stage": SLOW_CPU,
    "fast CPU stages, slow GPU stage": _scenario((0.2, CPU), (0.4, CPU), (2.0, WHOLE), (0.1, CPU)),
    "a quarter of a GPU beside whole ones": _scenario((0.2, CPU), (1.0, QUARTER), (1.0, WHOLE), (0.1, CPU)),
    "times that change": _scenario((0.2, CPU), (0.5, CPU), (1.0, WHOLE), (0.1, CPU), later={1: 2.0, 2: 0.25}),
    "heavy tails": Scenario(SLOW_CPU.steps, _heavy_tailed),
}


@pytest.mark.parametrize("nodes", [ONE_NODE, TWO_NODES], ids=["one node", "two nodes"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_pipeline_is_as_fast_as_with_the_best_fixed_workers(name: str, nodes: list[Node]) -> None:
    scenario = SCENARIOS[name]
    plan = plan_of(scenario.steps, TASKS)

    class Timed(Trade):
        def seconds(self, group: int, batch: list[Envelope]) -> float:
            return sum(scenario.seconds(group - 1, e.order[0]) for e in batch)

    run = Run(plan, Timed(plan, scenario.steps), nodes, budget=96 * MIB)
    assert run.go()
    took, spans = run.cluster.now(), run.cluster.spans
    phases = [(scenario.best(tasks), len(tasks)) for tasks in scenario.phases]
    ideal = sum(count / rate for (rate, _, _), count in phases)
    assert ideal / took >= 0.95, f"{ideal / took:.3f} of the ideal"

    # The slowest stage of the last phase has always something to do, once that is on.
    _, slowest, workers = phases[-1][0]
    written = sorted(s.ended for s in spans if s.group == len(scenario.steps))
    begin = 0.6 if scenario.changes else 0.2
    low, high = written[int(begin * TASKS)], written[int(0.95 * TASKS)]
    busy = sum(max(0.0, min(s.ended, high) - max(s.began, low)) for s in spans if s.group == slowest + 1)
    assert busy / (high - low) / workers >= 0.99, f"{busy / (high - low):.3f} of {workers} busy"


def test_a_new_machine_is_used() -> None:
    steps = [Step(0.1), Step(2.0, WHOLE, setup_s=5)]
    plan = plan_of(steps, 200)
    run = Run(plan, Trade(plan, steps), [Node("a", 4, (0.0,))])
    run.cluster.later(50.0, lambda: run.cluster.add_node(Node("b", 8, (0.0,) * 3)))
    assert run.go()
    # 22 tasks until the new one is there, then four at a time after a start.
    assert run.cluster.now() < 50 + 10 + (200 - 22) / 2.0 + 5


# --- what holds, whatever goes wrong --------------------------------------------------------------------------------


@dataclass
class Weather(Trade):
    """What goes wrong: workers die at work, set-ups fail; some work takes much longer."""

    rng: random.Random = field(default_factory=random.Random)
    death: float = 0.0
    failed_setups: bool = False
    tails: bool = False
    _starts: Counter[frozenset[int]] = field(default_factory=Counter)

    def seconds(self, group: int, batch: list[Envelope]) -> float:
        tail = self.rng.choice([0.2, 1.0, 1.0, 5.0]) if self.tails else 1.0
        return super().seconds(group, batch) * tail

    def children(self, group: int, batch: list[Envelope]) -> list[Envelope]:
        """None, one or two of each; some are sent along, some lie where they were made."""
        made = []
        for child in super().children(group, batch):
            fate = drawn(child.task_id)
            if fate.random() < 0.9:
                child.payload = b"" if fate.random() < 0.3 else None
                made.append(child)
        return made

    def start(self, groups: frozenset[int], node: str) -> Start:
        self._starts[groups] += 1
        start = super().start(groups, node)
        if self.failed_setups and self._starts[groups] % 6 == 1:
            return Start(start.seconds, Failure("v", "no weights"))
        return start

    def work(self, group: int, batch: list[Envelope]) -> Work:
        work = super().work(group, batch)
        return Work(work.seconds, None) if self.rng.random() < self.death else work


def expected(plan: Plan, model: Trade, tasks: int) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """What must be done and come out: a plain walk over the graph, without batches."""
    from tamis.tasks.base import digest
    from tamis.tasks.storage import content_id, format_order

    done: Counter[tuple[str, str]] = Counter()
    outputs: Counter[str] = Counter()
    waiting = [
        Envelope(t, digest(content_id(SizedTask(size=MIB)), format_order((n,)), "v0"), (n,), 0, MIB, 1, None)
        for n in range(tasks)
        for t in plan.vertices[0].edges.values()
    ]
    while waiting:
        envelope = waiting.pop()
        if envelope.vertex == END:
            outputs[envelope.task_id] += 1
        else:
            done[plan.vertices[envelope.vertex].name, envelope.task_id] += 1
            waiting += model.children(envelope.vertex, [envelope])
    return done, outputs


def audited(run: Run, *, until_s: float = 5000.0) -> Run:
    """The same run, looked at all the time: memory, limits on workers, and that it ends."""
    ways = sum(len(v.edges) for v in run.plan.vertices)
    most_workers = 0

    def look() -> None:
        nonlocal most_workers
        assert run.cluster.now() < until_s, "it does not end"
        most_workers = max(most_workers, len(run.registry))
        coordinator = run.coordinator
        assert coordinator.held_bytes >= 0
        assert coordinator.reserved_bytes >= 0
        # What a group makes of its first tasks is not known before, so each of those begun until then may make more.
        largest = max(g.batch_size for g in run.plan.groups) * MIB
        assert coordinator.held_bytes + coordinator.reserved_bytes <= run.budget + (1 + ways * most_workers) * largest
        for group in run.dedicated:
            there = list(run.registry.of_pool(run.registry.pool_for(group.index)))
            assert group.workers.most is None or len(there) <= group.workers.most

    run.auditor.look = look
    return run


steps = st.builds(
    Step,
    seconds=st.sampled_from([0.05, 0.5, 3.0]),
    resources=st.sampled_from([CPU, CPU, WHOLE, QUARTER, Resources(cpus=0, gpus=0.5), Resources(gpu_memory_gb=8)]),
    setup_s=st.sampled_from([0.0, 5.0]),
    workers=st.sampled_from([Sizing(), Sizing(), Sizing(2, 2), Sizing(most=2), Sizing(least=2), Sizing(per_node=1)]),
    timeout_s=st.sampled_from([None, None, 100.0]),
    batch_size=st.sampled_from([1, 1, 1, 4]),
)
happenings = st.lists(st.tuples(st.floats(0.0, 60.0), st.sampled_from(["lose", "add", "lose all"])), max_size=5)


@pytest.mark.slow
@examples(100)
@given(
    st.lists(steps, min_size=1, max_size=5),
    st.integers(0, 60),
    happenings,
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.03]),
    st.booleans(),
    st.sampled_from([0.0, 2.0]),
)
def test_every_task_is_done_once_whatever_fails(
    chain: list[Step],
    tasks: int,
    happens: list[tuple[float, str]],
    seed: int,
    death: float,
    failed_setups: bool,
    seen_after_s: float,
) -> None:
    rng = random.Random(seed)
    chain = [
        Step(s.seconds, s.resources, tuple(sorted(rng.sample(range(n + 1), rng.choice([1, 1, min(2, n + 1)])))),
             s.setup_s, s.workers, s.timeout_s, s.batch_size)
        for n, s in enumerate(chain)
    ]  # fmt: skip
    nodes = [Node("a", 8, (24.0,) * 4), Node("b", 4, (0.0,) * 2), Node("c", 4)]
    demands = [Demand(n, "", s.resources, min_workers=s.workers.least or 1) for n, s in enumerate(chain)]
    try:
        check_fits(nodes[:1], demands)
    except ResourceError:
        assume(False)
    plan = plan_of(chain, tasks)
    model = Weather(plan, chain, rng=rng, death=death, failed_setups=failed_setups, tails=True)
    run = Run(plan, model, nodes, budget=40 * MIB, seen_after_s=seen_after_s, death_retries=1000)
    names = itertools.count()
    machines = {n.id for n in nodes}

    def arrive() -> None:
        fresh = Node(f"n{next(names)}", 8, (24.0,) * 4)
        machines.add(fresh.id)
        run.cluster.add_node(fresh)

    def happen(what: str) -> None:
        going = {"add": [], "lose": rng.sample(sorted(machines), min(1, len(machines)))}.get(what, sorted(machines))
        for name in going:
            machines.discard(name)
            run.cluster.lose_node(name)
        if what == "add" or not machines - {"b", "c"}:  # these cannot hold all stages
            run.cluster.later(5.0, arrive)

    for when, what in happens:
        run.cluster.later(when, lambda what=what: happen(what))
    assert audited(run).go()
    must_be_done, outputs = expected(plan, Weather(plan, chain), tasks)
    assert run.books.done == must_be_done
    assert run.books.outputs == outputs
    assert max(run.books.published.values(), default=1) == 1
    assert run.coordinator.held_bytes == run.coordinator.reserved_bytes == 0


def test_a_run_survives_the_loss_of_all_machines_if_others_join() -> None:
    chain = [Step(0.5), Step(1.0, WHOLE, setup_s=5)]
    plan = plan_of(chain, 100)
    run = Run(plan, Trade(plan, chain), TWO_NODES, seen_after_s=2.0)
    for name in "ab":
        run.cluster.later(20.0, lambda name=name: run.cluster.lose_node(name))
    run.cluster.later(60.0, lambda: run.cluster.add_node(Node("c", 8, (0.0,))))
    assert audited(run).go()
    assert set(run.books.done.values()) == {1}
    assert len(run.books.done) == 200


def test_a_run_fails_if_its_machines_do_not_come_back() -> None:
    chain = [Step(0.5), Step(1.0, WHOLE, setup_s=5)]
    plan = plan_of(chain, 100)
    run = Run(plan, Trade(plan, chain), [*TWO_NODES, Node("c", 4)])
    for name in "ab":
        run.cluster.later(20.0, lambda name=name: run.cluster.lose_node(name))
    with pytest.raises(ResourceError, match=r"stage 'v2' has work, but no machine has had room for one of its workers"):
        audited(run).go()


@pytest.mark.parametrize("resources", [CPU, WHOLE], ids=["CPU", "GPU"])
def test_a_run_whose_workers_never_start_fails_after_a_message(resources: Resources) -> None:
    class Never(Trade):
        def start(self, groups: frozenset[int], node: str) -> Start:
            return Start(math.inf if 2 in groups else 0.0)

    chain = [Step(0.5, QUARTER), Step(1.0, resources)]
    plan = plan_of(chain, 100)
    run = Run(plan, Never(plan, chain), ONE_NODE)
    with pytest.raises(ResourceError, match=r"stage 'v2' has work, but none of its workers started in 600 s"):
        audited(run).go()
    (told,) = run.auditor.messages
    assert told.startswith("no worker of stage 'v2' has started in 60 s")


@pytest.mark.parametrize("resources", [CPU, WHOLE], ids=["CPU", "GPU"])
def test_a_task_that_kills_every_worker_is_set_aside_and_the_rest_is_done(tmp_path: Path, resources: Resources) -> None:
    chain = [Step(0.1), Step(1.0, resources, setup_s=2.0), Step(0.1)]
    plan = plan_of(chain, 100)

    class Poison(Trade):
        def work(self, group: int, batch: list[Envelope]) -> Work:
            work = super().work(group, batch)
            return Work(work.seconds, None) if group == 2 and batch[0].order[0] in (7, 50) else work

    run = Run(plan, Poison(plan, chain), ONE_NODE, quarantine=str(tmp_path))
    assert audited(run).go()
    assert len(run.books.outputs) == 98
    assert len(list(tmp_path.glob("v2-*.jsonl"))) == 2
    stats = run.coordinator.books.stats[2]
    assert (stats.tasks_set_aside, stats.quarantined, stats.tasks_uncounted) == (2, 2, 0)
    assert len(run.auditor.messages) == 2


def test_a_task_that_hangs_is_given_to_a_worker_that_finds_the_items(tmp_path: Path) -> None:
    chain = [Step(0.1), Step(1.0, timeout_s=10.0), Step(0.1)]
    plan = plan_of(chain, 100)

    class Hangs(Trade):
        def seconds(self, group: int, batch: list[Envelope]) -> float:
            if group == 2 and batch[0].order[0] == 7:
                isolation = batch[0].isolation
                assert isolation is None or isolation.died == ("v2",)
                return math.inf if isolation is None else 60.0
            return super().seconds(group, batch)

    run = Run(plan, Hangs(plan, chain), ONE_NODE, quarantine=str(tmp_path))
    assert audited(run).go()
    assert len(run.books.outputs) == 100
    # Tried three times, then in pieces, and everything else went on in the meantime.
    assert run.cluster.now() < 3 * (10 + 1 + 1) + 60 + 20


def test_a_slow_setup_does_not_count_as_a_hang() -> None:
    chain = [Step(1.0, timeout_s=10.0, setup_s=30.0)]
    plan = plan_of(chain, 20)
    run = Run(plan, Trade(plan, chain), ONE_NODE)
    assert audited(run).go()
    assert len(run.books.outputs) == 20


def test_a_setup_that_fails_sometimes_is_tried_again() -> None:
    chain = [Step(0.5, death) for death in (CPU, WHOLE)]
    plan = plan_of(chain, 300)
    model = Weather(plan, chain, rng=random.Random(0), death=0.05, failed_setups=True)
    run = Run(plan, model, ONE_NODE, death_retries=1000)
    assert audited(run).go()
    assert max(model._starts.values()) > 20, "more than three set-ups failed"


def test_a_stage_that_cannot_be_set_up_ends_the_run_with_its_cause() -> None:
    chain = [Step(0.5), Step(0.5, WHOLE)]
    plan = plan_of(chain, 50)

    class Broken(Trade):
        def start(self, groups: frozenset[int], node: str) -> Start:
            return Start(1.0, Failure("v2", "no weights") if groups == {2} else None)

    with pytest.raises(StageError, match="stage 'v2' could not be set up, tried in 3 workers in a row: no w"):
        audited(Run(plan, Broken(plan, chain), ONE_NODE)).go()


@pytest.mark.parametrize("seconds", [(0.001, 0.002, 0.001), (0.1, 2.0, 0.02)], ids=["brief", "long"])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_tasks_that_have_begun_are_finished_before_more_are_read(seconds: tuple[float, ...], batch_size: int) -> None:
    """Also with memory for everything, and whatever the times of the stages are: little is under way at a time."""
    chain = [Step(seconds[0]), Step(seconds[1], batch_size=batch_size), Step(seconds[2])]
    plan = plan_of(chain, 1500)
    run = Run(plan, Trade(plan, chain), TWO_NODES)
    under_way: list[int] = []
    run.auditor.look = lambda: under_way.append(sum(s.live for s in run.coordinator.scheduler.groups[2:]))
    assert run.go()
    workers = 16
    assert max(under_way) <= 4 * workers * batch_size + 2 * workers


def test_every_stage_has_one_worker_if_the_requested_ones_do_not_fit() -> None:
    """Three stages want a GPU on each of two machines, which have three each; a fourth wants one somewhere."""
    chain = [Step(0.5, WHOLE, workers=Sizing(per_node=1)) for _ in range(3)] + [Step(0.5, WHOLE)]
    plan = plan_of(chain, 60)
    run = Run(plan, Trade(plan, chain), [Node(name, 8, (0.0,) * 3) for name in "ab"])
    assert audited(run).go()
    assert len(run.books.outputs) == 60


# --- numbers of workers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizing", "most", "least"),
    [(Sizing(3, 3), 3, 3), (Sizing(most=2), 2, 1), (Sizing(least=5), 16, 5), (Sizing(per_node=2), 4, 4)],
)
def test_stages_have_the_number_of_workers_they_request(sizing: Sizing, most: int, least: int) -> None:
    chain = [Step(0.1), Step(0.4, workers=sizing), Step(0.1)]
    plan = plan_of(chain, 400)
    run = Run(plan, Trade(plan, chain), TWO_NODES, budget=64 * MIB)
    seen: list[int] = []

    def look() -> None:
        if run.cluster.now() > 5.0 and not run.coordinator.scheduler.exhausted():
            there = run.cluster.workers_on()
            seen.append(sum(count for (groups, _), count in there.items() if groups == {2}))

    run.auditor.look = look
    assert run.go()
    assert seen
    assert min(seen) >= least
    assert max(seen) <= most


def test_workers_of_a_stage_that_is_done_make_room_for_others() -> None:
    """Two GPU stages with a barrier of their own work between them: the second gets the cards of the first."""
    chain = [Step(0.5, WHOLE, setup_s=5), Step(8.0, WHOLE, setup_s=5)]
    plan = plan_of(chain, 100)
    run = Run(plan, Trade(plan, chain), ONE_NODE)
    assert audited(run).go()
    # 100 x 8.5 GPU seconds on four cards.
    assert run.cluster.now() < 1.1 * 850 / 4


# --- where ----------------------------------------------------------------------------------------------------------


def test_large_data_is_processed_on_the_machine_that_holds_it() -> None:
    chain = [Step(0.2), Step(1.0, WHOLE, setup_s=5)]
    plan = plan_of(chain, 1000, size=64 * MIB)
    nodes = [Node(name, 8, (0.0,)) for name in "abcd"]
    run = Run(plan, Trade(plan, chain), nodes, budget=64 * 64 * MIB)
    assert audited_for_large(run).go()
    assert run.cluster.moved[2] <= 100, f"{run.cluster.moved[2]} of 1000 were moved"


def audited_for_large(run: Run) -> Run:
    def look() -> None:
        assert run.cluster.now() < 5000, "it does not end"

    run.auditor.look = look
    return run


@pytest.mark.parametrize("service_s", [0.1, 0.25, 1.0])
def test_idle_workers_on_other_machines_get_work_that_one_machine_makes(service_s: float) -> None:
    """All data lies on a machine with one GPU. Its worker is always at work, and so are the three elsewhere."""
    chain = [Step(0.02), Step(service_s, WHOLE, setup_s=5)]
    plan = plan_of(chain, 600, size=64 * MIB)
    run = Run(plan, Trade(plan, chain), [Node("a", 8, (0.0,)), Node("b", 3, (0.0,) * 3)])
    assert audited_for_large(run).go()
    assert run.cluster.now() < 1.1 * 600 * service_s / 4 + 10
    assert 0 < run.cluster.moved[2] <= 500


# --- what it costs --------------------------------------------------------------------------------------------------


class Sink(list[Any]):
    """A list that keeps nothing."""

    def append(self, item: Any) -> None:
        pass


class Tally(Books):
    """A journal that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.outputs = 0

    def record(self, batch: FinishedBatch, published: list[Publish], drops: Any = None) -> None:
        pass

    def output(self, envelope: Envelope) -> None:
        self.outputs += 1


@pytest.mark.slow
def test_memory_does_not_grow_with_finished_tasks() -> None:
    chain = [Step(0.001), Step(0.002, batch_size=4), Step(0.001)]
    plan = plan_of(chain, 5_000)
    run = Run(plan, Trade(plan, chain), [Node("a", 8), Node("b", 8)])
    run.cluster.spans = Sink()
    run.books = run.coordinator.books._journal = Tally()
    sizes: list[int] = []

    def look() -> None:
        coordinator = run.coordinator
        sizes.append(
            len(coordinator._dispatcher.assignments)
            + sum(len(s.ready) for s in coordinator.scheduler.groups)
            + sum(len(s.ordered._open) + len(s.ordered._turn) for s in coordinator.scheduler.groups if s.ordered)
            + sum(len(p.suspects) + len(p.waiting_since) for p in coordinator.timings)
            + sum(map(len, run.registry._by_load.values()))
            + len(run.autoscaler._surplus)
            + len(run.autoscaler._starting)
        )

    run.auditor.look = look
    assert run.go()
    assert run.books.outputs == 5_000
    assert max(sizes) < 1500


# --- general workers ------------------------------------------------------------------------------------------------


def general_workers(run: Run) -> int:
    pool = run.registry.pool_for(min(run.shared))
    return sum(not w.draining for w in run.registry.of_pool(pool))


def watched(run: Run, numbers: list[int]) -> Run:
    run.auditor.look = lambda: numbers.append(general_workers(run))
    return run


def test_general_workers_that_are_not_needed_are_stopped() -> None:
    steps = [Step(0.1), Step(1.0, WHOLE, setup_s=5), Step(0.1)]
    plan, numbers = plan_of(steps, 600), list[int]()
    run = watched(Run(plan, Trade(plan, steps), [Node("a", 64, (0.0,) * 4)]), numbers)
    assert run.go()
    assert max(numbers) == 16, "a quarter of the cores at first"
    assert numbers[-1] <= 4, "less than one is at work on average"
    assert run.cluster.now() <= 1.05 * 600 / 4 + 10


def test_general_workers_are_started_again_when_they_are_needed() -> None:
    steps = [Step(0.1), Step(1.0, WHOLE, setup_s=5)]
    plan, numbers = plan_of(steps, 1200), list[int]()

    class Slower(Trade):
        def seconds(self, group: int, batch: list[Envelope]) -> float:
            return 4.0 if group == 1 and batch[0].order[0] >= 600 else super().seconds(group, batch)

    run = watched(Run(plan, Slower(plan, steps), [Node("a", 64, (0.0,) * 4)], budget=64 * MIB), numbers)
    assert run.go()
    fewest = numbers.index(min(numbers[len(numbers) // 4 :]))
    assert numbers[fewest] <= 4
    assert max(numbers[fewest:]) >= 16, "four tasks a second of four seconds each"
    assert run.cluster.now() <= 1.1 * 1200 / 4 + 10


def test_more_general_workers_are_started_if_the_outputs_of_dedicated_ones_pile_up() -> None:
    steps = [Step(0.05, WHOLE, setup_s=5), Step(4.0)]
    plan, numbers = plan_of(steps, 1000), list[int]()
    run = watched(Run(plan, Trade(plan, steps), [Node("a", 32, (0.0,))], budget=64 * MIB), numbers)
    assert run.go()
    assert max(numbers) >= 28, "all cores but those of the GPU's worker"
    assert run.cluster.now() <= 1.1 * 1000 * 4.0 / 31 + 15
