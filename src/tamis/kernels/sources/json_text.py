"""The kernel that writes rows as JSON lines: it escapes texts; other values are given as JSON."""

from __future__ import annotations

from numpy import uint8, uint64

from tamis.kernels.sources.primitives import (
    PADDING,
    as_bytes,
    as_ints,
    at_address,
    byte_mask,
    copy_64,
    helper,
    trailing_zeros,
)

__all__ = ["kernel"]

_LARGEST_ESCAPE = 6
_QUOTE, _BACKSLASH, _NEWLINE, _CLOSE = 34, 92, 10, 125

# What has to be escaped: a quote, a backslash, a control character.
_escaped = byte_mask((0, 31), (_QUOTE, _QUOTE), (_BACKSLASH, _BACKSLASH))


@helper
def write_escape(out, at, byte):
    """Write a character that has to be escaped; returns the place after it."""
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
def write_text(out, written, text, begin, end, readable, scratch):
    """Write a text in quotes; returns the place after it. ``readable`` bytes of the text's memory may be read."""
    out[written] = _QUOTE
    written += 1
    at = begin
    is_copied = False
    while at < end:
        if not is_copied and at + PADDING > readable:  # the rest is read from a copy, which is followed by more memory
            for i in range(end - at):
                scratch[i] = text[at + i]
            text, is_copied = as_bytes(scratch, -at), True
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
    lines,
    capacity,
    next_row,
):
    """Write rows while there is room. Returns the bytes written, or the room that the first row needs.

    ``validity`` is a byte per row, or no address if no value is null.
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
                lines[written] = heads[head]
                written += 1
                head += 1
            begin, end = as_ints(at_address(begins[column]), 0)[row], as_ints(at_address(ends[column]), 0)[row]
            text = at_address(data[column])
            if validity[column] != 0 and at_address(validity[column])[row] == 0:
                lines[written] = 110
                lines[written + 1] = 117
                lines[written + 2] = 108
                lines[written + 3] = 108
                written += 4
            elif are_text[column] == 0:
                for i in range(begin, end):
                    lines[written] = text[i]
                    written += 1
            else:
                written = write_text(lines, written, text, begin, end, readable[column], scratch)
        lines[written] = _CLOSE
        lines[written + 1] = _NEWLINE
        written += 2
        row += 1
    next_row[0] = row
    return written
