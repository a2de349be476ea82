"""The kernel that finds lines that may need repair: with a sequence of characters, an entity or a misplaced mark.

A pattern is a sequence of sets of characters. All patterns are followed at once: each place of a pattern has a bit, and
a character has a mask of the places where it matches (the "shift-and" method; Baeza-Yates and Gonnet, 1992). Plain
ASCII is skipped 64 bytes at a time.
"""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.primitives import (
    PADDING,
    any_of,
    as_bytes,
    byte_mask,
    helper,
    trailing_zeros,
)
from tamis.kernels.sources.scan import character

__all__ = ["kernel"]

# Control characters but for tabs and newlines, the beginning of an entity, and all that is not ASCII.
_events = byte_mask((0, 8), (0x0B, 0x1F), (0x26, 0x26), (0x7F, 0x7F), (0xC0, 0xFF))
_beyond_ascii = byte_mask((0x80, 0xFF))
_newlines = any_of("\n")
_less_than = any_of("<")

_AUTO = 2
_OUT_OF_ORDER = 255
_LONGEST_ENTITY = 24


@helper
def first_in(mask, text, at, size):
    """Where the first byte of a kind is, from a place on; the end if there is none."""
    while at < size:
        found = mask(text, at)
        if found != uint64(0):
            return min(at + trailing_zeros(found), size)
        at += 64
    return size


@helper
def is_entity(text, at, size):
    """Whether ``&name;``, ``&#12;`` or the like begins at a place."""
    at += 1
    if at < size and text[at] == 35:  # '#'
        at += 1
    length = 0
    while at < size and length <= _LONGEST_ENTITY:
        byte = text[at]
        if byte == 59:  # ';'
            return length > 0
        letter = byte | 32
        if not (97 <= letter <= 122 or 48 <= byte <= 57):
            return False
        length += 1
        at += 1
    return False


@helper
def back(text, at, characters):
    """Where the character that many before a place begins; at most back to the beginning of the line."""
    while characters > 0 and at > 0 and text[at - 1] != 10:
        at -= 1
        while at > 0 and text[at] & 0xC0 == 0x80:
            at -= 1
        characters -= 1
    return at


@helper
def follow(text, at, event, size, kinds, masks, bits, blocks, values, marks):
    """Follow the patterns from a character on, past the event; returns where to continue, and whether one was found."""
    low, high = uint64(0), uint64(0)
    first_low, first_high = bits[0], bits[1]
    if at == 0 or text[at - 1] == 10:
        first_low, first_high = first_low | bits[2], first_high | bits[3]
    order = 0
    rest = event
    while at < size:
        byte = int64(text[at])
        value = 0
        if byte < 0x80:
            code_point, length = byte, 1
        else:
            code_point, length = character(text, at)
            if marks:
                value = int64(values[(int64(blocks[code_point >> 8]) << 8) | (code_point & 255)])
                if value == _OUT_OF_ORDER or (value != 0 and order > value):
                    return at, True
        order = value
        # All characters beyond the first 65,536 have one kind, which matches wherever any of them may.
        kind = int64(kinds[min(code_point, 0x10000)]) * 2
        high = ((high << uint64(1)) | (low >> uint64(63)) | first_high) & masks[kind + 1]
        low = ((low << uint64(1)) | first_low) & masks[kind]
        first_low, first_high = bits[0], bits[1]
        if (low & bits[4]) | (high & bits[5]) != uint64(0):
            return at, True
        at += length
        if byte >= 0x80:
            rest = at  # ASCII is searched again, since it may contain an entity
        elif byte == 10:
            break
        elif at > event and ((low & ~bits[6]) | (high & ~bits[7])) == uint64(0):
            break  # a pattern that has begun is found again from its beginning
    return rest, False


def kernel(
    texts,
    offsets,
    row_count,
    first_row,
    readable,
    kinds,
    masks,
    bits,
    context,
    entities,
    longest_line,
    blocks,
    values,
    marks,
    scratch,
    found,
    room,
    next_row,
):
    """Find lines. Returns how many; ``next_row`` is where to continue once there is more room.

    Args:
        kinds: The kind of each of the first 65,536 characters, and of all others together.
        masks: For each kind two words: the places in patterns where it matches.
        bits: Two words each: places that begin a pattern; those that do so only at the beginning of a line; those that
            end one; those before which the pattern has only ASCII.
        context: How many characters before one that is not ASCII may belong to a pattern.
        entities: 1 if they count, 2 if they count up to the first line with a "<", 0 if not.
        longest_line: In bytes. A text with a longer one, if not all ASCII, is returned as a whole.
        found: Four numbers for each line: row, begin, end (-1 for a whole text), whether a "<" is before the end.
    """
    count = 0
    for row in range(first_row, row_count):
        start = offsets[row]
        size = offsets[row + 1] - start
        text = as_bytes(texts, start)
        if start + size + PADDING > readable:
            text = as_bytes(scratch, 0)
            for i in range(size):
                text[i] = texts[start + i]
            for i in range(size, size + PADDING):
                text[i] = 0
        before = count
        tag = newline = -1
        at = 0
        has_long_line = False
        if size > longest_line:
            begin = 0
            while begin < size and not has_long_line:
                end = min(first_in(_newlines, text, begin, size) + 1, size)
                has_long_line = end - begin > longest_line
                begin = end
            if has_long_line and first_in(_beyond_ascii, text, 0, size) < size:
                if count + 1 > room:
                    next_row[0] = row
                    return before
                found[4 * count], found[4 * count + 1], found[4 * count + 2], found[4 * count + 3] = row, 0, -1, 0
                count += 1
                continue
        while at < size:
            events = _events(text, at)
            if size - at < 64:
                events &= (uint64(1) << uint64(size - at)) - uint64(1)
            if events == uint64(0):
                at += 64
                continue
            event = at + trailing_zeros(events)
            byte = text[event]
            at = event + 1
            hit = False
            if byte == 38:
                if entities != 0 and is_entity(text, event, size):
                    if entities == _AUTO and tag < 0:
                        tag = first_in(_less_than, text, 0, size)
                    hit = entities != _AUTO or tag > event
                    if hit and entities == _AUTO and tag < size:
                        if newline < event:
                            newline = first_in(_newlines, text, event, size)
                        hit = has_long_line or tag > newline  # a long line is cut: the "<" may be in another piece
            elif byte < 128:
                kind = int64(kinds[byte]) * 2
                hit = (masks[kind] & bits[0] & bits[4]) | (masks[kind + 1] & bits[1] & bits[5]) != uint64(0)
            else:
                at, hit = follow(
                    text, back(text, event, context), event, size, kinds, masks, bits, blocks, values, marks
                )
            if hit:
                if count + 1 > room:
                    next_row[0] = row
                    return before
                begin = event
                while begin > 0 and text[begin - 1] != 10:
                    begin -= 1
                at = min(first_in(_newlines, text, event, size) + 1, size)
                if entities == _AUTO and tag < 0:
                    tag = first_in(_less_than, text, 0, size)
                found[4 * count], found[4 * count + 1] = row, begin
                found[4 * count + 2] = -1 if has_long_line else at
                found[4 * count + 3] = 1 if entities == _AUTO and tag < at else 0
                count += 1
                if has_long_line:
                    break
    next_row[0] = row_count
    return count
