"""Each measure equals its definition, written out in NumPy."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tamis.kernels.image_measures import luma_of
from tamis.stages.image.filters.measures import ImageMeasures

PICTURES = st.builds(
    lambda height, width, shades, seed: np.random.default_rng(seed).integers(0, shades, (height, width, 3), np.uint8),
    st.integers(3, 20),
    st.integers(3, 20),
    st.sampled_from([1, 2, 30, 256]),
    st.integers(0, 1000),
)


@given(PICTURES)
def test_luma(pixels: NDArray[np.uint8]) -> None:
    measures, luma = ImageMeasures.of(pixels), luma_of(pixels).astype(float)
    assert measures.brightness == pytest.approx(luma.mean())
    assert measures.contrast == pytest.approx(luma.std(), abs=1e-9)
    shares = np.array([*Counter(luma.ravel()).values()]) / luma.size
    assert measures.entropy == pytest.approx(-(shares * np.log2(shares)).sum(), abs=1e-9)


@given(PICTURES)
def test_sharpness_and_noise(pixels: NDArray[np.uint8]) -> None:
    measures, luma = ImageMeasures.of(pixels), luma_of(pixels).astype(float)

    def filtered(mask: list[list[int]]) -> NDArray[np.float64]:
        windows = np.lib.stride_tricks.sliding_window_view(luma, (3, 3))
        return (windows * np.array(mask)).sum(axis=(2, 3))

    assert measures.sharpness == pytest.approx(filtered([[0, 1, 0], [1, -4, 1], [0, 1, 0]]).var(), abs=1e-9)
    noise = abs(filtered([[1, -2, 1], [-2, 4, -2], [1, -2, 1]])).mean() * math.sqrt(math.pi / 2) / 6
    assert measures.noise == pytest.approx(noise)


@given(PICTURES)
def test_colours(pixels: NDArray[np.uint8]) -> None:
    measures, (r, g, b) = ImageMeasures.of(pixels), np.moveaxis(pixels.astype(float), 2, 0)
    rg, yb = r - g, (r + g) / 2 - b
    expected = math.hypot(rg.std(), yb.std()) + 0.3 * math.hypot(rg.mean(), yb.mean())
    assert measures.colorfulness == pytest.approx(expected, abs=1e-9)
    spread = np.sort((pixels.max(axis=2) - pixels.min(axis=2)).ravel())
    assert measures.color_spread == spread[math.ceil(0.99 * spread.size) - 1]
    common = Counter(map(tuple, (pixels // 16).reshape(-1, 3).tolist())).most_common(16)
    assert measures.common_color_share == pytest.approx(sum(n for _, n in common) / spread.size)


@given(PICTURES)
def test_repeated_neighbours(pixels: NDArray[np.uint8]) -> None:
    height, width = pixels.shape[:2]
    pairs = [((y, x), (y + dy, x + dx)) for y in range(height) for x in range(width) for dy, dx in ((0, 1), (1, 0))]
    inside = [(one, other) for one, other in pairs if other[0] < height and other[1] < width]
    equal = sum((pixels[one] == pixels[other]).all() for one, other in inside)
    assert ImageMeasures.of(pixels).repeated_share == pytest.approx(equal / len(inside))


@pytest.mark.parametrize(("rows", "columns"), [((3, 5), (0, 0)), ((0, 0), (4, 1)), ((2, 2), (3, 3)), ((0, 0), (0, 0))])
def test_borders(rows: tuple[int, int], columns: tuple[int, int]) -> None:
    inner = np.random.default_rng(1).integers(0, 256, (20, 30, 3)).astype(np.uint8)
    framed = np.pad(inner, (rows, columns, (0, 0)), constant_values=12)
    noisy = framed + np.random.default_rng(2).integers(0, 9, framed.shape).astype(np.uint8) * (framed == 12)
    expected = 1 - 600 / (framed.shape[0] * framed.shape[1])
    assert ImageMeasures.of(framed).border_share == pytest.approx(expected)
    assert ImageMeasures.of(noisy).border_share == pytest.approx(expected)


def test_a_picture_of_one_colour() -> None:
    measures = ImageMeasures.of(np.full((9, 7, 3), 50, np.uint8))
    assert (measures.border_share, measures.flatness, measures.entropy, measures.sharpness) == (1, 1, 0, 0)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 2)])
def test_pictures_without_inner_pixels_are_not_sharp(shape: tuple[int, int]) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (*shape, 3)).astype(np.uint8)
    measures = ImageMeasures.of(pixels)
    assert (measures.sharpness, measures.noise) == (0, 0)
    assert 0 <= measures.repeated_share <= 1
