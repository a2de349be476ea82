"""A task that notes in files when it is read and written, and a stage that waits for such notes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tamis.stages.base import ProcessingStage
from tamis.tasks import Task


@dataclass
class Noted(Task[list[Any]]):
    """A task. The result that is made of task 0 can be written only while another task is computed."""

    folder: str = ""
    number: int = 0
    made: bool = False

    def __reduce_ex__(self, protocol: Any) -> Any:
        if protocol == 5 and self.made and self.number == 0:  # with another one it is only copied
            wait_for(self.folder, "computing 1")
        return super().__reduce_ex__(protocol)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        Path(self.folder, f"fetched {self.number} by {os.getpid()}").touch()


class WaitsForTheNext(ProcessingStage[Noted, Noted]):
    """For task 0, returns only once task 1 has been fetched."""

    def process(self, task: Noted) -> Noted:
        Path(task.folder, f"computing {task.number}").touch()
        if task.number == 0:
            wait_for(task.folder, f"fetched 1 by {os.getpid()}")
        return Noted(task.data, folder=task.folder, number=task.number, made=True)


def wait_for(folder: str, name: str) -> None:
    limit = time.monotonic() + 40
    while not Path(folder, name).exists():
        if time.monotonic() > limit:
            raise TimeoutError(f"{name!r} did not happen at the same time")
        time.sleep(0.01)
