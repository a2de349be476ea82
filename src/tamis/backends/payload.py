"""How tasks travel between workers: by reference within a process, as Arrow files or stored objects beyond it."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis.plan import END, Plan
from tamis.runs.directory import kept_output, output_payload
from tamis.stages.io.paths import join
from tamis.stages.scratch import exists, load_task, put_task, remove_file
from tamis.tasks import FileGroup, Task
from tamis.tasks.storage import pickled

if TYPE_CHECKING:
    from tamis.backends.isolation import Isolation


@dataclass(slots=True)
class Envelope:
    """What the coordinator knows of a task without reading its data.

    Args:
        vertex: The vertex it is addressed to.
        task_id, order: The task's identity and place.
        nbytes: Memory that its payload takes.
        weight: How much data it stands for, in bytes.
        rows: Its number of rows; ``None`` if it is not known yet, since the task stands for files.
        payload: The task itself, or where it is.
        attempt: How often its stage raised before.
        deaths: How often its worker died before.
        home: The machine that holds the payload, if that matters.
        maker: The assignment that made it, if the payload can get lost.
        isolation: Set on the first task of a batch whose failing items are to be found.
    """

    vertex: int
    task_id: str
    order: tuple[int, ...]
    nbytes: int
    weight: int
    rows: int | None
    payload: Any
    attempt: int = 0
    deaths: int = 0
    home: str = ""
    maker: Maker | None = None
    isolation: Isolation | None = None


@dataclass(eq=False, slots=True)
class Maker:
    """The assignment that made a task: enough to make it again."""

    group: int
    batch: list[Envelope]


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A task in a file."""

    path: str


@dataclass(frozen=True, slots=True)
class ObjectPart:
    """A task in an object of a cluster's store, which may hold several."""

    ref: Any
    index: int


class _Gone:
    """A payload that was freed or lost."""

    def __repr__(self) -> str:
        return "GONE"


GONE = _Gone()


def enclose(task: Task[Any], vertex: int, nbytes: int | None = None) -> Envelope:
    """An envelope for a task in this process. ``nbytes`` is the task's size, if it was measured already."""
    nbytes = task.nbytes if nbytes is None else nbytes
    weight = nbytes if type(task).weight is Task.weight else task.weight
    rows = None if isinstance(task, FileGroup) else task.num_items
    return Envelope(vertex, task.task_id, task.order, nbytes, weight, rows, task)


def output_entry(envelope: Envelope, plan: Plan) -> dict[str, Any]:
    """What the ledger says of a task that a stage made, and where its data is, if it is kept outside of memory."""
    entry = {
        "to": "" if envelope.vertex == END else plan.vertices[envelope.vertex].name,
        "id": envelope.task_id,
        "order": envelope.order,
        "rows": envelope.rows,
        "weight": envelope.weight,
    }
    if envelope.vertex == END or isinstance(envelope.payload, bytes):
        entry.update(kept_output(envelope.payload))
    elif isinstance(envelope.payload, TaskFile):
        entry["path"] = envelope.payload.path
    return entry


def output_from(entry: dict[str, Any], vertex: int, maker: Maker) -> Envelope:
    """The task that an entry of the ledger is about. Its payload is :data:`GONE` if the data was not kept."""
    payload: Any = GONE
    if vertex == END or "task" in entry:
        payload = output_payload(entry)
    elif "path" in entry and exists(entry["path"]):
        payload = TaskFile(entry["path"])
    order = tuple(entry["order"])
    return Envelope(vertex, entry["id"], order, 0, entry["weight"], entry["rows"], payload, maker=maker)


def encode_payload(payload: Any, directory: str, nbytes: int | None = None) -> Any:
    """A form of the payload that can be sent to another process: bytes if small, else a file.

    Args:
        payload: The payload of an envelope.
        directory: Where files go.
        nbytes: The size of the task, if it was measured already.
    """
    if not isinstance(payload, Task):
        return payload
    if payload.has_rows or (payload.nbytes if nbytes is None else nbytes) > 2**16:
        path = join(directory, os.urandom(8).hex())
        put_task(payload, path)
        return TaskFile(path)
    return pickled(payload)


def decode_payload(payload: Any) -> Task[Any]:
    """The task, whatever form its payload has."""
    if isinstance(payload, Task):
        return payload
    if isinstance(payload, TaskFile):
        return load_task(payload.path)
    task: Task[Any] = pickle.loads(payload)
    return task


def release_payload(payload: Any) -> Any:
    """Free what the payload holds outside of memory; return the payload that remains.

    A process that has the file mapped can still read it.
    """
    if isinstance(payload, TaskFile):
        remove_file(payload.path)
        return GONE
    return GONE if isinstance(payload, ObjectPart) else payload
