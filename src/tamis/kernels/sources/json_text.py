"""The kernel that writes rows as JSON lines: texts are escaped on the way, other values come as JSON already."""

from __future__ import annotations

from numba import types
from numpy import uint8, uint64

from tamis.kernels.sources.primitives import (
    BYTES,
    INTS,
    PADDING,
    as_ints,
    at_address,
    byte_mask,
    copy_64,
    helper,
    trailing_zeros,
)

__all__ = ["SIGNATURE", "kernel"]

SIGNATURE = types.int64(
    *(types.int64, types.int64),  # the first row, how many rows there are
    *(types.int64, BYTES, INTS, BYTES),  # how many columns, what is before values, where that ends, which are text
    *(INTS, INTS, INTS, INTS, INTS),  # for each column: addresses of bytes, begins, ends, validity; bytes there are
    *(BYTES, BYTES, types.int64, INTS),  # scratch, the lines, room for them, the row that comes next
)

_LARGEST_ESCAPE = 6
_QUOTE, _BACKSLASH, _NEWLINE, _CLOSE = 34, 92, 10, 125

# What has to be escaped: a quote, a backslash, a control character.
_escaped = byte_mask((0, 31), (_QUOTE, _QUOTE), (_BACKSLASH, _BACKSLASH))


@helper
def write_escape(out, at, byte):
    """Write a character that has to be escaped; gives the place behind it."""
    out[at] = _BACKSLASH
    if byte == _QUOTE or byte == _BACKSLASH:  # noqa: SIM109 - Numba compiles a test for each member either way
        short = byte
    elif byte == _NEWLINE:
        short = uint8(110)  # n
    elif byte == 9:
        short = uint8(116)  # t
    elif byte == 13:
        short = uint8(114)  # r
    elif byte == 8:
        short = uint8(98)  # b
    elif byte == 12:
        short = uint8(102)  # f
    else:
        out[at + 1] = 117  # u
        out[at + 2] = 48
        out[at + 3] = 48
        out[at + 4] = 48 + (byte >> 4)
        low = byte & 15
        out[at + 5] = 48 + low if low < 10 else 87 + low
        return at + 6
    out[at + 1] = short
    return at + 2


@helper
def write_text(out, written, text, begin, end):
    """Write a text in quotes; gives the place behind it."""
    out[written] = _QUOTE
    written += 1
    at = begin
    while at < end:
        stops = _escaped(text, at)
        if end - at < 64:
            stops &= (uint64(1) << uint64(end - at)) - uint64(1)
        copied = at
        copy_64(out, written, text, at)
        while stops != uint64(0):
            place = at + trailing_zeros(stops)
            stops &= stops - uint64(1)
            written = write_escape(out, written + place - copied, text[place])
            copied = place + 1
            copy_64(out, written, text, copied)
        at += 64
        written += min(at, end) - copied
    out[written] = _QUOTE
    return written + 1


@helper
def most_bytes(row, column_count, head_ends, are_text, begins, ends):
    """How long the line of a row can become."""
    most = head_ends[column_count - 1] + 2 + 4 * column_count
    for column in range(column_count):
        size = as_ints(at_address(ends[column]), 0)[row] - as_ints(at_address(begins[column]), 0)[row]
        most += size * _LARGEST_ESCAPE if are_text[column] != 0 else size
    return most


def kernel(
    first_row,
    row_count,
    column_count,
    heads,
    head_ends,
    are_text,
    data,
    begins,
    ends,
    validity,
    readable,
    scratch,
    out,
    capacity,
    next_row,
):
    """Write rows as long as there is room. Gives the bytes written; where not even one has room, the room it needs.

    ``validity`` is a byte per row, or no address where all values are there.
    """
    written = 0
    row = first_row
    while row < row_count:
        most = most_bytes(row, column_count, head_ends, are_text, begins, ends) + 2 * PADDING
        if written + most > capacity:
            if written == 0:
                written = most
            break
        head = 0
        for column in range(column_count):
            while head < head_ends[column]:
                out[written] = heads[head]
                written += 1
                head += 1
            begin, end = as_ints(at_address(begins[column]), 0)[row], as_ints(at_address(ends[column]), 0)[row]
            text = at_address(data[column])
            if validity[column] != 0 and at_address(validity[column])[row] == 0:
                out[written] = 110
                out[written + 1] = 117
                out[written + 2] = 108
                out[written + 3] = 108
                written += 4
            elif are_text[column] == 0:
                for i in range(begin, end):
                    out[written] = text[i]
                    written += 1
            elif end + PADDING <= readable[column]:
                written = write_text(out, written, text, begin, end)
            else:
                for i in range(end - begin):
                    scratch[i] = text[begin + i]
                written = write_text(out, written, scratch, 0, end - begin)
        out[written] = _CLOSE
        out[written + 1] = _NEWLINE
        written += 2
        row += 1
    next_row[0] = row
    return written
