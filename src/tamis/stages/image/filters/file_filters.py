"""Filters by the heads of image files: sizes, shapes, quality of JPEG, frames, transparency."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.stages.image.filters.image_filter import ImageFile, ImageFileFilter
from tamis.stages.text.filters.base import NOT_NEGATIVE, SHARE

__all__ = [
    "AnimationFilter",
    "AspectRatioFilter",
    "ImageFileSizeFilter",
    "ImageSizeFilter",
    "JpegQualityFilter",
    "PixelCountFilter",
    "TransparencyFilter",
    "jpeg_quality",
]


@dataclass
class ImageSizeFilter(ImageFileFilter):
    """Drop images that are too small, or too large. Score: the shorter side, in pixels.

    Args:
        min_side: The least length of the shorter side, in pixels.
        max_side: The greatest length of the shorter side, in pixels; ``None`` for no limit.

    >>> ImageSizeFilter(min_side=200).reason()
    'shorter_side < 200'
    """

    min_side: int | None = 256
    max_side: int | None = None
    name = "shorter_side"
    score_type = pa.int64()
    score_range = NOT_NEGATIVE

    def score_file(self, file: ImageFile) -> int:
        return min(file.width, file.height)


@dataclass
class PixelCountFilter(ImageFileFilter):
    """Drop images with too few, or too many, pixels. Score: width times height.

    Args:
        min_pixels, max_pixels: The least and the greatest number of pixels.

    >>> PixelCountFilter(min_pixels=1_000_000).reason()
    'pixels < 1000000'
    """

    min_pixels: int | None = 256 * 256
    max_pixels: int | None = None
    name = "pixels"
    score_type = pa.int64()
    score_range = NOT_NEGATIVE

    def score_file(self, file: ImageFile) -> int:
        return file.width * file.height


@dataclass
class ImageFileSizeFilter(ImageFileFilter):
    """Drop image files that are too small, or too large. Score: the size of the encoded image, in bytes.

    Args:
        min_bytes, max_bytes: The least and the greatest size, in bytes.

    >>> ImageFileSizeFilter().reason()
    'file_bytes < 5000'
    """

    min_bytes: int | None = 5000
    max_bytes: int | None = None
    name = "file_bytes"
    score_type = pa.int64()
    score_range = NOT_NEGATIVE

    def score_file(self, file: ImageFile) -> int:
        return file.nbytes


@dataclass
class AspectRatioFilter(ImageFileFilter):
    """Drop images that are too long, such as banners. Score: the longer side divided by the shorter one, at least 1.

    Args:
        max_aspect_ratio: The greatest ratio.

    >>> AspectRatioFilter().reason()
    'aspect_ratio > 3.0'
    """

    max_aspect_ratio: float | None = 3.0
    name = "aspect_ratio"
    score_range = (1.0, NOT_NEGATIVE[1])

    def score_file(self, file: ImageFile) -> float:
        return max(file.width, file.height) / min(file.width, file.height)


@dataclass
class JpegQualityFilter(ImageFileFilter):
    """Drop JPEG images that were compressed too much. Score: the estimated quality, 1 to 100.

    The estimate is the quality whose luma table, by the formula of the Independent JPEG Group, is nearest to the one in
    the file. Nothing is decoded. A picture that was compressed before, and then again with a high quality, has a high
    score. Images in other formats have the score 100.

    Args:
        min_quality: The least quality.

    >>> JpegQualityFilter().reason()
    'jpeg_quality < 40'
    """

    min_quality: int | None = 40
    name = "jpeg_quality"
    score_type = pa.int64()
    score_range = (1, 100)

    def score_file(self, file: ImageFile) -> int:
        tables = getattr(file.head, "quantization", None)
        return jpeg_quality(tables[min(tables)]) if tables else 100


@dataclass
class AnimationFilter(ImageFileFilter):
    """Drop animations and files of several pages. Score: how many pictures are in the file.

    Args:
        max_frames: The greatest number of pictures.

    >>> AnimationFilter().reason()
    'frames > 1'
    """

    max_frames: int | None = 1
    name = "frames"
    score_type = pa.int64()
    score_range = NOT_NEGATIVE

    def score_file(self, file: ImageFile) -> int:
        return file.frames


@dataclass
class TransparencyFilter(ImageFileFilter):
    """Drop images that are transparent. Score: 1 less the mean of the alpha channel, 0 to 1; 0 without one.

    Only images that have an alpha channel or a transparent colour are decoded.

    Args:
        max_transparency: The greatest share.

    >>> TransparencyFilter().reason()
    'transparency > 0.1'
    """

    max_transparency: float | None = 0.1
    name = "transparency"
    score_range = SHARE

    def score_file(self, file: ImageFile) -> float:
        return file.transparent_share


# The table for luma of annex K of the JPEG standard (ITU-T T.81), row by row.
_STANDARD: Final = (
    *(16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56),
    *(14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92),
    *(49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99),
)


def jpeg_quality(table: list[int]) -> int:
    """The quality, 1 to 100, whose table for luma is nearest to a table of 64 numbers, row by row.

    >>> jpeg_quality([1] * 64), jpeg_quality(list(_STANDARD))
    (100, 50)
    """
    distances = abs(_luma_tables() - np.asarray(table)).sum(axis=1)
    return 100 - int(distances[::-1].argmin())


@functools.cache
def _luma_tables() -> NDArray[np.int64]:
    """The table for each quality from 1 to 100."""
    quality = np.arange(1, 101)[:, None]
    scale = np.where(quality < 50, 5000 // quality, 200 - 2 * quality)
    tables: NDArray[np.int64] = np.clip((np.array(_STANDARD) * scale + 50) // 100, 1, 255)
    return tables
