"""What a sample of embeddings says: how diverse it is, a map of it, its clusters and their typical words.

All of it is for samples of some thousand rows, and the same whenever it is computed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cluster", "Diversity", "clusters_of", "diversity_of", "grouped", "principal_axes"]

Vectors = NDArray[np.float32]

NEAR: Final = 0.95
"""Rows with a larger cosine count as near duplicates."""

_MOST_COMPARED: Final = 1_000
_ROUNDS: Final = 30
_WORD: Final = re.compile(r"[^\W\d_]{2,}")
_WORDS: Final = 8


@dataclass(frozen=True)
class Diversity:
    """How diverse a sample of embeddings is.

    Args:
        rows: How many rows it was computed of: 1,000 at most, spread over the sample.
        mean_distance: The mean of 1 - cosine over all pairs: 0 if all are equal, 1 if they have nothing in common.
        effective_directions: The Vendi score (Friedman, Dieng 2023) with cosines: how many different rows there would
            be if all were equally different; 1 if all are equal.
        near_duplicates: The share of rows with another one nearer than a cosine of 0.95.
        clusters: How many clusters there are.
        effective_clusters: How many clusters of the same size would be as diverse.
        largest_cluster: The share of the largest one.
    """

    rows: int
    mean_distance: float
    effective_directions: float
    near_duplicates: float
    clusters: int
    effective_clusters: float
    largest_cluster: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Cluster:
    """A cluster.

    Args:
        name: Its name or number.
        rows: How many rows of the sample are in it.
        words: The words that are most typical of it.
        example: The begin of the text that is nearest to its middle.
    """

    name: str
    rows: int
    words: tuple[str, ...]
    example: str


def diversity_of(vectors: Vectors, clusters: Sequence[str]) -> Diversity:
    """How diverse a sample is.

    Args:
        vectors: Of length 1, at least one.
        clusters: The cluster of each.

    >>> one = diversity_of(np.eye(4, dtype=np.float32), ["a", "a", "b", "b"])
    >>> one.mean_distance, round(one.effective_directions, 6), one.effective_clusters
    (1.0, 4.0, 2.0)
    """
    if not len(vectors):
        raise ValueError("a sample without rows has no diversity")
    chosen = np.unique(np.linspace(0, len(vectors) - 1, min(len(vectors), _MOST_COMPARED)).astype(int))
    exact = vectors[chosen].astype(np.float64)
    count = len(exact)
    cosines = exact @ exact.T
    np.fill_diagonal(cosines, 0)
    distance = 1 - float(cosines.sum()) / (count * (count - 1)) if count > 1 else 0.0
    near = float((cosines.max(axis=1) > NEAR).mean()) if count > 1 else 0.0
    # The eigenvalues of the matrix of cosines: those of the smaller one of two products.
    square = exact @ exact.T if count <= exact.shape[1] else exact.T @ exact
    shares = np.clip(np.linalg.eigvalsh(square / count), 0, None)
    sizes = np.array(list(Counter(clusters).values()), np.float64)
    sizes /= sizes.sum()
    return Diversity(
        count, distance, _effective(shares), near, len(sizes), _effective(sizes), float(sizes.max(initial=0.0))
    )


def principal_axes(vectors: Vectors) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[float, float]]:
    """The middle of vectors, the two directions in which they differ most, and the share of all differences in each.

    Args:
        vectors: At least one.

    >>> middle, axes, shares = principal_axes(np.array([[0, 0, 1], [4, 0, 1], [0, 1, 1], [4, 1, 1]], np.float32))
    >>> axes.round(6).tolist(), [round(share, 3) for share in shares]
    ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], [0.941, 0.059])
    """
    exact = vectors.astype(np.float64)
    middle = exact.mean(axis=0)
    exact = exact - middle
    rng = np.random.default_rng(0)
    width = min(8, exact.shape[1])
    basis = np.linalg.qr(rng.standard_normal((exact.shape[1], width)))[0]
    for _ in range(_ROUNDS // 2):
        basis = np.linalg.qr(exact.T @ (exact @ basis))[0]
    _, lengths, turned = np.linalg.svd(exact @ basis, full_matrices=False)
    axes = np.zeros((2, exact.shape[1]))
    found = (turned @ basis.T)[:2]
    axes[: len(found)] = found
    largest = np.abs(axes).argmax(axis=1)
    axes *= np.where(axes[np.arange(2), largest] < 0, -1.0, 1.0)[:, None]
    whole = float((exact**2).sum()) or 1.0
    first, second = [*(lengths[:2] ** 2 / whole).tolist(), 0.0][:2]
    return middle, axes, (first, second)


def grouped(vectors: Vectors, most: int) -> list[str]:
    """The cluster of each vector, by spherical k-means: at most so many clusters, the largest one first.

    Args:
        vectors: Of length 1.
        most: How many clusters.

    >>> grouped(np.array([[1, 0], [0, 1], [0.9, 0.1], [1, 0.05]], np.float32), most=2)
    ['0', '1', '0', '0']
    """
    count = min(most, len(vectors))
    if not count:
        return []
    centres = vectors[_spread(vectors, count)].astype(np.float64)
    exact = vectors.astype(np.float64)
    labels = np.zeros(len(vectors), np.int64)
    for _ in range(_ROUNDS):
        before, labels = labels, (exact @ centres.T).argmax(axis=1)
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, exact)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(lengths > 0, sums / np.where(lengths > 0, lengths, 1), centres)
        if (labels == before).all():
            break
    sizes = np.bincount(labels, minlength=count)
    numbers = np.empty(count, np.int64)
    numbers[np.argsort(-sizes, kind="stable")] = np.arange(count)
    return [str(number) for number in numbers[labels].tolist()]


def clusters_of(vectors: Vectors, texts: Sequence[str], clusters: Sequence[str], most: int) -> list[Cluster]:
    """The largest clusters, with the words that are typical of them.

    A word is typical if it is in many texts of the cluster, and in few others: the share of its texts times the
    logarithm of how rare it is in the whole sample.

    Args:
        vectors: The sample.
        texts: Their texts.
        clusters: The cluster of each.
        most: How many clusters.

    >>> vectors, texts = np.eye(4, dtype=np.float32), ["a red car", "the red cars", "some eggs", "the eggs"]
    >>> [(each.rows, each.words[0]) for each in clusters_of(vectors, texts, ["x", "x", "y", "y"], 2)]
    [(2, 'red'), (2, 'eggs')]
    """
    words = [set(_WORD.findall(text.lower())) for text in texts]
    in_all = Counter(word for each in words for word in each)
    labels = np.array(clusters)
    sizes = sorted(Counter(clusters).items(), key=lambda item: (-item[1], item[0]))
    found = []
    for name, rows in sizes[:most]:
        members = np.flatnonzero(labels == name)
        inside = Counter(word for member in members.tolist() for word in words[member])
        scores = {
            word: times / rows * math.log((1 + len(texts)) / in_all[word])
            for word, times in inside.items()
            if times > 1 or rows < 4
        }
        typical = sorted(scores, key=lambda word: (-scores[word], word))[:_WORDS]
        centre = vectors[members].astype(np.float64).sum(axis=0)
        example = texts[int(members[(vectors[members] @ centre).argmax()])]
        found.append(Cluster(name, rows, tuple(typical), " ".join(example.split())))
    return found


def _effective(shares: NDArray[np.float64]) -> float:
    """The exponential of the entropy of shares."""
    positive = shares[shares > 0]
    return float(np.exp(-(positive * np.log(positive)).sum()))


def _spread(vectors: Vectors, count: int) -> list[int]:
    """Vectors that are far from each other, each the one that is farthest from those before."""
    chosen = [int((vectors @ vectors.sum(axis=0)).argmax())]
    nearest = vectors @ vectors[chosen[0]]
    while len(chosen) < count:
        chosen.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, vectors @ vectors[chosen[-1]])
    return chosen
