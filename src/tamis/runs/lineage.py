"""Which tasks of a run read a row, and which output files were made of them: read from the ledger, line by line."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tamis.runs.ledger import Ledger
from tamis.tasks.base import digest

__all__ = ["InputFile", "MadeFiles", "files_made_of", "input_files", "tasks_with"]


@dataclass
class InputFile:
    """A file that a run has read, or was about to read.

    Args:
        path: The file, as in the names of its rows.
        size: Its size in bytes; -1 if it was not known.
        version: What changes when the file changes.
        source: The name of the stage that listed it.
        tasks: The ids of the tasks it is in: several if it was cut into ranges of bytes, in their order.
    """

    path: str
    size: int
    version: str
    source: str
    tasks: list[str] = field(default_factory=list)

    @property
    def task_ids(self) -> list[str]:
        """The ids of its tasks as lines about finished work name them."""
        return [digest(content, "", self.source) for content in self.tasks]

    def task_at(self, byte: int) -> str | None:
        """The id of the task that reads a row which starts at a byte; ``None`` if the ledger does not tell.

        A file that was cut into ranges was cut into equal ones. Whether that is so follows from the ids of the tasks.
        """
        if len(self.tasks) == 1:
            return self.task_ids[0]
        edges = [number * self.size // len(self.tasks) for number in range(len(self.tasks) + 1)]
        for content, known, (start, stop) in zip(self.tasks, self.task_ids, itertools.pairwise(edges), strict=True):
            if start <= byte < stop and content == digest((self.path, start, stop, self.size, self.version)):
                return known
        return None


def input_files(run_dir: str) -> Iterator[InputFile]:
    """The input files of a run, one at a time, in the order of their listing; a later start may repeat some."""
    held: dict[str, list[InputFile]] = {}  # the files of the latest task of each source: ranges of it may follow
    for line in Ledger.read(os.path.join(run_dir, "ledger")):
        if "fed" not in line:
            continue
        source = line["fed"]
        for task in line["tasks"]:
            if "files" in task:
                yield from held.get(source, ())
                held[source] = [
                    InputFile(f["path"], f["size"], f["version"], source, [task["id"]]) for f in task["files"]
                ]
            elif len(held.get(source, ())) == 1:
                held[source][0].tasks.append(task["id"])
    yield from itertools.chain.from_iterable(held.values())


def tasks_with(file: InputFile, position: int, *, is_byte: bool) -> set[str]:
    """The ids of the tasks that may have read the row at a position of a file."""
    # A row that starts where one range ends may have been read with either.
    exact = {file.task_at(byte) for byte in (position, position - 1)} - {None} if is_byte else set()
    return {task for task in exact if task is not None} or set(file.task_ids)


@dataclass
class MadeFiles:
    """What became of some tasks.

    Args:
        files: The files made of them, and of what was made of them: ``path``, ``rows``, ``bytes``.
        is_finished: Whether a line of the ledger says that one of the tasks is done.
        is_removed: Whether what was made of them was removed by a later start, because the input has changed.
        is_set_aside: Whether one of them, or of what was made of them, was given up.
    """

    files: list[dict[str, Any]] = field(default_factory=list)
    is_finished: bool = False
    is_removed: bool = False
    is_set_aside: bool = False


def files_made_of(run_dir: str, tasks: set[str] | None) -> MadeFiles:
    """The files that were made of some tasks, in one pass: what is made of a task is recorded after the task.

    Args:
        run_dir: The run's directory.
        tasks: The ids of the tasks; ``None`` for all tasks of the run.
    """
    own = os.path.abspath(run_dir) + os.sep
    known = set(tasks or ())
    found: dict[str, dict[str, Any]] = {}
    by_key: dict[str, list[str]] = {}
    made = MadeFiles()
    for line in Ledger.read(os.path.join(run_dir, "ledger")):
        for key in line.get("removed", ()):
            made.is_removed |= key in by_key
            for path in by_key.pop(key, ()):
                found.pop(path, None)
        if "key" not in line or not (tasks is None or known.intersection(line["tasks"])):
            continue
        made.is_set_aside = made.is_set_aside or bool(line.get("set_aside"))
        known.update(entry["id"] for entry in line.get("outputs", ()) if entry["to"] and tasks is not None)
        files = [file for file in line.get("files", ()) if not file["path"].startswith(own)]
        by_key[line["key"]] = [file["path"] for file in files]
        found.update({file["path"]: file for file in files})
    made.files = list(found.values())
    made.is_finished = bool(by_key)
    made.is_removed &= not by_key
    return made
