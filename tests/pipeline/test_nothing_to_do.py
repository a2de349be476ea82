"""A finished run that is started again: what the quick look sees, and when the ledger has to decide."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.runs import finished_work
from tamis.runs.result import RunResult
from tamis.stages.base import ProcessingStage
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.tasks import DocumentBatch


class Calls:
    """What the stage has done, and does: no part of its code, so that it may change between two starts."""

    def __init__(self) -> None:
        self.count = 0
        self.at_fourth: Callable[[], object] = lambda: None

    def add(self) -> None:
        self.count += 1
        if self.count == 4:
            self.at_fourth()


CALLS = Calls()


class Counted(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "counted"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        CALLS.add()
        return task


@pytest.fixture
def start(tmp_path: Path) -> Callable[[], tuple[int, int]]:
    """Starts the run; gives how often the stage was called, and the rows."""
    CALLS.at_fourth = lambda: None
    (tmp_path / "in").mkdir()
    for number in range(6):
        (tmp_path / "in" / f"{number}.jsonl").write_text(f'{{"n": {number}}}\n')

    def started() -> tuple[int, int]:
        CALLS.count = 0
        result = run(tmp_path)
        assert len(result) == len(list(result))
        return CALLS.count, result.rows

    return started


def run(folder: Path) -> RunResult:
    stages = [JsonlReader(str(folder / "in"), files_per_partition=1), Counted(), JsonlWriter(str(folder / "out"))]
    return Pipeline("p", stages=stages).run(LocalExecutor(0), run_dir=str(folder / "run"), progress="off")


def test_the_ledger_is_not_read(
    start: Callable[[], tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start() == (6, 6)
    monkeypatch.setattr(finished_work, "committed_lines", None)  # reading it would fail
    assert start() == (0, 6)
    summary = run(tmp_path).summary
    assert (summary.state, summary.output_files) == ("done", 6)


@pytest.mark.parametrize(
    ("change", "calls", "rows"),
    [
        (lambda folder: (folder / "in" / "9.jsonl").write_text('{"n": 9}\n'), 1, 7),
        (lambda folder: (folder / "in" / "3.jsonl").write_text('{"n": 3}\n{"n": 4}\n'), 1, 7),
        (lambda folder: (folder / "in" / "3.jsonl").unlink(), 0, 5),
        (lambda folder: (folder / "out" / "part-000002.jsonl").unlink(), 1, 6),
        (lambda folder: (folder / "out" / "part-000002.jsonl").write_text(""), 1, 6),
        (lambda folder: os.utime(folder / "out" / "part-000002.jsonl"), 0, 6),
        (lambda folder: (folder / "out" / "notes.txt").write_text("mine"), 0, 6),
        (lambda folder: (folder / "run" / "finished.json").write_text("{"), 0, 6),
        (lambda folder: (folder / "run" / "finished.json").unlink(), 0, 6),
    ],
)
def test_a_change_is_seen(
    start: Callable[[], tuple[int, int]],
    tmp_path: Path,
    change: Callable[[Path], object],
    calls: int,
    rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert start() == (6, 6)
    change(tmp_path)
    assert start() == (calls, rows)
    assert start() == (0, rows)
    monkeypatch.setattr(finished_work, "committed_lines", None)
    assert start() == (0, rows)  # and the quick look knows it from then on


def test_output_that_is_lost_during_the_run_is_made_again(start: Callable[[], tuple[int, int]], tmp_path: Path) -> None:
    def lose() -> None:
        for _ in range(200):  # finished files get their names in a while
            if (tmp_path / "out" / "part-000000.jsonl").exists():
                break
            time.sleep(0.05)
        (tmp_path / "out" / "part-000000.jsonl").unlink()

    CALLS.at_fourth = lose
    assert start() == (6, 6)
    assert start() == (1, 6)
    assert (tmp_path / "out" / "part-000000.jsonl").exists()


def test_input_that_changes_during_the_run_is_read_again(start: Callable[[], tuple[int, int]], tmp_path: Path) -> None:
    CALLS.at_fourth = lambda: (tmp_path / "in" / "0.jsonl").write_text('{"n": 0}\n{"n": 1}\n')
    assert start() == (6, 6)
    assert start() == (1, 7)
