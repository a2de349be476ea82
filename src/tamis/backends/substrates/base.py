"""What the coordinator needs of a substrate: start a worker, give it work, report events, stop it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from tamis.backends.outcome import Failure, Outcome
from tamis.backends.payload import Envelope


@dataclass(frozen=True, slots=True)
class Done:
    """A worker has finished an assignment, successfully or not."""

    ticket: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A worker is gone.

    Args:
        worker: Which.
        running: The assignment it was running; the others it held had not begun. Where it is not known which one was
            running: all that may have been.
        why: In words.
        stage: The stage that was running, where that is known.
    """

    worker: int
    running: tuple[int, ...]
    why: str
    stage: str = ""


@dataclass(frozen=True, slots=True)
class WorkerUp:
    """A worker's process has started; its stages are not set up yet."""

    worker: int


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A worker has set up its stages and can be given work; it took this many seconds."""

    worker: int
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SetupFailed:
    """A worker could not set up its stages, and is gone."""

    worker: int
    failure: Failure


@dataclass(frozen=True, slots=True)
class WorkerStopped:
    """A worker that was asked to stop has torn down its stages and is gone."""

    worker: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Data of an assignment has been lost, so it was not begun.

    Args:
        ticket: The assignment.
        payloads: What is lost of it.
    """

    ticket: int
    payloads: tuple[Any, ...]


Event = Done | WorkerDied | WorkerUp | WorkerReady | SetupFailed | WorkerStopped | Lost


class Substrate(Protocol):
    """Somewhere to run workers.

    Attributes:
        latency_s: About how many seconds pass until a worker that is done has its next assignment.
        message_s: Assignments that take fewer seconds than this are sent several at a time.
        volatile: Whether data between stages can get lost, so that the coordinator must know what it was made of.
    """

    latency_s: ClassVar[float]
    message_s: float
    volatile: ClassVar[bool]

    def start_worker(self, worker: int, groups: frozenset[int], gpu_ids: tuple[int, ...] = (), node: str = "") -> None:
        """Start a worker that can run these groups. Returns at once."""

    def submit(self, worker: int, ticket: int, group: int, envelopes: list[Envelope], *, alone: bool = False) -> None:
        """Give a worker an assignment. A worker begins its assignments in this order and may answer them in any.

        With ``alone`` it is sent in a message of its own, so that the death of the worker can be traced to it.
        """

    def poll(self, timeout_s: float) -> list[Event]:
        """The events since the last call; waits up to ``timeout_s`` seconds for the first."""
        ...

    def now(self) -> float:
        """The clock, in seconds."""
        ...

    def stop_worker(self, worker: int) -> None:
        """Let a worker that holds nothing tear down its stages and end."""

    def kill_worker(self, worker: int, why: str, running: tuple[int, ...] = ()) -> None:
        """End a worker at once. It is reported as dead for this reason, and as running these assignments."""

    def save_task(self, payload: Any, path: str) -> None:
        """Write a task to a file of the run directory, from where it is."""

    def processed_bytes(self, worker: int) -> int:
        """Bytes of input that a worker has processed of the assignment it is running; 0 where that is not known."""
        ...

    def close(self, *, at_once: bool) -> None:
        """Stop all workers: after tearing down their stages, or at once."""
