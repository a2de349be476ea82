"""What a run set aside, as a list: rows that could not be read, rows that a stage failed on, and whole tasks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tamis.errors import DataError

__all__ = ["Failed", "failures", "failures_of_row"]


@dataclass(frozen=True)
class Failed:
    """Something that was set aside.

    Args:
        kind: ``"row"`` for a row that a stage failed on, ``"task"`` for a task that was given up, ``"unreadable"`` for
            a row that could not be read.
        stage: The stage that failed.
        source, position, part: The name of the row; of a task the first file that it stands for, if it is known.
        error: The type of the exception; ``"WorkerDied"`` where the worker died or was ended.
        message: What the exception said, how the worker died, or why the row could not be read.
        traceback: The user's own frames.
        rows: How many rows a task has; ``None`` where that is not known.
        place: The place of the task, or of the batch that the row was in, in the order of the input.
        task: The id of a task.
        line: The number of the line, from 1, for a row that could not be read.
        file: The file of the quarantine that it is in.
    """

    kind: Literal["row", "task", "unreadable"]
    stage: str
    source: str
    position: int | None
    part: str = ""
    error: str = ""
    message: str = ""
    traceback: str = ""
    rows: int | None = 1
    place: str = ""
    task: str = ""
    line: int | None = None
    file: str = ""

    @property
    def name(self) -> str:
        """The name of the row; of a task its place and the file it stands for."""
        if self.kind == "task":
            return f"task {self.place}" + (f" ({self.source})" if self.source else "")
        return self.source if self.position is None else f"{self.source}:{self.position}{self.part}"

    @property
    def problem(self) -> str:
        """What went wrong, in one text."""
        return f"{self.error}: {self.message}" if self.error else self.message

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"name": self.name, **asdict(self)}


def failures(run_dir: str, stage: str = "") -> Iterator[Failed]:
    """What a run set aside, one after the other, file by file. The data of the rows is not read.

    Args:
        run_dir: The run's directory.
        stage: Only what this stage failed on.

    >>> list(failures("no-such-run"))
    []
    """
    folder = os.path.join(run_dir, "quarantine")
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        if name.startswith("."):
            continue
        if name.endswith(".parquet"):
            found = _rows(path)
        elif name.endswith(".jsonl"):
            found = _entries(path)
        else:
            continue
        yield from (one for one in found if not stage or one.stage == stage)


def failures_of_row(run_dir: str, source: str, position: int) -> list[Failed]:
    """What was set aside of a row: the row, pieces of it, or a task that it is in.

    Args:
        run_dir: The run's directory.
        source: The file.
        position: The position there.
    """
    found = []
    for one in failures(run_dir):
        if one.kind != "task":
            if (one.source, one.position) == (source, position):
                found.append(one)
        elif one.source == source or (not one.source and _holds(one, source, position)):
            found.append(one)
    return found


def _holds(one: Failed, source: str, position: int) -> bool:
    """Whether a row is in a task that was given up, as far as its rows have names."""
    from tamis.runs.set_aside import DATA
    from tamis.tasks import TableTask
    from tamis.tasks.storage import read_task

    try:
        task = read_task(one.file.removesuffix(".jsonl") + DATA)
    except (OSError, DataError):
        return False
    names = task.names if isinstance(task, TableTask) else None
    return names is not None and any(
        text.startswith(f"{source}:{position}") and not text[len(f"{source}:{position}") :][:1].isdecimal()
        for text in names.to_texts()
    )


def _rows(path: str) -> Iterator[Failed]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            about = json.loads((file.schema_arrow.metadata or {}).get(b"tamis.quarantine", b"{}"))
            columns: dict[str, str] = about.get("columns", {})
            for batch in file.iter_batches(batch_size=4096, columns=list(columns.values())):
                for row in batch.to_pylist():
                    own = {name: row[column] for name, column in columns.items()}
                    yield Failed(
                        "row",
                        own["stage"],
                        own["source"],
                        own["position"],
                        own["part"] or "",
                        own["error"] or "",
                        own["message"] or "",
                        own["traceback"] or "",
                        place=about.get("place", ""),
                        file=path,
                    )
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise DataError("this file of the quarantine is damaged", path=path) from error


def _entries(path: str) -> Iterator[Failed]:
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                entry = json.loads(text)
            except ValueError as error:
                raise DataError("this file of the quarantine is damaged", path=path) from error
            if "first_stage" in entry:
                files = entry.get("files") or [""]
                yield Failed(
                    "task",
                    entry["stage"],
                    files[0],
                    None,
                    error=entry.get("error", ""),
                    message=entry.get("message", ""),
                    traceback=entry.get("traceback", ""),
                    rows=entry.get("rows"),
                    place=entry.get("place", ""),
                    task=entry.get("task", ""),
                    file=path,
                )
            else:
                yield Failed(
                    "unreadable",
                    entry.get("stage", ""),
                    entry.get("source", ""),
                    entry.get("position"),
                    message=entry.get("problem", ""),
                    task=entry.get("task", ""),
                    line=entry.get("line"),
                    file=path,
                )
