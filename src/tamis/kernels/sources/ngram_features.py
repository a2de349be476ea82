"""The kernel that turns the units of texts into sparse vectors. See :mod:`tamis.kernels.ngram_features`."""

from __future__ import annotations

import math

from numpy import float32, float64, int64, uint32, uint64

from tamis.kernels.sources.text_units import settled

__all__ = ["kernel"]

_STEP = uint64(0x9E3779B97F4A7C15)
_LOW = uint64(0xFFFFFFFF)


def kernel(hashes, counts, row_count, longest, bits, table, room, slots, values, ends):
    """Find the n-grams of each text, in the order in which they first occur. Returns how many there are.

    Args:
        hashes, counts: The units of all texts, and how many each text has.
        longest: The largest n.
        bits: Slots have numbers of so many bits.
        table: Memory for the n-grams of a text: ``room`` entries, a power of two.
        slots, values: The slot and the weight of each n-gram.
        ends: Where the n-grams of each text begin, and where the last ones end.
    """
    found = begin = 0
    ends[0] = 0
    down = uint64(64 - bits)
    for row in range(row_count):
        units, first = counts[row], found
        ngrams = 0
        for n in range(1, longest + 1):
            ngrams += max(units - n + 1, 0)
        size = 64
        while size < 2 * ngrams:
            size *= 2
        for i in range(size):
            table[i] = uint64(0)
        for i in range(units):
            key = uint64(0)
            for n in range(1, min(longest, i + 1) + 1):
                key = key * _STEP + hashes[begin + i - n + 1]
                slot = settled(key) >> down
                place = int64((slot * _STEP) >> uint64(32)) & (size - 1)
                # An entry is a slot and, from 1, the number of its n-gram in the text.
                while table[place] != uint64(0) and table[place] >> uint64(32) != slot:
                    place = (place + 1) & (size - 1)
                if table[place] == uint64(0):
                    table[place] = (slot << uint64(32)) | uint64(found - first + 1)
                    slots[found] = uint32(slot)
                    values[found] = float32(1)
                    found += 1
                else:
                    values[first + int64(table[place] & _LOW) - 1] += float32(1)
        for i in range(first, found):
            values[i] = float32(math.sqrt(float64(values[i]) / float64(ngrams)))
        begin += units
        ends[row + 1] = found
    return int64(found)
