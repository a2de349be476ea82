"""A Bloom filter for hashes: which of them were seen before, in a fixed amount of memory."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native

__all__ = ["BloomFilter"]

_K0: Final = 0x9E3779B97F4A7C15
_K1: Final = 0xD6E8FEB86659FD93
_WORD: Final = 2**64 - 1


class BloomFilter:
    """A set of 64-bit hashes that may take a new hash for one that it has, with a known probability.

    It has ``-log(rate) / log(2)**2`` bits for each hash: 29 with the rate 1e-6, so 3.6 GB for a thousand million.

    Args:
        capacity: How many different hashes it will be given.
        false_positive_rate: With what probability it takes a new hash for one that it has, once it is full. Before,
            the probability is lower.

    >>> seen = BloomFilter(1000)
    >>> seen.add(np.array([3, 5, 3], np.uint64)).tolist(), seen.add(np.array([5, 6], np.uint64)).tolist()
    ([False, False, True], [True, False])
    >>> BloomFilter.size_of(1_000_000)
    3594400
    """

    def __init__(self, capacity: int, false_positive_rate: float = 1e-6) -> None:
        self._words = np.zeros(self.size_of(capacity, false_positive_rate) // 8, np.uint64)
        self._probes = max(1, round(-math.log2(false_positive_rate)))

    @staticmethod
    def size_of(capacity: int, false_positive_rate: float = 1e-6) -> int:
        """The memory that a filter takes, in bytes.

        Args:
            capacity: How many different hashes it will be given.
            false_positive_rate: The probability of taking a new hash for one that it has.
        """
        if capacity < 0:
            raise ValueError(f"capacity={capacity}: must be at least 0")
        if not 0 < false_positive_rate < 1:
            raise ValueError(f"false_positive_rate={false_positive_rate}: must be more than 0 and less than 1")
        bits = math.ceil(capacity * -math.log(false_positive_rate) / math.log(2) ** 2)
        return 8 * max(1, -(-bits // 64))

    @property
    def nbytes(self) -> int:
        """The memory that the filter takes, in bytes."""
        return self._words.nbytes

    def add(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Put hashes in, one after the other; says of each whether it was there before."""
        found = np.zeros(len(hashes), np.uint8)
        kernel = native.load("bloom")
        if kernel is not None:
            hashes = np.ascontiguousarray(hashes)
            kernel(hashes, len(hashes), self._words, 64 * len(self._words), self._probes, found)
        else:
            found[:] = [self._add(own) for own in hashes.tolist()]
        return found.view(np.bool_)

    def _add(self, own: int) -> bool:
        """What the kernel does with one hash."""
        place, step = _mix(own ^ _K1, _K0), _mix(own ^ _K0, _K1) | 1
        was_there = True
        for _ in range(self._probes):
            bit = place * 64 * len(self._words) >> 64
            mask = np.uint64(1 << (bit & 63))
            was_there &= bool(self._words[bit >> 6] & mask)
            self._words[bit >> 6] |= mask
            place = (place + step) & _WORD
        return was_there


def _mix(one: int, other: int) -> int:
    """Both halves of a product, folded into one word."""
    product = one * other
    return (product & _WORD) ^ (product >> 64)
