"""Tasks that were given up: the record of each and its data, in the run's quarantine, ready to be run again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tamis.tasks import Task
from tamis.tasks.storage import read_task, write_whole

DATA = ".task"
"""The ending of a file with the data of a task. The record lies beside it, with the ending ``.jsonl``."""


@dataclass(frozen=True)
class SetAsideTask:
    """Why a task was given up, and where its data is.

    Args:
        stage: The stage that raised, or that was running when the worker died.
        first_stage: The stage to give the task to when it is run again: the first one of its worker.
        task: The task's id.
        place: Its place in the order of the input.
        rows: Its rows; ``None`` where the number is not known, since the task stands for files.
        files: The input files it was made of, where that is known.
        error: The type of the exception; ``"WorkerDied"`` where the worker died or was ended.
        message: What the exception said, or how the worker died.
        traceback: The user's own frames.
        attempts: How often it was tried.
        data: The name of the file with its data, in the directory of the record.
    """

    stage: str
    first_stage: str
    task: str
    place: str
    rows: int | None
    files: list[str]
    error: str
    message: str
    traceback: str
    attempts: int
    data: str
    directory: str = ""

    def encoded(self) -> bytes:
        """The record as a line of JSON."""
        values: dict[str, Any] = asdict(self)
        del values["directory"]
        values["path"] = self.files[0] if self.files else ""
        values["problem"] = f"set aside after {self.attempts} tries: {self.message}"
        return json.dumps(values, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"

    def write(self) -> list[dict[str, Any]]:
        """Write the record beside the data; return both files as the ledger names them."""
        final = os.path.join(self.directory, self.data.removesuffix(DATA) + ".jsonl")
        write_whole(final, self.encoded())
        paths = [p for p in (final, os.path.join(self.directory, self.data)) if os.path.exists(p)]
        return [{"path": path, "rows": 0, "bytes": os.path.getsize(path)} for path in paths]

    def read(self) -> Task[Any]:
        """The task itself, as it was given to :attr:`first_stage`."""
        return read_task(os.path.join(self.directory, self.data))


def tasks_set_aside(directory: str) -> Iterator[SetAsideTask]:
    """The tasks in a quarantine directory, in the order of the input."""
    records = []
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        if name.endswith(DATA):
            path = Path(directory, name.removesuffix(DATA) + ".jsonl")
            values = json.loads(path.read_text(encoding="utf-8"))
            known = {k: v for k, v in values.items() if k in SetAsideTask.__dataclass_fields__}
            records.append(SetAsideTask(**{**known, "directory": directory}))
    return iter(sorted(records, key=lambda r: r.place))
