"""Counts in the pixels of a picture: what measures of its brightness, sharpness, colours and borders are made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.image_sums import BORDER_TOLERANCE, COLORS, SUMS

__all__ = ["PixelCounts", "count_pixels", "luma_of"]


@dataclass(frozen=True)
class PixelCounts:
    """What was counted in a picture.

    Args:
        height, width: Its size in pixels.
        luma: How many pixels have each luma, 0 to 255.
        spread: How many pixels have each difference of their greatest and their least channel.
        colors: How many pixels have each colour, of 4 bits per channel.
        sums: The numbers that :mod:`tamis.kernels.image_sums` names.
    """

    height: int
    width: int
    luma: NDArray[np.int64]
    spread: NDArray[np.int64]
    colors: NDArray[np.int64]
    sums: NDArray[np.int64]


def count_pixels(pixels: NDArray[np.uint8]) -> PixelCounts:
    """Count in a picture.

    Args:
        pixels: Height, width and three channels: red, green, blue.

    >>> counts = count_pixels(np.full((4, 5, 3), 128, np.uint8))
    >>> counts.luma[128], counts.sums[-4:].tolist()
    (np.int64(20), [4, 0, 0, 0])
    """
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
        raise ValueError(f"a picture is height x width x 3 values of uint8, not {pixels.shape} of {pixels.dtype}")
    kernel = native.load("image_measures")
    if kernel is None:
        return _plain(pixels)
    height, width = pixels.shape[:2]
    counted = np.zeros(512 + COLORS + SUMS, np.int64)
    luma, spread, colors, sums = np.split(counted, (256, 512, 512 + COLORS))
    scratch = np.empty(height * width, np.uint8)
    kernel(np.ascontiguousarray(pixels).reshape(-1), height, width, scratch, luma, spread, colors, sums)
    return PixelCounts(height, width, luma, spread, colors, sums)


def luma_of(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The luma of each pixel by ITU-R BT.601, rounded as Pillow does in ``convert("L")``.

    >>> luma_of(np.array([[[255, 0, 0], [255, 255, 255]]], np.uint8)).tolist()
    [[76, 255]]
    """
    weighted: NDArray[np.int64] = pixels.astype(np.int64) @ np.array([19595, 38470, 7471])
    return ((weighted + 0x8000) >> 16).astype(np.uint8)


def _plain(pixels: NDArray[np.uint8]) -> PixelCounts:
    """The definition of what the kernel counts."""
    height, width = pixels.shape[:2]
    r, g, b = (pixels[..., channel].astype(np.int64) for channel in range(3))
    luma = luma_of(pixels)
    y = luma.astype(np.int64)
    centre, sides = y[1:-1, 1:-1], y[:-2, 1:-1] + y[2:, 1:-1] + y[1:-1, :-2] + y[1:-1, 2:]
    corners = y[:-2, :-2] + y[:-2, 2:] + y[2:, :-2] + y[2:, 2:]
    curve = 4 * centre - sides
    red_green, yellow_blue = r - g, r + g - 2 * b
    top = _uniform_lines(pixels)
    bottom = _uniform_lines(pixels[top:][::-1])
    inner = pixels[top : height - bottom].swapaxes(0, 1)
    left = _uniform_lines(inner)
    right = _uniform_lines(inner[left:][::-1])
    sums = [
        *(red_green.sum(), (red_green**2).sum(), yellow_blue.sum(), (yellow_blue**2).sum()),
        *(curve.sum(), (curve**2).sum(), abs(4 * centre - 2 * sides + corners).sum()),
        (pixels[:, 1:] == pixels[:, :-1]).all(axis=2).sum(),
        (pixels[1:] == pixels[:-1]).all(axis=2).sum(),
        *(top, bottom, left, right),
    ]
    return PixelCounts(
        height,
        width,
        np.bincount(luma.ravel(), minlength=256),
        np.bincount((pixels.max(axis=2) - pixels.min(axis=2)).ravel(), minlength=256),
        np.bincount(((r >> 4) << 8 | (g >> 4) << 4 | b >> 4).ravel(), minlength=COLORS),
        np.array(sums, np.int64),
    )


def _uniform_lines(pixels: NDArray[np.uint8]) -> int:
    """How many of the first rows have, in each channel, values that differ by no more than the tolerance."""
    if not pixels.size:
        return 0
    high = np.maximum.accumulate(pixels.max(axis=1).astype(int))
    low = np.minimum.accumulate(pixels.min(axis=1).astype(int))
    return int(((high - low).max(axis=1) <= BORDER_TOLERANCE).sum())
