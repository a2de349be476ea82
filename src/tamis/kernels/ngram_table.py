"""A table of n-grams with their probabilities and back-off weights, and the scores it gives to sentences.

The probability of a unit after others is that of the longest n-gram in the table that ends with it, times the back-off
weights of the longer contexts (the definition of the ARPA format). Numbers are logarithms to the base 10.

The table is a hash table with linear probing. Narrow entries have one word: 32 bits of the key and two codes of 16
bits, which stand for quantised numbers. Wide entries have two words: the key, and two codes of 32 bits that stand for
any number exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.text_units import LINE_BEGIN, LINE_END, UNKNOWN, settled

__all__ = ["NgramTable", "first_keys", "longer_keys"]

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_LOW: Final = np.uint64(0xFFFFFFFF)
_ROOM: Final = 1.4
"""Entries for each n-gram."""

_MOST_CODES: Final = 1 << 16


def first_keys(units: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The keys of n-grams of one unit."""
    return settled(units + _STEP)


def longer_keys(keys: NDArray[np.uint64], before: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The keys of n-grams, given those of the n-grams without their first units, and these units."""
    return settled(keys + before * _STEP)


@dataclass(frozen=True, eq=False)
class NgramTable:
    """An n-gram model. Made by :meth:`build`.

    Args:
        order: The largest n.
        table: The entries.
        width: The words of an entry: 1 or 2.
        is_closed: Whether with every n-gram the one without its first unit is in the table.
        likely: The logarithms of probabilities that codes stand for; their number is a power of two.
        backoffs: The logarithms of back-off weights; their number is a power of two.
    """

    order: int
    table: NDArray[np.uint64]
    width: int
    is_closed: bool
    likely: NDArray[np.float64]
    backoffs: NDArray[np.float64]

    @classmethod
    def build(
        cls,
        order: int,
        keys: NDArray[np.uint64],
        likely: NDArray[np.float64],
        backoffs: NDArray[np.float64],
        is_closed: bool,
        exact: bool,
    ) -> NgramTable:
        """Put n-grams into a table.

        Args:
            order: The largest n.
            keys: The key of each n-gram, as :func:`first_keys` and :func:`longer_keys` make them.
            likely: The logarithm of the probability of its last unit after the others.
            backoffs: The logarithm of its back-off weight as a context; 0 where it is none.
            is_closed: Whether with every n-gram the one without its first unit is given.
            exact: Whether to keep numbers as they are, which takes twice the memory, or to quantise them to 16 bits.

        >>> units = np.array([LINE_END, UNKNOWN], np.uint64)
        >>> table = NgramTable.build(1, first_keys(units), np.array([-0.5, -1.0]), np.zeros(2), True, exact=True)
        >>> logs, counts, unknown = table.score(np.array([9, LINE_END], np.uint64), np.array([2]))
        >>> logs.tolist(), counts.tolist(), unknown.tolist()
        ([-1.5], [2], [1])
        """
        slots = max(8, int(len(keys) * _ROOM) + 1)
        if slots > int(_LOW):
            raise ValueError(f"{len(keys):,} n-grams are too many for one table")
        most = _MOST_CODES if not exact else len(keys) + 2
        codes, held = _coded(likely, most)
        weight_codes, weights = _coded(backoffs, most)
        homes = (((keys & _LOW) * np.uint64(slots)) >> np.uint64(32)).astype(np.int64)
        order_of = np.lexsort((keys, homes))
        homes, count = homes[order_of], np.arange(len(keys))
        places = np.maximum.accumulate(homes - count) + count if len(keys) else homes
        width = 2 if exact else 1
        table = np.zeros((slots, width), np.uint64)
        last = (codes.astype(np.uint64) << np.uint64(32 if exact else 16) | weight_codes.astype(np.uint64))[order_of]
        keys = keys[order_of]
        entries = np.stack([keys, last], axis=1) if exact else (keys >> np.uint64(32) << np.uint64(32) | last)[:, None]
        inside = places < slots
        table[places[inside]] = entries[inside]
        free = 0
        for entry in entries[~inside]:  # those at the end of the table go on at its beginning
            while table[free, -1]:
                free += 1
            table[free] = entry
        return cls(order, table.reshape(-1), width, is_closed, held, weights)

    def score(
        self, hashes: NDArray[np.uint64], counts: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
        """The logarithm of the probability of each text, its number of units and line ends, and of units not known.

        Args:
            hashes: The units of all texts with marks of the ends of lines, as
                :func:`tamis.kernels.text_units.hash_units` gives them.
            counts: How many each text has.
        """
        logs = np.empty(len(counts), np.float64)
        units, unknown = np.empty(len(counts), np.int64), np.empty(len(counts), np.int64)
        kernel = native.load("ngram_scores")
        if kernel is None:
            self._plain_score(hashes, counts, logs, units, unknown)
            return logs, units, unknown
        kernel(
            *(hashes, counts, len(counts), np.array([LINE_END, LINE_BEGIN, UNKNOWN], np.uint64), self.order),
            *(self.table, len(self.table) // self.width, self.width, int(self.is_closed)),
            *(self.likely, len(self.likely), self.backoffs, len(self.backoffs)),
            *(np.zeros(self.order, np.uint64), np.zeros(2 * self.order + 1), logs, units, unknown),
        )
        return logs, units, unknown

    def look_up(self, key: int) -> tuple[float, float] | None:
        """The probability and the back-off weight of an n-gram as logarithms; ``None`` if it is not in the table."""
        slots = len(self.table) // self.width
        place = ((key & int(_LOW)) * slots) >> 32
        while True:
            entry = int(self.table[self.width * place + self.width - 1])
            if not entry:
                return None
            if self.width == 1 and entry >> 32 == key >> 32:
                return float(self.likely[(entry >> 16) & 0xFFFF]), float(self.backoffs[entry & 0xFFFF])
            if self.width == 2 and int(self.table[2 * place]) == key:
                return float(self.likely[entry >> 32]), float(self.backoffs[entry & int(_LOW)])
            place = place + 1 if place + 1 < slots else 0

    def _plain_score(
        self,
        hashes: NDArray[np.uint64],
        counts: NDArray[np.int64],
        logs: NDArray[np.float64],
        units: NDArray[np.int64],
        unknown: NDArray[np.int64],
    ) -> None:
        """What the kernel does."""
        begin = 0
        for row, count in enumerate(counts.tolist()):
            total, missing = 0.0, 0
            context: list[int] = [LINE_BEGIN]  # the latest unit comes first
            for unit in hashes[begin : begin + count].tolist():
                known = unit
                if self.look_up(_key([unit])) is None:
                    missing += 1
                    known = UNKNOWN
                context = context[: self.order - 1]
                best = 1
                value = self.look_up(_key([known])) or (float(self.likely[0]), 0.0)
                for n in range(2, len(context) + 2):
                    found = self.look_up(_key([known, *context[: n - 1]]))
                    if found is not None:
                        best, value = n, found
                total += value[0]
                for n in range(best, len(context) + 1):
                    total += (self.look_up(_key(context[:n])) or (0.0, 0.0))[1]
                context = [LINE_BEGIN] if known == LINE_END else [known, *context]
            logs[row], units[row], unknown[row] = total, count, missing
            begin += count


def _key(units: list[int]) -> int:
    """The key of an n-gram, given from its last unit to its first."""
    key = first_keys(np.array([units[0]], np.uint64))
    for unit in units[1:]:
        key = longer_keys(key, np.array([unit], np.uint64))
    return int(key[0])


def _coded(values: NDArray[np.float64], most: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Numbers as codes from 1 on, and what codes stand for: 0 for 0.0, others for a number or the mean of near ones."""
    known, codes = np.unique(values, return_inverse=True)
    if len(known) > most - 1:
        ranks = np.empty(len(values), np.int64)
        ranks[np.argsort(values, kind="stable")] = np.arange(len(values))
        bins = ranks * (most - 1) // len(values)
        # Equal numbers come into the same bin: that of the first of them.
        lowest = np.full(len(known), most)
        np.minimum.at(lowest, codes, bins)
        codes = lowest[codes]
        sums = np.bincount(codes, values, most - 1)
        sizes = np.bincount(codes, minlength=most - 1)
        known = sums / np.maximum(sizes, 1)
    held = np.zeros(1 << max(1, len(known).bit_length()))
    held[1 : len(known) + 1] = known
    return codes + 1, held
