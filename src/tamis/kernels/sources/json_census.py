"""The kernel that counts keys, strings, nulls and lists of JSON lines without parsing them.

Quotes that are not escaped open and close strings, in turn; a string is a key if a colon follows.
"""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.hashing import K0
from tamis.kernels.sources.primitives import PADDING, any_of, as_bytes, count_ones, helper, trailing_zeros

__all__ = ["kernel"]

KEYS, NULLS, STRINGS, LISTS, BRACKETS, LONE_SURROGATES = range(6)

_quotes, _backslashes, _brackets, _newlines = any_of('"'), any_of("\\"), any_of("["), any_of("\n")
_opens, _closes = any_of("[{"), any_of("]}")
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
    """The next byte that is not a space; the size if there is none."""
    while at < size and (data[at] == 32 or data[at] == 9 or data[at] == 13):
        at += 1
    return at


@helper
def is_named(data, start, end, names, name_ends, name_count):
    """Whether a string is one of the names, which are in ascending order."""
    low, high = 0, name_count
    while low < high:
        middle = (low + high) >> 1
        begin = name_ends[middle - 1] if middle > 0 else 0
        order = compared(data, start, end, names, begin, name_ends[middle])
        if order == 0:
            return True
        if order > 0:
            low = middle + 1
        else:
            high = middle
    return False


@helper
def compared(data, start, end, names, begin, name_end):
    """Less than 0 if a string comes before a name, more if it comes after it, 0 if they are equal."""
    size, name_size = end - start, name_end - begin
    for i in range(min(size, name_size)):
        difference = int64(data[start + i]) - int64(names[begin + i])
        if difference != 0:
            return difference
    return size - name_size


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


@helper
def is_deeper(opens, closes, level, most_levels):
    """Whether the lists and objects in 64 bytes are nested deeper than a level."""
    both = opens | closes
    while both != uint64(0):
        bit = both & (~both + uint64(1))
        both ^= bit
        level += 1 if opens & bit != uint64(0) else -1
        if level > most_levels:
            return True
    return False


@helper
def mark_key(data, start, end, seen):
    """Set the bit of a key among 65,536; the number of bits set is roughly the number of different keys."""
    value = uint64(end - start)
    for i in range(start, end):
        value = (value ^ uint64(data[i])) * K0
    place = int64(value >> uint64(48))
    seen[place >> 6] |= uint64(1) << uint64(place & 63)


def kernel(data, size, names, name_ends, name_count, most_levels, tail, counts, seen):
    """Count. Returns 1, or 0 if it cannot: quotes without a partner, too deep nesting, escaped keys that may match.

    Args:
        names: If given, only these keys count, and only strings that are their values. In ascending order.
        most_levels: The deepest nesting that is allowed.
        tail: Room for a copy of the last bytes, beyond which it is safe to read.
        counts: The results.
        seen: Bits for all keys, including those of other names.
    """
    for i in range(6):
        counts[i] = 0
    tail_start = max(size - PADDING, 0) & ~63
    for i in range(2 * PADDING):
        tail[i] = data[tail_start + i] if tail_start + i < size else 32
    padded = as_bytes(tail, -tail_start)
    opening = int64(-1)
    inside = uint64(0)  # all ones while a string continues from the block before
    level = 0  # of nesting
    for block in range((size + 63) >> 6):
        at = block << 6
        text = padded if at >= tail_start else data
        quotes = _quotes(text, at)
        backslashes = _backslashes(text, at)
        if backslashes != uint64(0) or (at > 0 and data[at - 1] == _BACKSLASH):
            # A quote right after a backslash may be escaped.
            after = (backslashes << uint64(1)) | (uint64(1) if at > 0 and data[at - 1] == _BACKSLASH else uint64(0))
            suspects = quotes & after
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
        # For each bit, whether the number of quotes up to it is odd.
        strings = quotes
        for shift in (1, 2, 4, 8, 16, 32):
            strings ^= strings << uint64(shift)
        strings ^= inside
        inside = ~uint64(0) if strings >> uint64(63) != uint64(0) else uint64(0)
        if _newlines(text, at) & strings != uint64(0):
            return 0  # no string continues on the next line
        counts[BRACKETS] += count_ones(_brackets(text, at) & ~strings)
        opens, closes = _opens(text, at) & ~strings, _closes(text, at) & ~strings
        if level + count_ones(opens) > most_levels and is_deeper(opens, closes, level, most_levels):
            return 0
        level += count_ones(opens) - count_ones(closes)
        while quotes != uint64(0):
            place = at + trailing_zeros(quotes)
            quotes &= quotes - uint64(1)
            if opening < 0:
                opening = place
                continue
            follows = after_space(data, size, place + 1)
            if follows < size and data[follows] == _COLON:
                mark_key(data, opening + 1, place, seen)
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
