"""k-means and the centres of clusters, held to plain definitions; the same on any device and for any blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tamis.kernels.centroids import Centroids
from tamis.kernels.kmeans import ClusterSums, KMeans
from tamis.kernels.products import CpuProducts
from tamis.kernels.unit_vectors import cosines, unit_rows

Vectors = NDArray[np.float32]


def clouds(seed: int, count: int, clusters: int, dimensions: int = 8, spread: float = 0.1) -> Vectors:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(clusters, dimensions))
    made = centres[rng.integers(0, clusters, count)] + rng.normal(size=(count, dimensions)) * spread
    return made.astype(np.float32)


@pytest.mark.parametrize("algorithm", ["full", "mini-batch"])
@pytest.mark.parametrize("init", ["k-means||", "random"])
def test_clouds_that_lie_apart_are_found(algorithm: Any, init: Any) -> None:
    vectors = clouds(1, 2000, 7, spread=0.02)
    found = KMeans(7, algorithm=algorithm, init=init, batch_rows=256, n_init=4, max_iter=50).fit(vectors)
    homes = Centroids(found.centroids).nearest(vectors)
    inertia = float(np.square(vectors - found.centroids[homes]).sum())
    assert found.inertia == pytest.approx(inertia, rel=1e-3)
    if init == "k-means||":
        assert len(found.centroids) == 7
        assert inertia < 2000 * 8 * 0.02**2 * 1.1


def test_each_centre_is_the_mean_of_its_vectors() -> None:
    vectors = clouds(2, 500, 12)
    found = KMeans(5, tol=0).fit(vectors)
    homes = Centroids(found.centroids).nearest(vectors)
    means = np.stack([vectors[homes == n].mean(axis=0) for n in range(5)])
    np.testing.assert_allclose(found.centroids, means, atol=1e-6)


def test_every_device_and_every_block_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    vectors = unit_rows(clouds(3, 1500, 9, spread=0.8))[0]
    found = KMeans(20).fit(vectors)
    on_torch = KMeans(20).fit(vectors, "torch:cpu")
    monkeypatch.setattr(CpuProducts, "rows_at_once", 7)
    in_blocks = KMeans(20).fit(vectors)
    assert found.centroids.tobytes() == on_torch.centroids.tobytes() == in_blocks.centroids.tobytes()
    assert found.inertia == on_torch.inertia == in_blocks.inertia


def test_another_seed_makes_other_clusters() -> None:
    vectors = clouds(4, 400, 40, spread=1.0)
    one, again, other = (KMeans(10, seed=seed).fit(vectors).centroids for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_fewer_vectors_than_clusters() -> None:
    vectors = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    for init in ("k-means||", "random"):
        found = KMeans(10, init=init).fit(vectors)  # type: ignore[arg-type]  # both are known
        assert sorted(found.centroids.tolist()) == np.eye(3).tolist()[::-1]
        assert found.inertia == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("size", [1e-6, 1.0, 3e4])
def test_vectors_of_any_length(size: float) -> None:
    vectors = clouds(5, 300, 3, spread=0.01) * np.float32(size)
    found = KMeans(3).fit(vectors)
    homes = Centroids(found.centroids).nearest(vectors)
    means = np.stack([vectors[homes == n].mean(axis=0, dtype=np.float64) for n in range(3)])
    np.testing.assert_allclose(found.centroids, means, rtol=1e-4, atol=1e-6 * size)


def test_sums_do_not_depend_on_the_order_or_the_parts() -> None:
    vectors = unit_rows(clouds(6, 1000, 3))[0]
    homes = np.random.default_rng(6).integers(0, 4, 1000)
    whole, parts = ClusterSums(4, 8), ClusterSums(4, 8)
    whole.add(vectors, homes)
    order = np.random.default_rng(7).permutation(1000)
    for some in np.split(order, [10, 500, 501]):
        parts.add(vectors[some], homes[some])
    assert np.array_equal(whole.sums, parts.sums)
    assert np.array_equal(whole.counts, parts.counts)


def test_the_nearest_centre_of_equally_near_ones_is_the_first() -> None:
    centres = np.array([[1, 0], [-1, 0], [1, 0]], np.float32)
    assert Centroids(centres).nearest(np.array([[0, 5], [3, 1], [-3, 1]], np.float32)).tolist() == [0, 0, 1]


@pytest.mark.parametrize("device", ["cpu", "torch:cpu"])
def test_vectors_that_are_close_share_a_region(device: str) -> None:
    if device != "cpu":
        pytest.importorskip("torch")
    vectors = unit_rows(clouds(8, 600, 6, dimensions=4, spread=0.3))[0]
    for clusters, reach in ((2, 0.1), (9, 0.05), (80, 0.02), (80, 0.3)):
        centroids = Centroids(KMeans(clusters).fit(vectors).centroids, device)
        homes, rows, others = centroids.near(vectors, reach)
        regions = [{home} for home in homes.tolist()]
        for row, other in zip(rows.tolist(), others.tolist(), strict=True):
            assert other not in regions[row]
            regions[row].add(other)
        close = np.argwhere(np.linalg.norm(vectors[:, None] - vectors[None], axis=2) <= 2 * reach)
        assert all(homes[a] in regions[b] or homes[b] in regions[a] for a, b in close.tolist())
        assert sum(map(len, regions)) < len(vectors) * len(centroids)


def test_cosines_of_equal_vectors_are_one() -> None:
    vectors = unit_rows(clouds(9, 2000, 5, dimensions=77))[0]
    assert (cosines(vectors, vectors) == 1).all()
    longer, _ = unit_rows(vectors * np.float32(3.7))
    assert (cosines(vectors, longer) == 1).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"n_clusters": 0}, "n_clusters=0"), ({"algorithm": "fast"}, "algorithm='fast'"), ({"max_iter": 0}, "max_iter=0")],
)
def test_bad_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KMeans(**{"n_clusters": 2, **parameters})


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e5])
@pytest.mark.parametrize("device", ["cpu", "torch:cpu"])
def test_centres_that_hardly_differ_are_told_apart(device: str, size: float) -> None:
    if device != "cpu":
        pytest.importorskip("torch")
    vectors = unit_rows(clouds(10, 400, 5, dimensions=48, spread=0.5))[0] * np.float32(size)
    rng = np.random.default_rng(10)
    centres = np.concatenate([vectors[:20] * np.float32(1 + step) for step in (0, 1e-7, 1e-5, 1e-3)])
    centres = centres[rng.permutation(len(centres))]
    exact = vectors.astype(np.float64) @ centres.T.astype(np.float64) - np.square(centres.astype(np.float64)).sum(1) / 2
    found = Centroids(centres, device).nearest(vectors)
    gaps = exact.max(axis=1) - exact[np.arange(len(vectors)), found]
    assert gaps.max() <= 1e-13 * size**2


@pytest.mark.parametrize("device", ["cpu", "torch:cpu"])
def test_vectors_that_move_are_summed_as_all_are(device: str) -> None:
    if device != "cpu":
        pytest.importorskip("torch")
    vectors = unit_rows(clouds(11, 300, 4))[0]
    before, after = np.random.default_rng(11).integers(0, 5, (2, 300))
    products = Centroids(vectors[:1], device).products
    moved, whole = ClusterSums(5, 8), ClusterSums(5, 8)
    moved.add(vectors, before)
    moved.move(vectors, before, after, products, products.hold(vectors))
    whole.add(vectors, after)
    assert np.array_equal(moved.sums, whole.sums)
    assert np.array_equal(moved.counts, whole.counts)
