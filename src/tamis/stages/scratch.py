"""Files between stages, wherever they are kept: on a local disk, at any fsspec address, or in Ray's object store.

A file is written under a name of its own and becomes visible when the driver publishes it. Readers ask for ranges of
bytes; a file is opened once for all the ranges that are wanted of it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tamis.stages.emit import Publish
from tamis.stages.io import paths
from tamis.stages.io.paths import base_name, filesystem, is_local, join, make_directory, parent, renames
from tamis.tasks import Task
from tamis.tasks.storage import decode_task, encode_task, read_task, temporary_beside, write_task, written_bytes

Range = tuple[int, int]
"""The first byte and the number of bytes."""

_AT_ONCE = 32
"""Files on a remote store that are read at the same time."""


def write_file(final: str, rows: int, fill: Callable[[pa.NativeFile], object], staging: str = "") -> Publish:
    """Write a file, ready to be published.

    Args:
        final: The name that it gets when it is published: a local path or an fsspec address.
        rows: How many rows are in it.
        fill: Writes the content.
        staging: An fsspec address where the file waits for its publication. For workers that do not see the directory
            of ``final``: the driver fetches the file from there.
    """
    if is_local(final) and not staging:
        with temporary_beside(final) as temporary:
            with pa.OSFile(temporary, "wb") as sink:
                fill(sink)
            return Publish(temporary, final, rows, written_bytes(temporary))
    buffer = pa.BufferOutputStream()
    fill(buffer)
    content = buffer.getvalue()
    if staging:
        temporary = join(staging, f"{secrets.token_hex(8)}-{base_name(final)}")
    elif renames(final):
        temporary = join(parent(final), f".{base_name(final)}.{secrets.token_hex(8)}.tmp")
    else:
        temporary = final
    make_directory(parent(temporary))
    _put(temporary, content)
    return Publish(temporary, final, rows, content.size)


def place_file(path: str, content: bytes | memoryview) -> None:
    """Write a file whole under its final name, at once: writing the same bytes again changes nothing."""
    if is_local(path):
        with temporary_beside(path) as temporary:
            Path(temporary).write_bytes(content)
            os.replace(temporary, path)
        return
    make_directory(parent(path))
    _put(path, pa.py_buffer(content))


def make_visible(finished: Publish) -> None:
    """Give a file that :func:`write_file` wrote its final name at once: for the driver, which needs no record of it."""
    if finished.temporary == finished.final:
        return
    if is_local(finished.final):
        os.replace(finished.temporary, finished.final)
        return
    fs, temporary = filesystem(finished.temporary)
    fs.mv(temporary, filesystem(finished.final)[1])


def list_files(directory: str) -> list[tuple[str, int]]:
    """The published files of a directory: path and size in bytes."""
    if is_local(directory):
        if not os.path.isdir(directory):
            return []
        with os.scandir(directory) as entries:
            return [(e.path, e.stat().st_size) for e in entries if not e.name.startswith(".") and e.is_file()]
    fs, inner = filesystem(directory)
    fs.invalidate_cache()
    try:
        entries = fs.ls(inner, detail=True)
    except FileNotFoundError:
        return []
    return [
        (join(directory, base_name(entry["name"])), int(entry["size"]))
        for entry in entries
        if entry["type"] == "file" and not base_name(entry["name"]).startswith(".")
    ]


def read_ranges(wanted: Sequence[tuple[str, Sequence[Range]]]) -> Iterator[list[pa.Buffer]]:
    """For each file the ranges that are wanted of it, one file after the other. Each file is opened once.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe_file("/ranges/a", b"abcdef")
    >>> [[bytes(b) for b in some] for some in read_ranges([("memory://ranges/a", [(0, 1), (4, 2)])])]
    [[b'a', b'ef']]
    """
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        if is_local(some[0][0]):
            for path, ranges in some:
                yield _read_local(path, ranges)
        else:
            yield from _read_remote(some)


def _read_local(path: str, ranges: Sequence[Range]) -> list[pa.Buffer]:
    with Path(path).open("rb", buffering=0) as file:
        return [_read_range(file, *one) for one in ranges]


def _read_range(file: Any, start: int, length: int) -> pa.Buffer:
    buffer = bytearray(length)
    view, got = memoryview(buffer), 0
    file.seek(start)
    while got < length:
        count = file.readinto(view[got:])
        if not count:
            raise OSError(f"{file.name}: ends at byte {start + got}, {length - got} bytes are missing")
        got += count
    return pa.py_buffer(buffer)


def _read_remote(wanted: Sequence[tuple[str, Sequence[Range]]]) -> Iterator[list[pa.Buffer]]:
    fs, _ = filesystem(wanted[0][0])
    asked = [(fs._strip_protocol(path), start, start + length) for path, some in wanted for start, length in some]
    paths, starts, ends = ([one[i] for one in asked] for i in range(3))
    found = iter(fs.cat_ranges(paths, starts, ends, on_error="raise"))
    for _, ranges in wanted:
        yield [pa.py_buffer(next(found)) for _ in ranges]


def read_file(path: str) -> pa.Buffer:
    """A whole file: mapped into memory where it is local."""
    if is_local(path):
        with pa.memory_map(path, "rb") as source:
            return source.read_buffer()
    fs, inner = filesystem(path)
    return pa.py_buffer(fs.cat_file(inner))


def save_task(task: Task[Any], final: str, staging: str = "") -> Publish:
    """Write a task to a file, ready to be published."""
    return write_file(final, task.num_items, lambda sink: encode_task(task, sink), staging)


def put_task(task: Task[Any], path: str) -> None:
    """Write a task to a file under a name that nothing else has: there is nothing to publish."""
    if is_local(path):
        os.makedirs(parent(path), exist_ok=True)
        write_task(task, path)
        return
    buffer = pa.BufferOutputStream()
    encode_task(task, buffer)
    _put(path, buffer.getvalue())


def remove_file(path: str) -> None:
    """Remove a file; one that is gone already is fine."""
    with contextlib.suppress(OSError):  # Windows does not remove a mapped file; the folder goes with the run
        paths.remove_file(path)


def _put(path: str, content: pa.Buffer) -> None:
    fs, inner = filesystem(path)
    fs.pipe_file(inner, memoryview(content) if getattr(fs, "takes_buffers", False) else content.to_pybytes())


def touch(path: str) -> None:
    """Make an empty file."""
    if is_local(path):
        Path(path).touch()
    else:
        _put(path, pa.py_buffer(b""))


def exists(path: str) -> bool:
    """Whether there is a file."""
    if is_local(path):
        return os.path.exists(path)
    fs, inner = filesystem(path)
    fs.invalidate_cache()
    return bool(fs.exists(inner))


def load_task(path: str) -> Task[Any]:
    """The task that :func:`save_task` wrote."""
    return read_task(path) if is_local(path) else decode_task(read_file(path))
