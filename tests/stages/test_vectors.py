"""Columns of vectors, to matrices and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tamis.errors import DataError
from tamis.stages.vectors import vector_column, vectors_of

ROWS = [[1.0, 2.0], None, [3.0, 4.5], [0.0, float("nan")]]


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32(), 2),
        pa.list_(pa.float64(), 2),
        pa.list_(pa.float16(), 2),
        pa.list_(pa.float32()),
        pa.large_list(pa.float64()),
    ],
)
def test_every_kind_of_list_is_read(kind: pa.DataType) -> None:
    rows = [None if row is None else [np.float16(value) for value in row] for row in ROWS]
    for column in (pa.array(rows, kind), pa.chunked_array([pa.array(rows[:1], kind), pa.array(rows, kind).slice(1)])):
        vectors, missing = vectors_of(column, "v")
        assert vectors.dtype == np.float32
        assert vectors.tolist() == [[1, 2], [0, 0], [3, 4.5], [0, 0]]
        assert missing.tolist() == [False, True, False, True]


def test_there_and_back() -> None:
    vectors = np.arange(12, dtype=np.float32).reshape(4, 3)
    missing = np.array([False, True, False, False])
    again, is_missing = vectors_of(vector_column(vectors, missing), "v")
    assert again.tolist() == np.where(missing[:, None], 0, vectors).tolist()
    assert is_missing.tolist() == missing.tolist()
    assert vector_column(vectors).slice(1, 2).to_pylist() == vectors[1:3].tolist()
    vector_column(vectors, missing).validate(full=True)


def test_nothing_but_nulls() -> None:
    for column in (pa.array([None, None]), pa.array([None, None], pa.list_(pa.float32())), pa.array([], pa.null())):
        vectors, missing = vectors_of(column, "v")
        assert len(vectors) == len(missing) == len(column)
        assert missing.all()


def test_a_number_that_is_missing() -> None:
    vectors, missing = vectors_of(pa.array([[1.0, None], [1.0, 2.0]]), "v")
    assert (vectors.tolist(), missing.tolist()) == ([[0, 0], [1, 2]], [True, False])


def test_what_is_no_column_of_vectors() -> None:
    with pytest.raises(DataError, match="'v' has vectors of different lengths: 1 and 2"):
        vectors_of(pa.array([[1.0], [1.0, 2.0]]), "v")
    with pytest.raises(DataError, match="'v' has vectors of different lengths: 1 and 2"):
        vectors_of(pa.chunked_array([[[1.0]], [[1.0, 2.0]]]), "v")
    with pytest.raises(DataError, match="'v' holds string, not vectors"):
        vectors_of(pa.array(["a"]), "v")
    with pytest.raises(DataError, match="not vectors"):
        vectors_of(pa.array([["a"]]), "v")
