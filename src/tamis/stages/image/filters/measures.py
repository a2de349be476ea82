"""Measures of a decoded picture that need no model. Each is made of whole numbers that one native kernel counts."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import image_sums
from tamis.kernels.image_measures import PixelCounts, count_pixels

__all__ = ["MEASURED_SIDE", "ImageMeasures"]

MEASURED_SIDE: Final = 512
"""The longest side, in pixels, at which pictures are measured: larger ones are made smaller, while they are decoded."""

_LUMA = np.arange(256)
_SPREAD_SHARE: Final = 0.99
_COMMON_COLORS: Final = 16


@dataclass(frozen=True)
class ImageMeasures:
    """The measures of one picture.

    Args:
        counts: What was counted in its pixels.

    >>> ImageMeasures.of(np.full((30, 40, 3), 200, np.uint8)).brightness
    200.0
    """

    counts: PixelCounts

    @classmethod
    def of(cls, pixels: NDArray[np.uint8]) -> ImageMeasures:
        """The measures of pixels: height, width and three channels (RGB)."""
        return cls(count_pixels(pixels))

    @property
    def brightness(self) -> float:
        """The mean luma (ITU-R BT.601), 0 to 255."""
        return float(self.counts.luma @ _LUMA) / self._pixels

    @property
    def contrast(self) -> float:
        """The standard deviation of the luma (RMS contrast), 0 to 127.5."""
        squares = int(self.counts.luma @ _LUMA**2) * self._pixels - int(self.counts.luma @ _LUMA) ** 2
        return math.sqrt(squares) / self._pixels

    @property
    def entropy(self) -> float:
        """The entropy of the distribution of the luma, in bits: 0 for one value, 8 for 256 equally frequent ones."""
        shares = self.counts.luma[self.counts.luma > 0] / self._pixels
        return max(0.0, -float(shares @ np.log2(shares)))

    @property
    def sharpness(self) -> float:
        """The variance of the Laplacian of the luma: four times a pixel less its four neighbours.

        Pech-Pacheco et al., Diatom autofocusing in brightfield microscopy (ICPR 2000).
        """
        inner = self._inner_pixels
        total, squares = (int(self.counts.sums[each]) for each in (image_sums.LAPLACE, image_sums.LAPLACE_SQUARES))
        return (squares * inner - total**2) / inner**2 if inner else 0.0

    @property
    def noise(self) -> float:
        """The standard deviation of the noise in the luma, estimated by a mask that edges and slopes hardly touch.

        Immerkaer, Fast noise variance estimation (1996). Fine texture counts as noise.
        """
        inner = self._inner_pixels
        return math.sqrt(math.pi / 2) * int(self.counts.sums[image_sums.NOISE]) / (6 * inner) if inner else 0.0

    @property
    def colorfulness(self) -> float:
        """How colourful it is: 0 for grey, about 35 for most photographs, more than 80 for extremely colourful ones.

        Hasler and Suesstrunk, Measuring colourfulness in natural images (2003): of red less green, and of the mean of
        these two less blue, the standard deviation plus 0.3 times the mean, both as lengths of vectors.
        """
        red_green = self._moments(image_sums.RED_GREEN, image_sums.RED_GREEN_SQUARES)
        yellow_blue = [each / 2 for each in self._moments(image_sums.YELLOW_BLUE, image_sums.YELLOW_BLUE_SQUARES)]
        return math.hypot(red_green[1], yellow_blue[1]) + 0.3 * math.hypot(red_green[0], yellow_blue[0])

    @property
    def color_spread(self) -> int:
        """The least difference of the greatest and the least channel that 99 % of the pixels do not exceed, 0 to 255.

        It is 0 for grey pictures, and small for those that JPEG has given a tinge.
        """
        return int(np.searchsorted(self.counts.spread.cumsum(), math.ceil(_SPREAD_SHARE * self._pixels)))

    @property
    def border_share(self) -> float:
        """The share of the picture that is a uniform border, 0 to 1.

        The border is the rows from above and from below, and of what is left the columns from both sides, in which no
        channel varies by more than 16 of 255. A picture of one colour is all border.
        """
        top, bottom, left, right = (int(each) for each in self.counts.sums[image_sums.TOP :])
        inner = (self.counts.height - top - bottom) * (self.counts.width - left - right)
        return 1 - inner / self._pixels

    @property
    def repeated_share(self) -> float:
        """The share of pairs of neighbours, side by side or one below the other, that are exactly equal, 0 to 1."""
        height, width = self.counts.height, self.counts.width
        pairs = height * (width - 1) + (height - 1) * width
        sums = self.counts.sums
        return int(sums[image_sums.RIGHT_EQUAL] + sums[image_sums.BELOW_EQUAL]) / pairs if pairs else 1.0

    @property
    def common_color_share(self) -> float:
        """The share of pixels that have one of the 16 most frequent colours, of 16 levels per channel, 0 to 1."""
        return int(np.partition(self.counts.colors, -_COMMON_COLORS)[-_COMMON_COLORS:].sum()) / self._pixels

    @property
    def flatness(self) -> float:
        """How much it looks like drawn graphics or a screenshot: repeated neighbours times common colours, 0 to 1."""
        return self.repeated_share * self.common_color_share

    @functools.cached_property
    def _pixels(self) -> int:
        return self.counts.height * self.counts.width

    @property
    def _inner_pixels(self) -> int:
        return max(self.counts.height - 2, 0) * max(self.counts.width - 2, 0)

    def _moments(self, total: int, squares: int) -> tuple[float, float]:
        """Mean and standard deviation."""
        first, second = int(self.counts.sums[total]), int(self.counts.sums[squares])
        return first / self._pixels, math.sqrt(second * self._pixels - first**2) / self._pixels
