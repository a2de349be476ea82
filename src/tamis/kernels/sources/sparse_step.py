"""The kernel that makes one step of stochastic gradient descent with AdaGrad (Duchi, Hazan and Singer, 2011)."""

from __future__ import annotations

import math

from numpy import float32, float64, int64

__all__ = ["kernel"]


def kernel(slots, values, ends, vector_count, rows, row_count, gradients, weights, squares, slot_count, width, rates):
    """Change the weights of the slots of some rows, one row after another. Returns 0.

    Args:
        slots, values, ends: The sparse vectors: slots and values, and where those of each begin and end.
        rows: The vectors of this step.
        gradients: The derivative of the loss by each score of each row.
        weights, squares: The weights and the sums of their squared gradients, a row of ``width`` for each slot; the
            number of slots is a power of two.
        rates: The learning rate, and the strength of the pull towards zero.
    """
    last = slot_count - 1
    rate, pull = rates[0], rates[1]
    for i in range(row_count):
        row, of_row = rows[i], i * width
        for j in range(ends[row], ends[row + 1]):
            place, value = (int64(slots[j]) & last) * width, float64(values[j])
            for k in range(width):
                weight = float64(weights[place + k])
                slope = value * gradients[of_row + k] + pull * weight
                square = float64(squares[place + k]) + slope * slope
                squares[place + k] = float32(square)
                if square > 0.0:
                    weights[place + k] = float32(weight - rate * slope / math.sqrt(square))
    return int64(0)
