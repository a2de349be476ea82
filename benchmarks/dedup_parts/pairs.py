"""Pairs of documents: all that share enough n-grams, by an inverted index; and those that share a bucket."""

from __future__ import annotations

import numpy as np

__all__ = ["exact_jaccard", "pairs_in_buckets", "pairs_in_groups", "similar_pairs"]

_CANDIDATE = 0.5
"""Pairs are counted exactly from this share of the least similarity on: the index has a sample of the n-grams."""


def similar_pairs(shingles: np.ndarray, offsets: np.ndarray, least: float, sample: int = 8) -> np.ndarray:
    """All pairs of documents with at least some Jaccard similarity, as rows ``(first, second)``.

    An inverted index of every n-th n-gram (by hash) gives candidates with an estimated similarity; pairs whose estimate
    is at least half the similarity asked for are then compared exactly.

    Args:
        shingles: The distinct n-grams of each document, one document after the other.
        offsets: Where the n-grams of each document begin.
        least: The least similarity.
        sample: One of so many n-grams is in the index.
    """
    documents = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    taken = shingles % np.uint64(sample) == 0
    hashes, documents = shingles[taken], documents[taken]
    sizes = np.bincount(documents, minlength=len(offsets) - 1)
    order = np.argsort(hashes, kind="stable")
    hashes, documents = hashes[order], documents[order]
    codes, counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
    held = []
    step = 1
    at = np.arange(len(hashes))
    while len(at):
        at = at[at + step < len(hashes)]
        at = at[hashes[at] == hashes[at + step]]  # so often does the n-gram occur at least
        held.append(documents[at] * len(sizes) + documents[at + step])
        step += 1
        if sum(map(len, held)) > 20_000_000 or not len(at):
            codes, counts = _counted([(codes, counts), *((some, np.ones(len(some), np.int64)) for some in held)])
            held = []
    first, second = codes // len(sizes), codes % len(sizes)
    estimate = counts / (sizes[first] + sizes[second] - counts)
    pairs = np.stack([first, second], axis=1)[estimate >= _CANDIDATE * least]
    return pairs[exact_jaccard(shingles, offsets, pairs) >= least]


def _counted(parts: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    codes, counts = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    order = np.argsort(codes, kind="stable")
    codes, counts = codes[order], counts[order]
    firsts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])[: len(codes)])
    return codes[firsts], np.add.reduceat(counts, firsts) if len(firsts) else counts


def exact_jaccard(shingles: np.ndarray, offsets: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """The Jaccard similarity of the n-grams of pairs of documents. n-grams of a document are distinct and sorted."""
    similarity = np.zeros(len(pairs))
    for number, (first, second) in enumerate(pairs.tolist()):
        one, other = (shingles[offsets[d] : offsets[d + 1]] for d in (first, second))
        if not len(one) or not len(other):
            continue
        place = np.minimum(np.searchsorted(other, one), len(other) - 1)
        common = int((other[place] == one).sum())
        similarity[number] = common / (len(one) + len(other) - common)
    return similarity


def pairs_in_buckets(bands: np.ndarray) -> np.ndarray:
    """All pairs of documents that agree in a band; ``bands`` has one row for each document."""
    found = []
    for band in bands.T:
        order = np.argsort(band, kind="stable")
        found.append(_within_runs(order, band[order]))
    return np.unique(np.concatenate(found), axis=0)


def pairs_in_groups(groups: np.ndarray) -> np.ndarray:
    """All pairs of documents of the same group; a negative group is none."""
    members = np.flatnonzero(groups >= 0)
    members = members[np.argsort(groups[members], kind="stable")]
    return np.unique(_within_runs(members, groups[members]), axis=0)


def _within_runs(documents: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Pairs of documents with equal keys, of sorted keys; documents of a run are in ascending order."""
    found = [np.zeros((0, 2), np.int64)]
    at, step = np.arange(len(keys)), 1
    while len(at):
        at = at[at + step < len(keys)]
        at = at[keys[at] == keys[at + step]]
        found.append(np.stack([documents[at], documents[at + step]], axis=1))
        step += 1
    return np.concatenate(found)
