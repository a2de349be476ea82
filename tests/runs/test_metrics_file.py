"""metrics.jsonl: its shape, its length, and how it is continued."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from tamis.runs.metrics import Sample, StageSample
from tamis.runs.metrics_file import METRICS_FILE, MetricsFile, read_metrics
from tamis.runs.stats import GpuUse


def sample(at_s: float, rows: int = 0, **others: Any) -> Sample:
    values: dict[str, Any] = {"state": "running", "fraction": 0.25, "held_bytes": 1, "budget_bytes": 2, "running": 3}
    values |= {"workers": 4, "memory_bytes": 5, "stages": (StageSample("read", rows_out=rows, seconds=1.5),), **others}
    return Sample(at_s, f"2026-01-01T00:00:{at_s:06.3f}+00:00", **values)


def samples(folder: Path) -> list[dict[str, Any]]:
    return [line for line in read_metrics(folder) if "t" in line]


def written(folder: Path, count: int, max_lines: int = 5000) -> list[float]:
    file = MetricsFile(str(folder), max_lines)
    for second in range(count):
        file.take(sample(float(second), rows=second))
    file.write(sample(count - 0.5, rows=count, state="done"))
    file.close()
    return [line["t"] for line in samples(folder)]


def test_a_line_has_exactly_these_fields(tmp_path: Path) -> None:
    file = MetricsFile(str(tmp_path))
    file.write(sample(0.0, rows=7))
    file.write(sample(1.0, gpus=(GpuUse(0, 0.5, 2**30), GpuUse(1, 0.5, 1, "node-a"))))
    file.close()
    start, first, second = (json.loads(line) for line in (tmp_path / METRICS_FILE).read_text().splitlines())
    assert list(start) == ["start", "time"]
    assert start["start"] == 1
    assert first == {
        "t": 0.0,
        "time": "2026-01-01T00:00:00.000+00:00",
        "state": "running",
        "fraction": 0.25,
        "held_bytes": 1,
        "budget_bytes": 2,
        "running": 3,
        "workers": 4,
        "memory_bytes": 5,
        "stages": {
            "read": {
                "tasks_in": 0,
                "tasks_out": 0,
                "rows_in": 0,
                "rows_out": 7,
                "bytes_in": 0,
                "bytes_out": 0,
                "seconds": 1.5,
                "queue_s": 0.0,
                "workers": 0,
                "dropped": 0,
                "quarantined": 0,
                "retries": 0,
            }
        },
    }
    assert second["gpus"] == [
        {"index": 0, "utilization": 0.5, "memory_bytes": 2**30},
        {"index": 1, "utilization": 0.5, "memory_bytes": 1, "node": "node-a"},
    ]


def test_samples_that_come_too_soon_are_left_out(tmp_path: Path) -> None:
    file = MetricsFile(str(tmp_path))
    for tenth in range(31):
        file.take(sample(tenth / 10))
    file.close()
    assert len(samples(tmp_path)) in (4, 5)


def test_a_long_run_has_a_bounded_number_of_lines_from_first_to_last(tmp_path: Path) -> None:
    times = written(tmp_path, 1000, max_lines=100)
    assert 40 <= len(times) <= 100
    assert times[0] == 0.0
    assert times[-1] == 999.5
    gaps = {b - a for a, b in itertools.pairwise(times[:-1])}
    assert max(gaps) <= 2 * min(gaps)  # evenly spread
    assert [line["stages"]["read"]["rows_out"] for line in samples(tmp_path)] == [int(t) + (t == 999.5) for t in times]


def test_a_run_that_is_continued_counts_its_seconds_on(tmp_path: Path) -> None:
    written(tmp_path, 3)
    times = written(tmp_path, 2)
    assert times == [0.0, 1.0, 2.0, 2.5, 2.5, 3.5, 4.0]
    assert [line["start"] for line in read_metrics(tmp_path) if "start" in line] == [1, 2]


def test_a_long_run_that_is_continued_is_not_sampled_more_often_than_before(tmp_path: Path) -> None:
    before = len(written(tmp_path, 1000, max_lines=100))
    times = written(tmp_path, 1000, max_lines=100)
    assert len(times) <= 100
    assert len([t for t in times if t > 999.5]) <= before + 2
    starts = [i for i, line in enumerate(read_metrics(tmp_path)) if "start" in line]
    assert len(starts) == 2
    assert list(read_metrics(tmp_path))[starts[1] - 1]["state"] == "done"  # the last of the first start is still there


def test_a_line_that_a_killed_driver_left_incomplete_spoils_nothing(tmp_path: Path) -> None:
    written(tmp_path, 2)
    with (tmp_path / METRICS_FILE).open("a") as file:
        file.write('{"t": 17.0, "ti')
    times = written(tmp_path, 1)
    assert times == [0.0, 1.0, 1.5, 1.5, 2.0]
    assert [line["start"] for line in read_metrics(tmp_path) if "start" in line] == [1, 2]


def test_more_starts_than_lines_do_no_harm(tmp_path: Path) -> None:
    for _ in range(8):
        written(tmp_path, 1, max_lines=5)
    assert len([line for line in read_metrics(tmp_path) if "start" in line]) == 8


def test_without_the_file_there_are_no_lines(tmp_path: Path) -> None:
    assert list(read_metrics(tmp_path)) == []
