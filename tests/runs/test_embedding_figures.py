"""Figures about embeddings, on samples whose figures are known."""

from __future__ import annotations

import numpy as np
import pytest

from tamis.runs.embedding_figures import clusters_of, diversity_of, grouped, principal_axes


def groups(count: int, each: int, noise: float, dim: int = 32, seed: int = 0) -> np.ndarray:
    """Unit vectors around some directions that have nothing in common."""
    rng = np.random.default_rng(seed)
    vectors = np.repeat(np.eye(dim)[:count], each, axis=0) + noise * rng.standard_normal((count * each, dim))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_equal_rows_are_worth_one() -> None:
    found = diversity_of(np.tile(np.eye(8, dtype=np.float32)[:1], (50, 1)), ["a"] * 50)
    assert found.mean_distance == pytest.approx(0)
    assert found.effective_directions == pytest.approx(1)
    assert found.near_duplicates == 1
    assert (found.clusters, found.effective_clusters, found.largest_cluster) == (1, 1, 1)


@pytest.mark.parametrize("dim", [16, 1000])
def test_rows_in_groups_are_worth_as_many_as_there_are_groups(dim: int) -> None:
    vectors = groups(5, 20, 0.0, dim)
    found = diversity_of(vectors, [str(i // 20) for i in range(100)])
    assert found.effective_directions == pytest.approx(5)
    assert found.effective_clusters == pytest.approx(5)
    assert found.mean_distance == pytest.approx(1 - 19 / 99)
    assert found.largest_cluster == pytest.approx(0.2)


def test_removing_duplicates_makes_a_sample_more_diverse() -> None:
    before = groups(20, 10, 0.05)
    after = before[::10]
    one, other = (diversity_of(each, ["a"] * len(each)) for each in (before, after))
    assert other.mean_distance > one.mean_distance
    assert other.near_duplicates < one.near_duplicates


def test_a_single_row() -> None:
    found = diversity_of(np.eye(3, dtype=np.float32)[:1], ["a"])
    assert (found.mean_distance, found.near_duplicates) == (0, 0)
    with pytest.raises(ValueError, match="without rows"):
        diversity_of(np.zeros((0, 3), np.float32), [])


def test_the_axes_are_those_of_the_largest_differences() -> None:
    rng = np.random.default_rng(3)
    vectors = (rng.standard_normal((500, 40)) * np.array([9, 5, *[0.1] * 38])).astype(np.float32)
    middle, axes, shares = principal_axes(vectors)
    exact = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    assert np.allclose(np.abs(axes @ exact[2][:2].T), np.eye(2), atol=1e-5)
    assert shares == pytest.approx((exact[1][:2] ** 2 / (exact[1] ** 2).sum()).tolist(), rel=1e-5)
    assert np.allclose(middle, vectors.mean(axis=0), atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 5), (2, 1), (3, 2), (1, 1)])
def test_axes_of_few_rows(shape: tuple[int, int]) -> None:
    _, axes, shares = principal_axes(np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape))
    assert axes.shape == (2, shape[1])
    assert np.isfinite(axes).all()
    assert all(0 <= share <= 1.000001 for share in shares)


def test_groups_are_found() -> None:
    vectors = groups(4, 25, 0.1)
    order = np.random.default_rng(5).permutation(100)
    found = np.array(grouped(vectors[order], 4))
    for group in range(4):
        assert len(set(found[order // 25 == group])) == 1
    assert len(set(found)) == 4
    assert grouped(vectors[:0], 4) == []
    assert len(set(grouped(vectors[:2], 4))) == 2


def test_the_largest_cluster_comes_first_with_its_words() -> None:
    vectors = np.concatenate([groups(1, 10, 0.05), groups(2, 30, 0.05)[30:]])
    texts = ["the small garden with roses"] * 10 + ["the fast engine with turbo"] * 30
    found = clusters_of(vectors, texts, grouped(vectors, 2), 5)
    assert [each.rows for each in found] == [30, 10]
    assert {"fast", "engine", "turbo"} == set(found[0].words[:3])
    assert {"small", "garden", "roses"} == set(found[1].words[:3])
    assert found[1].example == "the small garden with roses"
