"""All pairs of 64-bit hashes that differ in few bits, without comparing all with all.

Hashes are cut into blocks of bits. If two hashes differ in at most ``d`` bits and there are ``d + k`` blocks, they
agree in at least ``k`` of these. So for each choice of ``k`` blocks the hashes are sorted by their bits, and only
neighbours are compared. This is multi-index hashing (Norouzi, Punjani and Fleet: Fast Search in Hamming Space with
Multi-Index Hashing, 2012) with tables for several blocks at a time (Manku, Jain and Das Sarma: Detecting
Near-Duplicates for Web Crawling, 2007). The answer is exact. Where very many hashes agree in the chosen blocks, they
are treated in the same way by their other bits.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native

__all__ = ["BYTES_PER_HASH", "Choice", "Choices", "check_distance", "hamming_distances", "similar_pairs", "spread_bits"]

Hashes = NDArray[np.uint64]
Places = NDArray[np.int32]
Pairs = tuple[Places, Places, Places]

_MOST_BITS: Final = 16
"""The largest distance: with more, most hashes would have to be compared with most others."""

_ALL: Final = 2**64 - 1
_SORTING: Final = 20
"""How many comparisons take as long as sorting one hash."""

_DIGIT_BITS: Final = 11
_ROOM: Final = 2**16
_LARGE_ROOM: Final = 2**12
_MOST_IN_RUN: Final = 4096

BYTES_PER_HASH: Final = 32
"""Memory that a hash takes while it is compared: itself, and twice itself and its place."""


@dataclass(frozen=True)
class Choice:
    """Some blocks of bits in which pairs agree.

    Args:
        blocks: The bits of each block.
        chosen: The blocks chosen, ascending.
        bits: How many bits of hashes there are in all blocks.
    """

    blocks: tuple[int, ...]
    chosen: tuple[int, ...]

    @property
    def mask(self) -> int:
        """The bits of the chosen blocks."""
        return functools.reduce(int.__or__, (self.blocks[number] for number in self.chosen), 0)

    def is_of(self, differences: Hashes) -> NDArray[np.bool_]:
        """Which pairs belong to this choice, given the bits in which they differ: those that agree in no block before.

        >>> Choice((1, 2, 4), (0, 2)).is_of(np.array([0, 2, 8, 1], np.uint64)).tolist()
        [False, True, False, False]
        """
        last = max(self.chosen, default=-1)
        belongs = np.ones(len(differences), np.bool_)
        for number, block in enumerate(self.blocks[: last + 1]):
            belongs &= ((differences & np.uint64(block)) == 0) == (number in self.chosen)
        return belongs

    def pairs(self, hashes: Hashes, max_distance: int) -> Iterator[Pairs]:
        """The pairs of this choice: two places and the number of bits that differ, some pairs at a time.

        Args:
            hashes: The hashes, no two of them equal.
            max_distance: How many bits may differ.
        """
        yield from _pairs(np.ascontiguousarray(hashes, np.uint64), self, max_distance, _ALL)


@dataclass(frozen=True)
class Choices:
    """All choices of blocks that together find every pair.

    Args:
        all: The choices.
        cost: About how many comparisons they take.
    """

    all: tuple[Choice, ...]
    cost: float

    @classmethod
    def of(cls, count: int, max_distance: int, free: int = _ALL) -> Choices:
        """The choices that take the least time.

        Args:
            count: How many hashes there are.
            max_distance: How many bits may differ.
            free: The bits that may differ at all.

        >>> [(len(some.all), len(some.all[0].blocks)) for some in (Choices.of(10**4, 4), Choices.of(10**7, 4))]
        [(5, 5), (15, 6)]
        """
        bits = free.bit_count()
        best, least = (0, 0), count * count / 2.0
        for together in range(1, 7):
            blocks = max_distance + together
            if blocks > bits:
                break
            choices = math.comb(blocks, together)
            cost = choices * count * (_SORTING + count / 2.0 ** (1 + bits // blocks * together))
            if cost < least:
                best, least = (blocks, together), cost
        if best == (0, 0):
            return cls((Choice((), ()),), least)
        cut = _cut(free, best[0])
        return cls(tuple(Choice(cut, chosen) for chosen in itertools.combinations(range(best[0]), best[1])), least)


def _cut(free: int, count: int) -> tuple[int, ...]:
    """Bits in so many blocks of about the same size."""
    places = [place for place in range(64) if free >> place & 1]
    edges = [number * len(places) // count for number in range(count + 1)]
    return tuple(sum(1 << place for place in places[a:b]) for a, b in itertools.pairwise(edges))


def similar_pairs(hashes: Hashes, max_distance: int, threads: int = 1) -> Pairs:
    """All pairs of hashes that differ in few bits: their places, the smaller one first, and how many bits; sorted.

    Args:
        hashes: The hashes. Of equal ones, all pairs are given.
        max_distance: How many bits may differ, 0 to 16.
        threads: How many threads to use; each needs 32 bytes per hash.

    >>> left, right, bits = similar_pairs(np.array([7, 2**63, 6, 2**63 + 7], np.uint64), 1)
    >>> list(zip(left.tolist(), right.tolist(), bits.tolist()))
    [(0, 2, 1), (0, 3, 1)]
    """
    check_distance(max_distance)
    hashes = np.ascontiguousarray(hashes, np.uint64)
    choices = Choices.of(len(hashes), max_distance).all

    def found(choice: Choice) -> list[Pairs]:
        return list(choice.pairs(hashes, max_distance))

    with ThreadPoolExecutor(threads) as pool:
        parts = list(itertools.chain.from_iterable(pool.map(found, choices)))
    parts.append((np.zeros(0, np.int32),) * 3)
    one, other, bits = (np.concatenate(column) for column in zip(*parts, strict=True))
    left, right = np.minimum(one, other), np.maximum(one, other)
    order = np.lexsort((right, left))
    return left[order], right[order], bits[order]


def check_distance(max_distance: int) -> None:
    """Raise ``ValueError`` for a distance that is not supported."""
    if not 0 <= max_distance <= _MOST_BITS:
        raise ValueError(f"max_distance={max_distance}: must be from 0 to {_MOST_BITS} bits")


def hamming_distances(one: Hashes, other: Hashes) -> NDArray[np.uint8]:
    """In how many bits hashes differ, row by row.

    >>> hamming_distances(np.array([7], np.uint64), np.array([0], np.uint64)).tolist()
    [3]
    """
    differences = np.ascontiguousarray(one ^ other)
    ones = _ones()[differences.view(np.uint8)].reshape(len(differences), 8)
    found: NDArray[np.uint8] = ones.sum(axis=1, dtype=np.uint8)
    return found


@functools.cache
def _ones() -> NDArray[np.uint8]:
    return np.array([value.bit_count() for value in range(256)], np.uint8)


def spread_bits(bits: Hashes) -> Hashes:
    """Numbers whose bits all depend on all bits of others; different ones for different ones.

    >>> len(np.unique(spread_bits(np.arange(1000, dtype=np.uint64)) >> np.uint64(48))) > 980
    True
    """
    mixed = (bits ^ (bits >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed ^ (mixed >> np.uint64(32))


# -- one choice of blocks --------------------------------------------------------------------------------------------


def _pairs(hashes: Hashes, choice: Choice, max_distance: int, free: int) -> Iterator[Pairs]:
    """The pairs of one choice among hashes that agree in all bits that are not free."""
    if len(hashes) < 2:
        return
    passes = max(1, min(round(len(hashes).bit_length() / _DIGIT_BITS), -(-choice.mask.bit_count() // _DIGIT_BITS)))
    in_order, places = _ordered(hashes, choice.mask, passes)
    is_all = not choice.chosen
    most = len(hashes) if is_all else _MOST_IN_RUN
    for pairs, runs in _compared(in_order, places, choice, max_distance, passes, most):
        if len(pairs[0]):
            yield pairs
        for begin, end in runs:
            yield from _of_long_run(in_order[begin:end], places[begin:end], choice, max_distance, free)


def _of_long_run(hashes: Hashes, places: Places, choice: Choice, max_distance: int, free: int) -> Iterator[Pairs]:
    """The pairs of a long run: found by the bits that were not chosen."""
    keys, which = np.unique(hashes & np.uint64(choice.mask), return_inverse=True)  # a run may have several
    inner_free = free & ~choice.mask
    for number in range(len(keys)):
        chosen = np.flatnonzero(which == number) if len(keys) > 1 else np.arange(len(hashes))
        some, of_some = hashes[chosen], places[chosen]
        for inner in Choices.of(len(some), max_distance, inner_free).all:
            for left, right, bits in _pairs(some, inner, max_distance, inner_free):
                belongs = np.flatnonzero(choice.is_of(some[left] ^ some[right]))
                if len(belongs):
                    yield of_some[left[belongs]], of_some[right[belongs]], bits[belongs]


def _ordered(hashes: Hashes, mask: int, passes: int) -> tuple[Hashes, Places]:
    kernel = native.load("hamming_order")
    if kernel is None:
        order = np.argsort(_keys(hashes, mask, passes), kind="stable").astype(np.int32)
        return hashes[order], order
    count = len(hashes)
    in_order, places = [np.empty(count, np.uint64) for _ in range(2)], [np.empty(count, np.int32) for _ in range(2)]
    ends = np.zeros(passes << _DIGIT_BITS, np.int64)
    bits = np.array([mask], np.uint64)
    kernel(hashes, count, bits, passes, ends, in_order[0], places[0], in_order[1], places[1])
    return in_order[passes % 2], places[passes % 2]


def _keys(hashes: Hashes, mask: int, passes: int) -> Hashes:
    return spread_bits(hashes & np.uint64(mask)) >> np.uint64(64 - _DIGIT_BITS * passes)


def _compared(
    hashes: Hashes, places: Places, choice: Choice, max_distance: int, passes: int, most: int
) -> Iterator[tuple[Pairs, list[tuple[int, int]]]]:
    """The pairs in runs of up to ``most`` hashes, and the longer runs."""
    kernel = native.load("hamming_pairs")
    if kernel is None:
        yield from _plain_compared(hashes, places, choice, max_distance, passes, most)
        return
    count, state = len(hashes), np.zeros(4, np.int64)
    blocks, mask = np.array(choice.blocks, np.uint64), np.array([choice.mask], np.uint64)
    chosen = sum(1 << number for number in choice.chosen)
    pairs = np.empty((3, _ROOM), np.int32)
    runs = np.empty((2, _LARGE_ROOM), np.int64)
    while state[0] < count:
        found = kernel(
            *(hashes, places, count, mask, passes * _DIGIT_BITS, blocks, len(blocks), chosen, len(choice.chosen)),
            *(max_distance, most, state, *pairs, _ROOM, *runs, _LARGE_ROOM),
        )
        long = runs[:, : state[3]].T.tolist()
        yield tuple(pairs[:, :found].copy()), [(begin, end) for begin, end in long]  # type: ignore[misc]  # three


def _plain_compared(
    hashes: Hashes, places: Places, choice: Choice, max_distance: int, passes: int, most: int
) -> Iterator[tuple[Pairs, list[tuple[int, int]]]]:
    """What the kernel does: each hash with the next one of its run, the one after that, and so on."""
    keys = _keys(hashes, choice.mask, passes)
    begins = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    lengths = np.diff(begins, append=len(keys))
    long = lengths > most
    yield (
        (*(np.zeros(0, np.int32),) * 3,),
        [  # type: ignore[misc]  # three
            (begin, begin + length) for begin, length in zip(begins[long].tolist(), lengths[long].tolist(), strict=True)
        ],
    )
    ends = np.repeat(begins + np.where(long, 0, lengths), lengths)
    left, step = np.arange(len(keys)), 1
    while len(left := left[left + step < ends[left]]):
        differences = hashes[left] ^ hashes[left + step]
        bits = hamming_distances(hashes[left], hashes[left + step])
        near = (bits <= max_distance) & ((differences & np.uint64(choice.mask)) == 0) & choice.is_of(differences)
        if near.any():
            at = left[near]
            yield (places[at], places[at + step], bits[near].astype(np.int32)), []
        step += 1
