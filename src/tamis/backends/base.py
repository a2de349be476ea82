"""The interface of executors, and what they receive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tamis.backends.contracts import FailurePolicy
from tamis.plan import Plan
from tamis.runs.directory import RunDirectory
from tamis.runs.journal import RunJournal
from tamis.runs.metrics import Sample
from tamis.runs.observers import Observers
from tamis.runs.progress import Observer
from tamis.runs.stats import StageStats
from tamis.runs.stop import StopSignal
from tamis.runs.traces import TaskDone
from tamis.stages.base import NodeInfo, WorkerMetadata
from tamis.tasks import Task

__all__ = ["Executor", "NodeInfo", "Run", "SampleSink", "WorkerMetadata"]


class SampleSink(Protocol):
    """Exports metrics."""

    def take(self, sample: Sample) -> None:
        """The latest sample. Called in the driver's loop; must be quick."""


@dataclass
class Run:
    """One run of a pipeline.

    Args:
        directory: Its files.
        journal: Where finished work is recorded.
        observer: The progress display.
        stop: Whether the user wants to stop.
        initial: Tasks for the first stage if it is not a source.
        keep_drops: Whether to record which rows were dropped.
        failures: What happens to tasks that have failed for good.
        keep_scores: Whether to record the scores of all rows.
        stats: The counts of each stage, filled by the executor, even if the run fails.
        recorders: Further observers, which record the run.
        sample_sinks: Receive a sample of the metrics about once a second.
        on_task: Receives every finished task, for traces.
        measure_input: Whether to measure the size of the input, so that the share that is done is known.
    """

    directory: RunDirectory
    journal: RunJournal
    observer: Observer
    stop: StopSignal
    initial: Sequence[Task[Any]] = ()
    keep_drops: bool = True
    failures: FailurePolicy = field(default_factory=FailurePolicy)
    stats: list[StageStats] = field(default_factory=list)
    keep_scores: bool = False
    recorders: list[Observer] = field(default_factory=list)
    sample_sinks: list[SampleSink] = field(default_factory=list)
    on_task: Callable[[TaskDone], None] | None = None
    measure_input: bool = False

    @property
    def watchers(self) -> Observers:
        """The progress display and all who record the run."""
        return Observers(self.observer, *self.recorders)


class Executor(Protocol):
    """Carries out plans.

    Attributes:
        execution_mode: ``"streaming"``, or ``"batch"``: one stage at a time over the whole data.
        fuse: Whether the planner may put neighbouring stages into one worker.
    """

    execution_mode: str
    fuse: bool

    def has_gpus(self) -> bool:
        """Whether there is a GPU that stages can use."""
        ...

    def check(self, plan: Plan) -> None:
        """Refuse a plan that cannot run here, before anything is touched."""
        ...

    def execute(self, plan: Plan, run: Run) -> bool:
        """Carry out the plan. Returns ``False`` if the user stopped it before its end."""
        ...

    def describe(self) -> str:
        """The executor in a few words."""
        ...
