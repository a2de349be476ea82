"""The queues of a group, which keep tasks in the order of the input and make batches of consecutive tasks."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator

from tamis.backends.payload import Envelope

Key = tuple[int, ...]


def source_key(order: tuple[int, ...]) -> Key:
    """The part of a task's place that identifies the task of the source it comes from."""
    return order[:2] if order and order[0] < 0 else order[:1]


class ReadyQueue:
    """Batches that can be dispatched, in the order of the input, with one queue for each machine that holds data.

    Args:
        now: The clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._heaps: dict[str, list[tuple[tuple[int, ...], int, list[Envelope]]]] = {}
        self._count = 0
        self._length = 0
        self.tasks = 0
        """The number of tasks in all batches."""

    def __len__(self) -> int:
        return self._length

    def push(self, batch: list[Envelope]) -> None:
        """Add a batch, to the queue of the machine that holds its largest task."""
        self._count += 1
        self._length += 1
        self.tasks += len(batch)
        batch[0].ready_s = self._now()
        home = batch[0].home if len(batch) == 1 else max(batch, key=lambda e: e.nbytes).home
        heapq.heappush(self._heaps.setdefault(home, []), (batch[0].order, self._count, batch))

    def homes(self) -> list[str]:
        """The machines that hold batches, in the order of the first batch of each."""
        if len(self._heaps) == 1:
            return list(self._heaps)
        return sorted(self._heaps, key=lambda home: self._heaps[home][0][:2])

    def has_batches_on(self, home: str) -> bool:
        """Whether a machine holds batches."""
        return home in self._heaps

    def peek(self, home: str) -> list[Envelope]:
        """The next batch on a machine; it stays in the queue."""
        return self._heaps[home][0][2]

    def pop(self, home: str | None = None) -> list[Envelope]:
        """Take the next batch of a machine, or of all machines."""
        if home is None:
            home = self.homes()[0]
        heap = self._heaps[home]
        batch = heapq.heappop(heap)[2]
        if not heap:
            del self._heaps[home]
        self._length -= 1
        self.tasks -= len(batch)
        return batch


class OrderedBatches:
    """Makes batches of consecutive tasks, whichever task is finished first.

    A task is released once nothing that precedes it in the input can still arrive. The scheduler calls :meth:`open`
    for each piece of a source task that will arrive, and :meth:`close` once it has arrived or will not.

    Args:
        batch_size: Most tasks in a batch; ``None``: no limit.
        batch_bytes: Most bytes in a batch, by weight; a heavier task is a batch by itself.
        batch_rows: Most rows in a batch; a task with more is a batch by itself.
        at_the_end: Whether to release nothing before all tasks have arrived: where branches with different barriers
            meet, the first tasks of the input may arrive last.
    """

    def __init__(
        self,
        batch_size: int | None,
        batch_bytes: int | None = None,
        batch_rows: int | None = None,
        *,
        at_the_end: bool = False,
    ) -> None:
        self._batch_size, self._batch_bytes, self._batch_rows = batch_size, batch_bytes, batch_rows
        self._at_the_end = at_the_end
        self._waiting: dict[Key, list[Envelope]] = {}
        self._open: dict[Key, int] = {}
        self._turn: deque[Key] = deque()
        self._batch: list[Envelope] = []
        self._weight = self._rows = 0

    def open(self, key: Key) -> None:
        """One more piece of this source task will arrive."""
        if key not in self._open:
            self._open[key] = 0
            self._turn.append(key)
        self._open[key] += 1

    def close(self, key: Key) -> None:
        """One piece of this source task has arrived, or will not."""
        self._open[key] -= 1

    def push(self, envelope: Envelope) -> None:
        """A task has arrived."""
        self._waiting.setdefault(source_key(envelope.order), []).append(envelope)

    def batches(self, *, last: bool) -> Iterator[list[Envelope]]:
        """The complete batches; with ``last``, incomplete ones too."""
        if self._at_the_end:
            if not last:
                return
            self._turn = deque(sorted(self._turn))
        while self._turn and self._open[self._turn[0]] == 0:
            key = self._turn.popleft()
            del self._open[key]
            for envelope in sorted(self._waiting.pop(key, []), key=lambda e: e.order):
                yield from self._add(envelope)
        if last and not self._turn and self._batch:
            yield self._take()

    def _add(self, envelope: Envelope) -> Iterator[list[Envelope]]:
        heavy = self._batch_bytes is not None and self._weight + envelope.weight > self._batch_bytes
        long = self._batch_rows is not None and self._rows + (envelope.rows or 0) > self._batch_rows
        if self._batch and (heavy or long):
            yield self._take()
        self._batch.append(envelope)
        self._weight += envelope.weight
        self._rows += envelope.rows or 0
        if self._batch_size is not None and len(self._batch) >= self._batch_size:
            yield self._take()

    def _take(self) -> list[Envelope]:
        batch, self._batch, self._weight, self._rows = self._batch, [], 0, 0
        return batch
