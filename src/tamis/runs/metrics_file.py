"""``metrics.jsonl`` in a run directory: how the counts of a run grew, one sample per line.

Each start of the driver begins with the line ``{"start": 1, "time": ...}``. All counts are cumulative.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from tamis.runs.metrics import Sample
from tamis.tasks.storage import write_whole

__all__ = ["METRICS_FILE", "MetricsFile", "read_metrics"]

METRICS_FILE = "metrics.jsonl"
"""The file in the run directory."""

MAX_LINES = 5000
"""When the file has this many lines, every second sample is removed, and samples are taken half as often."""

INTERVAL_S = 1.0
"""Seconds between two samples at first."""

_EARLY_S = 0.25
"""A sample may come this much early, in seconds: the driver's loop turns a few times a second."""

_START = '{"start":'
_STAGE_FIELDS = (
    "tasks_in",
    "tasks_out",
    "rows_in",
    "rows_out",
    "bytes_in",
    "bytes_out",
    "seconds",
    "queue_s",
    "workers",
    "dropped",
    "quarantined",
    "retries",
)


class MetricsFile:
    """Writes samples to the file; a file that is there already is continued.

    Args:
        directory: The run directory.
        max_lines: About the most lines the file may have.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = MetricsFile(folder)
    ...     file.write(Sample(0.0, "2026-01-01T00:00:00+00:00", "running", None, 0, 0, 0, 1, 0))
    ...     file.close()
    ...     [line.get("start", line.get("state")) for line in read_metrics(folder)]
    [1, 'running']
    """

    def __init__(self, directory: str, max_lines: int = MAX_LINES) -> None:
        self._path, self._max_lines = os.path.join(directory, METRICS_FILE), max_lines
        self._file: TextIO | None = None
        self._began_s, start, self._lines, torn = _what_is_there(self._path)
        self._interval_s = INTERVAL_S
        while self._began_s / self._interval_s >= max_lines:
            self._interval_s *= 2
        self._last_s = -float("inf")
        self._file = self._opened()
        if torn:  # the driver was killed while it wrote this line
            self._file.write("\n")
        self._write({"start": start + 1, "time": datetime.now(UTC).isoformat(timespec="milliseconds")})

    def take(self, sample: Sample) -> None:
        """Write a sample, unless the last one was a moment ago."""
        if sample.at_s - self._last_s >= self._interval_s - _EARLY_S:
            self.write(sample)

    def write(self, sample: Sample) -> None:
        """Write a sample."""
        self._last_s = sample.at_s
        self._write(as_line(sample, self._began_s))
        if self._lines >= self._max_lines:
            self._thin_out()

    def close(self) -> None:
        """Close the file. Doing it again changes nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> TextIO:
        return Path(self._path).open("a", encoding="utf-8", newline="\n")

    def _write(self, values: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(values, ensure_ascii=True, separators=(",", ":")) + "\n")
            self._file.flush()
            self._lines += 1

    def _thin_out(self) -> None:
        """Remove every second sample, but not the first and the last one of a start."""
        self.close()
        with Path(self._path).open(encoding="utf-8") as file:
            lines = file.readlines()
        kept, since_start = [], 0
        for number, line in enumerate(lines):
            since_start = 0 if line.startswith(_START) else since_start + 1
            is_last = number + 1 == len(lines) or lines[number + 1].startswith(_START)
            if since_start % 2 == 1 or since_start == 0 or is_last:
                kept.append(line)
        write_whole(self._path, "".join(kept).encode())
        self._file, self._lines = self._opened(), len(kept)
        self._interval_s *= 2
        if len(kept) >= self._max_lines:  # so many starts that thinning does not help
            self._max_lines = 2 * len(kept)


def as_line(sample: Sample, began_s: float = 0.0) -> dict[str, Any]:
    """A sample as a line of the file.

    Args:
        sample: The sample.
        began_s: Seconds that the run took before this start of the driver.
    """
    line: dict[str, Any] = {
        "t": round(began_s + sample.at_s, 3),
        "time": sample.time,
        "state": sample.state,
        "fraction": None if sample.fraction is None else round(sample.fraction, 6),
        "held_bytes": sample.held_bytes,
        "budget_bytes": sample.budget_bytes,
        "running": sample.running,
        "workers": sample.workers,
        "memory_bytes": sample.memory_bytes,
        "stages": {
            stage.name: {name: _short(getattr(stage, name)) for name in _STAGE_FIELDS} for stage in sample.stages
        },
    }
    if sample.gpus:
        line["gpus"] = [
            {
                "index": gpu.index,
                "utilization": gpu.utilization,
                "memory_bytes": gpu.memory_bytes,
                **({"node": gpu.node} if gpu.node else {}),
            }
            for gpu in sample.gpus
        ]
    return line


def read_metrics(directory: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The lines of the file, also while it is written: starts of the driver, and samples.

    A line that a killed driver left incomplete is left out. Without the file there are no lines.
    """
    path = Path(directory, METRICS_FILE)
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for text in file:
            line = _parsed(text)
            if line is not None:
                yield line


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _short(value: float) -> float:
    return round(value, 4) if isinstance(value, float) else value


def _what_is_there(path: str) -> tuple[float, int, int, bool]:
    """The seconds, the starts and the lines that a file has, and whether its last line is incomplete."""
    seconds, starts, lines, text = 0.0, 0, 0, "\n"
    if os.path.exists(path):
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            for text in file:
                lines += 1
                line = _parsed(text) or {}
                starts += "start" in line
                seconds = max(seconds, line.get("t", 0.0))
    return seconds, starts, lines, not text.endswith("\n")
