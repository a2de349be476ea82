"""The lines and paragraphs of a text: what they begin and end with, and which occurred before."""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.measures import (
    BULLET_LINES,
    ELLIPSIS_LINES,
    ENDED_LINES,
    ENDS_SENTENCE,
    IS_BULLET,
    LINE_CHARACTERS,
    LINES,
    NEWLINES,
    PARAGRAPH_CHARACTERS,
    PARAGRAPHS,
    REPEATED_LINE_CHARACTERS,
    SHORT_LINE_CHARACTERS,
    SHORT_LINES,
    UNIQUE_LINE_CHARACTERS,
    UNIQUE_LINES,
    UNIQUE_PARAGRAPH_CHARACTERS,
    UNIQUE_PARAGRAPHS,
    UNMARKED_LINES,
)
from tamis.kernels.sources.hashing import FULL, piece_hash, rank
from tamis.kernels.sources.primitives import helper, leading_zeros, trailing_zeros
from tamis.kernels.sources.scan import character, flags_of

__all__ = ["find_lines", "find_paragraphs", "table_size"]

_DOT, _OPEN, _CLOSE, _SQUARE_OPEN, _SQUARE_CLOSE = 46, 40, 41, 91, 93


@helper
def table_size(entries):
    """A power of two that is at least twice the number of entries, and 64 minus its exponent."""
    size, shift = 64, 58
    while size < 2 * entries:
        size *= 2
        shift -= 1
    return size, shift


@helper
def is_new(table, size, shift, value):
    """Put a hash into a table; returns whether it is new."""
    value |= uint64(1)  # zero stands for an empty place
    place = int64(value >> uint64(shift))
    while table[place] != uint64(0) and table[place] != value:
        place = (place + 1) & (size - 1)
    new = table[place] == uint64(0)
    table[place] = value
    return new


@helper
def first_not_space(spaces, start, end):
    """The first byte of a line that is not white space; its end if there is none."""
    word = start >> 6
    others = ~spaces[word] & (FULL << uint64(start & 63))
    while others == uint64(0):
        word += 1
        if word << 6 >= end:
            return end
        others = ~spaces[word]
    return min((word << 6) + trailing_zeros(others), end)


@helper
def after_last_not_space(spaces, end):
    """The position after the last byte before ``end`` that is not white space, which must exist."""
    word = (end - 1) >> 6
    others = ~spaces[word] & (FULL >> uint64(63 - ((end - 1) & 63)))
    while others == uint64(0):
        word -= 1
        others = ~spaces[word]
    return (word << 6) + 64 - leading_zeros(others)


@helper
def is_read_more(text, at):
    """Whether the nine bytes at a place are "read more", in upper or lower case."""
    return (
        text[at] | 32 == 114  # r
        and text[at + 1] | 32 == 101  # e
        and text[at + 2] | 32 == 97  # a
        and text[at + 3] | 32 == 100  # d
        and text[at + 4] == 32
        and text[at + 5] | 32 == 109  # m
        and text[at + 6] | 32 == 111  # o
        and text[at + 7] | 32 == 114  # r
        and text[at + 8] | 32 == 101  # e
    )


@helper
def ends_in_ellipsis(text, start, end):
    """Whether a stripped line ends in "...", "…", "[...]", "(...)", "[…]", "-»", "read more" or "read more.."."""
    length, last = end - start, text[end - 1]
    if last == _DOT:
        if length < 3 or text[end - 2] != _DOT:
            return False
        return text[end - 3] == _DOT or (length >= 11 and is_read_more(text, end - 11))
    if last == _SQUARE_CLOSE or last == _CLOSE:  # noqa: SIM109 - Numba compiles a test for each member either way
        if length < 5:
            return False
        opening = _SQUARE_OPEN if last == _SQUARE_CLOSE else _OPEN
        if text[end - 5] != opening:
            return False
        if text[end - 2] == _DOT and text[end - 3] == _DOT and text[end - 4] == _DOT:
            return True
        return last == _SQUARE_CLOSE and text[end - 4] == 0xE2 and text[end - 3] == 0x80 and text[end - 2] == 0xA6
    if last == 0xA6:
        return length >= 3 and text[end - 3] == 0xE2 and text[end - 2] == 0x80
    if last == 0xBB:
        return length >= 3 and text[end - 3] == 45 and text[end - 2] == 0xC2
    return last | 32 == 101 and length >= 9 and is_read_more(text, end - 9)


@helper
def find_lines(text, size, is_ascii, blocks, flags, spaces, continued, newlines, continued_before, counts, table):
    """Count the lines that hold more than white space."""
    places, shift = table_size(counts[NEWLINES] + 1)
    for place in range(places):
        table[place] = uint64(0)
    lines = bullets = ellipses = unmarked = ended = short = unique = characters = unique_characters = 0
    words = (size + 63) >> 6
    start, word = 0, 0
    ends = newlines[0] if words > 0 else uint64(0)
    while start <= size:
        while ends == uint64(0) and word + 1 < words:
            word += 1
            ends = newlines[word]
        end = size
        if ends != uint64(0):
            end = (word << 6) + trailing_zeros(ends)
            ends &= ends - uint64(1)
        first = first_not_space(spaces, start, end) if start < end else end
        if first < end:
            last = after_last_not_space(spaces, end)
            lines += 1
            if text[first] >= 0x80:
                code_point, _ = character(text, first)
                bullets += (flags_of(blocks, flags, code_point) // IS_BULLET) & 1
            mark = int64(text[last - 1])
            if mark < 0x80:
                # . ? ! " '
                is_marked = mark == 46 or mark == 63 or mark == 33 or mark == 34 or mark == 39
                unmarked += 0 if is_marked else 1
                ended += (flags_of(blocks, flags, mark) // ENDS_SENTENCE) & 1
            else:
                unmarked += 1
                at = last - 2
                while text[at] & 0xC0 == 0x80:
                    at -= 1
                code_point, _ = character(text, at)
                ended += (flags_of(blocks, flags, code_point) // ENDS_SENTENCE) & 1
            ellipses += 1 if ends_in_ellipsis(text, first, last) else 0
            length = end - start
            if not is_ascii:
                length -= rank(continued, continued_before, end) - rank(continued, continued_before, start)
            characters += length
            short += 1 if length <= SHORT_LINE_CHARACTERS else 0
            if is_new(table, places, shift, piece_hash(text, start, end - start)):
                unique += 1
                unique_characters += length
        start = end + 1
    counts[LINES] = lines
    counts[LINE_CHARACTERS] = characters
    counts[UNIQUE_LINES] = unique
    counts[UNIQUE_LINE_CHARACTERS] = unique_characters
    counts[REPEATED_LINE_CHARACTERS] = characters - unique_characters
    counts[BULLET_LINES] = bullets
    counts[ELLIPSIS_LINES] = ellipses
    counts[UNMARKED_LINES] = unmarked
    counts[ENDED_LINES] = ended
    counts[SHORT_LINES] = short


@helper
def find_paragraphs(text, size, is_ascii, continued, newlines, continued_before, counts, table):
    """Count the paragraphs: the parts between pairs of newlines, which may be empty."""
    places, shift = table_size(counts[NEWLINES] + 1)
    for place in range(places):
        table[place] = uint64(0)
    paragraphs = unique = characters = unique_characters = 0
    words = (size + 63) >> 6
    start, word = 0, 0
    ends = newlines[0] if words > 0 else uint64(0)
    is_last = False
    while not is_last:
        end = -1
        while end < 0:
            while ends == uint64(0) and word + 1 < words:
                word += 1
                ends = newlines[word]
            if ends == uint64(0):
                end = size
                is_last = True
            else:
                at = (word << 6) + trailing_zeros(ends)
                ends &= ends - uint64(1)
                if at >= start and at + 1 < size and text[at + 1] == 10:
                    end = at
        length = end - start
        if not is_ascii:
            length -= rank(continued, continued_before, end) - rank(continued, continued_before, start)
        paragraphs += 1
        characters += length
        if is_new(table, places, shift, piece_hash(text, start, end - start)):
            unique += 1
            unique_characters += length
        start = end + 2
    counts[PARAGRAPHS] = paragraphs
    counts[PARAGRAPH_CHARACTERS] = characters
    counts[UNIQUE_PARAGRAPHS] = unique
    counts[UNIQUE_PARAGRAPH_CHARACTERS] = unique_characters
