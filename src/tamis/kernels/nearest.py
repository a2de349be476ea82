"""The nearest neighbours of a vector among any number of others, exactly, in blocks."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Nearest"]

_PRODUCT_ERROR: Final = 4.0 * 2.0**-24
"""How far a cosine in single precision may be off, for each entry of a vector, with some room."""


class Nearest:
    """Collects the rows whose vectors have the largest cosine with a query.

    A matrix product in single precision finds the candidates of a block; those that it cannot tell apart are computed
    again in double precision and in a fixed order. So the result does not depend on blocks, threads or the machine.
    Of rows with the same cosine, those that came first are nearer.

    Args:
        query: A vector that is not zero.
        k: How many rows are wanted.

    >>> nearest = Nearest(np.array([1, 0], np.float32), k=2)
    >>> nearest.add(np.array([[0, 1], [2, 0]], np.float32))
    >>> nearest.add(np.array([[0, 0], [1, 1]], np.float32))
    >>> nearest.rows.tolist(), nearest.cosines.round(3).tolist()
    ([1, 3], [1.0, 0.707])
    """

    def __init__(self, query: NDArray[np.float32], k: int) -> None:
        if k < 1:
            raise ValueError(f"k={k}: must be at least 1")
        exact = query.astype(np.float64)
        length = float(np.sqrt((exact * exact).sum()))
        if not np.isfinite(length) or length == 0:
            raise ValueError("the query has no direction: all its numbers are zero, or one is not finite")
        self._exact = exact / length
        self._query = self._exact.astype(np.float32)
        self._k = k
        self._error = _PRODUCT_ERROR * (len(query) + 8)
        self.rows: NDArray[np.int64] = np.zeros(0, np.int64)
        """The numbers of the nearest rows, counted from 0 over all blocks, the nearest first."""
        self.cosines: NDArray[np.float64] = np.zeros(0, np.float64)
        """The cosine of each."""
        self.seen = 0
        """How many rows there were."""

    def add(self, vectors: NDArray[np.float32]) -> None:
        """Look at more rows. A row of zeros, or with a number that is not finite, is never near.

        Args:
            vectors: One in each row.
        """
        first, self.seen = self.seen, self.seen + len(vectors)
        with np.errstate(all="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float32))
            cosines = vectors @ self._query / lengths
        cosines[~np.isfinite(cosines)] = -np.inf
        least = self.cosines[-1] - self._error if len(self.cosines) == self._k else -2.0
        if len(cosines) > self._k:
            within = np.partition(cosines, len(cosines) - self._k)[len(cosines) - self._k]
            least = max(least, float(within) - 2 * self._error)
        found = np.flatnonzero(cosines >= least)
        if not len(found):
            return
        rows = np.concatenate([self.rows, found + first])
        exact = np.concatenate([self.cosines, self._cosines(vectors[found])])
        order = np.lexsort((rows, -exact))[: self._k]
        self.rows, self.cosines = rows[order], exact[order]

    def _cosines(self, vectors: NDArray[np.float32]) -> NDArray[np.float64]:
        """In an order of additions that depends on the length of the vectors alone."""
        made = np.empty(len(vectors), np.float64)
        for start in range(0, len(vectors), 1024):
            rows = vectors[start : start + 1024].astype(np.float64)
            products, squares = (rows * self._exact).sum(axis=1), (rows * rows).sum(axis=1)
            made[start : start + 1024] = products / np.sqrt(squares)
        return made
