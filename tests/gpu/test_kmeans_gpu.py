"""k-means on a real GPU: the clusters of CPUs, also where centres are equally near."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tamis.kernels.centroids import Centroids  # noqa: E402
from tamis.kernels.kmeans import KMeans  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no NVIDIA GPU")


@pytest.mark.parametrize(("rows", "dimensions", "clusters"), [(5000, 384, 300), (777, 20, 1), (500, 7, 130)])
def test_centres_are_those_of_cpus(rows: int, dimensions: int, clusters: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(rows, dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1)[:, None]
    centres = vectors[:clusters].copy()
    centres[clusters // 2 :] = centres[: clusters - clusters // 2]
    assert np.array_equal(Centroids(centres, "cuda").nearest(vectors), Centroids(centres).nearest(vectors))


def test_clusters_are_those_of_cpus() -> None:
    vectors = np.random.default_rng(0).normal(size=(20_000, 64)).astype(np.float32)
    fitted = [KMeans(50, max_iter=5).fit(vectors, device).centroids for device in ("cpu", "cuda")]
    assert np.array_equal(*fitted)


def test_the_kernel_works_where_triton_is_installed() -> None:
    pytest.importorskip("triton")
    from tamis.kernels.gpu import nearest

    assert nearest.works()
