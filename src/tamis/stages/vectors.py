"""Columns of vectors, such as embeddings: made of a matrix, and read back as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import DataError
from tamis.kernels.buffers import null_rows

__all__ = ["vector_column", "vectors_of"]


def vector_column(vectors: NDArray[np.float32], missing: NDArray[np.bool_] | None = None) -> pa.FixedSizeListArray:
    """The rows of a matrix as a column of vectors, which shares its memory.

    Args:
        vectors: One in each row.
        missing: Which of them are null.

    >>> vector_column(np.eye(2, dtype=np.float32), missing=np.array([False, True])).to_pylist()
    [[1.0, 0.0], None]
    """
    rows, length = vectors.shape
    values = arrow_array(np.ascontiguousarray(vectors, np.float32).reshape(-1))
    valid = None if missing is None or not missing.any() else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(pa.list_(pa.float32(), length), rows, [valid], children=[values])


def vectors_of(column: pa.Array | pa.ChunkedArray, name: str) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """A column of vectors as a matrix, and which of its rows hold no vector: a null, or with a number missing or NaN.

    Such rows are zeros in the matrix.

    Args:
        column: Lists of numbers, of fixed size or not, all of the same length.
        name: Its name, for messages.

    >>> vectors, missing = vectors_of(pa.array([[1, 2], None, [0.5, float("nan")]]), "embeddings")
    >>> vectors.tolist(), missing.tolist()
    ([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]], [False, True, True])
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    found = [_vectors_of_chunk(chunk, name) for chunk in chunks if len(chunk)]
    lengths = sorted({vectors.shape[1] for vectors, _ in found if vectors.shape[1]})
    if len(lengths) > 1:
        raise DataError(f"the column {name!r} has vectors of different lengths: {lengths[0]} and {lengths[-1]}")
    length = lengths[0] if lengths else 0
    vectors = [each if each.shape[1] else np.zeros((len(each), length), np.float32) for each, _ in found]
    if len(found) == 1:
        return vectors[0], found[0][1]
    return (
        np.concatenate([np.zeros((0, length), np.float32), *vectors]),
        np.concatenate([np.zeros(0, np.bool_), *(missing for _, missing in found)]),
    )


def _vectors_of_chunk(chunk: pa.Array, name: str) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    types, kind = pa.types, chunk.type
    is_list = types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind)
    if types.is_null(kind):
        return np.zeros((len(chunk), 0), np.float32), np.ones(len(chunk), np.bool_)
    if not is_list or not (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)):
        raise DataError(f"the column {name!r} holds {kind}, not vectors: lists of numbers of the same length")
    missing = null_rows(chunk)
    present = chunk.drop_null() if chunk.null_count else chunk
    values: Any = present.flatten()
    if types.is_fixed_size_list(kind):
        length = int(kind.list_size)
    else:
        counts = np.unique(numpy_array(present.value_lengths()))
        if len(counts) > 1:
            raise DataError(f"the column {name!r} has vectors of different lengths: {counts[0]} and {counts[-1]}")
        length = int(counts[0]) if len(counts) else 0
    flat = np.ascontiguousarray(numpy_array(values if values.null_count == 0 else values.fill_null(float("nan"))))
    vectors = flat.astype(np.float32, copy=False).reshape(-1, length) if length else np.zeros((len(present), 0), "f4")
    if missing.any():
        whole = np.zeros((len(chunk), length), np.float32)
        whole[~missing] = vectors
        vectors = whole
    broken = np.logical_not(np.isfinite(vectors).all(axis=1))
    if broken.any():
        vectors, missing = np.where(broken[:, None], np.float32(0), vectors), missing | broken
    return vectors, missing
