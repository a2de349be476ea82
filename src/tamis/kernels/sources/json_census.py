"""The kernel that counts what JSON lines hold without parsing them: keys, strings, nulls, lists.

Every quote that is not escaped opens or closes a string, in turn; a string is a key when a colon follows.
"""

from __future__ import annotations

from numba import types
from numpy import int64, uint64

from tamis.kernels.sources.primitives import BYTES, INTS, any_of, as_bytes, count_ones, helper, trailing_zeros

__all__ = ["SIGNATURE", "kernel"]

SIGNATURE = types.int64(BYTES, types.int64, BYTES, INTS, types.int64, BYTES, INTS)

KEYS, NULLS, STRINGS, LISTS, BRACKETS, LONE_SURROGATES = range(6)
TAIL_BYTES = 256

_quotes, _backslashes, _brackets, _newlines = any_of('"'), any_of("\\"), any_of("["), any_of("\n")
_small_u, _any_d, _high = any_of("u"), any_of("dD"), any_of("89abAB")
_BACKSLASH, _COLON, _NULL, _BRACKET, _QUOTE = 0x5C, 0x3A, 0x6E, 0x5B, 0x22


@helper
def is_escaped(data, at):
    """Whether an odd number of backslashes comes before a byte."""
    run = at - 1
    while run >= 0 and data[run] == _BACKSLASH:
        run -= 1
    return (at - 1 - run) & 1 == 1


@helper
def after_space(data, size, at):
    """The next byte that is no space; the size if there is none."""
    while at < size and (data[at] == 32 or data[at] == 9 or data[at] == 13):
        at += 1
    return at


@helper
def is_named(data, start, end, names, name_ends, name_count):
    """Whether a string is one of the names."""
    begin = 0
    for i in range(name_count):
        length = name_ends[i] - begin
        if length == end - start:
            same = True
            for k in range(length):
                if data[start + k] != names[begin + k]:
                    same = False
                    break
            if same:
                return True
        begin = name_ends[i]
    return False


@helper
def has_escapes(data, start, end):
    """Whether a string has a backslash in it."""
    at = start
    while at < end and data[at] != _BACKSLASH:
        at += 1
    return at < end


@helper
def is_whole_pair(data, size, at):
    r"""Whether the second half of a pair of surrogates follows the first, ``\ud83d``, which begins at a byte."""
    if at + 12 > size or data[at + 6] != _BACKSLASH or data[at + 7] != 117 or data[at + 8] | 32 != 100:
        return False
    third = data[at + 9] | 32
    return 99 <= third <= 102  # c to f


def kernel(data, size, names, name_ends, name_count, tail, counts):
    """Count. Gives 1; 0 if the quotes of a line do not come in pairs, or if it cannot be told which keys are named so.

    Args:
        names: If there are any, only these keys count, and only strings that are their values.
        tail: Room for the last bytes, behind which it is safe to read.
        counts: The results.
    """
    for i in range(6):
        counts[i] = 0
    tail_start = max(size - 128, 0) & ~63
    for i in range(TAIL_BYTES):
        tail[i] = data[tail_start + i] if tail_start + i < size else 32
    padded = as_bytes(tail, -tail_start)
    opening = int64(-1)
    inside = uint64(0)  # all ones while a string goes on from the block before
    for block in range((size + 63) >> 6):
        at = block << 6
        text = padded if at >= tail_start else data
        quotes = _quotes(text, at)
        backslashes = _backslashes(text, at)
        if backslashes != uint64(0) or (at > 0 and data[at - 1] == _BACKSLASH):
            # A quote right behind a backslash may be escaped.
            behind = (backslashes << uint64(1)) | (uint64(1) if at > 0 and data[at - 1] == _BACKSLASH else uint64(0))
            suspects = quotes & behind
            while suspects != uint64(0):
                bit = suspects & (~suspects + uint64(1))
                if is_escaped(data, at + trailing_zeros(bit)):
                    quotes &= ~bit
                suspects ^= bit
            halves = backslashes & _small_u(text, at + 1) & _any_d(text, at + 2) & _high(text, at + 3)
            while halves != uint64(0):
                place = at + trailing_zeros(halves)
                halves &= halves - uint64(1)
                if not is_escaped(data, place) and not is_whole_pair(data, size, place):
                    counts[LONE_SURROGATES] += 1
        # Bit by bit, whether an odd number of quotes came up to there.
        strings = quotes
        for shift in (1, 2, 4, 8, 16, 32):
            strings ^= strings << uint64(shift)
        strings ^= inside
        inside = ~uint64(0) if strings >> uint64(63) != uint64(0) else uint64(0)
        if _newlines(text, at) & strings != uint64(0):
            return 0  # no string goes over the end of a line
        counts[BRACKETS] += count_ones(_brackets(text, at) & ~strings)
        while quotes != uint64(0):
            place = at + trailing_zeros(quotes)
            quotes &= quotes - uint64(1)
            if opening < 0:
                opening = place
                continue
            follows = after_space(data, size, place + 1)
            if follows < size and data[follows] == _COLON:
                if name_count == 0 or is_named(data, opening + 1, place, names, name_ends, name_count):
                    counts[KEYS] += 1
                    value = after_space(data, size, follows + 1)
                    if value < size:
                        byte = data[value]
                        counts[NULLS] += 1 if byte == _NULL else 0
                        counts[LISTS] += 1 if byte == _BRACKET else 0
                        counts[STRINGS] += 1 if name_count > 0 and byte == _QUOTE else 0
                elif has_escapes(data, opening + 1, place):
                    return 0  # it may be one of the names after all, written in another way
            elif name_count == 0:
                counts[STRINGS] += 1
            opening = -1
    return 1 if opening < 0 else 0
