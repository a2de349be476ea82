"""A simulated machine with a virtual clock: tests of the coordinator take no time and are the same every time."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from tamis.backends.payload import Envelope
from tamis.backends.runner import Outcome
from tamis.backends.substrates.base import Done, Event, WorkerDied, WorkerReady, WorkerStopped


@dataclass(frozen=True)
class Work:
    """How an assignment goes: how long it takes and what comes of it; without an outcome the worker dies."""

    seconds: float
    outcome: Outcome | None


class Model(Protocol):
    """Says how work goes."""

    def work(self, group: int, batch: list[Envelope]) -> Work:
        """What happens when a worker takes up this assignment."""
        ...


@dataclass
class _Worker:
    inbox: deque[tuple[int, int, list[Envelope]]] = field(default_factory=deque)
    running: int | None = None
    dead: bool = False


class SimulatedSubstrate:
    """Workers that exist on paper only.

    Args:
        model: Says how work goes.
        start_s: How long a worker takes to start.
    """

    latency_s: ClassVar[float] = 0.002
    volatile: ClassVar[bool] = False

    def __init__(self, model: Model, start_s: float = 0.0) -> None:
        self._model, self._start_s = model, start_s
        self._clock = 0.0
        self._count = 0
        self._due: list[tuple[float, int, int, Event]] = []  # when, tie-breaker, worker, what
        self._workers: dict[int, _Worker] = {}
        self._up: set[int] = set()

    def start_worker(self, worker: int, groups: frozenset[int], gpu_ids: tuple[int, ...] = (), node: str = "") -> None:
        """Start a worker; it is up after a while."""
        self._workers[worker] = _Worker()
        self._at(self._clock + self._start_s, worker, WorkerReady(worker, self._start_s))

    def submit(self, worker: int, ticket: int, group: int, envelopes: list[Envelope], *, alone: bool = False) -> None:
        """Queue an assignment at a worker."""
        assert not self._workers[worker].dead, "work was given to a worker that is known to be dead"
        self._workers[worker].inbox.append((ticket, group, envelopes))
        self._next(worker)

    def poll(self, timeout_s: float) -> list[Event]:
        """Turn the clock to the next thing that happens, at most by ``timeout_s``."""
        deadline = self._clock + timeout_s
        events: list[Event] = []
        while self._due and not events and self._due[0][0] <= deadline:
            self._clock = max(self._clock, self._due[0][0])
            while self._due and self._due[0][0] <= self._clock:
                _, _, worker, event = heapq.heappop(self._due)
                state = self._workers[worker]
                if state.dead:
                    continue
                events.append(event)
                if isinstance(event, WorkerReady):
                    self._up.add(worker)
                else:
                    state.running = None
                    state.dead = isinstance(event, WorkerDied | WorkerStopped)
                self._next(worker)
        if not events:
            self._clock = deadline
        return events

    def now(self) -> float:
        """The virtual clock."""
        return self._clock

    def stop_worker(self, worker: int) -> None:
        """Let a worker end."""
        assert not self._workers[worker].inbox, "it still has work"
        assert self._workers[worker].running is None, "it is at work"
        self._at(self._clock, worker, WorkerStopped(worker))

    def kill_worker(self, worker: int, why: str) -> None:
        """Let a worker die."""
        running = self._workers[worker].running
        self._at(self._clock, worker, WorkerDied(worker, () if running is None else (running,), why))

    def set_down(self, payload: Any, path: str) -> None:
        """There is nothing to write."""

    def close(self, *, at_once: bool) -> None:
        """Nothing is left behind."""

    def _next(self, worker: int) -> None:
        """Let a worker that is up and idle take its next assignment."""
        state = self._workers[worker]
        if worker not in self._up or state.dead or state.running is not None or not state.inbox:
            return
        ticket, group, batch = state.inbox.popleft()
        state.running = ticket
        work = self._model.work(group, batch)
        event: Event = (
            WorkerDied(worker, (ticket,), "simulated") if work.outcome is None else Done(ticket, work.outcome)
        )
        self._at(self._clock + work.seconds, worker, event)

    def _at(self, when: float, worker: int, event: Event) -> None:
        self._count += 1
        heapq.heappush(self._due, (when, self._count, worker, event))
