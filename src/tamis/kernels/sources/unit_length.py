"""Vectors of length 1: the same bits on every machine."""

from __future__ import annotations

from math import sqrt

from numpy import float32, float64

from tamis.kernels.sources.primitives import helper

__all__ = ["write_unit"]


@helper
def write_unit(sums, dim, vectors, first):
    """Write a vector scaled to length 1, or zeros; false if all its entries are zero.

    The squares are added in four sums, always in the same order, and the sums pair by pair.
    """
    a = b = c = d = float64(0)
    whole = dim - dim % 4
    for i in range(0, whole, 4):
        a += float64(sums[i]) * float64(sums[i])
        b += float64(sums[i + 1]) * float64(sums[i + 1])
        c += float64(sums[i + 2]) * float64(sums[i + 2])
        d += float64(sums[i + 3]) * float64(sums[i + 3])
    if whole < dim:
        a += float64(sums[whole]) * float64(sums[whole])
    if whole + 1 < dim:
        b += float64(sums[whole + 1]) * float64(sums[whole + 1])
    if whole + 2 < dim:
        c += float64(sums[whole + 2]) * float64(sums[whole + 2])
    total = (a + b) + (c + d)
    scale = float64(1) / sqrt(total) if total > float64(0) else float64(0)
    for i in range(dim):
        vectors[first + i] = float32(float64(sums[i]) * scale)
    return total > float64(0)
