"""Vectors of length one, and their products: fast ones with an error that is bounded, and exact ones.

A matrix product in single precision may differ in its last bits with the number of threads, the size of a block and the
machine. What is decided here, which of two products is larger or whether one reaches a threshold, must not. So products
that are too close to call are computed again by :func:`dots`, in double precision and in one fixed order.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["cosines", "dots", "product_error", "unit_rows"]

Vectors = NDArray[np.float32]

_AT_ONCE: Final = 2**21
"""Numbers that are multiplied in double precision at once."""


def unit_rows(vectors: Vectors) -> tuple[Vectors, NDArray[np.bool_]]:
    """Vectors scaled to the length one, and which of them have a direction: not those of zeros, infinities or NaN.

    Args:
        vectors: One in each row.

    >>> unit, valid = unit_rows(np.array([[3, 4], [0, 0], [np.nan, 1]], np.float32))
    >>> unit[0].round(3).tolist(), valid.tolist()
    ([0.6000000238418579, 0.800000011920929], [True, False, False])
    """
    lengths = np.sqrt(dots(vectors, vectors))
    valid = np.isfinite(lengths) & (lengths > 0)
    scaled = np.empty(vectors.shape, np.float32)
    safe = np.where(valid, lengths, 1.0)
    for rows in _blocks(vectors):
        np.divide(vectors[rows], safe[rows, None], out=scaled[rows], casting="same_kind")
    scaled[~valid] = 0
    return scaled, valid


def dots(left: Vectors, right: Vectors) -> NDArray[np.float64]:
    """The product of each row of one matrix with the same row of another.

    Products of single precision are exact in double precision, and NumPy adds the numbers of a row in an order that
    depends on their count alone: so the result is the same on every machine.

    >>> dots(np.ones((1, 3), np.float32), np.full((1, 3), 2, np.float32)).tolist()
    [6.0]
    """
    found = np.empty(len(left), np.float64)
    with np.errstate(all="ignore"):
        for rows in _blocks(left):
            product = left[rows].astype(np.float64)
            product *= right[rows]
            found[rows] = product.sum(axis=1)
    return found


def cosines(left: Vectors, right: Vectors) -> Vectors:
    """The cosine of the angle between each row of one matrix and the same row of another.

    Equal vectors have 1 exactly.

    Args:
        left, right: Vectors with a direction.

    >>> cosines(np.array([[1, 0], [1, 1]], np.float32), np.array([[0, 1], [1, 1]], np.float32)).tolist()
    [0.0, 1.0]
    """
    lengths = np.sqrt(dots(left, left) * dots(right, right))
    return np.clip(dots(left, right) / lengths, -1.0, 1.0).astype(np.float32)


def product_error(dimensions: int, largest: float = 1.0) -> float:
    """How far a product of two vectors in single precision may be from the exact one, in any order of additions.

    Args:
        dimensions: Numbers in a vector.
        largest: The largest product of the lengths of two vectors.

    >>> product_error(384) < 1e-4
    True
    """
    return (dimensions + 8) * 2.0**-24 * largest


def _blocks(vectors: Vectors) -> list[slice]:
    rows, dimensions = vectors.shape
    step = max(1, _AT_ONCE // max(1, dimensions))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
