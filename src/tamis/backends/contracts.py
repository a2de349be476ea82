"""The interfaces that the coordinator works with, and the limits of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tamis.backends.outcome import Failure
from tamis.backends.payload import Envelope
from tamis.errors import PlanError
from tamis.runs.finished_work import FinishedBatch, FinishedWork
from tamis.runs.stats import Snapshot
from tamis.stages.emit import Publish

if TYPE_CHECKING:
    from tamis.backends.coordinator import Coordinator
    from tamis.backends.worker_registry import Worker

__all__ = ["FAILURE_BUDGET", "FailurePolicy", "Journal", "Limits", "Manager", "Stop", "Watcher"]

Action = Literal["raise", "set_aside"]

FEWEST_FAILURES = 1000
"""A share of rows that may fail is compared with the rows that did once these are more than this."""

FAILURE_BUDGET = 0.25
"""The share of rows that may fail, if none is given."""


@dataclass(frozen=True)
class FailurePolicy:
    """What happens to rows, and to whole tasks, that have failed for good, after all attempts.

    ``"raise"`` ends the run with the cause. ``"set_aside"`` stores the rows and the cause in the run's quarantine, and
    the run goes on. What is not the fault of the rows (a full disk, a mistake in the pipeline) always ends the run.

    Args:
        on_error: If a stage raised.
        on_death: If the worker died, or was killed because a stage took longer than its ``timeout_s``.
        budget: How many rows may be set aside before the run ends: a number, or a share of the rows that were read,
            which counts from :data:`FEWEST_FAILURES` on; ``None``: any number.

    >>> FailurePolicy().action(Failure("words", "KeyError: 'text'"))
    'set_aside'
    >>> FailurePolicy.within(0).action(Failure("words", "KeyError: 'text'"))
    'raise'
    >>> FailurePolicy(budget=10).exceeded(11, 1000), FailurePolicy(budget=0.5).exceeded(11, 12)
    (True, False)
    """

    on_error: Action = "set_aside"
    on_death: Action = "set_aside"
    budget: float | None = None

    @classmethod
    def within(cls, budget: float | None) -> FailurePolicy:
        """Set aside what fails, up to a number of rows or a share of them; with 0, the first failure ends the run."""
        if budget is not None and (isinstance(budget, bool) or budget < 0 or (budget != int(budget) and budget > 1)):
            raise PlanError(f"failure_budget={budget!r}: must be a number of rows, or a share of them between 0 and 1")
        return cls("raise", "raise") if budget == 0 else cls(budget=budget)

    def action(self, failure: Failure) -> Action:
        """What to do after a failure."""
        if failure.died:
            return self.on_death
        return self.on_error if failure.of_items else "raise"

    def exceeded(self, failed: int, read: int) -> bool:
        """Whether more rows have failed than are allowed, of those that were read."""
        if self.budget is None:
            return False
        is_share = isinstance(self.budget, float) and self.budget < 1
        return failed > FEWEST_FAILURES and failed > self.budget * read if is_share else failed > self.budget


class Journal(Protocol):
    """Where finished work is recorded and published.

    Attributes:
        finished: What earlier starts of the run have finished.
        outputs: Tasks that reached the end of the pipeline.
        file_count: Output files.
    """

    finished: FinishedWork
    outputs: Any
    file_count: int

    def fed(self, source: str, task_id: str, number: int, files: list[dict[str, Any]]) -> None:
        """Record the number that a task of a source got."""

    def record(self, batch: FinishedBatch, published: list[Publish], drops: Any = None) -> None:
        """Record finished tasks, the files they made and the rows they dropped."""

    def recalled(self, batch: FinishedBatch) -> None:
        """Count what an earlier start of the run has recorded."""

    def forget(self, stages: Iterable[str] | None = None) -> None:
        """Remove what earlier starts have finished and this one has no use for: of some stages, or all of it."""

    def output(self, envelope: Envelope) -> None:
        """Record that a task has reached the end of the pipeline."""

    def flush(self) -> None:
        """Wait until everything recorded so far is durable and published."""

    def discard(self, published: Iterable[Publish]) -> None:
        """Remove the files of an attempt that does not count."""


class Stop(Protocol):
    """Whether the user wants to stop.

    Attributes:
        level: 0 no, 1 once the running tasks are finished, 2 at once.
        announced: Whether the user has been told that the run is stopping.
    """

    level: int
    announced: bool


class Watcher(Protocol):
    """Receives progress updates."""

    def update(self, snapshot: Snapshot) -> None:
        """The state of the run, a few times a second."""

    def message(self, text: str) -> None:
        """A message for the user."""


class Manager(Protocol):
    """Decides how many workers there are."""

    def adjust(self, coordinator: Coordinator) -> None:
        """Start and stop workers, as the work of the groups requires. Called in every iteration of the loop."""

    def up(self, worker: Worker) -> None:
        """The process of a worker has started."""

    def ready(self, worker: Worker, seconds: float) -> None:
        """A worker is ready, after this many seconds."""


@dataclass(frozen=True)
class Limits:
    """What a run may use.

    Args:
        cpus: Cores that may be busy at the same time.
        budget_bytes: Memory for tasks between stages.
        retries: How often a task is tried again after its stage raised.
        transient_retries: How often it is tried again after an error that may pass, each time after a longer pause.
        death_retries: How often a task is tried again after its worker died.
        least_cpus: A busy worker counts as at least this many cores.
    """

    cpus: float
    budget_bytes: int
    retries: int = 1
    transient_retries: int = 5
    death_retries: int = 2
    least_cpus: float = 1.0
