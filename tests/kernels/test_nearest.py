"""The nearest rows are the same for any blocks, and those of a comparison with all rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels.nearest import Nearest


def vectors_for(seed: int, rows: int, dim: int) -> np.ndarray:
    """Vectors of which many are equal, or differ in the last bit alone."""
    rng = np.random.default_rng(seed)
    few = rng.standard_normal((max(1, rows // 4), dim)).astype(np.float32)
    vectors = few[rng.integers(0, len(few), rows)]
    nudged = rng.random(rows) < 0.3
    vectors[nudged] = np.nextafter(vectors[nudged], np.float32(9))
    return vectors


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rows=st.integers(0, 60),
    dim=st.sampled_from([1, 2, 16, 300]),
    k=st.sampled_from([1, 3, 20, 100]),
    cuts=st.lists(st.integers(0, 60), max_size=4),
)
def test_the_same_rows_for_any_blocks(seed: int, rows: int, dim: int, k: int, cuts: list[int]) -> None:
    vectors = vectors_for(seed, rows, dim)
    query = np.random.default_rng(seed + 1).standard_normal(dim).astype(np.float32)
    nearest = Nearest(query, k)
    edges = sorted({0, rows, *(min(cut, rows) for cut in cuts)})
    for start, end in pairwise(edges):
        nearest.add(vectors[start:end])
    exact, unit = vectors.astype(np.float64), query.astype(np.float64)
    unit /= np.sqrt((unit * unit).sum())
    cosines = (exact * unit).sum(axis=1) / np.sqrt((exact * exact).sum(axis=1))
    expected = np.lexsort((np.arange(rows), -cosines))[:k]
    assert nearest.rows.tolist() == expected.tolist()
    assert nearest.cosines.tolist() == cosines[expected].tolist()
    assert nearest.seen == rows


def test_rows_without_a_direction_are_never_near() -> None:
    nearest = Nearest(np.array([1, 1], np.float32), k=10)
    nearest.add(np.array([[0, 0], [np.nan, 1], [-1, -1], [np.inf, 0], [3, 3]], np.float32))
    assert nearest.rows.tolist() == [4, 2]
    assert nearest.cosines == pytest.approx([1, -1])


@pytest.mark.parametrize("query", [[0, 0], [np.nan, 1], [np.inf, 0]])
def test_a_query_without_a_direction_is_refused(query: list[float]) -> None:
    with pytest.raises(ValueError, match="no direction"):
        Nearest(np.array(query, np.float32), 1)


def test_k_is_at_least_1() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Nearest(np.ones(2, np.float32), 0)
