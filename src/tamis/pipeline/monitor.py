"""Records and exports the metrics of a run: ``metrics.jsonl``, the Prometheus endpoint, traces."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import TracebackType

from tamis.backends.base import Run, SampleSink
from tamis.core.gpu_use import GpuMonitor
from tamis.errors import install
from tamis.plan import Plan
from tamis.runs.directory import RunDirectory
from tamis.runs.metrics import Sample, StageSample, WorkerSample
from tamis.runs.metrics_file import METRICS_FILE, MetricsFile
from tamis.runs.process_memory import resident_memory
from tamis.runs.progress import NoProgress, Observer
from tamis.runs.prometheus_endpoint import LOOPBACK, PrometheusEndpoint
from tamis.runs.stats import GpuUse, Snapshot, StageStats, WorkerStats
from tamis.runs.traces import ENDPOINTS, RunTrace, missing_package, traces_wanted

__all__ = ["ENDPOINT_NOTE", "Monitoring", "RunMonitor"]

ENDPOINT_NOTE = "metrics-endpoint.txt"
"""The file in the run directory that says where the metrics can be read, while the run goes on."""

SAMPLE_S = 0.9
"""A new sample is taken when the last one is older than this, in seconds: about one a second."""

WINDOW_S = 10.0
"""Over how many seconds the share of busy time is computed."""


@dataclass(frozen=True)
class Monitoring:
    """What a run exports.

    Args:
        port: The port of the Prometheus endpoint; 0 picks a free one, ``None`` opens none.
        host: The address it listens on.
        traces: Whether to make OpenTelemetry traces; by default if ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set.
    """

    port: int | None = None
    host: str = LOOPBACK
    traces: bool | None = None


class RunMonitor:
    """Takes a sample about once a second and passes it on. It is an observer of the run.

    Made before anything else: it refuses an endpoint that cannot be opened and packages that are missing.

    Args:
        monitoring: What to export.
        plan: The plan.
    """

    def __init__(self, monitoring: Monitoring, plan: Plan) -> None:
        self._plan, self._wants_traces = plan, traces_wanted(monitoring.traces)
        self._told_of_traces = monitoring.traces is not None
        self._has_fixed_port = bool(monitoring.port)
        self.endpoint = None if monitoring.port is None else PrometheusEndpoint(monitoring.host, monitoring.port)
        self.trace: RunTrace | None = None
        self._gpus: GpuMonitor | None = None
        self._file: MetricsFile | None = None
        self._directory: RunDirectory | None = None
        self._display: Observer = NoProgress()
        self._began = time.monotonic()
        self._taken_at = 0.0
        self._latest = Snapshot(0.0, [StageStats(v.name) for v in plan.vertices], None, 0, 0, 0, 0)
        self._window = BusyWindow()
        self._sinks: list[SampleSink] = []

    def __enter__(self) -> RunMonitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self.close()

    def begin(self, run: Run, executor: str) -> None:
        """The run directory is there: begin to record."""
        self._directory, self._display, self._began = run.directory, run.observer, time.monotonic()
        name = os.path.basename(run.directory.path)
        run.recorders.append(self)
        self._sinks = run.sample_sinks
        self._gpus = GpuMonitor()
        if self.endpoint is not None:
            run.measure_input = True
            self._sinks.append(self.endpoint)
            self.endpoint.begin(self._plan.name, name)
            run.directory.write_text(ENDPOINT_NOTE, f"{self.endpoint.url}\n")
            if not (self._has_fixed_port and isinstance(run.observer, NoProgress)):
                run.observer.message(f"metrics: {self.endpoint.url}")
        if self._wants_traces:
            about = {"tamis.run": name, "tamis.executor": executor}
            self.trace = RunTrace(self._plan.name, about, [v.name for v in self._plan.vertices])
            run.on_task = self.trace.task
        elif not self._told_of_traces and any(os.environ.get(e) for e in ENDPOINTS) and missing_package():
            run.observer.message(
                f"{ENDPOINTS[0]} is set, but traces need the package {missing_package()!r}, which is not installed. "
                f"In a clone of tamis: {install('traces')}"
            )
        try:
            self._file = MetricsFile(run.directory.path)
        except OSError as error:
            self._give_up_file(error)
        self._take(self._latest)

    # -- an observer -------------------------------------------------------------------------------------------------

    def start(self, snapshot: Snapshot) -> None:
        """The executor begins."""
        self._latest = snapshot
        self._take(snapshot)

    def update(self, snapshot: Snapshot) -> None:
        """The state now."""
        self._latest = snapshot
        if time.monotonic() - self._taken_at >= SAMPLE_S:
            self._take(snapshot)

    def finish(self, snapshot: Snapshot) -> None:
        """The executor has ended. The last sample is recorded when the state of the run is known."""
        self._latest = snapshot
        self._export(self._sample(snapshot, snapshot.state))

    def message(self, text: str) -> None:
        """Messages are for the display."""

    # -- the end -----------------------------------------------------------------------------------------------------

    def end(self, state: str, stats: Sequence[StageStats], error: str = "") -> None:
        """The run has ended in this state: record the last sample."""
        sample = self._sample(self._latest, state)
        self._export(sample)
        self._record(sample, always=True)
        if self.trace is not None:
            self.trace.end(state, stats, error)
            self.trace = None

    def close(self) -> None:
        """Close the file and the endpoint. Doing it again changes nothing."""
        if self._gpus is not None:
            self._gpus.close()
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._give_up_file(error)
        if self.endpoint is not None:
            self.endpoint.close()
            if self._directory is not None:
                with contextlib.suppress(OSError):
                    os.remove(os.path.join(self._directory.path, ENDPOINT_NOTE))

    def _take(self, snapshot: Snapshot) -> None:
        self._taken_at = time.monotonic()
        sample = self._sample(snapshot, snapshot.state)
        self._export(sample)
        self._record(sample)

    def _export(self, sample: Sample) -> None:
        for sink in self._sinks:
            sink.take(sample)

    def _record(self, sample: Sample, *, always: bool = False) -> None:
        if self._file is not None:
            try:
                (self._file.write if always else self._file.take)(sample)
            except OSError as error:
                self._give_up_file(error)

    def _give_up_file(self, error: OSError) -> None:
        """The file cannot be written: the run goes on without it."""
        self._file = None
        self._display.message(f"{METRICS_FILE} cannot be written and ends here: {error.strerror or error}")

    def _sample(self, snapshot: Snapshot, state: str) -> Sample:
        at_s, workers = time.monotonic() - self._began, list(snapshot.worker_stats())
        sizes = snapshot.stage_workers or [0] * len(snapshot.stages)
        busy = self._window.shares(at_s, snapshot.stages, workers)
        of_workers = [_on(node=w.node, gpus=w.gpus) for w in workers if w.gpus]
        gpus = {(gpu.node, gpu.index): gpu for found in of_workers for gpu in found}
        return Sample(
            at_s=at_s,
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            state=state,
            fraction=snapshot.fraction,
            held_bytes=snapshot.held_bytes,
            budget_bytes=snapshot.budget_bytes,
            running=snapshot.running,
            workers=snapshot.workers,
            memory_bytes=resident_memory(),
            stages=tuple(
                _stage_sample(counts, size, busy[counts.name])
                for counts, size in zip(snapshot.stages, sizes, strict=True)
            ),
            each_worker=tuple(_worker_sample(worker, busy[worker.worker]) for worker in workers),
            gpus=tuple(gpus.values()) or (() if self._gpus is None else self._gpus.latest),
        )


class BusyWindow:
    """The share of the last seconds in which stages and workers were busy.

    >>> window = BusyWindow()
    >>> read = StageStats("read", seconds=1.0)
    >>> _ = window.shares(0.0, [read], [])
    >>> read.seconds = 2.0
    >>> window.shares(4.0, [read], [])["read"]
    0.25
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[float, dict[str | int, float]]] = deque()

    def shares(
        self, at_s: float, stages: Sequence[StageStats], workers: Sequence[WorkerStats]
    ) -> dict[str | int, float | None]:
        """Seconds of work per second: of stages by name, over all workers, and of workers by number."""
        now: dict[str | int, float] = {stage.name: stage.seconds for stage in stages}
        now.update((worker.worker, worker.busy_s) for worker in workers)
        while len(self._seen) > 1 and self._seen[1][0] <= at_s - WINDOW_S:
            self._seen.popleft()
        began_s, before = self._seen[0] if self._seen else (at_s, now)
        self._seen.append((at_s, now))
        seconds = at_s - began_s
        return {key: (value - before.get(key, 0.0)) / seconds if seconds > 0 else None for key, value in now.items()}


def _stage_sample(counts: StageStats, workers: int, busy: float | None) -> StageSample:
    return StageSample(
        name=counts.name,
        tasks_in=counts.tasks_in,
        tasks_out=counts.tasks_out,
        rows_in=counts.rows_in,
        rows_out=counts.rows_out,
        bytes_in=counts.bytes_in,
        bytes_out=counts.bytes_out,
        seconds=counts.seconds,
        queue_s=counts.queue_s,
        workers=workers,
        dropped=counts.rows_dropped,
        quarantined=counts.quarantined,
        retries=counts.retries,
        busy_ratio=min(1.0, busy / workers) if workers and busy is not None else None,
    )


def _worker_sample(stats: WorkerStats, busy: float | None) -> WorkerSample:
    return WorkerSample(
        worker=stats.worker,
        node=stats.node,
        busy_s=stats.busy_s,
        busy_ratio=None if busy is None else min(1.0, busy),
        peak_memory_bytes=stats.peak_memory_bytes or None,
        work={stages: replace(counts) for stages, counts in stats.work.items()},  # which go on counting
    )


def _on(node: str, gpus: Sequence[GpuUse]) -> list[GpuUse]:
    """GPUs with the machine they are on."""
    return [GpuUse(gpu.index, gpu.utilization, gpu.memory_bytes, node) for gpu in gpus]
