"""What the coordinator asks of those around it: a journal, a stop signal, somebody who looks on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tamis.backends.payload import Envelope
from tamis.runs.stats import Snapshot
from tamis.stages.emit import Publish

__all__ = ["Journal", "Limits", "Stop", "Watcher"]


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


@dataclass(frozen=True)
class Limits:
    """What a run may use.

    Args:
        cpus: Cores that may be busy at the same time.
        budget_bytes: Memory for tasks between stages.
        retries: How often a task is tried again after its stage raised.
        death_retries: How often a task is tried again after its worker died.
    """

    cpus: float
    budget_bytes: int
    retries: int = 1
    death_retries: int = 2
