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
    across,
    across_firsts,
    across_room,
    down,
    down_firsts,
    down_room,
    columns,
    rows,
    down_first,
    grey,
    half,
    sums,
    out,
):
    """Write the thumbnail into ``out``, row by row. Returns 0.

    Args:
        across: For each column of the thumbnail ``across_room`` coefficients, of which the first ones count.
        across_firsts: For each column the first pixel that its coefficients are for, then how many there are.
        down, down_firsts, down_room: The same for rows.
        down_first: 1 if the height is made smaller first.
        grey: Room for the picture.
        half: Room for the picture, resized in one direction.
        sums: Room for a row.
    """
    grey_picture(pixels, height * width, grey)
    if down_first != 0:
        for row in range(rows):
            first, count = down_firsts[2 * row], down_firsts[2 * row + 1]
            shrunk_down(grey, width, first, count, down, row * down_room, sums, half, row * width)
            for column in range(columns):
                first, count = row * width + across_firsts[2 * column], across_firsts[2 * column + 1]
                out[row * columns + column] = weighted_sum(half, first, count, across, column * across_room)
        return 0
    for y in range(height):
        for column in range(columns):
            first, count = y * width + across_firsts[2 * column], across_firsts[2 * column + 1]
            half[column * height + y] = weighted_sum(grey, first, count, across, column * across_room)
    for row in range(rows):
        for column in range(columns):
            first, count = column * height + down_firsts[2 * row], down_firsts[2 * row + 1]
            out[row * columns + column] = weighted_sum(half, first, count, down, row * down_room)
    return 0
