"""The kernel that tests hashes against a Bloom filter and puts them into it, in one pass."""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.hashing import K0, K1, mix
from tamis.kernels.sources.primitives import multiply_high, prefetch

__all__ = ["kernel"]

_AHEAD = 4


def kernel(hashes, count, words, bits, probes, found):
    """Test each hash, then put it in. Returns how many were there before.

    The probes of a hash are ``first + i * step``, scaled to the number of bits (double hashing, see Kirsch and
    Mitzenmacher, "Less Hashing, Same Performance", 2006).

    Args:
        words: The bits of the filter.
        found: Set to 1 for each hash that was there before, also earlier in the same call, and to 0 for the others.
    """
    size, total = uint64(bits), int64(0)
    for at in range(count):
        if at + _AHEAD < count:
            coming = hashes[at + _AHEAD]
            place, step = mix(coming ^ K1, K0), mix(coming ^ K0, K1) | uint64(1)
            for _ in range(probes):
                prefetch(words, int64(multiply_high(place, size) >> uint64(6)))
                place += step
        own = hashes[at]
        place, step = mix(own ^ K1, K0), mix(own ^ K0, K1) | uint64(1)
        missing = uint64(0)
        for _ in range(probes):
            bit = multiply_high(place, size)
            word, mask = int64(bit >> uint64(6)), uint64(1) << (bit & uint64(63))
            missing |= ~words[word] & mask
            words[word] |= mask
            place += step
        found[at] = 1 if missing == uint64(0) else 0
        total += found[at]
    return total
