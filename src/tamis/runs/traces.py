"""OpenTelemetry traces of a run: a span for the run, one for each stage, and a sample of the tasks.

They are sent over HTTP to ``OTEL_EXPORTER_OTLP_ENDPOINT``, unless the program has set a tracer provider of its own.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import tamis
from tamis.errors import MissingExtraError, redacted
from tamis.runs.stats import FAILED, StageStats

__all__ = ["RunTrace", "TaskDone", "traces_wanted"]

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""Traces are on when one of these variables is set."""

ALL_TASKS = 100
"""So many tasks of a stage get a span each; of later ones, fewer and fewer do."""

MAX_TASKS = 1000
"""The most tasks of a stage that get a span."""

_PACKAGES = {
    "opentelemetry.sdk.trace": "opentelemetry-sdk",
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
}


@dataclass(frozen=True, slots=True)
class TaskDone:
    """A task, or batch of tasks, that a worker has finished.

    Args:
        entry: The number of the first stage it went through.
        stages: The numbers of all stages that ran together.
        ended_ns: When it ended, in nanoseconds of the monotonic clock.
        seconds: How long it took.
        queue_s: How long it had waited for a worker.
        task_ids: The tasks.
        rows: Their rows.
        stage_seconds: The time spent in each stage.
        worker: The number of the worker, if it is known.
        node: The worker's machine, on a cluster.
        error: Why it failed, if it did.
    """

    entry: int
    stages: Sequence[int]
    ended_ns: int
    seconds: float
    queue_s: float = 0.0
    task_ids: Sequence[str] = ()
    rows: int = 0
    stage_seconds: Mapping[int, float] = field(default_factory=dict)
    worker: int | None = None
    node: str = ""
    error: str = ""


def traces_wanted(traces: bool | None) -> bool:
    """Whether a run makes traces.

    Args:
        traces: What the user said; by default they are on when the environment names an endpoint.

    Raises:
        MissingExtraError: The user asked for traces, and a package is missing.
    """
    asked = any(os.environ.get(name) for name in ENDPOINTS) if traces is None else traces
    if not asked or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    missing = missing_package()
    if missing and traces:
        raise MissingExtraError("run(traces=True)", package=missing, extra="traces")
    return not missing


def missing_package() -> str:
    """The first package that traces need and that is not installed; empty if all are."""
    for module, package in _PACKAGES.items():
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None:
            return package
    return ""


class RunTrace:
    """The trace of one run.

    Args:
        pipeline: The pipeline's name.
        attributes: Further attributes of the run's span.
        stages: The names of the stages, in the order of the plan.
    """

    def __init__(self, pipeline: str, attributes: Mapping[str, str], stages: Sequence[str]) -> None:
        from opentelemetry import trace

        self._trace, self._names = trace, list(stages)
        self._provider, self._is_own = _provider()
        self._tracer = self._provider.get_tracer("tamis", tamis.__version__)
        self._began_ns = time.monotonic_ns()
        # Spans have the wall clock's time, which may jump during a run, so it is read once.
        self._since_1970_ns = time.time_ns() - self._began_ns
        self._run = self._tracer.start_span(
            f"run {pipeline}",
            attributes={"tamis.pipeline": pipeline, **attributes},
            start_time=self._began_ns + self._since_1970_ns,
        )
        self._stages: dict[int, Any] = {}  # spans that have begun
        self._ended_ns: dict[int, int] = {}
        self._seen: Counter[int] = Counter()  # tasks, by their first stage
        self._shown: Counter[int] = Counter()

    def task(self, done: TaskDone) -> None:
        """A worker has finished a task."""
        began_ns = max(self._began_ns, done.ended_ns - int(done.seconds * 1e9))
        for stage in done.stages:
            if stage not in self._stages:
                self._begin_stage(stage, began_ns)
            self._ended_ns[stage] = done.ended_ns
        self._seen[done.entry] += 1
        if self._is_chosen(done):
            self._shown[done.entry] += 1
            self._show(done, began_ns)

    def end(self, state: str, stats: Sequence[StageStats], error: str = "") -> None:
        """The run has ended: send what is left."""
        now = time.monotonic_ns()
        for number, counts in enumerate(stats):
            if number not in self._stages:  # a source, which the driver itself lists, or a stage that had no tasks
                self._begin_stage(number, self._began_ns)
            span = self._stages[number]
            span.set_attributes({f"tamis.{name}": value for name, value in _counts(counts).items()})
            span.set_attribute("tamis.tasks_traced", self._shown[number])
        for number, span in self._stages.items():
            span.end(self._ended_ns.get(number, now) + self._since_1970_ns)
        self._run.set_attribute("tamis.state", state)
        if state == FAILED:
            self._run.set_status(self._status(redacted(error)))
        self._run.end(now + self._since_1970_ns)
        if self._is_own:
            self._provider.shutdown()

    def _begin_stage(self, stage: int, began_ns: int) -> None:
        context = self._trace.set_span_in_context(self._run)
        name = self._names[stage]
        self._stages[stage] = self._tracer.start_span(
            f"stage {name}",
            context,
            attributes={"tamis.stage": name},
            start_time=began_ns + self._since_1970_ns,
        )

    def _is_chosen(self, done: TaskDone) -> bool:
        """Whether a task gets a span: the first ones, then one of 4, of 8, of 16 and so on; and tasks that failed."""
        shown, seen = self._shown[done.entry], self._seen[done.entry]
        if shown >= MAX_TASKS:
            return False
        every = 1 if seen <= ALL_TASKS else 2 ** (1 + (seen // ALL_TASKS).bit_length())
        return bool(done.error) or seen % every == 0

    def _show(self, done: TaskDone, began_ns: int) -> None:
        attributes: dict[str, Any] = {
            "tamis.stages": [self._names[s] for s in done.stages],
            "tamis.stage_seconds": [round(done.stage_seconds.get(s, 0.0), 6) for s in done.stages],
            "tamis.tasks": len(done.task_ids),
            "tamis.rows": done.rows,
            "tamis.queue_s": round(done.queue_s, 6),
        }
        if done.task_ids:
            attributes["tamis.task_id"] = done.task_ids[0]
        if done.worker is not None:
            attributes["tamis.worker"] = done.worker
        if done.node:
            attributes["tamis.node"] = done.node
        context = self._trace.set_span_in_context(self._stages[done.entry])
        start = began_ns + self._since_1970_ns
        span = self._tracer.start_span("task", context, attributes=attributes, start_time=start)
        if done.error:
            span.set_status(self._status(redacted(done.error)))
        span.end(done.ended_ns + self._since_1970_ns)

    def _status(self, error: str) -> Any:
        return self._trace.Status(self._trace.StatusCode.ERROR, error)


def _counts(stats: StageStats) -> dict[str, int | float]:
    return {
        "tasks_in": stats.tasks_in,
        "tasks_out": stats.tasks_out,
        "rows_in": stats.rows_in,
        "rows_out": stats.rows_out,
        "bytes_in": stats.bytes_in,
        "bytes_out": stats.bytes_out,
        "service_s": stats.seconds,
        "queue_s": stats.queue_s,
        "dropped": stats.rows_dropped,
        "quarantined": stats.quarantined,
        "retries": stats.retries,
    }


def _provider() -> tuple[Any, bool]:
    """The tracer provider of the program if it has set one, else a new one; and whether it is new."""
    from opentelemetry import trace
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    present = trace.get_tracer_provider()
    if isinstance(present, TracerProvider):
        return present, False
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    service = os.environ.get("OTEL_SERVICE_NAME") or "tamis"
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider, True
