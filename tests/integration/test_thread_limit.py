"""Many workers on short tasks: threads that would wait for Python's lock are replaced by processes, and nothing else
changes."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import LocalExecutor, thread_limit
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.tasks import DocumentBatch


class NoteProcess(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Notes in a folder which process it ran in."""

    releases_gil = True

    def __init__(self, folder: str) -> None:
        self.folder, self.driver = folder, os.getpid()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        Path(self.folder, str(os.getpid())).touch()
        return task


class WaitForOthers(NoteProcess):
    """In the driver: after a third of the tasks, takes its time until another process has done one."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        deadline = time.monotonic() + 1.0
        while task["n"][0].as_py() >= 100 and os.getpid() == self.driver and time.monotonic() < deadline:
            if len(os.listdir(self.folder)) > 1:
                break
            time.sleep(0.02)
        return super().process(task)


class Unpicklable(NoteProcess):
    def __reduce__(self) -> Any:
        raise TypeError("it has a connection")


class OnlyHere(NoteProcess):
    """Travels, and cannot be loaded where it arrives."""

    def __reduce__(self) -> Any:
        return _only_here, (os.getpid(), self.folder)


def _only_here(process: int, folder: str) -> OnlyHere:
    if os.getpid() != process:
        raise ImportError("this process has no such library")
    return OnlyHere(folder)


def run(tmp_path: Path, kind: type[NoteProcess]) -> set[str]:
    (tmp_path / "in").mkdir()
    for n in range(300):
        (tmp_path / "in" / f"{n:03d}.jsonl").write_text(f'{{"n": {n}}}\n')
    (tmp_path / "seen").mkdir()
    stages: list[Any] = [
        JsonlReader(str(tmp_path / "in"), files_per_partition=1),
        kind(str(tmp_path / "seen")),
        JsonlWriter(str(tmp_path / "out")),
    ]
    result = Pipeline("p", stages=stages).run(LocalExecutor(6), run_dir=str(tmp_path / "run"), progress="off")
    assert (result.rows, len(list((tmp_path / "out").glob("*.jsonl")))) == (300, 300)
    return {path.name for path in (tmp_path / "seen").iterdir()} - {str(os.getpid())}


def test_threads_are_replaced_once_it_is_known_that_tasks_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_limit, "AFTER_S", 0.0)
    assert 1 <= len(run(tmp_path, WaitForOthers)) <= 2


@pytest.mark.parametrize("kind", [Unpicklable, OnlyHere])
def test_a_stage_that_cannot_travel_stays_on_threads(
    tmp_path: Path, kind: type[NoteProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_limit, "AFTER_S", 0.0)
    assert run(tmp_path, kind) == set()


def test_long_tasks_stay_on_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_limit, "AFTER_S", 0.0)
    monkeypatch.setattr(thread_limit, "LOCKED_S", 1e-6)
    assert run(tmp_path, NoteProcess) == set()
