"""Which stage a worker is running, and how far it is: a few bytes in a file, which the driver reads.

They feed the progress display and, after a crash, name the stage that was running.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Protocol

__all__ = ["Marker", "RunningStage"]

_NOTE = struct.Struct("<qq")  # the vertex plus one, so that zero means none yet; the bytes


class Marker(Protocol):
    """Where a worker notes how far it is."""

    def note(self, vertex: int, processed: int = 0) -> None:
        """Note which vertex is running now, and how many bytes of the task's input are processed."""


class RunningStage:
    """The vertex that a worker is running, and the bytes of its input that are processed.

    They are in a file that is mapped into memory: noting them costs no system call.

    Args:
        path: The file. It is made here and removed with the run's scratch directory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     RunningStage(f"{folder}/worker").note(3, processed=100)
    ...     RunningStage.read(f"{folder}/worker"), RunningStage.read(f"{folder}/another")
    ...     RunningStage.processed_bytes(f"{folder}/worker"), RunningStage.processed_bytes(f"{folder}/another")
    (3, None)
    (100, 0)
    """

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(file, _NOTE.size)
            self._bytes = mmap.mmap(file, _NOTE.size)
        finally:
            os.close(file)

    @staticmethod
    def path(scratch: str, worker: str) -> str:
        """The file of a worker, in the run's scratch directory."""
        return os.path.join(scratch, "running", worker)

    def note(self, vertex: int, processed: int = 0) -> None:
        """Note which vertex is running now, and how many bytes of the task's input are processed."""
        _NOTE.pack_into(self._bytes, 0, vertex + 1, processed)

    @staticmethod
    def read(path: str) -> int | None:
        """The vertex that was noted last; ``None`` if there is none."""
        vertex, _ = _read(path)
        return vertex - 1 if vertex else None

    @staticmethod
    def processed_bytes(path: str) -> int:
        """The bytes that were noted last; 0 if there are none."""
        return _read(path)[1]


def _read(path: str) -> tuple[int, int]:
    try:
        content = Path(path).read_bytes()
    except OSError:
        return 0, 0
    if len(content) != _NOTE.size:
        return 0, 0
    vertex, processed = _NOTE.unpack(content)
    return vertex, processed
