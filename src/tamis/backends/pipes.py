"""Messages between processes of one machine, through pipes."""

from __future__ import annotations

import ctypes
import signal
import struct
import sys
from typing import IO

__all__ = ["die_with_parent", "receive", "send"]

_LENGTH = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1


def send(pipe: IO[bytes], message: bytes) -> None:
    """Write one message to a pipe."""
    pipe.write(_LENGTH.pack(len(message)))
    pipe.write(message)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes | None:
    """Read one message from a pipe; ``None`` when the other side is gone."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    message = pipe.read(length)
    return message if len(message) == length else None


def die_with_parent() -> None:
    """On Linux the kernel ends this process with its parent, even if a stage keeps all threads from running."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
