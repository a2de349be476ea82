"""The kernel that makes the vector of a text of those of its tokens: their mean."""

from __future__ import annotations

from numpy import float32, int64

from tamis.kernels.sources.primitives import helper
from tamis.kernels.sources.unit_length import write_unit

__all__ = ["kernel"]


@helper
def _add(table, start, dim, sums):
    for i in range(dim):
        sums[i] += table[start + i]


def kernel(
    ids, offsets, row_count, most_tokens, table, counted, token_count, dim, normalize, sums, vectors, tokens_used
):
    """Make the vector of each row of tokens. Returns 0.

    Args:
        ids, offsets: The tokens of all rows, and where each row begins.
        most_tokens: How many tokens of a row are looked at.
        table: The vectors of the tokens, one after another. A token beyond them has the last one.
        counted: 0 for tokens that are left out.
        normalize: 1 for vectors of length 1.
        sums: For sums.
        tokens_used: How many tokens the vector of each row is the mean of.
    """
    for row in range(row_count):
        begin = offsets[row]
        end = min(offsets[row + 1], begin + most_tokens)
        used = 0
        for i in range(dim):
            sums[i] = float32(0)
        for at in range(begin, end):
            token = max(0, min(int64(ids[at]), token_count - 1))
            if counted[token] != 0:
                _add(table, token * dim, dim, sums)
                used += 1
        first = row * dim
        if normalize == 1:
            write_unit(sums, dim, vectors, first)
        else:
            share = float32(max(used, 1))
            for i in range(dim):
                vectors[first + i] = sums[i] / share
        tokens_used[row] = used
    return int64(0)
