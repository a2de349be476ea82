"""What a stage does, the same in every engine: sleep, and note when.

Nothing but the standard library: the peers' environments import this too.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from streaming_parts.scenarios import Job

__all__ = ["Event", "Sleeper", "read_events"]

_RECORD = struct.Struct("<iidd")
_SETUP = -1
_files: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Event:
    """A worker took up a task, or set itself up.

    Args:
        stage: The stage's number.
        task: The task's number; ``None``: the worker set itself up.
        began, ended: On the machine's monotonic clock; ``ended`` is ``None`` when the worker did not live to note it.
        pid: The process.
    """

    stage: int
    task: int | None
    began: float
    ended: float | None
    pid: int


@dataclass(frozen=True)
class Sleeper:
    """The work of one stage."""

    job: Job
    stage: int

    def setup(self) -> None:
        """What a new worker does first."""
        self._sleep(_SETUP, self.job.stages[self.stage].setup_s * self.job.scale)

    def work(self, task: int) -> None:
        """What it does for a task."""
        self._sleep(task, self.job.seconds(self.stage, task))

    def _sleep(self, task: int, seconds: float) -> None:
        began = time.monotonic()
        self._note(task, began, 0.0)  # a worker that is killed meanwhile has still begun it
        time.sleep(seconds)
        self._note(task, began, time.monotonic())

    def _note(self, task: int, began: float, ended: float) -> None:
        path = f"{self.job.events}/{os.getpid()}"
        if path not in _files:
            _files[path] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(_files[path], _RECORD.pack(self.stage, task, began, ended))


def read_events(folder: Path) -> Iterator[Event]:
    """What all workers noted."""
    for path in folder.iterdir():
        begun: dict[tuple[int, int, float], float | None] = {}
        for stage, task, began, ended in _RECORD.iter_unpack(path.read_bytes()):
            begun[stage, task, began] = ended or None
        for (stage, task, began), end in begun.items():
            yield Event(stage, None if task == _SETUP else task, began, end, int(path.name))
