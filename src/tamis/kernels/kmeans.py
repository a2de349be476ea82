"""k-means: the same clusters for the same vectors and the same seed, whatever computed the products.

Each decision is exact: the nearest centre is found as :class:`~tamis.kernels.centroids.Centroids` says, and the sum of
the vectors of a cluster is a sum of whole numbers, which does not depend on the order of the additions. So parts of the
vectors may be summed by several machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.centroids import Centroids
from tamis.kernels.products import CpuProducts, Products
from tamis.kernels.unit_vectors import dots

__all__ = ["ClusterSums", "Fitted", "KMeans"]

Vectors = NDArray[np.float32]
Places = NDArray[np.int64]

_BITS: Final = 30
"""The largest number of a vector becomes a whole number of so many bits; so a cluster may have 2**32 vectors."""

_ROUNDS: Final = 4
"""How often k-means|| draws candidates."""


@dataclass(frozen=True)
class Fitted:
    """What k-means found.

    Args:
        centroids: One centre in each row. There are fewer than asked for if fewer vectors differ from each other.
        iterations: How often vectors were assigned to centres.
        inertia: The sum of the squared distances of all vectors from their centres.
    """

    centroids: Vectors
    iterations: int
    inertia: float


class ClusterSums:
    """Sums and counts of the vectors of each cluster.

    Args:
        clusters: How many clusters there are.
        dimensions: How many numbers a vector has.
        largest: No number of a vector is larger than this, a power of two.

    >>> sums = ClusterSums(1, 2)
    >>> sums.add(np.array([[1, 0], [0, 1]], np.float32), np.array([0, 0]))
    >>> sums.means()[0].tolist()
    [[0.5, 0.5]]
    """

    def __init__(self, clusters: int, dimensions: int, largest: float = 1.0) -> None:
        self.sums = np.zeros((clusters, dimensions), np.int64)
        self.counts = np.zeros(clusters, np.int64)
        self._shift = _BITS - int(np.log2(largest))

    def add(self, vectors: Vectors, homes: Places, products: Products | None = None, held: Any = None) -> None:
        """Add vectors to the clusters with the given numbers.

        Args:
            vectors: One in each row.
            homes: The numbers of their clusters.
            products: What holds the same vectors, if that adds them.
            held: The vectors there.
        """
        count = len(self.counts)
        if products is None:
            self.sums += CpuProducts().sums_by(vectors, homes, count, self._shift)
        else:
            self.sums += products.sums_by(held, homes, count, self._shift)
        self.counts += np.bincount(homes, minlength=count)

    def move(self, vectors: Vectors, before: Places, after: Places, products: Products, held: Any) -> None:
        """Let vectors belong to other clusters than before; only those that change are added.

        Args:
            vectors: One in each row.
            before, after: The numbers of their clusters.
            products: What holds the same vectors.
            held: The vectors there.
        """
        rows = np.flatnonzero(before != after)
        some, count = products.take(held, rows), len(self.counts)
        self.sums += products.sums_by(some, after[rows], count, self._shift)
        self.sums -= products.sums_by(some, before[rows], count, self._shift)
        self.counts += np.bincount(after[rows], minlength=count) - np.bincount(before[rows], minlength=count)

    def means(self) -> tuple[Vectors, NDArray[np.bool_]]:
        """The mean of each cluster, and which clusters have vectors."""
        return self._means().astype(np.float32), self.counts > 0

    def between(self) -> float:
        """The squared lengths of the means, summed over all vectors: the larger, the closer vectors are to them."""
        return float((np.square(self._means()).sum(axis=1) * self.counts).sum())

    def _means(self) -> NDArray[np.float64]:
        return np.ldexp(self.sums / np.maximum(self.counts, 1)[:, None], -self._shift)


@dataclass(frozen=True)
class KMeans:
    """Divides vectors into clusters around their means.

    Args:
        n_clusters: How many clusters.
        seed: Another seed makes other clusters.
        init: How the first centres are chosen: ``"k-means||"`` spreads them out, in a few passes over the vectors,
            ``"random"`` takes any.
        algorithm: ``"full"`` assigns all vectors in each iteration (Lloyd's algorithm), ``"mini-batch"`` a part.
        max_iter: How many iterations there may be. Of mini-batches: how often the vectors are gone through.
        tol: Stop when the sum of squared distances gets smaller by less than this share.
        n_init: How often to start; the result with the smallest sum of squared distances is taken.
        oversampling_factor: How many candidates k-means|| draws for each cluster.
        batch_rows: How many vectors a mini-batch has.

    >>> vectors = np.repeat(np.array([[0, 1], [1, 0]], np.float32), 5, axis=0)
    >>> sorted(KMeans(2).fit(vectors).centroids.tolist())
    [[0.0, 1.0], [1.0, 0.0]]
    """

    n_clusters: int
    seed: int = 42
    init: Literal["k-means||", "random"] = "k-means||"
    algorithm: Literal["full", "mini-batch"] = "full"
    max_iter: int = 300
    tol: float = 1e-4
    n_init: int = 1
    oversampling_factor: float = 2.0
    batch_rows: int = 8192

    def __post_init__(self) -> None:
        for parameter in ("n_clusters", "max_iter", "n_init", "batch_rows"):
            if getattr(self, parameter) < 1:
                raise ValueError(f"{parameter}={getattr(self, parameter)}: must be at least 1")
        if self.init not in ("k-means||", "random"):
            raise ValueError(f"init={self.init!r}: must be 'k-means||' or 'random'")
        if self.algorithm not in ("full", "mini-batch"):
            raise ValueError(f"algorithm={self.algorithm!r}: must be 'full' or 'mini-batch'")
        if self.oversampling_factor <= 0:
            raise ValueError(f"oversampling_factor={self.oversampling_factor}: must be more than 0")

    def fit(self, vectors: Vectors, device: str = "cpu") -> Fitted:
        """Find the clusters of some vectors.

        Args:
            vectors: One in each row, at least one. Their order counts: sort them by something that does not change.
            device: Where products are computed: ``"cpu"``, or a device of torch.
        """
        if not len(vectors):
            raise ValueError("there are no vectors")
        found = [self._once(vectors, device, start) for start in range(self.n_init)]
        return min(found, key=lambda one: one.inertia)

    def _once(self, vectors: Vectors, device: str, start: int) -> Fitted:
        largest = 2.0 ** np.ceil(np.log2(max(float(vectors.max()), -float(vectors.min()), 1e-30)))
        data = _Data(vectors, device, largest)
        centroids = self._first(data, start)
        iterations = 0
        if self.algorithm == "mini-batch":
            centroids, iterations = self._batches(data, centroids, start)
        return self._lloyd(data, centroids, iterations)

    # -- the first centres ---------------------------------------------------------------------------------------------

    def _first(self, data: _Data, start: int) -> Vectors:
        vectors = data.vectors
        if self.init == "random" or len(vectors) <= self.n_clusters:
            order = np.argsort(_uniform(self.seed, start, 0, len(vectors)), kind="stable")
            return _distinct(vectors[order[: self.n_clusters]])
        drawn = [int(_uniform(self.seed, start, 0, 1)[0] * len(vectors))]
        chosen = np.array(drawn, np.int64)
        centroids = data.centroids(vectors[chosen])
        squared = centroids.squared_distances(vectors, np.zeros(len(vectors), np.int64))
        wanted = self.oversampling_factor * self.n_clusters / _ROUNDS
        for number in range(1, _ROUNDS + 1):
            total = squared.sum()
            if total <= 0:
                break
            draws = _uniform(self.seed, start, number, len(vectors))
            new = np.setdiff1d(np.flatnonzero(draws * total < wanted * squared), chosen)
            if not len(new):
                continue
            added = data.centroids(vectors[new])
            homes = data.nearest(added)
            squared = np.minimum(squared, added.squared_distances(vectors, homes))
            chosen = np.append(chosen, new)
        candidates = _distinct(vectors[chosen])
        while len(candidates) < self.n_clusters and squared.any():
            far = _distinct(vectors[np.argsort(-squared, kind="stable")[: np.count_nonzero(squared)]])
            far = far[: self.n_clusters - len(candidates)]
            added = data.centroids(far)
            squared = np.minimum(squared, added.squared_distances(vectors, data.nearest(added)))
            candidates = np.concatenate([candidates, far])
        if len(candidates) <= self.n_clusters:
            return candidates
        weights = np.bincount(data.nearest(data.centroids(candidates)), minlength=len(candidates))
        return candidates[_spread_out(candidates, weights, self.n_clusters, _uniform(self.seed, start, 99, 2**20))]

    # -- iterations ----------------------------------------------------------------------------------------------------

    def _lloyd(self, data: _Data, centroids: Vectors, done: int) -> Fitted:
        vectors, before = data.vectors, np.inf
        total = float(data.lengths.sum())
        homes = np.zeros(0, np.int64)
        iterations = 1 if self.algorithm == "mini-batch" else self.max_iter
        sums = ClusterSums(len(centroids), vectors.shape[1], data.largest)
        for iteration in range(1, iterations + 1):
            placed = data.centroids(centroids)
            earlier, homes = homes, data.nearest(placed)
            if iteration == 1:
                sums.add(vectors, homes, placed.products, data.held(placed))
            else:
                sums.move(vectors, earlier, homes, placed.products, data.held(placed))
            inertia = max(total - sums.between(), 0.0)
            centroids, has_vectors = sums.means()
            if np.array_equal(earlier, homes) or before - inertia <= self.tol * inertia:
                break
            before = inertia
            if not has_vectors.all() and iteration < iterations:
                _fill(centroids, has_vectors, vectors, placed.squared_distances(vectors, homes))
        return Fitted(_distinct(centroids[sums.counts > 0]), done + iteration, inertia)

    def _batches(self, data: _Data, centroids: Vectors, start: int) -> tuple[Vectors, int]:
        """Mini-batches in a random order: a centre is the mean of all vectors that were assigned to it so far."""
        vectors = data.vectors
        counts = np.zeros(len(centroids), np.int64)
        centres = centroids.astype(np.float64)
        before, done = np.inf, 0
        for epoch in range(self.max_iter):
            order = np.argsort(_uniform(self.seed, start, 1000 + epoch, len(vectors)), kind="stable")
            total = 0.0
            for first in range(0, len(order), self.batch_rows):
                batch = vectors[order[first : first + self.batch_rows]]
                placed = Centroids(centres.astype(np.float32), data.device)
                homes = placed.nearest(batch)
                total += float(placed.squared_distances(batch, homes).sum())
                sums = ClusterSums(len(centres), batch.shape[1], data.largest)
                sums.add(batch, homes)
                counts += sums.counts
                means, _ = sums.means()
                share = sums.counts / np.maximum(counts, 1)
                centres += share[:, None] * (means - centres)
            done += 1
            if before - total <= self.tol * total:
                break
            before = total
        return centres.astype(np.float32), done


class _Data:
    """Vectors that are gone through many times, held where products are computed."""

    def __init__(self, vectors: Vectors, device: str, largest: float) -> None:
        self.vectors, self.device, self.largest = vectors, device, largest
        self.lengths = dots(vectors, vectors)
        self._longest = float(np.sqrt(self.lengths.max(initial=0))) * 1.001
        self._held: Any = None

    def centroids(self, vectors: Vectors) -> Centroids:
        return Centroids(vectors, self.device)

    def held(self, centroids: Centroids) -> Any:
        """The vectors where the products of centres are computed."""
        if self._held is None:
            self._held = centroids.products.hold(self.vectors)
        return self._held

    def nearest(self, centroids: Centroids) -> Places:
        return centroids.nearest(self.vectors, self.held(centroids), self._longest)


def _spread_out(candidates: Vectors, weights: Places, count: int, draws: NDArray[np.float64]) -> Places:
    """Candidates that are far from each other, drawn by squared distance and weight (k-means++)."""
    exact = candidates.astype(np.float64)
    lengths = dots(candidates, candidates)
    chosen = [int(np.searchsorted(np.cumsum(weights), draws[0] * weights.sum(), side="right"))]
    squared = np.full(len(candidates), np.inf)
    for number in range(1, count):
        last = chosen[-1]
        # Rounded, so that the last bits of products in double precision do not count.
        distances = np.maximum(lengths - 2 * (exact @ exact[last]) + lengths[last], 0).astype(np.float32)
        np.minimum(squared, distances, out=squared)
        squared[chosen] = 0
        sums = np.cumsum(squared * weights)
        if sums[-1] <= 0:
            break
        chosen.append(int(np.searchsorted(sums, draws[number % len(draws)] * sums[-1], side="right")))
    return np.array(chosen, np.int64)


def _fill(centroids: Vectors, has_vectors: NDArray[np.bool_], vectors: Vectors, squared: NDArray[np.float64]) -> None:
    """Make the vectors that are furthest from their centres the centres of clusters that have no vectors."""
    order = np.argsort(-squared, kind="stable")[: np.count_nonzero(squared)]
    far = _distinct(vectors[order])
    empty = np.flatnonzero(~has_vectors)[: len(far)]
    centroids[empty] = far[: len(empty)]


def _distinct(vectors: Vectors) -> Vectors:
    """Vectors without repetitions, each where it is first."""
    rows = np.ascontiguousarray(vectors + np.float32(0)).view(np.dtype((np.void, 4 * vectors.shape[1]))).reshape(-1)
    return vectors[np.sort(np.unique(rows, return_index=True)[1])]


def _uniform(seed: int, start: int, number: int, count: int) -> NDArray[np.float64]:
    """Random numbers, 0 to 1, that depend on nothing but these numbers and their places (SplitMix64)."""
    place = (seed * 1_000_003 + start * 1009 + number) % 2**64
    first = _mixed(np.array([place], np.uint64))
    mixed = _mixed(np.arange(count, dtype=np.uint64) ^ first)
    found: NDArray[np.float64] = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return found


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    mixed = values * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
