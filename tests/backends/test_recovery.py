"""Data that was lost with a machine is computed again, through all stages, and nothing is published twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from clusters import MIB, Run, Step, Trade, plan_of

from tamis.backends.balance import Node
from tamis.backends.outcome import Outcome
from tamis.backends.payload import GONE, Envelope, Maker, ObjectPart
from tamis.backends.recovery import Recovery
from tamis.backends.substrates.simulated import Work
from tamis.errors import StageError
from tamis.plan.plan import Sizing


@dataclass
class Counted(Trade):
    """Counts how often each task was begun at each stage."""

    begun: Counter[tuple[int, str]] = field(default_factory=Counter)

    def work(self, group: int, batch: list[Envelope]) -> Work:
        self.begun.update((group, e.task_id) for e in batch)
        return super().work(group, batch)


ON_ONE = Sizing(1, 1)


def lost_run(steps: list[Step], tasks: int, lose_at_s: float, *, spare: bool = True) -> tuple[Run, Counted]:
    """A run on machine "a", which is lost; "b" comes shortly before."""
    plan = plan_of(steps, tasks)
    model = Counted(plan, steps)
    run = Run(plan, model, [Node("a", 4)])
    if spare:
        run.cluster.later(lose_at_s - 0.01, lambda: run.cluster.add_node(Node("b", 4)))
    run.cluster.later(lose_at_s, lambda: run.cluster.lose_node("a"))
    return run, model


def assert_done_once(run: Run, steps: list[Step], tasks: int) -> None:
    assert run.go()
    assert set(run.books.done.values()) == {1}
    assert set(run.books.published.values()) == {1}
    assert set(run.books.outputs.values()) == {1}
    assert len(run.books.outputs) == tasks
    assert len(run.books.done) == tasks * len(steps)
    assert run.coordinator.held_bytes == run.coordinator.reserved_bytes == 0


CHAIN = [Step(0.1), Step(0.1), Step(0.1), Step(5.0, workers=ON_ONE)]


def test_lost_data_is_made_again_through_all_stages() -> None:
    run, model = lost_run(CHAIN, tasks=12, lose_at_s=12.0)
    assert_done_once(run, CHAIN, 12)
    again = Counter(group for (group, _), times in model.begun.items() if times > 1)
    waiting = 12 - sum(span.group == 4 and span.ended <= 12.0 for span in run.cluster.spans)
    # What waited for the last stage is made again from the start, what had passed it is not.
    assert waiting > 5
    assert again[1] == again[2] == again[3] == waiting
    assert max(model.begun.values()) == 2


def test_files_of_a_repetition_are_discarded() -> None:
    run, model = lost_run(CHAIN, tasks=12, lose_at_s=12.0)
    assert_done_once(run, CHAIN, 12)
    twice = {f"{group}/{task}" for (group, task), times in model.begun.items() if times > 1 and group < 4}
    assert set(run.books.discarded) == twice


def test_a_lost_result_repeats_its_whole_batch_once() -> None:
    """One lost result of a batch brings the whole batch back, once, however many of its results are lost."""
    steps = [Step(0.1), Step(0.1, batch_size=4), Step(5.0, workers=ON_ONE)]
    run, model = lost_run(steps, tasks=12, lose_at_s=12.0)
    assert_done_once_batched(run, tasks=12, stages=3)
    repeated = [t for (group, t), times in model.begun.items() if group == 2 and times > 1]
    assert repeated
    assert len(repeated) % 4 == 0
    assert max(model.begun.values()) == 2


def assert_done_once_batched(run: Run, tasks: int, stages: int) -> None:
    assert run.go()
    assert set(run.books.done.values()) == {1}
    assert set(run.books.published.values()) == {1}
    assert len(run.books.done) == tasks * stages
    assert len(run.books.outputs) == tasks


def test_only_the_lost_branch_is_made_again() -> None:
    """A stage whose results go two ways: what was taken up on one of them stays done."""
    steps = [Step(0.1), Step(0.1, inputs=(1,)), Step(5.0, inputs=(1,), workers=ON_ONE)]
    run, model = lost_run(steps, tasks=12, lose_at_s=12.0)
    assert run.go()
    assert set(run.books.done.values()) == {1}
    assert len(run.books.done) == 36
    assert len(run.books.outputs) == 24
    assert all(times == 1 for (group, _), times in model.begun.items() if group == 2)
    assert any(times == 2 for (group, _), times in model.begun.items() if group == 1)


def test_machines_may_be_lost_while_data_is_made_again() -> None:
    plan = plan_of(CHAIN, 20)
    model = Counted(plan, CHAIN)
    run = Run(plan, model, [Node("a", 4), Node("b", 4)], death_retries=100)
    for n in range(8):
        name = ("a", "b", *(f"n{i}" for i in range(8)))[n]
        run.cluster.later(6.0 + 1.7 * n, lambda name=name: run.cluster.lose_node(name))
        run.cluster.later(6.0 + 1.7 * n, lambda n=n: run.cluster.add_node(Node(f"n{n}", 4)))
    assert_done_once(run, CHAIN, 20)


def test_a_stop_while_data_is_made_again_ends_the_run() -> None:
    plan = plan_of(CHAIN, 200)
    model = Counted(plan, CHAIN)
    run = Run(plan, model, [Node("a", 4)])
    run.cluster.later(11.9, lambda: run.cluster.add_node(Node("b", 4)))
    run.cluster.later(12.0, lambda: run.cluster.lose_node("a"))

    def stop() -> None:
        if run.cluster.now() > 12.0 and run.coordinator._recovery:
            run.level = 1
        assert run.cluster.now() < 3000, "it does not end"

    run.auditor.look = stop
    assert run.go() is False
    assert run.level == 1
    assert set(run.books.done.values()) == {1}
    # All that was begun is finished.
    assert len(run.books.outputs) == sum(stage == "v1" for stage, _ in run.books.done)


def test_the_loss_of_a_machine_with_many_workers_does_not_end_the_run() -> None:
    steps = [Step(3.0), Step(0.1)]
    plan = plan_of(steps, 300)
    run = Run(plan, Trade(plan, steps), [Node("a", 64), Node("b", 2)])
    run.cluster.later(2.5, lambda: run.cluster.lose_node("a"))
    assert_done_once(run, steps, 300)


# --- Recovery alone -------------------------------------------------------------------------------------------------


def envelope(name: str, maker: Maker | None = None, payload: object = GONE) -> Envelope:
    return Envelope(1, name, (0,), MIB, MIB, 1, payload, maker=maker)


def test_tasks_without_a_maker_cannot_be_made_again() -> None:
    with pytest.raises(StageError, match="it is not known what it was made of"):
        Recovery(lambda maker: None).restore(envelope("a"), lambda: None)


def test_results_of_one_assignment_are_made_again_together() -> None:
    repeated: list[Maker] = []
    back: list[str] = []
    recovery = Recovery(repeated.append)
    maker = Maker(0, [envelope("source", payload=b"held by the driver")])
    lost = [envelope(name, maker) for name in "xy"]
    for one in lost:
        recovery.restore(one, lambda one=one: back.append(one.task_id))
    assert repeated == [maker]
    assert recovery.repeats(maker.batch)
    part = {name: ObjectPart(object(), 0) for name in "xyz"}
    recovery.done(maker.batch, Outcome(outputs=[envelope(name, payload=part[name]) for name in "xyz"]))
    assert back == ["x", "y"]
    assert [one.payload for one in lost] == [part["x"], part["y"]]
    assert not recovery


def test_stages_that_make_something_else_are_reported() -> None:
    recovery = Recovery(lambda maker: None)
    maker = Maker(0, [envelope("source", payload=b"")])
    recovery.restore(envelope("x", maker), lambda: None)
    with pytest.raises(StageError, match="a stage must make the same output from the same task"):
        recovery.done(maker.batch, Outcome(outputs=[envelope("y")]))
