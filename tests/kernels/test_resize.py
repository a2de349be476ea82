"""Resizing gives the bits of Pillow, with the kernel and without."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tamis.kernels import native
from tamis.kernels.resize import RESAMPLINGS, resize

FILTERS = {way: Image.Resampling[way.upper()] for way in RESAMPLINGS}

sides = st.integers(1, 90)


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAMIS_KERNELS", "wait")
        assert native.load("resize") is not None


def picture(width: int, height: int, seed: int, contrast: int = 0) -> np.ndarray:
    made = np.random.default_rng(seed).integers(-contrast, 256 + contrast, (height, width, 3))
    return np.clip(made, 0, 255).astype(np.uint8)


@given(sides, sides, sides, sides, st.sampled_from(sorted(FILTERS)), st.integers(0, 9), st.sampled_from([0, 2000]))
def test_the_bits_are_those_of_pillow(
    width: int, height: int, new_width: int, new_height: int, way: str, seed: int, contrast: int
) -> None:
    pixels = picture(width, height, seed, contrast)
    wanted = np.asarray(Image.fromarray(pixels).resize((new_width, new_height), FILTERS[way]))
    assert np.array_equal(resize(pixels, new_width, new_height, way), wanted)


@given(sides, sides, sides, sides, st.sampled_from(sorted(FILTERS)), st.data())
def test_a_part_is_that_of_the_whole(
    width: int, height: int, new_width: int, new_height: int, way: str, data: st.DataObject
) -> None:
    pixels = picture(width, height, 1)
    left, top = data.draw(st.integers(0, new_width - 1)), data.draw(st.integers(0, new_height - 1))
    right, bottom = data.draw(st.integers(left + 1, new_width)), data.draw(st.integers(top + 1, new_height))
    whole = resize(pixels, new_width, new_height, way)
    part = resize(pixels, new_width, new_height, way, (left, top, right, bottom))
    assert np.array_equal(part, whole[top:bottom, left:right])


@pytest.mark.parametrize("way", RESAMPLINGS)
def test_without_the_kernel_the_bits_are_the_same(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(50, 40, 7, 9), (9, 70, 30, 4), (20, 20, 31, 33), (20, 20, 20, 20), (3, 300, 3, 10)]
    fast = [resize(picture(w, h, 2, 300), *new, way) for w, h, *new in sizes]
    monkeypatch.setattr("tamis.kernels.resize.native.load", lambda name: None)
    plain = [resize(picture(w, h, 2, 300), *new, way) for w, h, *new in sizes]
    assert all(np.array_equal(a, b) for a, b in zip(fast, plain, strict=True))


def test_what_is_no_picture_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(height, width, 3\), not uint8 \(4, 4\)"):
        resize(np.zeros((4, 4), np.uint8), 2, 2)
    with pytest.raises(ValueError, match="resample must be one of box, bilinear"):
        resize(np.zeros((4, 4, 3), np.uint8), 2, 2, "nearest")
    with pytest.raises(ValueError, match="not inside a picture of 2 x 2"):
        resize(np.zeros((4, 4, 3), np.uint8), 2, 2, crop=(0, 0, 3, 2))
