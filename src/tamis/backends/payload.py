"""How tasks travel between workers: by reference inside a process, as Arrow files between processes."""

from __future__ import annotations

import contextlib
import os
import pickle
from dataclasses import dataclass
from typing import Any

from tamis.tasks import DocumentBatch, Task
from tamis.tasks.storage import pickled, read_task, write_task


@dataclass(slots=True)
class Envelope:
    """A task on its way: what the coordinator knows of it without opening it.

    Args:
        vertex: Where it goes.
        task_id, order: The task's identity and place.
        nbytes: Memory its payload takes.
        weight: How much data it stands for, in bytes.
        rows: Items in it.
        payload: The task itself, or where it is.
        attempt: How often its stage raised before.
        deaths: How often its worker died before.
    """

    vertex: int
    task_id: str
    order: tuple[int, ...]
    nbytes: int
    weight: int
    rows: int
    payload: Any
    attempt: int = 0
    deaths: int = 0


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A task in a file."""

    path: str


def enclose(task: Task[Any], vertex: int) -> Envelope:
    """An envelope around a task in this process."""
    return Envelope(vertex, task.task_id, task.order, task.nbytes, task.weight, task.num_items, task)


def pack(payload: Any, directory: str) -> Any:
    """A form of the payload that can be sent to another process: bytes if small, else a file."""
    if not isinstance(payload, Task):
        return payload
    if isinstance(payload, DocumentBatch) or payload.nbytes > 2**16:
        path = os.path.join(directory, os.urandom(8).hex())
        write_task(payload, path)
        return TaskFile(path)
    return pickled(payload)


def unpack(payload: Any) -> Task[Any]:
    """The task, whatever form it has."""
    if isinstance(payload, Task):
        return payload
    if isinstance(payload, TaskFile):
        return read_task(payload.path)
    task: Task[Any] = pickle.loads(payload)
    return task


def discard(payload: Any) -> None:
    """Free what the payload holds outside of memory. A reader that has it mapped may go on reading."""
    if isinstance(payload, TaskFile):
        with contextlib.suppress(OSError):  # Windows does not remove a mapped file; the folder goes with the run
            os.unlink(payload.path)
