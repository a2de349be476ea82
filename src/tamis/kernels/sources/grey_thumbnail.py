"""The kernel that makes a small grey picture of a picture in colours: the bits of Pillow's conversion and resampling.

Both steps are those of Pillow, since published perceptual hashes are defined by it: a weighted mean of red, green and
blue in 16-bit fixed point, then two passes of a separable filter with coefficients of 22 bits, rounded to bytes after
each pass.
"""

from __future__ import annotations

from numpy import int32, uint8, uint32

from tamis.kernels.sources.primitives import helper

__all__ = ["kernel"]

_BITS = 22
_HALF = int32(1 << (_BITS - 1))


@helper
def grey_picture(pixels, count, grey):
    for i in range(count):
        weighted = uint32(pixels[3 * i]) * uint32(19595) + uint32(pixels[3 * i + 1]) * uint32(38470)
        grey[i] = uint8((weighted + uint32(pixels[3 * i + 2]) * uint32(7471) + uint32(0x8000)) >> uint32(16))
    return 0


@helper
def rounded(total):
    """A sum in fixed point as a byte."""
    value = total >> _BITS
    return uint8(min(max(value, 0), 255))


@helper
def weighted_sum(values, first, count, weights, at):
    total = _HALF
    for i in range(count):
        total = int32(total + int32(values[first + i]) * weights[at + i])
    return rounded(total)


@helper
def shrunk_down(grey, width, first, count, weights, at, sums, out, start):
    """One row of the picture that is resized in height only."""
    for x in range(width):
        sums[x] = _HALF
    for i in range(count):
        row, weight = (first + i) * width, weights[at + i]
        for x in range(width):
            sums[x] = int32(sums[x] + int32(grey[row + x]) * weight)
    for x in range(width):
        out[start + x] = rounded(sums[x])
    return 0


def kernel(
    pixels,
    height,
    width,
    x_begins,
    x_counts,
    x_weights,
    x_taps,
    columns,
    y_begins,
    y_counts,
    y_weights,
    y_taps,
    rows,
    height_first,
    grey,
    half,
    sums,
    thumbnail,
):
    """Write the thumbnail, row by row. Returns 0.

    Args:
        pixels: Three bytes per pixel, row by row.
        x_begins, x_counts: From which columns each column of the thumbnail is made.
        x_weights: With which weights, ``x_taps`` for each column.
        y_begins, y_counts, y_weights, y_taps: The same for rows.
        height_first: 1 if the columns are made shorter before the rows.
        grey: Room for the picture.
        half: Room for the picture, resized in one direction.
        sums: Room for a row.
    """
    grey_picture(pixels, height * width, grey)
    if height_first != 0:
        for row in range(rows):
            shrunk_down(grey, width, y_begins[row], y_counts[row], y_weights, row * y_taps, sums, half, row * width)
            for column in range(columns):
                first = row * width + x_begins[column]
                value = weighted_sum(half, first, x_counts[column], x_weights, column * x_taps)
                thumbnail[row * columns + column] = value
        return 0
    for y in range(height):
        for column in range(columns):
            first = y * width + x_begins[column]
            half[column * height + y] = weighted_sum(grey, first, x_counts[column], x_weights, column * x_taps)
    for row in range(rows):
        for column in range(columns):
            first = column * height + y_begins[row]
            thumbnail[row * columns + column] = weighted_sum(half, first, y_counts[row], y_weights, row * y_taps)
    return 0
