"""The kernel that sorts hashes by some of their bits, so that those that agree in them are neighbours."""

from __future__ import annotations

from numpy import int32, uint64

from tamis.kernels.sources.primitives import helper

__all__ = ["kernel", "spread"]

_DIGIT_BITS = 11
_DIGITS = 1 << _DIGIT_BITS
_FIRST = uint64(0x9E3779B97F4A7C15)
_SECOND = uint64(0xBF58476D1CE4E5B9)


@helper
def spread(bits):
    """A number whose bits all depend on all bits of another; different ones for different ones."""
    mixed = (bits ^ (bits >> uint64(32))) * _FIRST
    mixed = (mixed ^ (mixed >> uint64(29))) * _SECOND
    return mixed ^ (mixed >> uint64(32))


@helper
def digit_of(value, mask, shift):
    return int((spread(value & mask) >> uint64(shift)) & uint64(_DIGITS - 1))


def kernel(hashes, count, mask, passes, ends, sorted_hashes, places, other_hashes, other_places):
    """Write the hashes and their places in an order in which those that agree in the bits of a mask come together.

    The order is that of the upper ``11 * passes`` bits of what :func:`spread` makes of these bits. Returns 0.

    Args:
        mask: The bits, in an array because a number may not have 64.
        ends: ``2048 * passes`` zeros.
        sorted_hashes, places: The result, after an even number of passes; after an odd one, the other two have it.
        other_hashes, other_places: Room for as many as there are hashes.
    """
    bits = uint64(mask[0])
    for i in range(count):
        mixed = spread(hashes[i] & bits)
        for number in range(passes):
            shift = uint64(64 - _DIGIT_BITS * (passes - number))
            ends[number * _DIGITS + int((mixed >> shift) & uint64(_DIGITS - 1))] += 1
        sorted_hashes[i] = hashes[i]
        places[i] = int32(i)
    for number in range(passes):
        total = 0
        for digit in range(number * _DIGITS, (number + 1) * _DIGITS):
            here = ends[digit]
            ends[digit] = total
            total += here
        shift = 64 - _DIGIT_BITS * (passes - number)
        if number % 2 == 0:
            move(count, bits, shift, ends, number * _DIGITS, sorted_hashes, places, other_hashes, other_places)
        else:
            move(count, bits, shift, ends, number * _DIGITS, other_hashes, other_places, sorted_hashes, places)
    return 0


@helper
def move(count, mask, shift, ends, digits, hashes, places, new_hashes, new_places):
    for i in range(count):
        value = hashes[i]
        digit = digits + digit_of(value, mask, shift)
        at = ends[digit]
        ends[digit] = at + 1
        new_hashes[at] = value
        new_places[at] = places[i]
    return 0
