"""The kernel that parses JSON lines whose values are strings, numbers, true, false or null, straight into columns.

It is strict: any other line, or an unexpected key, makes it give up on the whole block, which then goes to a general
parser. Numbers are checked and copied as they are written.
"""

from __future__ import annotations

from numpy import int64, uint8, uint64

from tamis.kernels.sources.primitives import (
    at_address,
    byte_mask,
    copy_64,
    helper,
    trailing_zeros,
)
from tamis.kernels.sources.utf8 import is_utf8

__all__ = ["kernel"]

STRING, INTEGER, FLOAT, BOOLEAN = 1, 2, 4, 8
MOST_DIGITS = 18

# What ends a stretch of a string that can be copied as it is: a quote, a backslash, a control character.
_stops = byte_mask((0, 31), (34, 34), (92, 92))
_QUOTE, _BACKSLASH, _COLON, _COMMA, _OPEN, _CLOSE, _NEWLINE = 34, 92, 58, 44, 123, 125, 10


@helper
def after_space(text, at):
    """The next byte that is not a space, tab or carriage return."""
    while text[at] == 32 or text[at] == 9 or text[at] == 13:
        at += 1
    return at


@helper
def hex_digits(text, at):
    """The value of four hexadecimal digits; -1 if they are not digits."""
    value = int64(0)
    for i in range(4):
        byte = int64(text[at + i])
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 97 <= byte | 32 <= 102:
            digit = (byte | 32) - 87
        else:
            return int64(-1)
        value = value * 16 + digit
    return value


@helper
def write_character(out, used, code_point):
    """Write a character as UTF-8; returns how many bytes are used afterwards."""
    if code_point < 0x80:
        out[used] = uint8(code_point)
        return used + 1
    if code_point < 0x800:
        out[used] = uint8(0xC0 | code_point >> 6)
        out[used + 1] = uint8(0x80 | code_point & 63)
        return used + 2
    if code_point < 0x10000:
        out[used] = uint8(0xE0 | code_point >> 12)
        out[used + 1] = uint8(0x80 | code_point >> 6 & 63)
        out[used + 2] = uint8(0x80 | code_point & 63)
        return used + 3
    out[used] = uint8(0xF0 | code_point >> 18)
    out[used + 1] = uint8(0x80 | code_point >> 12 & 63)
    out[used + 2] = uint8(0x80 | code_point >> 6 & 63)
    out[used + 3] = uint8(0x80 | code_point & 63)
    return used + 4


@helper
def unescaped(byte):
    """The character that a backslash and a letter stand for; -1 if they stand for none."""
    if byte == 110:  # n
        return 10
    if byte == _QUOTE or byte == _BACKSLASH or byte == 47:  # noqa: SIM109 - Numba compiles a test for each member either way
        return byte
    if byte == 116:  # t
        return 9
    if byte == 114:  # r
        return 13
    if byte == 98:  # b
        return 8
    if byte == 102:  # f
        return 12
    return int64(-1)


@helper
def copy_character(text, at, out, used):
    """Write the character that is escaped by its number. Returns where the escape ends (-1 if broken), and bytes used.

    A character beyond U+FFFF is escaped as two halves.
    """
    code_point = hex_digits(text, at + 2)
    at += 6
    if 0xD800 <= code_point <= 0xDBFF and text[at] == _BACKSLASH and text[at + 1] == 117:
        low = hex_digits(text, at + 2)
        if not 0xDC00 <= low <= 0xDFFF:
            return int64(-1), used
        code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00)
        at += 6
    elif code_point < 0 or 0xD800 <= code_point <= 0xDFFF:
        return int64(-1), used
    return at, write_character(out, used, code_point)


@helper
def copy_string(text, at, out, used):
    """Copy a string from its opening quote on, unescaped. Returns where it ends (-1 if broken) and the bytes used."""
    while True:
        stops = _stops(text, at)
        copied = at  # up to here, and 64 bytes beyond
        copy_64(out, used, text, at)
        at += 64
        while stops != uint64(0):
            place = at - 64 + trailing_zeros(stops)
            used += place - copied
            if text[place] == _QUOTE:
                return place, used
            if text[place] != _BACKSLASH:
                return int64(-1), used
            escape = int64(text[place + 1])
            if escape == 117:  # u
                copied, used = copy_character(text, place, out, used)
                if copied < 0:
                    return int64(-1), used
            else:
                meant = unescaped(escape)
                if meant < 0:
                    return int64(-1), used
                out[used] = uint8(meant)
                copied = place + 2
                used += 1
            if copied >= at:
                at = copied
                break
            copy_64(out, used, text, copied)
            stops &= ~uint64(0) << uint64(copied - at + 64)
        used += at - copied


@helper
def after_digits(text, at):
    while 48 <= text[at] <= 57:
        at += 1
    return at


@helper
def number_end(text, at):
    """Where a number ends, and its kind; -1 if it is not a number or has too many digits."""
    start = at + 1 if text[at] == 45 else at
    end = after_digits(text, start)
    if end == start or (text[start] == 48 and end > start + 1):
        return int64(-1), INTEGER
    kind = INTEGER
    if end - start > MOST_DIGITS or (start > at and text[start] == 48 and end == start + 1):
        kind = FLOAT  # it may still be one; "-0" is not an integer
    at = end
    is_float = False
    if text[at] == 46:
        end = after_digits(text, at + 1)
        if end == at + 1:
            return int64(-1), INTEGER
        at, is_float = end, True
    if text[at] | 32 == 101:  # e
        start = at + 2 if text[at + 1] == 43 or text[at + 1] == 45 else at + 1
        end = after_digits(text, start)
        if end == start:
            return int64(-1), INTEGER
        at, is_float = end, True
    if is_float:
        return at, FLOAT
    return (at, INTEGER) if kind == INTEGER else (int64(-1), INTEGER)


@helper
def word_end(text, at):
    """Where true, false or null ends; -1 for anything else."""
    if text[at] == 116 and text[at + 1] == 114 and text[at + 2] == 117 and text[at + 3] == 101:
        return at + 4
    if text[at] == 110 and text[at + 1] == 117 and text[at + 2] == 108 and text[at + 3] == 108:
        return at + 4
    if text[at] == 102 and text[at + 1] == 97 and text[at + 2] == 108 and text[at + 3] == 115 and text[at + 4] == 101:
        return at + 5
    return int64(-1)


@helper
def is_key(text, start, keys, key_ends, key):
    """Whether a key is at a place, with its closing quote."""
    begin = key_ends[key - 1] if key > 0 else 0
    length = key_ends[key] - begin
    for i in range(length):
        if text[start + i] != keys[begin + i]:
            return False
    return text[start + length] == _QUOTE


@helper
def find_key(text, start, keys, key_ends, key_count, likely):
    """The number of the key at a place; -1 if it is not one of the keys."""
    if likely < key_count and is_key(text, start, keys, key_ends, likely):
        return likely
    for key in range(key_count):
        if is_key(text, start, keys, key_ends, key):
            return key
    return int64(-1)


def kernel(text, size, first_row, most_rows, keys, key_ends, wanted, key_count, values, used, offsets, validity, kinds):
    """Parse whole lines. Returns the number of rows afterwards; -1 if a line is of another kind.

    Args:
        text: Lines, the last with its newline, and 64 more bytes that may be read.
        keys: The keys, concatenated; ``key_ends`` says where each ends.
        wanted: For each key, whether its values are wanted.
        values: For each key the bytes of its values, with room for those of the whole text.
        used: For each key the bytes of its values so far.
        validity: For each key and row 1, or 0 for null.
        kinds: For each key the kinds of values so far.
    """
    at, row = int64(0), first_row
    while at < size:
        at = after_space(text, at)
        if text[at] == _NEWLINE:
            at += 1
            continue
        if text[at] != _OPEN or row >= most_rows:
            return int64(-1)
        seen, likely = uint64(0), int64(0)
        at = after_space(text, at + 1)
        while text[at] != _CLOSE:
            if text[at] != _QUOTE:
                return int64(-1)
            key = find_key(text, at + 1, keys, key_ends, key_count, likely)
            if key < 0 or seen >> uint64(key) & uint64(1) != uint64(0):
                return int64(-1)
            seen |= uint64(1) << uint64(key)
            likely = key + 1
            at = after_space(text, at + 2 + key_ends[key] - (key_ends[key - 1] if key > 0 else 0))
            if text[at] != _COLON:
                return int64(-1)
            at = after_space(text, at + 1)
            out, start = at_address(values[key]), used[key]
            kind, valid = 0, 1
            if text[at] == _QUOTE:
                at, end = copy_string(text, at + 1, out, start)
                if at < 0:
                    return int64(-1)
                at += 1
                kind = STRING
            else:
                begin = at
                if text[at] == 45 or 48 <= text[at] <= 57:
                    at, kind = number_end(text, at)
                else:
                    at = word_end(text, at)
                    kind = BOOLEAN
                if at < 0:
                    return int64(-1)
                if text[begin] == 110:  # null
                    kind, valid = 0, 0
                end = start
                while begin < at and valid == 1:
                    out[end] = text[begin]
                    end += 1
                    begin += 1
            if wanted[key] != 0:
                if kind == STRING and not is_utf8(out, start, end):
                    return int64(-1)
                used[key] = end
                validity[key * most_rows + row] = uint8(valid)
                kinds[key] |= kind
            at = after_space(text, at)
            if text[at] == _COMMA:
                at = after_space(text, at + 1)
                if text[at] != _QUOTE:
                    return int64(-1)
            elif text[at] != _CLOSE:
                return int64(-1)
        for key in range(key_count):
            if seen >> uint64(key) & uint64(1) == uint64(0):
                validity[key * most_rows + row] = uint8(0)
            offsets[key * (most_rows + 1) + row + 1] = used[key]
        row += 1
        at = after_space(text, at + 1)
        if text[at] != _NEWLINE:
            return int64(-1)
        at += 1
    return row
