"""Pictures in another size, with the same bits as Pillow's ``Image.resize``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native

__all__ = ["RESAMPLINGS", "WEIGHT_BITS", "axis_weights", "is_height_first", "resize"]

WEIGHT_BITS = 22
_LANES = 16


def _box(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


def _bilinear(x: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.abs(x)
    return np.where(x < 1.0, 1.0 - x, 0.0)


def _bicubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    a, x = -0.5, np.abs(x)
    near, far = ((a + 2.0) * x - (a + 3.0)) * x * x + 1, (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _lanczos(x: NDArray[np.float64]) -> NDArray[np.float64]:
    def sinc(value: float) -> float:
        value *= math.pi
        return math.sin(value) / value if value else 1.0

    found = [sinc(value) * sinc(value / 3) if -3.0 <= value < 3.0 else 0.0 for value in x.ravel().tolist()]
    return np.array(found).reshape(x.shape)


RESAMPLINGS: dict[str, tuple[Callable[[NDArray[np.float64]], NDArray[np.float64]], float]] = {
    "box": (_box, 0.5),
    "bilinear": (_bilinear, 1.0),
    "bicubic": (_bicubic, 2.0),
    "lanczos": (_lanczos, 3.0),
}
"""Each way to resample: its weight by the distance, and up to which distance that is not zero."""

_Axis = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]


@functools.lru_cache(256)
def axis_weights(size: int, new_size: int, resample: str, part: tuple[int, int] | None = None) -> _Axis:
    """For each new column the first one that it is made of, how many there are, and their weights.

    As in Pillow's ``Resample.c``: weights in double precision, normalised, then rounded to fractions of 1 << 22.

    Args:
        size, new_size: How many columns there are, and how many are wanted.
        resample: One of :data:`RESAMPLINGS`.
        part: The first of the new columns that is needed and the end of them; all when not given.
    """
    first, end = part or (0, new_size)
    function, reach = RESAMPLINGS[resample]
    scale = size / new_size
    wider = max(scale, 1.0)
    support = reach * wider
    taps = math.ceil(support) * 2 + 1
    centers = (np.arange(first, end) + 0.5) * scale
    begins = np.maximum((centers - support + 0.5).astype(np.int64), 0)
    counts = np.minimum((centers + support + 0.5).astype(np.int64), size) - begins
    numbers = np.arange(taps)
    weights = function((numbers + begins[:, None] - centers[:, None] + 0.5) * (1.0 / wider))
    weights[numbers >= counts[:, None]] = 0.0
    totals = np.zeros(end - first)
    for number in range(taps):  # one after the other, as the last bits of a sum depend on the order
        totals += weights[:, number]
    weights = np.divide(weights, totals[:, None], out=weights, where=totals[:, None] != 0)
    rounded = np.trunc(weights * (1 << WEIGHT_BITS) + np.where(weights < 0, -0.5, 0.5)).astype(np.int32)
    for made in (begins, counts, rounded):
        made.flags.writeable = False
    return begins, counts, rounded


def is_height_first(size: tuple[int, int], new_size: tuple[int, int]) -> bool:
    """Whether Pillow 13 makes the columns of a picture shorter before it does the rows; earlier versions never did.

    Args:
        size, new_size: Width and height.

    >>> is_height_first((100, 300), (32, 32)), is_height_first((100, 150), (32, 32))
    (True, False)
    """
    (width, height), (new_width, new_height) = size, new_size
    return 0 < height - new_height > 2 * (width - new_width)


def resize(
    pixels: NDArray[np.uint8],
    width: int,
    height: int,
    resample: str = "bicubic",
    crop: tuple[int, int, int, int] | None = None,
) -> NDArray[np.uint8]:
    """A picture in another size, as an array of ``(height, width, 3)``.

    The bits are those of ``Image.resize`` of Pillow 13 with the same filter. The GIL is released meanwhile.

    Args:
        pixels: The picture: height, width and three channels.
        width, height: The new size.
        resample: ``"box"``, ``"bilinear"``, ``"bicubic"`` or ``"lanczos"``.
        crop: Left, top, right and bottom: the part of the resized picture that is wanted. Only that is computed.

    >>> resize(np.full((9, 9, 3), 7, np.uint8), 2, 3).tolist()
    [[[7, 7, 7], [7, 7, 7]], [[7, 7, 7], [7, 7, 7]], [[7, 7, 7], [7, 7, 7]]]
    """
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or 0 in pixels.shape:
        raise ValueError(f"a picture is an array of uint8 (height, width, 3), not {pixels.dtype} {pixels.shape}")
    if resample not in RESAMPLINGS:
        raise ValueError(f"resample must be one of {', '.join(RESAMPLINGS)}, not {resample!r}")
    left, top, right, bottom = crop or (0, 0, width, height)
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise ValueError(f"the part {crop} is not inside a picture of {width} x {height} pixels")
    if (height, width) == pixels.shape[:2]:
        return np.ascontiguousarray(pixels[top:bottom, left:right])
    old_height, old_width = pixels.shape[:2]
    if is_height_first((old_width, old_height), (width, height)):
        turned = _resized(pixels.swapaxes(0, 1), height, width, resample, (top, left, bottom, right))
        return np.ascontiguousarray(turned.swapaxes(0, 1))
    return _resized(pixels, width, height, resample, (left, top, right, bottom))


def _resized(
    pixels: NDArray[np.uint8], width: int, height: int, resample: str, crop: tuple[int, int, int, int]
) -> NDArray[np.uint8]:
    """Part of a picture in another size: first along the rows, then along the columns."""
    left, top, right, bottom = crop
    x_axis = axis_weights(pixels.shape[1], width, resample, (left, right))
    y_axis = axis_weights(pixels.shape[0], height, resample, (top, bottom))
    kernel = native.load("resize")
    if kernel is None:
        return _along_rows(_along_rows(pixels, *x_axis).swapaxes(0, 1), *y_axis).swapaxes(0, 1)
    new_width, new_height = right - left, bottom - top
    columns, rows = (int(axis[0][-1] + axis[1][-1] - axis[0][0]) for axis in (x_axis, y_axis))
    padded = -(-3 * new_width // 64) * 64
    resized = np.empty((new_height, new_width, 3), np.uint8)
    kernel(
        *(np.ascontiguousarray(pixels).reshape(-1), *pixels.shape[:2]),
        *(x_axis[0], x_axis[1], x_axis[2].reshape(-1), x_axis[2].shape[1], new_width),
        *(y_axis[0], y_axis[1], y_axis[2].reshape(-1), y_axis[2].shape[1], new_height),
        *(np.empty(3 * _LANES * max(columns, _LANES), np.uint8), np.empty(3 * _LANES * new_width, np.uint8)),
        *(np.empty(rows * padded + 64, np.uint8), np.empty(padded, np.uint8), resized.reshape(-1)),
    )
    return resized


def _along_rows(
    pixels: NDArray[np.uint8], begins: NDArray[np.int64], counts: NDArray[np.int64], weights: NDArray[np.int32]
) -> NDArray[np.uint8]:
    """The plain definition of one of the two passes."""
    made = np.empty((pixels.shape[0], len(begins), 3), np.uint8)
    for x, (begin, count) in enumerate(zip(begins.tolist(), counts.tolist(), strict=True)):
        part = pixels[:, begin : begin + count].astype(np.int64)
        sums = np.tensordot(part, weights[x, :count].astype(np.int64), (1, 0)) + (1 << (WEIGHT_BITS - 1))
        made[:, x] = np.clip(sums >> WEIGHT_BITS, 0, 255)
    return made
