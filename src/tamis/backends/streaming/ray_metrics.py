"""The metrics of a run among Ray's own: under the same names and labels, with Ray's prefix ``ray_``."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from tamis.backends.base import Run
from tamis.runs.metrics import METRICS, Sample

__all__ = ["exported_by_ray"]

REPORT_S = 10.0
"""How often Ray reports metrics, in seconds, unless it says otherwise."""


@contextlib.contextmanager
def exported_by_ray(run: Run, pipeline: str) -> Iterator[None]:
    """Export the metrics of a run through Ray, if Ray's metrics are on."""
    switch = os.environ.get("RAY_enable_metrics_collection", "1")  # noqa: SIM112 - Ray's name for it
    if switch.lower() in ("0", "false"):
        yield
        return
    sink = RayMetrics(pipeline, os.path.basename(run.directory.path), _report_s() / 2)
    run.sample_sinks.append(sink)
    try:
        yield
    finally:
        sink.close()
        run.sample_sinks.remove(sink)


class RayMetrics:
    """Sets Ray's gauges, from the driver. Counters are gauges there, too: the driver knows their totals.

    Args:
        pipeline: The pipeline's name, for a label.
        run: The run's name, for a label.
        interval_s: Seconds between two values; Ray does not report more often.
    """

    def __init__(self, pipeline: str, run: str, interval_s: float) -> None:
        from ray.util.metrics import Gauge

        self._common = {"pipeline": pipeline, "run": run}
        self._gauges = [(metric, Gauge(metric.name, metric.help, tag_keys=metric.labels)) for metric in METRICS]
        self._interval_s, self._next_s = interval_s, 0.0
        self._latest: Sample | None = None
        self._states: dict[tuple[str, ...], float] = {}  # of the run, so far

    def take(self, sample: Sample) -> None:
        """Pass a sample on to Ray, unless the last one was a moment ago."""
        self._latest = sample
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self._interval_s
            self._report(sample)

    def close(self) -> None:
        """Pass the last sample on."""
        if self._latest is not None:
            self._report(self._latest)

    def _report(self, sample: Sample) -> None:
        for metric, gauge in self._gauges:
            own = metric.labels[len(self._common) :]
            values = dict(sample.values(metric))
            if metric.scope == "state":  # Ray keeps what it was told for a while: an earlier state is 0 now
                values = self._states = {**dict.fromkeys(self._states, 0.0), **values}
            for labels, value in values.items():
                gauge.set(value, tags={**self._common, **dict(zip(own, labels, strict=True))})


def _report_s() -> float:
    """How often Ray reports metrics, in seconds."""
    from ray import _config

    read: Any = getattr(_config, "metrics_report_interval_ms", None)  # not every version has it
    return REPORT_S if read is None else read() / 1000
