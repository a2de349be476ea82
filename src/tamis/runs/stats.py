"""What a run counts: for each stage tasks, rows, bytes, seconds, and why rows were dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from tamis.runs.histograms import ScoreHistogram
from tamis.tasks.scored import Scored


@dataclass
class StageStats:
    """What one stage did, over all workers.

    Args:
        name: The stage, as in the plan.
        tasks_in, tasks_out: Tasks taken and handed on.
        rows_in, rows_out: Items (rows, files) in those tasks.
        bytes_in, bytes_out: Their size in memory.
        seconds: Time spent in the stage, summed over workers.
        dropped: Rows dropped on purpose, by reason.
        quarantined: Rows that could not be read or processed and were set aside, as far as their number is known.
        tasks_set_aside: Whole tasks that were given up and set aside.
        tasks_uncounted: Those of them whose number of rows is not known, since they stand for files.
        retries: Times a task was tried again.
        files: Files published by the stage, if it writes.
        custom: What the stage itself counted, see :meth:`tamis.stages.base.ProcessingStage.log_metric`.
        internal: Whether it is an internal stage (part of a shuffle, say) that reports do not show.
        scores: Histograms of the scores that it computed, by criterion; in ``scores.json``, not in ``run.json``.
        queue_s: Seconds that tasks waited, from ready to begun, for the first stage of a group; 0 where it is unknown.
    """

    name: str
    tasks_in: int = 0
    tasks_out: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    dropped: dict[str, int] = field(default_factory=dict)
    quarantined: int = 0
    tasks_set_aside: int = 0
    tasks_uncounted: int = 0
    retries: int = 0
    files: int = 0
    custom: dict[str, float] = field(default_factory=dict)
    internal: bool = False
    scores: dict[str, ScoreHistogram] = field(default_factory=dict, repr=False)
    queue_s: float = 0.0

    def add(self, other: StageStats) -> None:
        """Add another worker's counts to these."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, theirs in ((self.dropped, other.dropped), (self.custom, other.custom)):
            for key, count in theirs.items():
                mine[key] = mine.get(key, 0) + count  # type: ignore[assignment]  # int or float, as it was
        for name, histogram in other.scores.items():
            self.scores.setdefault(name, ScoreHistogram.like(histogram)).add(histogram)

    def subtract(self, other: StageStats) -> None:
        """Take counts that were added before out of these. Histograms stay."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) - getattr(other, name))
        for mine, theirs in ((self.dropped, other.dropped), (self.custom, other.custom)):
            for key, count in theirs.items():
                mine[key] = mine.get(key, 0) - count  # type: ignore[assignment]  # int or float, as it was
                if not mine[key]:
                    del mine[key]

    def add_scores(self, scored: Scored) -> None:
        """Count the scores of some rows."""
        histogram = self.scores.get(scored.name)
        if histogram is None:
            histogram = self.scores[scored.name] = ScoreHistogram(scored.bounds, scored.inverted)
        histogram.count(scored.scores, scored.kept)

    def numbers(self) -> dict[str, Any]:
        """The counts that are not 0, for a record."""
        counted = {name: value for name in _COUNTED if (value := getattr(self, name))}
        if self.seconds:
            counted["seconds"] = round(self.seconds, 6)
        return counted

    def record(self) -> dict[str, Any]:
        """What the ledger keeps: the counts that are not 0, and the histograms of scores."""
        scores = {name: histogram.record() for name, histogram in self.scores.items()}
        return {**self.numbers(), "scores": scores} if scores else self.numbers()

    @classmethod
    def from_record(cls, name: str, record: Mapping[str, Any]) -> StageStats:
        """The counts of a stage, from what the ledger keeps of them."""
        scores = {key: ScoreHistogram.from_record(values) for key, values in record.get("scores", {}).items()}
        values: dict[str, Any] = {k: dict(v) if isinstance(v, dict) else v for k, v in record.items()}
        return cls(name, **{**values, "scores": scores})

    @property
    def rows_dropped(self) -> int:
        """Rows dropped on purpose, over all reasons."""
        return sum(self.dropped.values())


_NUMBERS = [f.name for f in fields(StageStats) if f.type in ("int", "float")]
_COUNTED = [f.name for f in fields(StageStats) if f.name not in ("name", "internal", "seconds", "queue_s", "scores")]


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What a GPU is doing.

    Args:
        index: Its number on the machine, as NVML counts.
        utilization: The share of the last moments in which it was busy, 0 to 1.
        memory_bytes: Memory in use.
        node: The machine; empty for the driver's.
    """

    index: int
    utilization: float
    memory_bytes: int
    node: str = ""


@dataclass(slots=True)
class WorkCounts:
    """What one worker did in one group of stages.

    Args:
        tasks: Tasks done.
        rows_in, rows_out, bytes_in, bytes_out: What entered and left the group.
        seconds: How long the tasks took.
        queue_s: How long they waited, from ready to begun.
    """

    tasks: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    queue_s: float = 0.0


@dataclass(frozen=True)
class WorkerStats:
    """What one worker did.

    Args:
        worker: Its number.
        node: Its machine, on a cluster.
        busy_s: Seconds in which it held at least one task.
        peak_memory_bytes: Highest resident memory of its process; 0 where it is unknown, as for threads.
        work: The counts of each group of stages it ran, under the names of the stages.
        gpus: Its GPUs, where only the worker can read them.
    """

    worker: int
    node: str
    busy_s: float
    peak_memory_bytes: int
    work: dict[str, WorkCounts]
    gpus: tuple[GpuUse, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """The state of a running pipeline, for progress displays.

    Args:
        elapsed_s: Seconds since the start.
        stages: The counts so far, in the order of the plan. They are live objects: read them, do not keep them.
        fraction: The share of the input that has been processed, 0 to 1; ``None`` while its size is unknown.
        held_bytes: Memory held by tasks between stages.
        budget_bytes: The run's limit for that.
        running: Tasks being processed.
        workers: The number of workers.
        state: ``"running"``, ``"draining"`` (after the first Ctrl-C) or ``"done"``.
        stage_workers: For each stage, the workers that can be given its tasks; empty where that is unknown.
        worker_stats: Returns what each worker did; nothing where that is unknown.
    """

    elapsed_s: float
    stages: list[StageStats]
    fraction: float | None
    held_bytes: int
    budget_bytes: int
    running: int
    workers: int
    state: str = "running"
    stage_workers: Sequence[int] = ()
    worker_stats: Callable[[], Sequence[WorkerStats]] = tuple

    @property
    def eta_s(self) -> float | None:
        """Seconds left, at the speed so far."""
        if not self.fraction or self.state == "done":
            return None
        return self.elapsed_s * (1 - self.fraction) / self.fraction


DONE: Final = "done"
"""The state of a run that processed everything."""

DONE_WITH_FAILURES: Final = "done with failures"
"""The state of a run that came to its end, but set rows or tasks aside on the way."""

INTERRUPTED: Final = "interrupted"
"""The state of a run that the user stopped."""

FAILED: Final = "failed"
"""The state of a run that an error ended, or that set everything aside."""


@dataclass
class RunSummary:
    """What ``run.json`` in a run directory holds: everything the report shows.

    Args:
        pipeline: The pipeline's name.
        description: Its description.
        executor: The executor, in words.
        started: When, as ISO 8601 in UTC.
        seconds: How long it took.
        state: :data:`DONE`, :data:`DONE_WITH_FAILURES`, :data:`INTERRUPTED` or :data:`FAILED`.
        stages: The counts per stage, in the order of the plan.
        plan: The plan as text.
        outputs: Published files as ``{"path", "rows", "bytes"}``, at most the first 1,000.
        output_files, output_rows, output_bytes: Their totals.
        quarantine: Up to 20 quarantined rows, as examples.
        error: Why it failed, if it did.
        notes: Remarks on the input and the output, such as files that were left out.
        peak_memory_bytes: Highest resident memory of the driver, where it can be read.
        tamis: The version.
        tasks_before: Tasks that earlier starts of the run had finished. Their counts are included, except in seconds.
    """

    pipeline: str
    description: str = ""
    executor: str = ""
    started: str = ""
    seconds: float = 0.0
    state: str = DONE
    stages: list[StageStats] = field(default_factory=list)
    plan: str = ""
    outputs: list[dict[str, Any]] = field(default_factory=list)
    output_files: int = 0
    output_rows: int = 0
    output_bytes: int = 0
    quarantine: list[dict[str, Any]] = field(default_factory=list)
    error: str = ""
    notes: list[str] = field(default_factory=list)
    peak_memory_bytes: int = 0
    tamis: str = ""
    tasks_before: int = 0

    @property
    def rows_set_aside(self) -> int:
        """Rows in the quarantine, as far as their number is known."""
        return sum(stage.quarantined for stage in self.stages)

    @property
    def tasks_set_aside(self) -> int:
        """Whole tasks in the quarantine."""
        return sum(stage.tasks_set_aside for stage in self.stages)

    @property
    def tasks_uncounted(self) -> int:
        """Whole tasks in the quarantine whose number of rows is not known."""
        return sum(stage.tasks_uncounted for stage in self.stages)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        values = asdict(replace(self, stages=[]))
        values["stages"] = [asdict(replace(stage, scores={})) for stage in self.stages]
        for stage in values["stages"]:
            del stage["scores"]
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunSummary:
        """The reverse of :meth:`to_dict`; keys of newer versions are ignored."""
        known = {k: v for k, v in values.items() if k in cls.__dataclass_fields__}
        known["stages"] = [
            StageStats(**{k: v for k, v in stage.items() if k in StageStats.__dataclass_fields__ and k != "scores"})
            for stage in known.get("stages", [])
        ]
        return cls(**known)
