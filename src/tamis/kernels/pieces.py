"""The words of UTF-8 text, as ``str.split()`` defines them: where each begins and ends, for a whole column at once.

Positions are byte positions in a block of texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.utf8 import Mask, Positions, Utf8, spaces, word_starts

__all__ = ["Pieces", "sum_of_pieces", "words", "words_inside"]


@dataclass(frozen=True)
class Pieces:
    """Parts of texts, in order.

    Args:
        starts: First byte of each.
        ends: One past the last byte of each.
        counts: How many each text has.
    """

    starts: Positions
    ends: Positions
    counts: Positions

    def texts(self) -> Positions:
        """The number of the text each piece is part of."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


def words(block: Utf8) -> Pieces:
    """The words of each text: ``str.split()``.

    >>> import pyarrow as pa
    >>> words(Utf8.from_arrow(pa.array([" one  two", ""]))).counts.tolist()
    [2, 0]
    """
    return words_inside(block, ~spaces(block))


def words_inside(block: Utf8, inside: Mask) -> Pieces:
    """The words of each text, given the bytes that are not white space.

    >>> import pyarrow as pa
    >>> block = Utf8.from_arrow(pa.array(["a b"]))
    >>> words_inside(block, ~spaces(block)).ends.tolist()
    [1, 3]
    """
    starts, ends = np.flatnonzero(word_starts(block, inside)), _word_ends(block, inside)
    return Pieces(starts, ends, np.diff(np.searchsorted(starts, block.offsets)))


def sum_of_pieces(values: NDArray[Any], counts: Positions) -> Positions:
    """The sum of whole numbers given per piece, for each text.

    >>> sum_of_pieces(np.array([1, 2, 3]), np.array([2, 0, 1])).tolist()
    [3, 0, 3]
    """
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=running[1:])
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    return np.diff(running[bounds])


def _word_ends(block: Utf8, inside: Mask) -> Positions:
    """One past the last byte of each word, given the bytes that are inside one."""
    last = inside.copy()
    last[:-1] &= ~inside[1:]
    edges = block.offsets[1:-1]
    edges = edges[edges > 0] - 1
    last[edges] = inside[edges]
    return np.flatnonzero(last) + 1
