"""What the signatures of several kernels have in common: kinds of arrays, their sizes, conditions."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.arguments import Array

PADDING: Final = 128
"""Bytes after a text that a kernel may read. If there are fewer, it reads a copy."""

CHARACTER_BLOCKS: Final = 0x1100
"""Unicode in blocks of 256 characters."""

ALL_ROWS: Final = ("0 <= first_row <= row_count",)


def longest_near_end(offsets: NDArray[np.int64], readable: int) -> int:
    """The size of the longest text that ends less than :data:`PADDING` bytes before the end of a buffer.

    Args:
        offsets: Where each text begins, and where the last one ends.
        readable: The size of the buffer.

    >>> longest_near_end(np.array([0, 100, 130, 140]), 140)
    100
    >>> longest_near_end(np.array([0, 100, 130, 140]), 400)
    0
    """
    first = int(np.searchsorted(offsets[1:], readable - PADDING, side="right"))
    return int(np.diff(offsets[first:]).max(initial=0))


def byte_array(length: str, is_written: bool = False) -> Array:
    return Array("uint8", length, is_written)


def integers(length: str, is_written: bool = False) -> Array:
    return Array("int64", length, is_written)


def short_integers(length: str, is_written: bool = False) -> Array:
    return Array("int32", length, is_written)


def words(length: str, is_written: bool = False) -> Array:
    return Array("uint64", length, is_written)


def halves(length: str, is_written: bool = False) -> Array:
    return Array("uint32", length, is_written)


def floats(length: str, is_written: bool = False) -> Array:
    return Array("float64", length, is_written)


def most_shingles(offsets: NDArray[np.int64], by_words: int, ngram: int) -> NDArray[np.int64]:
    """How many n-grams of characters or words each text can have, given its bytes; at least one.

    Args:
        offsets: Where each text begins, and where the last one ends.
        by_words: Whether n-grams are of words.
        ngram: How many.

    >>> most_shingles(np.array([0, 9, 9]), by_words=1, ngram=2).tolist()
    [4, 1]
    """
    items: NDArray[np.int64] = np.diff(offsets)
    most: NDArray[np.int64] = np.maximum(((items + 1) // 2 if by_words else items) - ngram + 1, 1)
    return most


def longest_text(offsets: NDArray[np.int64]) -> int:
    """The size of the longest text.

    Args:
        offsets: Where each text begins, and where the last one ends.

    >>> longest_text(np.array([0, 9, 12]))
    9
    """
    return int(np.diff(offsets).max(initial=0))


OFFSETS_INSIDE: Final = ("0 <= offsets[0] <= offsets[row_count] <= readable",)

TAIL: Final = f"longest_near_end(offsets[:row_count + 1], readable) + {2 * PADDING}"
