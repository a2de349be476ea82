"""Filters by measures of pixels, which one native kernel computes for all of them at once.

Pictures are measured at no more than 512 pixels on the longer side, so that a threshold means the same for photographs
of any resolution. Smaller pictures are measured as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tamis.stages.image.filters.image_filter import MeasuredImageFilter
from tamis.stages.text.filters.base import NOT_NEGATIVE, SHARE

__all__ = [
    "BorderFilter",
    "BrightnessFilter",
    "ColorfulnessFilter",
    "ContrastFilter",
    "EntropyFilter",
    "FlatGraphicsFilter",
    "GrayscaleFilter",
    "NoiseFilter",
    "SharpnessFilter",
]


@dataclass
class SharpnessFilter(MeasuredImageFilter):
    """Drop blurred images. Score: the variance of the Laplacian of the luma, at 512 pixels on the longer side.

    Args:
        min_sharpness, max_sharpness: The least and the greatest score.

    >>> import numpy as np
    >>> SharpnessFilter().score_image(np.full((8, 8, 3), 99, np.uint8))
    0.0
    """

    min_sharpness: float | None = 30.0
    max_sharpness: float | None = None
    name = "sharpness"
    measure = "sharpness"
    score_range = NOT_NEGATIVE


@dataclass
class BrightnessFilter(MeasuredImageFilter):
    """Drop images that are too dark or too bright. Score: the mean luma, 0 to 255.

    Args:
        min_brightness, max_brightness: The least and the greatest score.

    >>> BrightnessFilter().reason()
    'brightness outside 20.0..235.0'
    """

    min_brightness: float | None = 20.0
    max_brightness: float | None = 235.0
    name = "brightness"
    measure = "brightness"
    score_range = (0.0, 255.0)


@dataclass
class ContrastFilter(MeasuredImageFilter):
    """Drop images of low contrast. Score: the standard deviation of the luma, 0 to 127.5.

    Args:
        min_contrast: The least score.

    >>> ContrastFilter().reason()
    'contrast < 10.0'
    """

    min_contrast: float | None = 10.0
    name = "contrast"
    measure = "contrast"
    score_range = (0.0, 127.5)


@dataclass
class EntropyFilter(MeasuredImageFilter):
    """Drop images with little in them. Score: the entropy of the distribution of the luma, 0 to 8 bits.

    Args:
        min_entropy: The least score, in bits.

    >>> EntropyFilter().reason()
    'entropy < 4.0'
    """

    min_entropy: float | None = 4.0
    name = "entropy"
    measure = "entropy"
    score_range = (0.0, 8.0)


@dataclass
class ColorfulnessFilter(MeasuredImageFilter):
    """Drop images with little colour. Score: the colourfulness of Hasler and Suesstrunk (2003), from 0.

    Args:
        min_colorfulness, max_colorfulness: The least and the greatest score.

    >>> ColorfulnessFilter().reason()
    'colorfulness < 5.0'
    """

    min_colorfulness: float | None = 5.0
    max_colorfulness: float | None = None
    name = "colorfulness"
    measure = "colorfulness"
    score_range = NOT_NEGATIVE


@dataclass
class GrayscaleFilter(MeasuredImageFilter):
    """Drop grey images. Score: how far apart the channels of a pixel are, which 99 % of the pixels do not exceed.

    Args:
        min_color_spread: The least score, 0 to 255.

    >>> GrayscaleFilter().reason()
    'color_spread < 12'
    """

    min_color_spread: int | None = 12
    name = "color_spread"
    measure = "color_spread"
    score_type = pa.int64()
    score_range = (0.0, 255.0)


@dataclass
class BorderFilter(MeasuredImageFilter):
    """Drop images with uniform borders, such as letterboxes. Score: the share of the picture that is border, 0 to 1.

    A border is rows or columns at the edge in which no channel varies by more than 16 of 255. So a picture of a thing
    before an even background has a border, too.

    Args:
        max_border: The greatest share.

    >>> BorderFilter().reason()
    'border > 0.3'
    """

    max_border: float | None = 0.3
    name = "border"
    measure = "border_share"
    score_range = SHARE


@dataclass
class FlatGraphicsFilter(MeasuredImageFilter):
    """Drop drawn graphics and screenshots. Score: neighbours that are equal times common colours, 0 to 1.

    It is the share of pairs of neighbouring pixels that are exactly equal, times the share of pixels that have one of
    the 16 most frequent colours (of 16 levels per channel).

    Args:
        max_flatness: The greatest score.

    >>> FlatGraphicsFilter().reason()
    'flatness > 0.4'
    """

    max_flatness: float | None = 0.4
    name = "flatness"
    measure = "flatness"
    score_range = SHARE


@dataclass
class NoiseFilter(MeasuredImageFilter):
    """Drop noisy images. Score: the estimated standard deviation of the noise in the luma (Immerkaer, 1996), from 0.

    Fine texture, such as grass, counts as noise, and reducing a picture to 512 pixels takes most of its noise away.

    Args:
        max_noise: The greatest score.

    >>> NoiseFilter().reason()
    'noise > 25.0'
    """

    max_noise: float | None = 25.0
    name = "noise"
    measure = "noise"
    score_range = NOT_NEGATIVE
