"""Perceptual hashes of pictures: 64 bits that change little when a picture is resized or compressed again.

The bits are those of the package ``imagehash`` for the same pixels. A hash is a number whose highest bit is the first
one, so ``int(str(imagehash.phash(image)), 16)`` is the same number.

- ``"phash"``: the 64 lowest frequencies of a grey thumbnail of 32 x 32 pixels that are greater than their median.
  Zauner: Implementation and Benchmarking of Perceptual Image Hash Functions (2010).
- ``"dhash"``: the pixels of a grey thumbnail of 9 x 8 pixels that are lighter than the one to their left.
- ``"ahash"``: the pixels of a grey thumbnail of 8 x 8 pixels that are lighter than their mean.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.resize import WEIGHT_BITS, axis_weights, is_height_first

__all__ = ["KINDS", "HashKind", "grey_thumbnail", "image_hash"]

HashKind = Literal["phash", "dhash", "ahash"]

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float64]

_SIDE: Final = 32
_LOW: Final = 8


def image_hash(pixels: Pixels, kind: HashKind = "phash") -> int:
    """The perceptual hash of a picture.

    Args:
        pixels: Height, width and three channels (RGB) of uint8.
        kind: Which hash: ``"phash"``, ``"dhash"`` or ``"ahash"``.

    >>> picture = np.zeros((8, 8, 3), np.uint8)
    >>> picture[:, 4:] = 255
    >>> f"{image_hash(picture, 'ahash'):016x}"
    '0f0f0f0f0f0f0f0f'
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: must be one of {', '.join(KINDS)}")
    (width, height), hashed = KINDS[kind]
    return hashed(grey_thumbnail(pixels, width, height))


def grey_thumbnail(pixels: Pixels, width: int, height: int) -> Pixels:
    """A small grey picture: what ``convert("L").resize((width, height), LANCZOS)`` of Pillow gives.

    Args:
        pixels: Height, width and three channels (RGB) of uint8.
        width, height: The size of the small one.

    >>> grey_thumbnail(np.full((4, 6, 3), 200, np.uint8), 2, 1).tolist()
    [[200, 200]]
    """
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.dtype != np.uint8 or not pixels.size:
        raise ValueError(f"pixels must be height x width x 3 of uint8, not {pixels.shape} of {pixels.dtype}")
    rows, columns = pixels.shape[:2]
    if (columns, rows) == (width, height):
        return _grey(pixels)
    x_axis, y_axis = axis_weights(columns, width, "lanczos"), axis_weights(rows, height, "lanczos")
    height_first = is_height_first((columns, rows), (width, height))
    kernel = native.load("grey_thumbnail")
    if kernel is None:
        axes = ((1, y_axis), (0, x_axis)) if height_first else ((0, x_axis), (1, y_axis))
        grey = _grey(pixels)
        for turned, axis in axes:
            grey = _along_rows(grey.T, *axis).T if turned else _along_rows(grey, *axis)
        return np.ascontiguousarray(grey)
    thumbnail = np.empty((height, width), np.uint8)
    half = np.empty(height * columns if height_first else width * rows, np.uint8)
    kernel(
        *(np.ascontiguousarray(pixels), rows, columns),
        *(*x_axis, x_axis[2].shape[1], width, *y_axis, y_axis[2].shape[1], height),
        *(int(height_first), np.empty(rows * columns, np.uint8), half, np.empty(columns, np.int32), thumbnail),
    )
    return thumbnail


def _grey(pixels: Pixels) -> Pixels:
    red, green, blue = (pixels[..., channel].astype(np.uint32) for channel in range(3))
    return ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16).astype(np.uint8)


def _along_rows(
    grey: Pixels, begins: NDArray[np.int64], counts: NDArray[np.int64], weights: NDArray[np.int32]
) -> Pixels:
    """The plain definition of one of the two passes."""
    made = np.empty((len(grey), len(begins)), np.uint8)
    for x, (begin, count) in enumerate(zip(begins.tolist(), counts.tolist(), strict=True)):
        sums = grey[:, begin : begin + count].astype(np.int64) @ weights[x, :count].astype(np.int64)
        made[:, x] = np.clip((sums + (1 << (WEIGHT_BITS - 1))) >> WEIGHT_BITS, 0, 255)
    return made


# -- from thumbnails to bits -------------------------------------------------------------------------------------------


def _differences(thumbnail: Pixels) -> int:
    return _number(thumbnail[:, 1:] > thumbnail[:, :-1])


def _averages(thumbnail: Pixels) -> int:
    return _number(thumbnail > thumbnail.mean())


def _number(bits: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def _frequencies(thumbnail: Pixels) -> int:
    kernel = native.load("dct_hash")
    if kernel is None:
        rows = _transformed(thumbnail.astype(np.float64))[:_LOW]
        low = _transformed(rows.T)[:_LOW].T
        return _number(low > np.median(low))
    found = np.empty(1, np.uint64)
    kernel(thumbnail.reshape(-1), *_waves(), np.empty(256), np.empty(_SIDE), np.empty(64), found)
    return int(found[0])


@functools.cache
def _waves() -> tuple[Floats, Floats, Floats]:
    """Cosines and sines of the steps of the transform, see :mod:`tamis.kernels.sources.dct_hash`."""

    first = [part for step in range(1, 8) for part in _point(step, _SIDE)]
    second = [part for quarter in (1, 2, 3) for part in (*_point(2 * quarter, _SIDE), 0.0)]
    turns = [_point(step + 1, 4 * _SIDE)[0] for step in range(_SIDE)]
    return np.array(first), np.array(second), np.array(turns)


def _point(step: int, steps: int) -> tuple[float, float]:
    """A point on the circle, as SciPy computes it: the product of two points of short tables, rounded to doubles.

    Args:
        step, steps: Which part of a circle the angle is.
    """
    shift = 1
    while 4**shift < (steps + 2) // 2:
        shift += 1
    low = step & ((1 << shift) - 1)
    (one_x, one_y), (other_x, other_y) = _on_table(low, steps), _on_table(step - low, steps)
    return one_x * other_x - one_y * other_y, one_x * other_y + one_y * other_x


def _on_table(step: int, steps: int) -> tuple[float, float]:
    """Cosine and sine, from an angle of at most an eighth of the circle; for steps up to half of it."""
    unit = math.pi / 4 / steps
    eighths = 8 * step
    if eighths >= 2 * steps:
        x, y = _on_table(step - steps // 4, steps)
        return -y, x
    if eighths < steps:
        return math.cos(eighths * unit), math.sin(eighths * unit)
    return math.sin((2 * steps - eighths) * unit), math.cos((2 * steps - eighths) * unit)


def _transformed(lines: Floats) -> Floats:
    """The cosine transform of the columns, with sums and products in the order of the kernel."""
    first, second, turns = _waves()
    c = lines.copy()
    c[0] *= 2.0
    c[31] *= 2.0
    c[1:31:2], c[2:31:2] = c[1:31:2] + c[2:31:2], c[2:31:2] - c[1:31:2]
    h = np.empty_like(c)
    h[0], h[16], h[15], h[31] = c[0] + c[31], c[0] - c[31], 2.0 * c[15], -2.0 * c[16]
    for i in range(2, 16, 2):
        j = 32 - i
        h[i - 1], h[i] = c[i - 1] + c[j - 1], c[i] - c[j]
        h[16 + i], h[15 + i] = _turned(first[i - 2 : i], c[i - 1] - c[j - 1], c[i] + c[j])
    for source, target, parts, width in ((h, c, 2, 4), (c, h, 8, 1)):
        for part in range(parts):
            _quarters(source[4 * width * part :][: 4 * width], target, part, parts, width, second)
    c[0], c[16] = h[0], h[16] * turns[15]
    for i in range(1, 16):
        j = 32 - i
        one, other = turns[i - 1] * h[j] + turns[j - 1] * h[i], turns[i - 1] * h[i] - turns[j - 1] * h[j]
        c[i], c[j] = 0.5 * (one + other), 0.5 * (one - other)
    return c


def _quarters(source: Floats, target: Floats, part: int, parts: int, width: int, waves: Floats) -> None:
    """A step of the transform for one of the parts: of four numbers one goes to each quarter."""
    a, b, c, d = (source[width * i : width * (i + 1)] for i in range(4))
    out = [target[width * (part + parts * i) :] for i in range(4)]
    last = width - 1
    total, gap = a[0] + d[last], a[0] - d[last]
    twice_b, twice_c = 2.0 * b[last], 2.0 * c[0]
    for quarter, values in enumerate((total + twice_b, gap - twice_c, total - twice_b, gap + twice_c)):
        out[quarter][0] = values
    if width % 2 == 0:
        plus, minus, total, gap = d[0] + b[0], d[0] - b[0], a[last] + c[last], a[last] - c[last]
        root = math.sqrt(2)
        ends = (total + total, root * (gap - plus), minus + minus, -root * (gap + plus))
        for quarter, values in enumerate(ends):
            out[quarter][last] = values
    for i in range(2, width, 2):
        j = width - i
        real_sum, real_gap = a[i - 1] + d[j - 1], a[i - 1] - d[j - 1]
        other_sum, other_gap = a[i] + d[j], a[i] - d[j]
        inner_sum, inner_gap = c[i] + b[j], c[i] - b[j]
        even_sum, even_gap = c[i - 1] + b[j - 1], c[i - 1] - b[j - 1]
        out[0][i - 1], out[0][i] = real_sum + even_sum, other_gap + inner_gap
        turned = (
            (real_gap - inner_sum, other_sum + even_gap),
            (real_sum - even_sum, other_gap - inner_gap),
            (real_gap + inner_sum, other_sum - even_gap),
        )
        for quarter, (real, imaginary) in enumerate(turned):
            at = quarter * last + i
            out[quarter + 1][i], out[quarter + 1][i - 1] = _turned(waves[at - 2 : at], real, imaginary)


def _turned(wave: Floats, real: Any, imaginary: Any) -> tuple[Any, Any]:
    cosine, sine = wave
    return cosine * imaginary + sine * real, cosine * real - sine * imaginary


KINDS: Final[dict[str, tuple[tuple[int, int], Callable[[Pixels], int]]]] = {
    "phash": ((_SIDE, _SIDE), _frequencies),
    "dhash": ((9, 8), _differences),
    "ahash": ((8, 8), _averages),
}
"""The width and height of the thumbnail of each kind of hash, and what makes the hash of it."""
