"""Tasks as files: tables as Arrow IPC, anything else as pickled buffers. Both are read back without a copy."""

from __future__ import annotations

import dataclasses
import os
import pickle
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import xxhash

from tamis.errors import DataError
from tamis.tasks.base import Task
from tamis.tasks.row_names import RowNames
from tamis.tasks.table import TableTask

_TASK = b"tamis.task"
_OF_TABLES = {f.name for f in dataclasses.fields(TableTask)}
_ASSIGNED = ("task_id", "order", "_stage_perf")
_BUFFERS = b"TAMISBUF"
_ALIGNED = 64


def write_task(task: Task[Any], path: str) -> int:
    """Write a task to a local file; return its size in bytes.

    >>> import tempfile
    >>> from tamis.tasks import DocumentBatch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     size = write_task(DocumentBatch({"text": ["a"]}, dataset_name="d"), f"{folder}/t")
    ...     task = read_task(f"{folder}/t")
    >>> task.dataset_name, task.data.column("text").to_pylist()
    ('d', ['a'])
    """
    with pa.OSFile(path, "wb") as sink:
        encode_task(task, sink)
    return written_bytes(path)


def encode_task(task: Task[Any], sink: pa.NativeFile) -> None:
    """Write a task to a file that is open, or to memory."""
    if not isinstance(task, TableTask):
        _write_buffers(task.to_buffers(), sink)
        return
    table, names = task.data, task.names
    # Only the table's visible rows are written, also when it is a slice of something larger.
    table = (table if names is None else names.added_to(table)).unify_dictionaries()
    schema = table.schema.with_metadata({**(task.data.schema.metadata or {}), _TASK: _identity(task)})
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)


def written_bytes(path: str) -> int:
    """The size of a file that was just written; other users may not write to it, whatever the umask allows."""
    status = os.stat(path)
    if status.st_mode & stat.S_IWOTH and os.name == "posix":
        os.chmod(path, stat.S_IMODE(status.st_mode) & ~stat.S_IWOTH)
    return status.st_size


def check_trusted(path: str) -> None:
    """Refuse a file or directory that another user could have written: to unpickle what is in it may run any code.

    It must belong to this user, to root or, for a file, to the owner of its directory, and must not be writable by
    every user.
    """
    if os.name != "posix":
        return
    status = os.stat(path)
    trusted = {os.geteuid(), 0}
    if not stat.S_ISDIR(status.st_mode):
        trusted.add(os.stat(os.path.dirname(path) or ".").st_uid)
    if status.st_uid not in trusted:
        problem = f"this belongs to the user with the id {status.st_uid}"
    elif status.st_mode & stat.S_IWOTH:
        problem = "every user of this machine can write to this"
    else:
        return
    raise DataError(
        f"{problem}, and reading tasks from it could run code of theirs",
        path=path,
        hint="Use a directory of your own that others cannot write to (chmod o-w).",
    )


def read_task(path: str) -> Task[Any]:
    """Read what :func:`write_task` wrote. Tables and arrays stay in the file until they are used (memory-mapped)."""
    check_trusted(path)
    with Path(path).open("rb") as file:
        magic = file.read(len(_BUFFERS))
    if magic == _BUFFERS:
        mapped = np.memmap(path, np.uint8, mode="c")
        return Task.from_buffers(_read_buffers(memoryview(mapped)))  # type: ignore[arg-type]  # arrays are buffers
    with pa.memory_map(path, "rb") as source:
        return decode_task(source.read_buffer())


def decode_task(content: pa.Buffer) -> Task[Any]:
    """The task in the bytes of a file; nothing is copied."""
    if content[: len(_BUFFERS)].to_pybytes() == _BUFFERS:
        return Task.from_buffers(_read_buffers(memoryview(content)))
    with pa.ipc.open_file(content) as reader:
        table = reader.read_all()
    metadata = dict(table.schema.metadata or {})
    kind, *values = pickle.loads(metadata.pop(_TASK))
    table, names = RowNames.taken_from(table.replace_schema_metadata(metadata or None))
    made = TableTask(table, *values[:5])
    task: TableTask = object.__new__(kind)
    task.__dict__.update(made.__dict__)
    task.__dict__.update(*values[5:])
    return task if names is None else task.named(names)


def _write_buffers(buffers: list[Any], sink: pa.NativeFile) -> None:
    """The buffers of a task, each where arrays may start."""
    sizes = [memoryview(buffer).nbytes for buffer in buffers]
    sink.write(_BUFFERS + struct.pack(f"<{1 + len(sizes)}Q", len(sizes), *sizes))
    for buffer in buffers:
        sink.write(b"\0" * (-sink.tell() % _ALIGNED))
        sink.write(buffer)


def _read_buffers(whole: memoryview) -> list[Any]:
    (count,) = struct.unpack_from("<Q", whole, len(_BUFFERS))
    sizes = struct.unpack_from(f"<{count}Q", whole, len(_BUFFERS) + 8)
    at, buffers = len(_BUFFERS) + 8 * (1 + count), []
    for size in sizes:
        at += -at % _ALIGNED
        buffers.append(whole[at : at + size])
        at += size
    return buffers


def pickled(task: Task[Any]) -> bytes:
    """A small task as bytes for another process. A class of the user's script, which that may not know, is included."""
    known = type(task).__module__.startswith("tamis.")
    data: bytes = pickle.dumps(task) if known else cloudpickle.dumps(task)
    return data


def content_id(task: Task[Any]) -> str:
    """An id that follows from what a task holds; another one each time if that cannot be pickled.

    >>> from tamis.tasks import DocumentBatch
    >>> content_id(DocumentBatch({"text": ["a"]})) == content_id(DocumentBatch({"text": ["b"]}))
    False
    """
    content = xxhash.xxh3_128()
    if isinstance(task, TableTask):
        content.update(task.data.schema.serialize())
        for batch in task.data.combine_chunks().to_batches():
            content.update(batch.serialize())
        held = _own_values(task)
    else:
        held = {name: value for name, value in vars(task).items() if name not in _ASSIGNED}
    try:
        content.update(cloudpickle.dumps(held) if held else b"")
    except Exception:  # noqa: BLE001 - locks, connections and the like raise whatever they like
        return os.urandom(16).hex()
    return str(content.hexdigest())


def _identity(task: TableTask) -> bytes:
    identity: bytes = cloudpickle.dumps(
        (type(task), task.dataset_name, task.task_id, task.order, task._metadata, task._stage_perf, _own_values(task))
    )
    return identity


def _own_values(task: TableTask) -> dict[str, Any]:
    """What a batch holds beside its rows, if its class has more fields than :class:`TableTask`."""
    return {name: value for name, value in vars(task).items() if name not in _OF_TABLES}


def format_order(order: tuple[int, ...]) -> str:
    """A task's place as part of a file name; names sort as the tasks do.

    >>> format_order((12, 3)), format_order((-4, 7))
    ('000012-0003', 's04-000007')
    """
    if order and order[0] < 0:  # after a shuffle: the shuffle's number, then the place
        return f"s{-order[0]:02d}-" + format_order(order[1:])
    return "-".join(f"{n:06d}" if i == 0 else f"{n:04d}" for i, n in enumerate(order)) or "000000"


def parse_order(text: str) -> tuple[int, ...]:
    """The reverse of :func:`format_order`.

    >>> parse_order("000012-0003"), parse_order("s04-000007")
    ((12, 3), (-4, 7))
    """
    head, _, rest = text.partition("-")
    if head.startswith("s"):
        return (-int(head[1:]), *parse_order(rest))
    return tuple(int(n) for n in text.split("-"))


@contextmanager
def temporary_beside(final: str) -> Iterator[str]:
    """A private name in the same directory as ``final``; removed if the block raises."""
    directory, name = os.path.split(final)
    os.makedirs(directory or ".", exist_ok=True)
    temporary = os.path.join(directory, f".{name}.{os.urandom(4).hex()}.tmp")
    try:
        yield temporary
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def write_whole(path: str, content: bytes | memoryview) -> None:
    """Write a local file whole or not at all, and its directory if that is not there."""
    with temporary_beside(path) as temporary:
        Path(temporary).write_bytes(content)
        os.replace(temporary, path)
