"""The kernel that resizes pixels: Pillow's way, first along the rows, then along the columns, rounded after each."""

from __future__ import annotations

from numpy import int64

from tamis.kernels.sources.primitives import helper
from tamis.kernels.sources.weighted_bytes import LANES, turn_block, weighted_sums

__all__ = ["kernel"]

_three = weighted_sums(3)
_four = weighted_sums(4)


@helper
def _turn(source, first, step, rows, columns, target):
    """Turn up to LANES rows of any number of bytes on their side."""
    whole = columns - columns % LANES
    for column in range(0, whole, LANES):
        turn_block(source, first + column, step, rows, target, column * LANES)
    for column in range(whole, columns):
        for row in range(LANES):
            target[column * LANES + row] = source[first + step * min(row, rows - 1) + column]


@helper
def _narrow(pixels, step, first_row, row_count, x_first, x_end, begins, counts, weights, taps, width, turned, narrow):
    """The rows of a picture with another width, LANES of them: column by column, each from several columns."""
    _turn(pixels, first_row * step + 3 * x_first, step, row_count, 3 * (x_end - x_first), turned)
    for x in range(width):
        first = 3 * LANES * (begins[x] - x_first)
        _three(turned, first, 3 * LANES, weights, x * taps, counts[x], narrow, 3 * LANES * x)


def kernel(
    pixels,
    height,
    width,
    x_begins,
    x_counts,
    x_weights,
    x_taps,
    new_width,
    y_begins,
    y_counts,
    y_weights,
    y_taps,
    new_height,
    turned,
    narrow,
    between,
    line,
    resized,
):
    """Resize a picture. Returns 0.

    Args:
        pixels: Three bytes per pixel, row by row.
        x_begins, x_counts: From which columns each new column is made.
        x_weights: With which weights, ``x_taps`` for each new column.
        y_begins, y_counts, y_weights, y_taps: The same for rows.
        turned, narrow: Room for LANES rows of the picture before and after, column by column.
        between: Room for the picture with its new width; rows are padded to a multiple of 64 bytes.
        line: Room for a padded row.
    """
    x_first, x_end = x_begins[0], x_begins[new_width - 1] + x_counts[new_width - 1]
    y_first, y_end = y_begins[0], y_begins[new_height - 1] + y_counts[new_height - 1]
    row_bytes = 3 * new_width
    padded = (row_bytes + 63) // 64 * 64
    for row in range(y_first, y_end, LANES):
        rows = min(LANES, y_end - row)
        _narrow(
            pixels,
            3 * width,
            row,
            rows,
            x_first,
            x_end,
            x_begins,
            x_counts,
            x_weights,
            x_taps,
            new_width,
            turned,
            narrow,
        )
        # Back into rows: the columns are now the rows of a block. Those after the last one are never looked at.
        for column in range(0, row_bytes, LANES):
            columns = min(LANES, row_bytes - column)
            turn_block(narrow, column * LANES, LANES, columns, turned, 0)
            for i in range(rows):
                place = (row - y_first + i) * padded + column
                for j in range(LANES):
                    between[place + j] = turned[i * LANES + j]
    for row in range(new_height):
        first = (y_begins[row] - y_first) * padded
        for column in range(0, padded, 64):
            _four(between, first + column, padded, y_weights, row * y_taps, y_counts[row], line, column)
        for i in range(row_bytes):
            resized[row * row_bytes + i] = line[i]
    return int64(0)
