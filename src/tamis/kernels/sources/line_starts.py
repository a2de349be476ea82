"""The kernel that finds the beginnings of lines that hold more than white space."""

from __future__ import annotations

from numpy import uint64

from tamis.kernels.sources.primitives import PADDING, any_of, as_bytes, trailing_zeros

__all__ = ["kernel"]

_newlines = any_of("\n")
_blanks = any_of(" \t\r\n")


def kernel(data, size, first, tail, starts, room, next_byte):
    """Find the starts of lines while there is room. Returns how many.

    Args:
        first: Where to start: a byte at which a line begins.
        tail: Room for a copy of the last bytes, beyond which it is safe to read.
        starts: The results.
        next_byte: Where to continue once there is more room; the size of the data at the end.
    """
    tail_start = max(size - PADDING, first)
    for i in range(2 * PADDING):
        tail[i] = data[tail_start + i] if tail_start + i < size else 10
    padded = as_bytes(tail, -tail_start)
    count = 0
    start, has_text = first, False
    at = first
    while at < size:
        text = padded if at + 64 > size else data
        newlines = _newlines(text, at)
        if newlines == uint64(0) and has_text:  # as in most of a long line
            at += 64
            continue
        others = ~_blanks(text, at)
        while newlines != uint64(0):
            place = trailing_zeros(newlines)
            below = (uint64(1) << uint64(place)) - uint64(1)
            if has_text or others & below != uint64(0):
                if count == room:
                    next_byte[0] = start
                    return count
                starts[count] = start
                count += 1
            others &= ~below
            newlines &= newlines - uint64(1)
            start, has_text = at + place + 1, False
        has_text = has_text or others != uint64(0)
        at += 64
    if has_text:
        if count == room:
            next_byte[0] = start
            return count
        starts[count] = start
        count += 1
    next_byte[0] = size
    return count
