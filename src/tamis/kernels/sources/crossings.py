"""Where tokens may cross from one character to the next, to cut long pieces of text at the other places.

No token of the vocabulary reaches over most pairs of Chinese, Japanese or Thai characters. There, what is left and what
is right of the boundary becomes tokens independently. So long pieces are cut into short ones, which have been seen
before. What is known of a boundary is the bytes of both characters that one token has: a bit for each such pair.
"""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.hashing import K0, K1
from tamis.kernels.sources.primitives import helper
from tamis.kernels.sources.scan import character_size

__all__ = ["part_end"]


@helper
def crossing_bit(left, right, shift):
    """The number of the bit for bytes on the left and on the right of a boundary, each as one number."""
    return (((left << uint64(32)) + right) * K0 ^ (right * K1)) * K1 >> uint64(shift)


@helper
def may_cross(text, begin, at, end, crossings, shift):
    """Whether a token may reach over the boundary between two characters."""
    left = uint64(0)
    for back in range(1, 5):
        if at - back < begin:
            return False
        byte = uint64(text[at - back])
        left |= byte << uint64(8 * back - 8)
        right = uint64(0)
        for more in range(min(character_size(text[at]), end - at)):
            right = right << uint64(8) | uint64(text[at + more])
            bit = crossing_bit(left, right, shift)
            if (crossings[bit >> uint64(6)] >> (bit & uint64(63))) & uint64(1) != uint64(0):
                return True
        if byte & uint64(0xC0) != uint64(0x80):
            return False
    return False


@helper
def part_end(text, begin, end, crossings, shift):
    """The end of the first part of a piece that no token reaches beyond.

    Args:
        crossings: A bit for each pair of bytes on the left and on the right of a boundary that a token reaches over.
        shift: 64 minus the exponent of the number of bits.
    """
    at = begin + character_size(text[begin])
    while at < end:
        # Between two ASCII characters a token may always cross.
        if (text[at] >= 0x80 or text[at - 1] >= 0x80) and not may_cross(text, begin, at, end, crossings, shift):
            return at
        at += character_size(text[at])
    return int64(end)
