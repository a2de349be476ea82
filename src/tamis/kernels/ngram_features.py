"""Texts as sparse vectors of hashed n-grams, and what is computed with them: products, and steps of training.

The n-grams of 1 to ``longest`` units of a text are hashed into ``2 ** bits`` slots. The value of a slot is the square
root of the share of the text's n-grams that fall into it, so that every vector has the length 1 (its products are those
of the Hellinger kernel).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.text_units import hash_units, settled

__all__ = ["MOST_BITS", "SparseRows", "descend", "ngram_vectors"]

MOST_BITS: Final = 28
"""The most bits a slot's number may have."""

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Sparse vectors.

    Args:
        slots: The slots that are not zero, one vector after another, in the order in which they first occur.
        values: The values of these slots.
        ends: Where the slots of each vector begin, and as the last entry where the last ones end.
    """

    slots: NDArray[np.uint32]
    values: NDArray[np.float32]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ends) - 1

    @classmethod
    def concat(cls, parts: list[SparseRows]) -> SparseRows:
        """Several one after another."""
        if len(parts) == 1:
            return parts[0]
        counts = [np.zeros(1, np.int64), *(np.diff(part.ends) for part in parts)]
        slots = np.concatenate([np.zeros(0, np.uint32), *(part.slots for part in parts)])
        values = np.concatenate([np.zeros(0, np.float32), *(part.values for part in parts)])
        return cls(slots, values, np.cumsum(np.concatenate(counts)))

    def times(self, weights: NDArray[np.float32], rows: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """The products of some of the vectors with a matrix that has a row for each slot.

        Args:
            weights: The matrix; the number of its rows is a power of two.
            rows: Which vectors; all when not given.

        >>> vectors = ngram_vectors(pa.array(["a a b"]), "token", longest=1, bits=10)
        >>> vectors.times(np.ones((1024, 1), np.float32)).round(3).tolist()
        [[1.394]]
        """
        rows = np.arange(len(self)) if rows is None else rows
        slot_count, width = weights.shape
        scores = np.zeros((len(rows), width), np.float64)
        kernel = native.load("sparse_product")
        if kernel is not None:
            flat = weights.reshape(-1)
            parts = (self.slots, self.values, self.ends, len(self), rows, len(rows))
            kernel(*parts, flat, slot_count, width, scores.reshape(-1))
            return scores
        for i, row in enumerate(rows.tolist()):
            for place in range(int(self.ends[row]), int(self.ends[row + 1])):
                slot = int(self.slots[place]) & (slot_count - 1)
                scores[i] += float(self.values[place]) * weights[slot].astype(np.float64)
        return scores


def ngram_vectors(texts: pa.Array | pa.ChunkedArray, unit: str, longest: int, bits: int) -> SparseRows:
    """The vector of each text.

    Args:
        texts: Of any Arrow type for texts. A null is an empty text, whose vector is zero.
        unit: What n-grams are made of, see :mod:`tamis.kernels.text_units`.
        longest: The largest n.
        bits: Slots have numbers of so many bits.

    >>> vectors = ngram_vectors(pa.array(["one two", ""]), "token", longest=2, bits=20)
    >>> len(vectors.slots), vectors.ends.tolist(), vectors.values.round(3).tolist()
    (3, [0, 3, 3], [0.577, 0.577, 0.577])
    """
    if longest < 1 or not 1 <= bits <= MOST_BITS:
        raise ValueError(f"longest = {longest} must be at least 1, and bits = {bits} from 1 to {MOST_BITS}")
    hashes, counts = hash_units(texts, unit)
    kernel = native.load("ngram_features")
    if kernel is None:
        return _plain_vectors(hashes, counts, longest, bits)
    most = longest * len(hashes)
    room = max(64, 1 << (4 * longest * int(counts.max(initial=0)) - 1).bit_length())
    slots, values = np.empty(most, np.uint32), np.empty(most, np.float32)
    ends = np.empty(len(counts) + 1, np.int64)
    table = np.empty(room, np.uint64)
    found = kernel(hashes, counts, len(counts), longest, bits, table, room, slots, values, ends)
    return SparseRows(slots[:found].copy(), values[:found].copy(), ends)


def descend(
    vectors: SparseRows,
    rows: NDArray[np.int64],
    gradients: NDArray[np.float64],
    weights: NDArray[np.float32],
    squares: NDArray[np.float32],
    rate: float,
    pull: float,
) -> None:
    """One step of gradient descent with AdaGrad (Duchi, Hazan and Singer, 2011): changes ``weights`` and ``squares``.

    Args:
        vectors: The sparse vectors.
        rows: Those of this step. Their slots are changed one vector after another.
        gradients: The derivative of the loss by each score of each of them.
        weights: A row for each slot; their number is a power of two.
        squares: The sums of the squared gradients of the weights so far.
        rate: The learning rate.
        pull: The strength of the pull towards zero, on the weights that are changed.
    """
    kernel = native.load("sparse_step")
    slot_count, width = weights.shape
    if kernel is not None:
        parts = (vectors.slots, vectors.values, vectors.ends, len(vectors), rows, len(rows))
        flat = (gradients.reshape(-1), weights.reshape(-1), squares.reshape(-1))
        kernel(*parts, *flat, slot_count, width, np.array([rate, pull], np.float64))
        return
    for i, row in enumerate(rows.tolist()):
        for place in range(int(vectors.ends[row]), int(vectors.ends[row + 1])):
            slot, value = int(vectors.slots[place]) & (slot_count - 1), float(vectors.values[place])
            for k in range(width):
                weight = float(weights[slot, k])
                slope = value * float(gradients[i, k]) + pull * weight
                square = float(squares[slot, k]) + slope * slope
                squares[slot, k] = square
                if square > 0:
                    weights[slot, k] = weight - rate * slope / math.sqrt(square)


def _plain_vectors(hashes: NDArray[np.uint64], counts: NDArray[np.int64], longest: int, bits: int) -> SparseRows:
    """What the kernel does."""
    slots: list[int] = []
    values: list[np.float32] = []
    ends, begin = [0], 0
    for count in counts.tolist():
        units = hashes[begin : begin + count]
        by_length = []
        keys = np.zeros(count, np.uint64)
        for n in range(1, min(longest, count) + 1):
            keys = keys[(n > 1) :] * _STEP + units[: count - n + 1]
            by_length.append(settled(keys) >> np.uint64(64 - bits))
        found: dict[int, int] = {}
        for last in range(count):
            for n in range(1, min(longest, last + 1) + 1):
                slot = int(by_length[n - 1][last - n + 1])
                found[slot] = found.get(slot, 0) + 1
        total = sum(found.values())
        slots += found
        values += [np.float32(math.sqrt(number / total)) for number in found.values()]
        ends.append(len(slots))
        begin += count
    return SparseRows(np.array(slots, np.uint32), np.array(values, np.float32), np.array(ends, np.int64))
