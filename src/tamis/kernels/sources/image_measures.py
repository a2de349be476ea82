"""The kernel that measures the pixels of a picture: luma, colours, neighbours and uniform borders, as whole numbers."""

from __future__ import annotations

from numpy import int32, int64, uint8

from tamis.kernels.image_sums import (
    BELOW_EQUAL,
    BORDER_TOLERANCE,
    BOTTOM,
    LAPLACE,
    LAPLACE_SQUARES,
    LEFT,
    NOISE,
    RED_GREEN,
    RED_GREEN_SQUARES,
    RIGHT,
    RIGHT_EQUAL,
    TOP,
    YELLOW_BLUE,
    YELLOW_BLUE_SQUARES,
)
from tamis.kernels.sources.primitives import helper

__all__ = ["kernel"]


def kernel(pixels, height, width, luma, luma_counts, spread_counts, color_counts, sums):
    """Measure a picture. Returns 0.

    Args:
        pixels: Rows of pixels: red, green, blue.
        luma: A place for the luma of each pixel, as Pillow computes it.
        luma_counts: How many pixels have each luma. This and all that follows is added to: the caller clears it.
        spread_counts: How many pixels have each difference of their greatest and their least channel.
        color_counts: How many pixels have each colour, of 4 bits per channel.
        sums: What :mod:`tamis.kernels.image_sums` names.
    """
    for y in range(height):
        sum_colors(pixels, y * width, width, luma, sums)
        count_colors(pixels, y * width, width, luma, luma_counts, spread_counts, color_counts)
        count_equal(pixels, y, height, width, sums)
    for y in range(1, height - 1):
        sum_luma(luma, y * width, width, sums)
    find_borders(pixels, height, width, sums)
    return 0


@helper
def sum_colors(pixels, first, width, luma, sums):
    """The luma of a row of pixels, and sums of differences of their channels, many pixels at a time."""
    red_green = red_green_squares = yellow_blue = yellow_blue_squares = int64(0)
    for i in range(first, first + width):
        r, g, b = int32(pixels[3 * i]), int32(pixels[3 * i + 1]), int32(pixels[3 * i + 2])
        luma[i] = uint8((r * int32(19595) + g * int32(38470) + b * int32(7471) + int32(0x8000)) >> int32(16))
        rg, yb = r - g, r + g - b - b
        red_green += rg
        red_green_squares += rg * rg
        yellow_blue += yb
        yellow_blue_squares += yb * yb
    sums[RED_GREEN] += red_green
    sums[RED_GREEN_SQUARES] += red_green_squares
    sums[YELLOW_BLUE] += yellow_blue
    sums[YELLOW_BLUE_SQUARES] += yellow_blue_squares


@helper
def count_colors(pixels, first, width, luma, luma_counts, spread_counts, color_counts):
    """Count the pixels of a row, one at a time."""
    for i in range(first, first + width):
        r, g, b = int64(pixels[3 * i]), int64(pixels[3 * i + 1]), int64(pixels[3 * i + 2])
        luma_counts[luma[i]] += 1
        spread_counts[max(r, max(g, b)) - min(r, min(g, b))] += 1
        color_counts[(r >> 4) << 8 | (g >> 4) << 4 | b >> 4] += 1


@helper
def count_equal(pixels, y, height, width, sums):
    """Pixels of a row that equal the one to the right of them, and the one below."""
    sums[RIGHT_EQUAL] += equal_pixels(pixels, y * width, 1, width - 1)
    if y < height - 1:
        sums[BELOW_EQUAL] += equal_pixels(pixels, y * width, width, width)


@helper
def equal_pixels(pixels, first, distance, count):
    """How many of some pixels equal the one at a distance."""
    equal = int64(0)
    for pixel in range(first, first + count):
        i = 3 * pixel
        j = i + 3 * distance
        differs = uint8((pixels[i] ^ pixels[j]) | (pixels[i + 1] ^ pixels[j + 1]) | (pixels[i + 2] ^ pixels[j + 2]))
        equal += int64(1) if differs == uint8(0) else int64(0)
    return equal


@helper
def sum_luma(luma, first, width, sums):
    """The Laplacian and the noise mask of Immerkaer at the pixels of a row, without the first and the last."""
    laplace = laplace_squares = noise = int64(0)
    for i in range(first + 1, first + width - 1):
        up, down = i - width, i + width
        centre = int32(luma[i])
        sides = int32(luma[up]) + int32(luma[down]) + int32(luma[i - 1]) + int32(luma[i + 1])
        corners = int32(luma[up - 1]) + int32(luma[up + 1]) + int32(luma[down - 1]) + int32(luma[down + 1])
        curve = int32(4) * centre - sides
        laplace += curve
        laplace_squares += curve * curve
        noise += abs(int32(4) * centre - int32(2) * sides + corners)
    sums[LAPLACE] += laplace
    sums[LAPLACE_SQUARES] += laplace_squares
    sums[NOISE] += noise


@helper
def find_borders(pixels, height, width, sums):
    """How many rows from above and below, and then columns from both sides, are of one colour each."""
    top = uniform_lines(pixels, 0, 3 * width, height, 3, width)
    bottom = uniform_lines(pixels, 3 * width * (height - 1), -3 * width, height - top, 3, width)
    inner, first = height - top - bottom, 3 * width * top
    left = uniform_lines(pixels, first, 3, width, 3 * width, inner) if inner else 0
    right = uniform_lines(pixels, first + 3 * (width - 1), -3, width - left, 3 * width, inner) if inner else 0
    sums[TOP] += top
    sums[BOTTOM] += bottom
    sums[LEFT] += left
    sums[RIGHT] += right


@helper
def uniform_lines(pixels, first, to_next_line, lines, to_next_pixel, length):
    """How many lines one after the other have, in each channel, values that differ by no more than the tolerance."""
    low_r = high_r = int32(pixels[first])
    low_g = high_g = int32(pixels[first + 1])
    low_b = high_b = int32(pixels[first + 2])
    for line in range(lines):
        at = first + line * to_next_line
        for _ in range(length):
            r, g, b = int32(pixels[at]), int32(pixels[at + 1]), int32(pixels[at + 2])
            low_r, high_r = min(low_r, r), max(high_r, r)
            low_g, high_g = min(low_g, g), max(high_g, g)
            low_b, high_b = min(low_b, b), max(high_b, b)
            if max(high_r - low_r, max(high_g - low_g, high_b - low_b)) > int32(BORDER_TOLERANCE):
                return line
            at += to_next_pixel
    return lines
