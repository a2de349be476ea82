"""Vectors of length 1, as the native kernels make them, in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["unit_vector"]


def unit_vector(sums: NDArray[Any]) -> NDArray[np.float32]:
    """A vector scaled to length 1; zeros if all its entries are zero.

    >>> unit_vector(np.array([3, 4])).tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    entries = sums.astype(np.float64)
    squares = np.zeros(-(-len(entries) // 4) * 4, np.float64)
    squares[: len(entries)] = entries**2
    a, b, c, d = squares.reshape(-1, 4).cumsum(axis=0)[-1].tolist()  # in this order, as the kernels add them
    total = (a + b) + (c + d)
    unit: NDArray[np.float32] = (entries * (1 / math.sqrt(total) if total else 0.0)).astype(np.float32)
    return unit
