"""One byte of each hash of a signature: enough to estimate how similar two documents are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["estimated_similarity", "sketch_array", "sketch_bytes", "write_sketches"]

_BY_CHANCE = 1 / 256

_ROWS_AT_ONCE = 64
"""Signatures that are worked on at once: their numbers stay in the cache."""


def write_sketches(signatures: NDArray[Any], sketches: NDArray[np.uint8]) -> None:
    """Write the sketches of signatures into the rows of an array."""
    for start in range(0, len(signatures), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        mixed = signatures[some].astype(np.uint32, copy=False) * np.uint32(0x9E3779B1)
        # The highest byte of each number.
        sketches[some] = mixed.astype("<u4", copy=False).view(np.uint8)[:, 3::4]


def sketch_array(sketches: NDArray[np.uint8]) -> pa.Array:
    """Sketches, one in each row, as an Arrow array of byte strings of equal length, which shares their memory.

    >>> sketch_array(np.array([[1, 2], [1, 3]], np.uint8)).type
    FixedSizeBinaryType(fixed_size_binary[2])
    """
    rows, width = sketches.shape
    return pa.Array.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(sketches)])


def sketch_bytes(column: pa.Array | pa.ChunkedArray) -> NDArray[np.uint8]:
    """The bytes of sketches, one row for each."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    width = array.type.byte_width
    held = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    return held[array.offset * width : (array.offset + len(array)) * width].reshape(len(array), width)


def estimated_similarity(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The estimated Jaccard similarity of documents, row by row, from their sketches.

    Bytes agree by chance in one of 256 cases, which is taken into account.

    >>> estimated_similarity(np.array([[1, 2]], np.uint8), np.array([[1, 2]], np.uint8)).tolist()
    [1.0]
    """
    agree: NDArray[np.float32] = (one == other).mean(axis=1, dtype=np.float32)
    similarity: NDArray[np.float32] = (agree - np.float32(_BY_CHANCE)) / np.float32(1 - _BY_CHANCE)
    return np.maximum(similarity, np.float32(0))
