"""The kernel that multiplies sparse rows with a matrix of weights."""

from __future__ import annotations

from numpy import float64, int64

__all__ = ["kernel"]


def kernel(slots, values, ends, vector_count, rows, row_count, weights, slot_count, width, scores):
    """Write the product of each chosen row with the weights. Returns 0.

    Args:
        slots, values, ends: The sparse vectors: slots and values, and where those of each begin and end.
        rows: Which vectors to multiply.
        weights: A row of ``width`` numbers for each slot; the number of slots is a power of two.
        scores: A row of ``width`` numbers for each vector.
    """
    last = slot_count - 1
    for i in range(row_count):
        row, out = rows[i], i * width
        for k in range(width):
            scores[out + k] = 0.0
        for j in range(ends[row], ends[row + 1]):
            place, value = (int64(slots[j]) & last) * width, float64(values[j])
            for k in range(width):
                scores[out + k] += value * float64(weights[place + k])
    return int64(0)
