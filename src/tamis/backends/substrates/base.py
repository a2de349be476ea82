"""What the coordinator asks of a substrate: start a worker, give it work, hear what happened, stop it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tamis.backends.payload import Envelope
from tamis.backends.runner import Outcome


@dataclass(frozen=True, slots=True)
class Done:
    """A worker has finished with an assignment, well or not."""

    ticket: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A worker is gone.

    Args:
        worker: Which.
        running: The assignment it was working on; the others it held were not begun.
        why: In words.
    """

    worker: int
    running: int | None
    why: str


Event = Done | WorkerDied


class Substrate(Protocol):
    """Somewhere to run workers."""

    def start_worker(self, worker: int, groups: frozenset[int], gpu_ids: tuple[int, ...] = ()) -> None:
        """Start a worker that can run these groups. Returns at once."""

    def submit(self, worker: int, ticket: int, group: int, envelopes: list[Envelope]) -> None:
        """Give a worker an assignment. A worker works them off in the order given."""

    def poll(self, timeout_s: float) -> list[Event]:
        """What has happened; waits up to ``timeout_s`` for the first event."""
        ...

    def now(self) -> float:
        """The clock, in seconds."""
        ...

    def close(self, *, at_once: bool) -> None:
        """Stop all workers: after tearing down their stages, or at once."""
