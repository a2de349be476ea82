"""Numbers that a stage counts while it works, beside those that every stage has."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

__all__ = ["StageMetrics"]


class StageMetrics:
    """The metrics of one stage in one worker."""

    def log_metric(self, name: str, value: float) -> None:
        """Count something of the stage's own while it works; the run's statistics have the sum over all tasks.

        >>> stage = StageMetrics()
        >>> stage.log_metric("cache_hits", 2)
        >>> stage.take_metrics()
        {'cache_hits': 2}
        """
        metrics = self.__dict__.setdefault("_metrics", {})
        metrics[name] = metrics.get(name, 0) + (value if type(value) is int else float(value))

    def take_metrics(self) -> dict[str, float]:
        """What was counted since the last call."""
        taken: dict[str, float] = self.__dict__.pop("_metrics", {})
        return taken

    def _log_metric(self, name: str, value: float) -> None:
        self.log_metric(name, value)

    def _log_metrics(self, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self.log_metric(name, value)

    @contextlib.contextmanager
    def _time_metric(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.log_metric(name, time.perf_counter() - began)
