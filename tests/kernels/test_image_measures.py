"""What is counted in pictures: the kernel and the definition in NumPy give the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tamis.kernels import native
from tamis.kernels.image_measures import count_pixels, luma_of


@given(
    height=st.integers(1, 12),
    width=st.integers(1, 12),
    shades=st.sampled_from([1, 2, 30, 256]),
    frame=st.integers(0, 4),
    seed=st.integers(0, 1000),
)
def test_the_kernel_counts_what_the_definition_counts(
    height: int, width: int, shades: int, frame: int, seed: int
) -> None:
    pixels = np.random.default_rng(seed).integers(0, shades, (height, width, 3)).astype(np.uint8)
    framed = np.pad(pixels, ((frame, frame // 2), (frame // 3, frame), (0, 0)), constant_values=90)
    assert native.load("image_measures") is not None
    counted = count_pixels(framed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "load", lambda name: None)
        plain = count_pixels(framed)
    for part in ("luma", "spread", "colors", "sums"):
        assert getattr(counted, part).tolist() == getattr(plain, part).tolist(), part


def test_luma_is_that_of_pillow() -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    assert (luma_of(pixels) == np.asarray(Image.fromarray(pixels).convert("L"))).all()


@pytest.mark.parametrize(
    "pixels", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)], ids=str
)
def test_what_is_no_picture_is_refused(pixels: np.ndarray) -> None:
    with pytest.raises(ValueError, match="a picture is height x width x 3 values of uint8"):
        count_pixels(pixels)
