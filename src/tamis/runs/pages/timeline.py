"""The run over time, from ``metrics.jsonl``: how much each stage had done at some moments.

The file has a line about every second, each with counts since the start of the run. A long run has a file of many
megabytes; then only some of its lines are read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

METRICS_FILE: Final = "metrics.jsonl"

_MOST_BYTES: Final = 2 * 2**20
"""A larger file is read in places."""

_LINE_BYTES: Final = 2**20
"""A line is not longer than this."""


@dataclass(frozen=True)
class Sample:
    """The state of a run at one moment.

    Args:
        seconds: Since the start.
        state: ``"running"``, ``"draining"``, or how it ended.
        fraction: The share of the input that has been processed, if it is known.
        running, workers: Tasks being processed, and workers.
        held_bytes, budget_bytes: Memory held by tasks between stages, and its limit.
        memory_bytes: Memory of the driver, where it can be read.
        stages: The counts of each stage, by name.
        gpus: What each GPU did, as it was reported.
    """

    seconds: float
    state: str = "running"
    fraction: float | None = None
    running: int = 0
    workers: int = 0
    held_bytes: int = 0
    budget_bytes: int = 0
    memory_bytes: int = 0
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    gpus: Sequence[Any] = ()

    def count(self, stage: str, name: str) -> float:
        """A count of a stage; 0 if there is none."""
        value = self.stages.get(stage, {}).get(name)
        if isinstance(value, Mapping):
            return sum(map(_number, value.values()))
        return _number(value)

    def through(self, stage: str) -> float:
        """Rows that went through a stage: the larger of input and output, since one of them may be file names."""
        return max(self.count(stage, "rows_in"), self.count(stage, "rows_out"))


def read_samples(run_dir: str, most: int = 240) -> list[Sample]:
    """Samples of a run, at most so many, evenly spread; none if the run wrote none.

    >>> read_samples("no-such-run")
    []
    """
    path = Path(run_dir, METRICS_FILE)
    try:
        size = os.path.getsize(path)
        lines = _all_lines(path) if size <= _MOST_BYTES else _some_lines(path, size, most)
        samples = _in_order_of_time(lines)
    except OSError:
        return []
    if len(samples) <= most:
        return samples
    step = (len(samples) - 1) / (most - 1)
    return [samples[round(i * step)] for i in range(most)]


def last_sample(run_dir: str) -> Sample | None:
    """The newest sample; only the end of the file is read."""
    path = Path(run_dir, METRICS_FILE)
    try:
        size = os.path.getsize(path)
        with path.open("rb") as file:
            file.seek(max(size - _LINE_BYTES, 0))
            lines = file.read(_LINE_BYTES).splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        sample = _sample(_value(line))
        if sample is not None:
            return sample
    return None


def rates(samples: Sequence[Sample], stage: str, points: int = 120) -> list[float]:
    """Rows per second of a stage, at equal distances over the time of the run."""
    return per_second([(sample.seconds, sample.through(stage)) for sample in samples], points)


def per_second(counts: Sequence[tuple[float, float]], points: int = 120) -> list[float]:
    """How fast a count grew, at equal distances: from pairs of seconds and count.

    >>> per_second([(0, 0), (10, 100), (20, 100)], 2)
    [10.0, 0.0]
    """
    if len(counts) < 2 or counts[-1][0] <= counts[0][0]:
        return []
    points = max(1, min(points, len(counts) - 1))
    begin, length = counts[0][0], (counts[-1][0] - counts[0][0]) / points
    at = [_count_at(counts, begin + i * length) for i in range(points + 1)]
    return [max(at[i + 1] - at[i], 0.0) / length for i in range(points)]


def _count_at(counts: Sequence[tuple[float, float]], moment: float) -> float:
    """The count at a moment between two samples."""
    low, high = 0, len(counts) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if counts[middle][0] <= moment else (low, middle)
    (start, before), (end, after) = counts[low], counts[high]
    share = min(max((moment - start) / (end - start), 0.0), 1.0) if end > start else 1.0
    return before + (after - before) * share


def _all_lines(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        for line in file:
            yield _value(line)


def _some_lines(path: Path, size: int, most: int) -> Iterator[Any]:
    """The lines at some places of a file, and its last one."""
    with path.open("rb") as file:
        for _ in range(2):  # the first one says that the run begins
            yield _value(file.readline(_LINE_BYTES))
        for i in range(1, most):
            file.seek(i * size // most)
            file.readline(_LINE_BYTES)  # the rest of a line
            yield _value(file.readline(_LINE_BYTES))
        file.seek(max(size - _LINE_BYTES, 0))
        yield from map(_value, file.read(_LINE_BYTES).splitlines()[-2:])


def _in_order_of_time(lines: Iterator[Any]) -> list[Sample]:
    """The samples; of a file in which time begins again, those since then. A line that only notes a start is none."""
    found: list[Sample] = []
    for value in lines:
        sample = _sample(value)
        if sample is None:
            continue
        if found and sample.seconds < found[-1].seconds:
            found = []
        if not found or sample.seconds > found[-1].seconds:
            found.append(sample)
        else:
            found[-1] = sample
    return found


def _value(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):  # the last line may be half written
        return None


def _sample(value: Any) -> Sample | None:
    if not isinstance(value, dict) or not _is_number(value.get("t")):
        return None
    stages = value.get("stages")
    gpus = value.get("gpus")
    fraction = value.get("fraction")
    whole = {
        name: int(_number(value.get(name)))
        for name in ("running", "workers", "held_bytes", "budget_bytes", "memory_bytes")
    }
    return Sample(
        seconds=_number(value["t"]),
        state=str(value.get("state") or "running"),
        fraction=_number(fraction) if _is_number(fraction) else None,
        stages={str(k): v for k, v in stages.items() if isinstance(v, dict)} if isinstance(stages, dict) else {},
        gpus=gpus if isinstance(gpus, list) else (),
        **whole,
    )


def _number(value: Any) -> float:
    return float(value) if _is_number(value) else 0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18  # nor infinite
