"""Where the lines of a block of bytes begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.signatures import PADDING

__all__ = ["line_starts"]

_BYTES_PER_LINE = 256
_FEWEST = 1024


def line_starts(data: bytes | bytearray | memoryview) -> NDArray[np.int64]:
    """The first byte of each line that holds more than spaces, tabs and carriage returns.

    These are the lines that parsers of JSON lines make rows of. A newline ends a line; the last line may lack it.

    Args:
        data: The lines.

    >>> line_starts(b"one\\n \\r\\n\\ntwo").tolist()
    [0, 8]
    """
    content = np.frombuffer(data, np.uint8)
    kernel = native.load("line_starts")
    if kernel is None:
        return _plain(content)
    tail = np.empty(2 * PADDING, np.uint8)
    next_byte = np.zeros(1, np.int64)
    room = len(content) // _BYTES_PER_LINE + _FEWEST
    parts = []
    while True:
        starts = np.empty(room, np.int64)
        count = kernel(content, len(content), int(next_byte[0]), tail, starts, room, next_byte)
        parts.append(starts[:count])
        if next_byte[0] == len(content):
            return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)
        room *= 4


def _plain(content: NDArray[np.uint8]) -> NDArray[np.int64]:
    ends = np.append(np.flatnonzero(content == ord("\n")), len(content))
    starts = np.append(0, ends[:-1] + 1)
    text = np.flatnonzero(~np.isin(content, np.frombuffer(b" \t\r\n", np.uint8)))
    is_blank = np.searchsorted(text, starts) == np.searchsorted(text, ends)
    kept: NDArray[np.int64] = starts[~is_blank]
    return kept
