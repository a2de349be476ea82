"""Vectors of texts from static vectors of tokens: the mean of those of a text's tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.unit_length import unit_vector

__all__ = ["token_means"]


def token_means(
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    table: NDArray[np.float32],
    counted: NDArray[np.uint8],
    *,
    most_tokens: int = 1 << 40,
    normalize: bool = True,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The mean of the vectors of the tokens of each row, and how many tokens that were. Of none, it is zeros.

    The vectors of a row are added in the order of its tokens, in single precision: the same bits on every machine.

    Args:
        ids: The tokens of all rows.
        offsets: Where each row begins, and as the last one where the last row ends.
        table: The vector of each token. A token beyond the table has its last vector.
        counted: For each token 1, or 0 if it is left out.
        most_tokens: How many tokens of a row are looked at.
        normalize: Whether vectors are scaled to length 1.

    >>> table, counted = np.array([[4, 0], [0, 2], [9, 9]], np.float32), np.array([1, 1, 0], np.uint8)
    >>> vectors, used = token_means(np.array([0, 1, 2], np.int32), np.array([0, 3, 3]), table, counted, normalize=False)
    >>> vectors.tolist(), used.tolist()
    ([[2.0, 1.0], [0.0, 0.0]], [2, 0])
    """
    if len(table) != len(counted) or not len(table):
        raise ValueError(f"there are {len(table)} vectors, and for {len(counted)} tokens it is said whether they count")
    if offsets[0] < 0 or offsets[-1] > len(ids) or (np.diff(offsets) < 0).any():
        raise ValueError("the offsets of a column of tokens are damaged")
    rows, dim = len(offsets) - 1, table.shape[1]
    vectors, used = np.empty((rows, dim), np.float32), np.empty(rows, np.int64)
    kernel = native.load("token_means")
    if kernel is not None:
        kernel(
            *(np.ascontiguousarray(ids), np.ascontiguousarray(offsets), rows, most_tokens),
            *(np.ascontiguousarray(table).reshape(-1), counted, len(table), dim, int(normalize)),
            *(np.empty(dim, np.float32), vectors.reshape(-1), used),
        )
        return vectors, used
    for row in range(rows):
        begin = int(offsets[row])
        tokens = np.clip(ids[begin : min(int(offsets[row + 1]), begin + most_tokens)], 0, len(table) - 1)
        tokens = tokens[counted[tokens] != 0]
        used[row] = len(tokens)
        sums = np.cumsum(np.concatenate([np.zeros((1, dim), np.float32), table[tokens]]), axis=0, dtype=np.float32)[-1]
        vectors[row] = unit_vector(sums) if normalize else sums / np.float32(max(len(tokens), 1))
    return vectors, used
