"""Which stage a worker is running: a few bytes that outlive the worker, so that a crash can be traced to its stage."""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

__all__ = ["RunningStage"]

_VERTEX = struct.Struct("<q")


class RunningStage:
    """The vertex that a worker is running, in a file that is mapped into memory: noting it costs no system call.

    Args:
        path: The file. It is made here and removed with the run's scratch directory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     RunningStage(f"{folder}/worker").note(3)
    ...     RunningStage.read(f"{folder}/worker"), RunningStage.read(f"{folder}/another")
    (3, None)
    """

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            os.ftruncate(file, _VERTEX.size)
            self._bytes = mmap.mmap(file, _VERTEX.size)
        finally:
            os.close(file)

    @staticmethod
    def path(scratch: str, worker: str) -> str:
        """The file of a worker, in the run's scratch directory."""
        return os.path.join(scratch, "running", worker)

    def note(self, vertex: int) -> None:
        """Say which vertex is running now."""
        _VERTEX.pack_into(self._bytes, 0, vertex + 1)  # zero: none yet

    @staticmethod
    def read(path: str) -> int | None:
        """The vertex that was noted last; ``None`` if there is none."""
        try:
            content = Path(path).read_bytes()
        except OSError:
            return None
        return _VERTEX.unpack(content)[0] - 1 if len(content) == _VERTEX.size and any(content) else None
