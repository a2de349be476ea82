"""A vector for a small picture, made of its colours, edges and coarse pattern, without a model.

All sums are of whole numbers, and what is not (roots, quotients) is rounded as IEEE 754 says: the same pixels have the
same bits on every machine.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["DESCRIPTOR_DIM", "DESCRIPTOR_SIDE", "describe"]

DESCRIPTOR_SIDE: Final = 64
"""The pictures have so many pixels on each side."""

_CELLS: Final = 4
_ANGLES: Final = 8
_LEVELS: Final = 4
_FREQUENCIES: Final = 8
_BLOCKS: Final = {
    "layout": (_CELLS * _CELLS * 3, 1.0),
    "colours": (_LEVELS**3, 1.0),
    "edges": (_CELLS * _CELLS * _ANGLES, 1.0),
    "pattern": (_FREQUENCIES**2 - 1, 1.0),
}
"""The parts of a vector: how many numbers, and how much they count."""

DESCRIPTOR_DIM: Final = sum(length for length, _ in _BLOCKS.values())
"""The length of a vector."""

_AT_ONCE: Final = 64
_CELL: Final = DESCRIPTOR_SIDE // _CELLS
_LUMA: Final = np.array([77, 150, 29], np.int32)
"""Brightness from red, green and blue (ITU-R BT.601), times 256."""

_TURNS: Final = np.round(np.tan(np.arange(1, _ANGLES // 2) * np.pi / _ANGLES) * 4096).astype(np.int64)
"""The slopes between the directions of edges in the first quadrant, times 4096."""

_WAVES: Final = np.round(np.cos(np.arange(_FREQUENCIES)[:, None] * (2 * np.arange(32) + 1) * np.pi / 64) * 1024).astype(
    np.float64
)  # whole numbers: products and sums of them are exact, in any order
_FINE: Final = 1 << 10


def describe(pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A vector of length 1 for each picture.

    Args:
        pictures: Pictures of 64 x 64 pixels with three channels.

    >>> flat = np.zeros((1, 64, 64, 3), np.uint8)
    >>> describe(flat).shape, float(describe(flat) @ describe(flat).T)
    ((1, 303), 1.0)
    """
    made = np.zeros((len(pictures), DESCRIPTOR_DIM), np.float32)
    for start in range(0, len(pictures), _AT_ONCE):
        part = pictures[start : start + _AT_ONCE]
        made[start : start + _AT_ONCE] = _described(part)
    return made


def _described(pictures: NDArray[np.uint8]) -> NDArray[np.float32]:
    pixels = pictures.astype(np.int32)
    luma = pixels @ _LUMA
    blocks = (_layout(pixels, luma), _colours(pictures), _edges(luma >> 8), _pattern(luma))
    parts, counted = [], np.zeros((len(pictures), 1))
    for block, (_, weight) in zip(blocks, _BLOCKS.values(), strict=True):
        squares = (block.astype(np.int64) ** 2).sum(axis=1, keepdims=True)
        parts.append(block / np.sqrt(np.maximum(squares, 1)) * weight)
        counted += (squares > 0) * weight**2
    return (np.concatenate(parts, axis=1) / np.sqrt(counted)).astype(np.float32)


def _layout(pixels: NDArray[np.int32], luma: NDArray[np.int32]) -> NDArray[np.int64]:
    """Brightness, less that of the whole picture, and two differences of colour in each of 4 x 4 cells."""
    chroma = [(pixels[..., channel] << 8) - luma for channel in (2, 0)]
    cells = [_summed(values, _CELL).reshape(len(pixels), -1) for values in (luma, *chroma)]
    bright = cells[0] - cells[0].sum(axis=1, keepdims=True) // _CELLS**2
    return np.concatenate([bright, *cells[1:]], axis=1) >> 8


def _summed(values: NDArray[np.int32], size: int) -> NDArray[np.int64]:
    """The sums over squares of so many pixels."""
    count, side = len(values), values.shape[1] // size
    made: NDArray[np.int64] = values.reshape(count, side, size, side, size).sum(axis=(2, 4), dtype=np.int64)
    return made


def _colours(pictures: NDArray[np.uint8]) -> NDArray[np.int64]:
    """How often colours occur: red, green and blue in four levels; a pixel between two levels counts for both."""
    scaled = pictures.astype(np.int32).reshape(len(pictures), -1, 3) * (_LEVELS - 1)
    low, share = scaled // 255, scaled % 255 >> 4  # 0 to 15 of 16
    counts = np.zeros(len(pictures) * _LEVELS**3)
    row = np.arange(len(pictures), dtype=np.int32)[:, None] * _LEVELS**3
    for corner in range(8):
        place, weight = row, np.int32(1)
        for channel in range(3):
            upper = corner >> channel & 1
            level = np.minimum(low[..., channel] + upper, _LEVELS - 1)
            place = place + level * _LEVELS**channel
            weight = weight * (share[..., channel] if upper else 16 - share[..., channel])
        counts += np.bincount(place.ravel(), weight.ravel(), len(counts))
    return _root(counts.reshape(len(pictures), -1))


def _edges(luma: NDArray[np.int32]) -> NDArray[np.int64]:
    """How strong edges of each of eight directions are in each of 4 x 4 cells."""
    framed = np.pad(luma, ((0, 0), (1, 1), (1, 1)), mode="edge").astype(np.int64)
    right = framed[:, 1:-1, 2:] - framed[:, 1:-1, :-2]
    down = framed[:, 2:, 1:-1] - framed[:, :-2, 1:-1]
    is_down = down < 0  # an edge and its opposite are one direction
    right, down = np.where(is_down, -right, right), np.abs(down)
    steep = np.zeros(right.shape, np.int64)
    for slope in _TURNS:
        steep += down * 4096 >= np.abs(right) * slope
    angle = np.where(right >= 0, steep, _ANGLES - 1 - steep)
    count, side = luma.shape[0], np.arange(DESCRIPTOR_SIDE) // _CELL
    cell = side[:, None] * _CELLS + side
    place = (np.arange(count)[:, None, None] * _CELLS**2 + cell) * _ANGLES + angle
    strength = np.abs(right) + down
    sums = np.bincount(place.ravel(), strength.ravel(), count * _CELLS**2 * _ANGLES)
    return _root(sums.reshape(count, -1))


def _pattern(luma: NDArray[np.int32]) -> NDArray[np.int64]:
    """The lowest frequencies of brightness, without its mean: a discrete cosine transform."""
    small = (_summed(luma, 2) >> 8).astype(np.float64)
    waves = (_WAVES @ small @ _WAVES.T).reshape(len(luma), -1)[:, 1:]
    made: NDArray[np.int64] = np.where(waves < 0, -_root(np.abs(waves)), _root(np.abs(waves)))
    return made


def _root(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Roots, so that what is strong does not hide the rest, as whole numbers."""
    return np.floor(np.sqrt(values) * _FINE).astype(np.int64) >> 5
