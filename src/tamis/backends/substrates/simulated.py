"""Simulated machines with a virtual clock: tests of the coordinator take no time and are the same every time."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from tamis.backends.gpu_placement import Node, card_share
from tamis.backends.outcome import Failure, Outcome
from tamis.backends.payload import GONE, Envelope, ObjectPart
from tamis.backends.substrates.base import Done, Event, Lost, SetupFailed, WorkerDied, WorkerReady, WorkerStopped
from tamis.plan import END
from tamis.stages.resources import Resources


@dataclass(frozen=True)
class Work:
    """How an assignment goes.

    Args:
        seconds: How long the stages take.
        outcome: What comes of it; without one the worker dies.
        fetch_s: How long the worker fetches its input, while the one before it runs.
        hand_over_s: How long the worker hands over its outcome, while the next one runs.
    """

    seconds: float
    outcome: Outcome | None
    fetch_s: float = 0.0
    hand_over_s: float = 0.0


class Model(Protocol):
    """Says how work goes."""

    def work(self, group: int, batch: list[Envelope]) -> Work:
        """What happens when a worker takes up this assignment."""
        ...


@dataclass
class _Worker:
    """A worker: what it holds and has not begun, what it has begun, and when each of its three parts is free again."""

    groups: frozenset[int]
    gpu_ids: tuple[int, ...]
    node: str
    inbox: deque[tuple[int, int, list[Envelope]]] = field(default_factory=deque)
    begun: dict[int, float] = field(default_factory=dict)  # and when its stages are done
    fetched: float = 0.0
    handed_over: float = 0.0
    dead: bool = False


class SimulatedSubstrate:
    """Workers that exist on paper only.

    Args:
        model: Says how work goes.
        start_s: How long a worker takes to start.
        message_s: How much work is worth a message of its own.
        in_flight: How many assignments of a group a worker works on at the same time, if more than one.
    """

    latency_s: ClassVar[float] = 0.002
    volatile: ClassVar[bool] = False

    def __init__(
        self,
        model: Model,
        start_s: float = 0.0,
        message_s: float = 0.0,
        in_flight: Mapping[int, int] | None = None,
    ) -> None:
        self._model, self._start_s, self.message_s = model, start_s, message_s
        self._in_flight = in_flight or {}
        self._clock = 0.0
        self._count = 0
        # When, tie-breaker, worker, what: news of the worker, or something that befalls the machines.
        self._due: list[tuple[float, int, int, Event | Callable[[], None]]] = []
        self._workers: dict[int, _Worker] = {}
        self._up: set[int] = set()

    def start_worker(self, worker: int, groups: frozenset[int], gpu_ids: tuple[int, ...] = (), node: str = "") -> None:
        """Start a worker; it is up after a while."""
        self._workers[worker] = _Worker(groups, gpu_ids, node)
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
                if callable(event):
                    event()
                elif not self._workers[worker].dead:
                    events.append(event)
                    self._happens(worker, event)
        if not events:
            self._clock = deadline
        return events

    def now(self) -> float:
        """The virtual clock."""
        return self._clock

    def stop_worker(self, worker: int) -> None:
        """Let a worker end."""
        assert not self._workers[worker].inbox, "it still has work"
        assert not self._workers[worker].begun, "it is at work"
        self._at(self._clock, worker, WorkerStopped(worker))

    def kill_worker(self, worker: int, why: str, running: tuple[int, ...] = ()) -> None:
        """Let a worker die."""
        self._at(self._clock, worker, WorkerDied(worker, running or tuple(self._workers[worker].begun), why))

    def processed_bytes(self, worker: int) -> int:
        """Not known in a simulation."""
        return 0

    def save_task(self, payload: Any, path: str) -> None:
        """There is nothing to write."""

    def close(self, *, at_once: bool) -> None:
        """Nothing is left behind."""

    def _happens(self, worker: int, event: Event) -> None:
        state = self._workers[worker]
        if isinstance(event, WorkerReady):
            self._up.add(worker)
        elif isinstance(event, Done | Lost):
            state.begun.pop(event.ticket, None)
        else:
            state.begun, state.dead = {}, True
        self._next(worker)

    def _next(self, worker: int) -> None:
        """Let a worker that is up begin its next assignments: one at a time, or as many as it may have in flight."""
        state = self._workers[worker]
        while worker in self._up and not state.dead and state.inbox:
            ticket, group, batch = state.inbox[0]
            at_work = [end for end in state.begun.values() if end > self._clock]
            if len(at_work) >= self._in_flight.get(group, 1):
                return  # the next event of this worker comes no later than the first of these ends
            state.inbox.popleft()
            self._begin(worker, state, ticket, group, batch)

    def _begin(self, worker: int, state: _Worker, ticket: int, group: int, batch: list[Envelope]) -> None:
        work, event = self._take_up(worker, ticket, group, batch)
        # What was given earlier was fetched while another assignment ran; outcomes are handed over one by one.
        begins = max(self._clock, state.fetched + work.fetch_s)
        state.fetched = begins
        ends = begins + work.seconds
        state.begun[ticket] = ends
        if isinstance(event, WorkerDied):
            self._at(ends, worker, self._death(worker, event.why))
            return
        self._at(ends, worker, lambda: self._next(worker))
        state.handed_over = max(ends, state.handed_over) + work.hand_over_s
        self._at(state.handed_over, worker, event)

    def _death(self, worker: int, why: str) -> Callable[[], None]:
        """A worker dies. It is not known of which of the assignments that it holds."""

        def die() -> None:
            state = self._workers[worker]
            if not state.dead:
                held = (*state.begun, *(ticket for ticket, _, _ in state.inbox))
                self._at(self._clock, worker, WorkerDied(worker, held, why))

        return die

    def _take_up(self, worker: int, ticket: int, group: int, batch: list[Envelope]) -> tuple[Work, Event]:
        """What comes of an assignment that a worker begins."""
        work = self._model.work(group, batch)
        if work.outcome is None:
            return work, WorkerDied(worker, (ticket,), "simulated")
        return work, Done(ticket, work.outcome)

    def _at(self, when: float, worker: int, event: Event | Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (when, self._count, worker, event))


@dataclass(frozen=True)
class Start:
    """How the start of a worker goes: how long it takes, and why it cannot set up its stages, if so."""

    seconds: float
    failure: Failure | None = None


class ClusterModel(Model, Protocol):
    """Says how work goes, and how workers start."""

    def start(self, groups: frozenset[int], node: str) -> Start:
        """What happens when a worker is started."""
        ...


@dataclass
class Machine:
    """A machine of a simulated cluster. What is stored there is lost with it."""

    node: Node
    alive: bool = True


@dataclass(frozen=True)
class Span:
    """A worker was at an assignment from here to there."""

    worker: int
    group: int
    began: float
    ended: float


class SimulatedCluster(SimulatedSubstrate):
    """Several machines with cores and cards, which come and go. Results lie where they were made and can get lost.

    It refuses what a real one could not do: more on a card than it has, work on data that was freed.

    Args:
        model: Says how work goes, and how workers start.
        nodes: The machines there are at first.
        needs: What a worker of each group needs.
        seen_after_s: How long it takes until :meth:`nodes` knows of a machine that came or went.
    """

    volatile: ClassVar[bool] = True

    def __init__(
        self, model: ClusterModel, nodes: Sequence[Node], needs: Mapping[int, Resources], seen_after_s: float = 0.0
    ) -> None:
        super().__init__(model)
        self._starts, self._needs, self._seen_after_s = model.start, needs, seen_after_s
        self._machines = {n.id: Machine(n) for n in nodes}
        self._seen = list(nodes)
        self._cards: Counter[tuple[str, int]] = Counter()  # millionths of a card
        self.spans: list[Span] = []
        """What workers did, in the order in which they began."""
        self.moved = Counter[int]()
        """Tasks of each group whose data had to be brought from another machine."""

    def nodes(self) -> list[Node]:
        """The machines, as they were a moment ago."""
        return list(self._seen)

    def workers_on(self) -> Counter[tuple[frozenset[int], str]]:
        """How many workers there are now, by their groups and machines, also those that start or drain."""
        return Counter((w.groups, w.node) for w in self._workers.values() if not w.dead)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Let something happen to the cluster."""
        self._at(self._clock + seconds, -1, action)

    def add_node(self, node: Node) -> None:
        """A machine comes."""
        self._machines[node.id] = Machine(node)
        self.later(self._seen_after_s, lambda: self._see([*self._seen, node]))

    def lose_node(self, name: str) -> None:
        """A machine goes, with its workers and all that is stored there."""
        self._machines[name].alive = False
        for index, worker in self._workers.items():
            if worker.node == name and not worker.dead:
                self.kill_worker(index, "the worker's machine is gone")
        self.later(self._seen_after_s, lambda: self._see([n for n in self._seen if n.id != name]))

    def start_worker(self, worker: int, groups: frozenset[int], gpu_ids: tuple[int, ...] = (), node: str = "") -> None:
        """Start a worker; it is up when its stages are set up."""
        state = self._workers[worker] = _Worker(groups, gpu_ids, node)
        machine = self._machines[node]
        if not machine.alive:
            self._at(self._clock + 0.5, worker, WorkerDied(worker, (), "there is no such machine"))
            return
        self._occupy(state, 1)
        start = self._starts(groups, node)
        ready: Event = WorkerReady(worker, start.seconds)
        self._at(self._clock + start.seconds, worker, SetupFailed(worker, start.failure) if start.failure else ready)

    def _happens(self, worker: int, event: Event) -> None:
        super()._happens(worker, event)
        state = self._workers[worker]
        if state.dead and self._machines[state.node].alive:
            self._occupy(state, -1)

    def _occupy(self, worker: _Worker, sign: int) -> None:
        for card in worker.gpu_ids:
            (group,) = worker.groups
            share = min(1.0, card_share(self._needs[group], self._machines[worker.node].node.gpus[card]))
            self._cards[worker.node, card] += sign * round(share * 1e6)
            assert self._cards[worker.node, card] <= 1e6 + 10, "a card is given to more workers than it has room for"

    def _take_up(self, worker: int, ticket: int, group: int, batch: list[Envelope]) -> tuple[Work, Event]:
        machine = self._machines[self._workers[worker].node]
        assert not any(e.payload is GONE for e in batch), "work on data that was freed"
        stored = [e.payload for e in batch if isinstance(e.payload, ObjectPart)]
        lost = tuple(p for p in stored if not p.ref.alive)
        if lost:
            return Work(0.0, None), Lost(ticket, lost)
        work, event = super()._take_up(worker, ticket, group, batch)
        self.moved[group] += sum(p.ref is not machine for p in stored)
        self.spans.append(Span(worker, group, self._clock, self._clock + work.seconds))
        if isinstance(event, Done):
            for envelope in event.outcome.outputs:
                if envelope.vertex != END and envelope.payload is None:
                    envelope.payload, envelope.home = ObjectPart(machine, 0), machine.node.id
        return work, event

    def _see(self, nodes: list[Node]) -> None:
        self._seen = nodes
