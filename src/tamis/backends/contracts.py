"""What the coordinator asks of those around it: a journal, a stop signal, somebody who looks on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tamis.backends.payload import Envelope
from tamis.runs.stats import Snapshot
from tamis.stages.emit import Publish

if TYPE_CHECKING:
    from tamis.backends.coordinator import Coordinator
    from tamis.backends.worker_registry import Worker

__all__ = ["Journal", "Limits", "Manager", "Stop", "Watcher"]


class Journal(Protocol):
    """Where finished work is recorded and published."""

    def record(self, stage: str, task_ids: list[str], published: list[Publish]) -> None:
        """An assignment is done and made these files."""

    def output(self, envelope: Envelope) -> None:
        """A task has come to the end of the pipeline."""

    def flush(self) -> None:
        """Make what was recorded durable, then publish its files."""

    def forget(self, published: list[Publish]) -> None:
        """Remove the files of an attempt that does not count."""


class Stop(Protocol):
    """Whether the user wants to stop: 0 no, 1 after what is in flight, 2 at once."""

    level: int


class Watcher(Protocol):
    """Somebody who looks on."""

    def update(self, snapshot: Snapshot) -> None:
        """The state of the run, a few times a second."""

    def message(self, text: str) -> None:
        """Something to tell the user."""


class Manager(Protocol):
    """Somebody who decides how many workers there are."""

    def tend(self, coordinator: Coordinator) -> None:
        """Look at how the groups get on; hire workers and let others go. Called at every turn of the loop."""

    def up(self, worker: Worker) -> None:
        """The process of a worker is there."""

    def ready(self, worker: Worker, seconds: float) -> None:
        """A worker is ready, after this many seconds."""


@dataclass(frozen=True)
class Limits:
    """What a run may use.

    Args:
        cpus: Cores that may be busy at the same time.
        budget_bytes: Memory for tasks between stages.
        retries: How often a task is tried again after its stage raised.
        death_retries: How often a task is tried again after its worker died.
        least_cpus: Cores that a worker takes at least while it works.
    """

    cpus: float
    budget_bytes: int
    retries: int = 1
    death_retries: int = 2
    least_cpus: float = 1.0
