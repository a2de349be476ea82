"""The kernel that hashes the units of texts: words, tokens or characters. See :mod:`tamis.kernels.text_units`."""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.operations import JOINED, LEAD, LETTER, SPACE
from tamis.kernels.sources.primitives import helper

__all__ = ["kernel", "settled"]

_START = uint64(0xCBF29CE484222325)
_FACTOR = uint64(0x100000001B3)
_ONE = uint64(0xBF58476D1CE4E5B9)
_OTHER = uint64(0x94D049BB133111EB)


@helper
def settled(value):
    """The last step of SplitMix64: every bit depends on every bit."""
    value = (value ^ (value >> uint64(30))) * _ONE
    value = (value ^ (value >> uint64(27))) * _OTHER
    return value ^ (value >> uint64(31))


@helper
def follows(texts, at, end):
    """Whether there is a byte that continues a character."""
    return at < end and texts[at] & 0xC0 == 0x80


@helper
def character_bytes(lead):
    """How many bytes a character has at most, given its first one."""
    if lead < 0xC0:
        return 1
    return 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


def kernel(texts, offsets, row_count, kinds, folded, marks, line_end, hashes, counts):
    """Hash the units of each text, in order, one text after another. Returns how many there are.

    Args:
        kinds: The kind of each byte.
        folded: The byte that each byte is hashed as.
        marks: 1 to put a mark after each line that has units.
        line_end: The mark.
        hashes: Room for a unit for each byte and a mark for each text.
        counts: The number of units and marks of each text.
    """
    total = 0
    for row in range(row_count):
        at, end = offsets[row], offsets[row + 1]
        before = line = total
        while at < end:
            byte = texts[at]
            kind = kinds[int64(byte)]
            if kind == SPACE:
                if marks == 1 and byte == 10 and total > line:
                    hashes[total] = line_end[0]
                    total += 1
                    line = total
                at += 1
                continue
            value = _START
            if kind == LETTER or (kind == JOINED and follows(texts, at + 1, end)):
                while at < end:
                    byte = texts[at]
                    kind = kinds[int64(byte)]
                    if kind == LETTER:
                        value = (value ^ uint64(folded[int64(byte)])) * _FACTOR
                        at += 1
                    elif kind == JOINED and follows(texts, at + 1, end):
                        value = (value ^ uint64(byte)) * _FACTOR
                        value = (value ^ uint64(texts[at + 1])) * _FACTOR
                        at += 2
                    else:
                        break
            else:
                last = at + (character_bytes(byte) if kind in (LEAD, JOINED) else 1)
                value = (value ^ uint64(byte)) * _FACTOR
                at += 1
                while at < last and follows(texts, at, end):
                    value = (value ^ uint64(texts[at])) * _FACTOR
                    at += 1
            hashes[total] = settled(value)
            total += 1
        if marks == 1 and total > line:
            hashes[total] = line_end[0]
            total += 1
        counts[row] = total - before
    return int64(total)
