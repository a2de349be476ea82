"""The metrics of a run: one list, of which the Prometheus endpoint, Ray's metrics, the dashboard and the docs are made.

A sample is the state of a run at one moment, as plain values. The driver takes one about once a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tamis.runs.stats import GpuUse, WorkCounts

__all__ = [
    "COMMON_LABELS",
    "METRICS",
    "Metric",
    "Sample",
    "StageSample",
    "WorkerSample",
    "labels_table",
    "metrics_table",
]

Scope = Literal["run", "state", "stage", "worker", "work", "gpu"]
Kind = Literal["counter", "gauge"]

COMMON_LABELS: Final = ("pipeline", "run")
"""Labels of all metrics: the pipeline's name, and the name of the run directory."""

LABELS: Final[dict[Scope, tuple[str, ...]]] = {
    "run": (),
    "state": ("state",),
    "stage": ("stage",),
    "worker": ("worker", "node"),
    "work": ("worker", "node", "stages"),
    "gpu": ("node", "gpu"),
}
"""The further labels of the metrics of each scope."""

LABEL_MEANINGS: Final = {
    "pipeline": "the name of the pipeline",
    "run": "the name of the run directory",
    "state": "`running`, `draining` (after Ctrl-C), and at the end what `run.json` says",
    "stage": "the stage, as `tamis plan` shows it",
    "worker": "the number of the worker in this run",
    "node": "Ray's id of the machine; empty on a single machine",
    "stages": "the stages that run together in the worker, joined by ` + `",
    "gpu": "the number of the GPU on its machine",
}
"""What each label says, for the documentation."""


@dataclass(frozen=True)
class Metric:
    """One metric.

    Args:
        name: Its name, as Prometheus sees it.
        kind: A counter only grows during a run; a gauge goes up and down.
        unit: What it counts.
        scope: What there is one value of: the run, each stage, each worker, each worker and group of stages, each GPU.
        help: One sentence.
        field: The field of the sample that holds it: of the whole one, or of the part that the scope names.
    """

    name: str
    kind: Kind
    unit: str
    scope: Scope
    help: str
    field: str

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of all its labels."""
        return (*COMMON_LABELS, *LABELS[self.scope])


METRICS: Final = (
    Metric("tamis_run_state", "gauge", "1", "state", "The state of the run: 1 for the state it is in.", "one"),
    Metric("tamis_run_elapsed_seconds", "gauge", "seconds", "run", "Time since the run began.", "at_s"),
    Metric(
        "tamis_run_progress_ratio",
        "gauge",
        "ratio",
        "run",
        "Share of the input that was processed, 0 to 1; absent while its size is unknown.",
        "fraction",
    ),
    Metric("tamis_run_held_bytes", "gauge", "bytes", "run", "Memory of the tasks between stages.", "held_bytes"),
    Metric("tamis_run_budget_bytes", "gauge", "bytes", "run", "The limit for that memory.", "budget_bytes"),
    Metric("tamis_run_running_tasks", "gauge", "tasks", "run", "Batches of tasks that workers hold.", "running"),
    Metric("tamis_run_workers", "gauge", "workers", "run", "Workers of the run.", "workers"),
    Metric("tamis_run_memory_bytes", "gauge", "bytes", "run", "Resident memory of the driver.", "memory_bytes"),
    Metric("tamis_stage_tasks_in_total", "counter", "tasks", "stage", "Tasks that the stage received.", "tasks_in"),
    Metric("tamis_stage_tasks_out_total", "counter", "tasks", "stage", "Tasks that the stage made.", "tasks_out"),
    Metric("tamis_stage_rows_in_total", "counter", "rows", "stage", "Rows that the stage received.", "rows_in"),
    Metric("tamis_stage_rows_out_total", "counter", "rows", "stage", "Rows that the stage made.", "rows_out"),
    Metric("tamis_stage_bytes_in_total", "counter", "bytes", "stage", "Size in memory of its input.", "bytes_in"),
    Metric("tamis_stage_bytes_out_total", "counter", "bytes", "stage", "Size in memory of its output.", "bytes_out"),
    Metric(
        "tamis_stage_service_seconds_total",
        "counter",
        "seconds",
        "stage",
        "Time spent in the stage, summed over workers.",
        "seconds",
    ),
    Metric(
        "tamis_stage_queue_seconds_total",
        "counter",
        "seconds",
        "stage",
        "Time that tasks waited for the stage: from ready to begun, summed over tasks.",
        "queue_s",
    ),
    Metric(
        "tamis_stage_dropped_rows_total",
        "counter",
        "rows",
        "stage",
        "Rows that the stage dropped on purpose.",
        "dropped",
    ),
    Metric(
        "tamis_stage_quarantined_rows_total",
        "counter",
        "rows",
        "stage",
        "Rows that failed and were set aside.",
        "quarantined",
    ),
    Metric("tamis_stage_retries_total", "counter", "tasks", "stage", "Times a task was tried again.", "retries"),
    Metric(
        "tamis_stage_workers", "gauge", "workers", "stage", "Workers that can be given tasks of the stage.", "workers"
    ),
    Metric(
        "tamis_stage_busy_ratio",
        "gauge",
        "ratio",
        "stage",
        "Share of the time of these workers that was spent in the stage, over the last ten seconds.",
        "busy_ratio",
    ),
    Metric(
        "tamis_worker_busy_seconds_total",
        "counter",
        "seconds",
        "worker",
        "Time in which the worker held at least one task.",
        "busy_s",
    ),
    Metric(
        "tamis_worker_busy_ratio",
        "gauge",
        "ratio",
        "worker",
        "Share of the time in which the worker held a task, over the last ten seconds.",
        "busy_ratio",
    ),
    Metric(
        "tamis_worker_memory_peak_bytes",
        "gauge",
        "bytes",
        "worker",
        "Highest resident memory of the worker's process; absent for threads.",
        "peak_memory_bytes",
    ),
    Metric("tamis_worker_tasks_total", "counter", "tasks", "work", "Tasks that the worker finished.", "tasks"),
    Metric("tamis_worker_rows_in_total", "counter", "rows", "work", "Rows that the worker received.", "rows_in"),
    Metric("tamis_worker_rows_out_total", "counter", "rows", "work", "Rows that the worker made.", "rows_out"),
    Metric("tamis_worker_bytes_in_total", "counter", "bytes", "work", "Size in memory of its input.", "bytes_in"),
    Metric("tamis_worker_bytes_out_total", "counter", "bytes", "work", "Size in memory of its output.", "bytes_out"),
    Metric(
        "tamis_worker_service_seconds_total",
        "counter",
        "seconds",
        "work",
        "Time that the worker's tasks took, from begun to done.",
        "seconds",
    ),
    Metric(
        "tamis_worker_queue_seconds_total",
        "counter",
        "seconds",
        "work",
        "Time that the worker's tasks waited, from ready to begun.",
        "queue_s",
    ),
    Metric(
        "tamis_gpu_utilization_ratio",
        "gauge",
        "ratio",
        "gpu",
        "Share of the last moments in which the GPU was busy, from NVML.",
        "utilization",
    ),
    Metric("tamis_gpu_memory_bytes", "gauge", "bytes", "gpu", "Memory in use on the GPU, from NVML.", "memory_bytes"),
)
"""All metrics."""


@dataclass(frozen=True)
class StageSample:
    """The counts of one stage. See :class:`~tamis.runs.stats.StageStats`.

    Args:
        name: The stage.
        queue_s: Seconds that its tasks waited.
        workers: Workers that can be given its tasks.
        dropped: Rows dropped, over all reasons.
        busy_ratio: Share of the time of these workers that was spent in the stage; ``None`` if it is not known.
    """

    name: str
    tasks_in: int = 0
    tasks_out: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: float = 0.0
    queue_s: float = 0.0
    workers: int = 0
    dropped: int = 0
    quarantined: int = 0
    retries: int = 0
    busy_ratio: float | None = None


@dataclass(frozen=True)
class WorkerSample:
    """One worker.

    Args:
        worker: Its number.
        node: Its machine.
        busy_s: Seconds in which it held a task.
        busy_ratio: The share of them in the last seconds.
        peak_memory_bytes: Highest resident memory of its process; ``None`` if it is not known.
        work: What it did in each group of stages, under their names.
    """

    worker: int
    node: str
    busy_s: float
    busy_ratio: float | None
    peak_memory_bytes: int | None
    work: dict[str, WorkCounts]


@dataclass(frozen=True)
class Sample:
    """The state of a run at one moment.

    Args:
        at_s: Seconds since the run began.
        time: The same moment, as ISO 8601 in UTC.
        state, fraction, held_bytes, budget_bytes, running, workers: As in :class:`~tamis.runs.stats.Snapshot`.
        memory_bytes: Resident memory of the driver.
        stages: The counts of the stages, in the order of the plan.
        each_worker: The workers.
        gpus: The GPUs.
    """

    at_s: float
    time: str
    state: str
    fraction: float | None
    held_bytes: int
    budget_bytes: int
    running: int
    workers: int
    memory_bytes: int
    stages: tuple[StageSample, ...] = ()
    each_worker: tuple[WorkerSample, ...] = ()
    gpus: tuple[GpuUse, ...] = ()

    @property
    def one(self) -> int:
        """For metrics whose value is in their labels."""
        return 1

    def values(self, metric: Metric) -> Iterator[tuple[tuple[str, ...], float]]:
        """The values of a metric, each with the values of its own labels, without those that all metrics have.

        >>> sample = Sample(1.5, "", "running", None, 0, 0, 0, 2, 0, (StageSample("read", rows_out=7),))
        >>> [list(sample.values(m)) for m in METRICS if m.name in ("tamis_run_state", "tamis_stage_rows_out_total")]
        [[(('running',), 1.0)], [(('read',), 7.0)]]
        """
        for labels, part in self._parts(metric.scope):
            value = getattr(part, metric.field)
            if value is not None:
                yield labels, float(value)

    def _parts(self, scope: Scope) -> Iterator[tuple[tuple[str, ...], object]]:
        if scope == "run":
            yield (), self
        elif scope == "state":
            yield (self.state,), self
        elif scope == "stage":
            yield from (((stage.name,), stage) for stage in self.stages)
        elif scope == "gpu":
            yield from (((gpu.node, str(gpu.index)), gpu) for gpu in self.gpus)
        else:
            for worker in self.each_worker:
                labels = (str(worker.worker), worker.node)
                if scope == "worker":
                    yield labels, worker
                else:
                    yield from (((*labels, stages), counts) for stages, counts in worker.work.items())


def metrics_table(metrics: Sequence[Metric] = METRICS) -> str:
    """The metrics as a table in Markdown, for the documentation.

    >>> print(metrics_table(METRICS[1:2]))
    | name | type | unit | labels | |
    |---|---|---|---|---|
    | `tamis_run_elapsed_seconds` | gauge | seconds | | Time since the run began. |
    """
    lines = ["| name | type | unit | labels | |", "|---|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in LABELS[metric.scope])
        lines.append(
            f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels}{' ' if labels else ''}| {metric.help} |"
        )
    return "\n".join(lines)


def labels_table() -> str:
    """The labels as a table in Markdown, for the documentation."""
    lines = ["| label | |", "|---|---|", *(f"| `{name}` | {meaning} |" for name, meaning in LABEL_MEANINGS.items())]
    return "\n".join(lines)
