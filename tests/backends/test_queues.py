"""The queues of a group, compared with sorted lists."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.backends.payload import Envelope
from tamis.backends.queues import OrderedBatches, ReadyQueue, source_key

homes = st.sampled_from(["", "a", "b"])
orders = st.tuples(st.integers(0, 9), st.integers(0, 9))


def envelope(order: tuple[int, ...], home: str = "", nbytes: int = 1) -> Envelope:
    return Envelope(1, "", order, nbytes, nbytes, 1, None, home=home)


@examples(200)
@given(st.lists(st.tuples(orders, homes) | st.none(), max_size=60))
def test_batches_come_out_in_the_order_of_the_input(operations: list[tuple[tuple[int, int], str] | None]) -> None:
    """``None``: take the next."""
    queue, waiting = ReadyQueue(), list[tuple[tuple[int, int], str]]()
    for operation in operations:
        if operation is not None:
            waiting.append(operation)
            queue.push([envelope(*operation)])
        elif waiting:
            first = min(order for order, _ in waiting)
            (out,) = queue.pop()
            assert out.order == first
            waiting.remove((first, out.home))
        assert len(queue) == queue.tasks == len(waiting)
        assert set(queue.homes()) == {home for _, home in waiting}
        for home in queue.homes():
            assert queue.has_batches_on(home)
            assert queue.peek(home)[0].order == min(order for order, lies_on in waiting if lies_on == home)
    assert not queue.has_batches_on("c")


def test_a_batch_is_queued_for_the_machine_of_its_largest_task() -> None:
    queue = ReadyQueue()
    queue.push([envelope((0,), "a", 5), envelope((1,), "b", 50), envelope((2,), "a", 5)])
    assert queue.homes() == ["b"]
    assert queue.tasks == 3


@examples(200)
@given(st.integers(0, 2**32), st.integers(0, 30), st.integers(1, 5), st.none() | st.integers(1, 30))
def test_ordered_batches_do_not_depend_on_the_order_of_arrival(
    seed: int, tasks: int, size: int, limit: int | None
) -> None:
    """Each task of the source makes none, one or some; they arrive in any order."""
    made = {n: [(n, i) for i in range(random.Random(f"{seed} {n}").choice([0, 1, 3]))] for n in range(tasks)}
    flat = [order for children in made.values() for order in children]

    def batches(arrival: random.Random) -> list[list[tuple[int, ...]]]:
        queue, found = OrderedBatches(size, limit), list[list[tuple[int, ...]]]()
        for n in range(tasks):
            queue.open((n,))
        pending = list(range(tasks))
        arrival.shuffle(pending)
        for n in pending:
            children = list(made[n])
            arrival.shuffle(children)
            for order in children:
                queue.push(envelope(order, nbytes=1 + sum(order) % 9))
            queue.close((n,))
            found += [[e.order for e in batch] for batch in queue.batches(last=False)]
        found += [[e.order for e in batch] for batch in queue.batches(last=True)]
        assert not queue._open
        assert not queue._turn
        assert not queue._waiting
        return found

    once = batches(random.Random(1))
    assert once == batches(random.Random(2))
    assert [order for batch in once for order in batch] == flat
    assert all(len(batch) <= size for batch in once)
    if limit is not None:
        weights = [[1 + sum(order) % 9 for order in batch] for batch in once]
        assert all(sum(batch) <= limit or len(batch) == 1 for batch in weights)


def test_tasks_after_a_barrier_have_new_places() -> None:
    assert source_key((3, 1, 0)) == (3,)
    assert source_key((-1, 3, 1)) == (-1, 3)
