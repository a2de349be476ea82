"""Semantic deduplication with a peer's k-means: PEER VECTORS.npy CLUSTERS EPS REMOVED.npy.

As NeMo Curator does it: k-means, then within each cluster the largest cosine of each row with a row before it. Prints
JSON: the CPU seconds of both steps.
"""

from __future__ import annotations

import itertools
import json
import sys
import time

import numpy as np


def clusters_of_sklearn(vectors: np.ndarray, count: int) -> np.ndarray:
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(count, batch_size=8192, random_state=0, n_init=1)
    return model.fit_predict(vectors)


def clusters_of_faiss(vectors: np.ndarray, count: int) -> np.ndarray:
    import faiss

    model = faiss.Kmeans(vectors.shape[1], count, niter=20, seed=0)
    model.train(vectors)
    return model.index.search(vectors, 1)[1].reshape(-1)


def removed_of(vectors: np.ndarray, homes: np.ndarray, eps: float) -> np.ndarray:
    """The rows with a similar row before them in their cluster, compared in blocks."""
    removed = []
    order = np.argsort(homes, kind="stable")
    edges = np.flatnonzero(np.concatenate([[True], np.diff(homes[order]) != 0, [True]]))
    for start, stop in itertools.pairwise(edges):
        rows = order[start:stop]
        own = vectors[rows]
        for first in range(0, len(rows), 1024):
            block = own[first : first + 1024]
            products = block @ own[: first + len(block)].T
            products[:, first:][np.triu_indices(len(block))] = -1
            removed.append(rows[first : first + 1024][products.max(axis=1) >= 1 - eps])
    return np.concatenate(removed)


def main() -> None:
    peer, source, count, eps, target = sys.argv[1:6]
    vectors = np.load(source)
    begun = time.process_time()
    homes = {"sklearn": clusters_of_sklearn, "faiss": clusters_of_faiss}[peer](vectors, int(count))
    clustered = time.process_time()
    removed = removed_of(vectors, homes, float(eps))
    np.save(target, removed)
    print(json.dumps({"kmeans": clustered - begun, "pairs": time.process_time() - clustered}))


if __name__ == "__main__":
    main()
