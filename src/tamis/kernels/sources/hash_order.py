"""The kernel that sorts hashes by 33 of their bits, in three passes over digits of eleven bits."""

from __future__ import annotations

from numpy import uint64

from tamis.kernels.sources.primitives import helper

__all__ = ["kernel"]

_DIGITS = 2048
_MASK = uint64(_DIGITS - 1)


@helper
def move(count, shift, ends, digits, keys, places, new_keys, new_places):
    """Put keys and places in the order of one digit; those with equal digits stay in their order."""
    total = 0
    for digit in range(digits, digits + _DIGITS):
        here = ends[digit]
        ends[digit] = total
        total += here
    for i in range(count):
        key = keys[i]
        digit = digits + int((key >> shift) & _MASK)
        at = ends[digit]
        ends[digit] = at + 1
        new_keys[at] = key
        new_places[at] = places[i]
    return 0


def kernel(hashes, count, skipped, ends, keys, places, other_keys, other_places):
    """Write the places of the hashes in ascending order of 33 bits into ``other_places``. Returns 0.

    Args:
        skipped: How many of the upper bits do not count: they are equal in all hashes.
        ends: Three times 2048 zeros.
        keys, places, other_keys: Room for as many as there are hashes.
    """
    for i in range(count):
        key = hashes[i] << uint64(skipped)
        keys[i] = key
        places[i] = i
        ends[int((key >> uint64(31)) & _MASK)] += 1
        ends[_DIGITS + int((key >> uint64(42)) & _MASK)] += 1
        ends[2 * _DIGITS + int(key >> uint64(53))] += 1
    move(count, uint64(31), ends, 0, keys, places, other_keys, other_places)
    move(count, uint64(42), ends, _DIGITS, other_keys, other_places, keys, places)
    move(count, uint64(53), ends, 2 * _DIGITS, keys, places, other_keys, other_places)
    return 0
