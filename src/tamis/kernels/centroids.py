"""The centres of clusters: which is nearest to a vector, and which others may have similar vectors."""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.products import Products, products_on
from tamis.kernels.unit_vectors import dots, product_error

__all__ = ["Centroids"]

Vectors = NDArray[np.float32]
Places = NDArray[np.int64]

_MOST_DISTANCES: Final = 4096
"""Up to so many centres, the distances between all of them are kept."""


class Centroids:
    """The centres of clusters.

    A vector ``x`` belongs to the centre ``c`` with the largest ``x·c - c·c / 2``, which is the nearest one. Of equally
    near ones, it is the first. The answer does not depend on how the products were computed.

    Args:
        vectors: One centre in each row.
        device: Where products are computed: ``"cpu"``, or a device of torch.

    >>> centres = Centroids(np.array([[0, 0], [4, 0]], np.float32))
    >>> centres.nearest(np.array([[1, 1], [3, 0], [2, 5]], np.float32)).tolist()
    [0, 1, 0]
    """

    def __init__(self, vectors: Vectors, device: str = "cpu") -> None:
        self.vectors: Vectors = np.ascontiguousarray(vectors, np.float32)
        self.products: Products = products_on(device)
        self._halves = dots(self.vectors, self.vectors) / 2
        self._held = self.products.hold(self.vectors)
        self._less: Any = self.products.hold(self._halves.astype(np.float32))
        self._longest = float(np.sqrt(2 * self._halves.max(initial=0)))

    def __len__(self) -> int:
        return len(self.vectors)

    def nearest(self, vectors: Vectors, held: Any = None, longest: float | None = None) -> Places:
        """The number of the nearest centre of each vector.

        Args:
            vectors: One in each row.
            held: The same where products are computed, if it is there already.
            longest: No vector is longer, if that is known.
        """
        if held is None:
            homes = np.empty(len(vectors), np.int64)
            for rows in self._blocks(len(vectors)):
                homes[rows] = self._nearest(vectors[rows], self.products.hold(vectors[rows]), longest)
            return homes
        return self._nearest(vectors, held, longest)

    def _nearest(self, vectors: Vectors, held: Any, longest: float | None) -> Places:
        limit = _longest(vectors) if longest is None else longest
        homes, rows, cells = self.products.nearest(held, self._held, self._halves, limit)
        self._settle(vectors, homes, rows, cells)
        return homes

    def near(self, vectors: Vectors, reach: float) -> tuple[Places, Places, Places]:
        """The nearest centre of each vector, and the other centres whose region is no further than ``reach`` away.

        The region of a centre has all points that are nearest to it. Two vectors whose distance is at most twice
        ``reach`` always share a region in this sense: where the plane between their two regions is passed, at least one
        of them is within ``reach`` of it.

        Args:
            vectors: One in each row.
            reach: A distance.

        Returns:
            The number of the nearest centre for each vector; then the numbers of vectors and of other centres, for each
            region that a vector is near to.

        >>> centres = Centroids(np.array([[0, 0], [4, 0]], np.float32))
        >>> homes, rows, others = centres.near(np.array([[0, 0], [1.5, 9]], np.float32), reach=0.6)
        >>> homes.tolist(), rows.tolist(), others.tolist()
        ([0, 0], [1], [1])
        """
        homes = np.empty(len(vectors), np.int64)
        rows_found, others = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for rows in self._blocks(len(vectors)):
            scores = self._scores(self.products.hold(vectors[rows]))
            homes[rows], top, error = self._homes(vectors[rows], scores)
            widest = reach * self._widest[homes[rows]]
            bounds = (top - widest - error).astype(np.float32)
            found, cells, values = self.products.from_bound(scores, bounds)
            own = homes[rows][found]
            # A region too many is looked at for nothing; one too few would be an error.
            is_near = top[found] - values <= reach * self._distances(own, cells) + error
            is_near &= cells != own
            rows_found.append(found[is_near] + rows.start)
            others.append(cells[is_near])
        return homes, np.concatenate(rows_found), np.concatenate(others)

    def squared_distances(self, vectors: Vectors, homes: Places) -> NDArray[np.float64]:
        """The squared distance of each vector from a centre."""
        found = dots(vectors, vectors) - 2 * dots(vectors, self.vectors[homes]) + 2 * self._halves[homes]
        return np.maximum(found, 0.0)

    def _scores(self, block: Any) -> Any:
        return self.products.multiply(block, self._held, self._less)

    def _homes(self, vectors: Vectors, scores: Any) -> tuple[Places, Vectors, float]:
        """The nearest centre of each vector of a block, its score, and how far scores may be from the exact ones."""
        top, homes = self.products.largest(scores)
        error = 2 * product_error(vectors.shape[1], _longest(vectors) * self._longest + self._longest**2)
        bounds = (top - np.float32(error)).astype(np.float32)
        unclear = np.flatnonzero(self.products.count_from(scores, bounds) > 1)
        rows, cells = np.nonzero(self.products.at(scores, unclear) >= bounds[unclear, None])
        self._settle(vectors, homes, unclear[rows], cells)
        return homes, top, error

    def _settle(self, vectors: Vectors, homes: Places, rows: Places, cells: Places) -> None:
        """Choose among the centres that may be the nearest ones of some vectors, given row by row."""
        if not len(rows):
            return
        exact = dots(vectors[rows], self.vectors[cells]) - self._halves[cells]
        order = np.lexsort((cells, -exact, rows))
        firsts = order[np.unique(rows[order], return_index=True)[1]]
        homes[rows[firsts]] = cells[firsts]

    def _blocks(self, count: int) -> list[slice]:
        step = self.products.rows_at_once
        return [slice(start, min(start + step, count)) for start in range(0, count, step)]

    @functools.cached_property
    def _widest(self) -> NDArray[np.float64]:
        """The distance of each centre from the one that is furthest away from it."""
        found = np.empty(len(self), np.float64)
        for rows in self._blocks(len(self)):
            products = self.products.multiply(self.products.hold(self.vectors[rows]), self._held, self._less)
            lowest = -self.products.largest(-products)[0].astype(np.float64)
            found[rows] = np.sqrt(np.maximum(2 * (self._halves[rows] - lowest), 0)) * (1 + 1e-3) + 1e-3 * self._longest
        return found

    def _distances(self, left: Places, right: Places) -> NDArray[np.float64]:
        """The distances between some pairs of centres."""
        if len(self) <= _MOST_DISTANCES:
            return self._all_distances[left, right].astype(np.float64)
        squared = 2 * (self._halves[left] + self._halves[right] - dots(self.vectors[left], self.vectors[right]))
        return np.sqrt(np.maximum(squared, 0))

    @functools.cached_property
    def _all_distances(self) -> Vectors:
        products = self.vectors.astype(np.float64) @ self.vectors.T.astype(np.float64)
        squared = 2 * (self._halves[:, None] + self._halves - products)
        return np.sqrt(np.maximum(squared, 0)).astype(np.float32)


def _longest(vectors: Vectors) -> float:
    """A length that no vector exceeds."""
    return float(np.sqrt(np.einsum("ij,ij->i", vectors, vectors).max(initial=0))) * 1.001
