"""Perceptual hashes have the bits of the package imagehash, for pictures of every kind and size."""

from __future__ import annotations

import imagehash
import numpy as np
import PIL
import pytest
from PIL import Image

from tamis.kernels import native
from tamis.kernels.image_hashes import KINDS, grey_thumbnail, image_hash
from tests.support.pictures import picture

PEERS = {"phash": imagehash.phash, "dhash": imagehash.dhash, "ahash": imagehash.average_hash}

HEIGHT_FIRST = int(PIL.__version__.split(".")[0]) >= 13
"""Pillow before 13 resizes pictures that are much higher than wide in another order."""


@pytest.fixture(params=["kernel", "plain"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The compiled form, and the plain definition."""
    if request.param == "plain":
        monkeypatch.setattr(native, "load", lambda name: None)
    else:
        monkeypatch.setenv("TAMIS_KERNELS", "wait")
    return request.param


def peer(image: Image.Image, kind: str) -> int:
    return int(str(PEERS[kind](image)), 16)


def degenerate(number: int, height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Noise, one colour, ramps, and a box: in most of them frequencies are zero, but for errors of rounding."""
    made = np.zeros((height, width, 3))
    if number == 0:
        made = rng.integers(0, 256, (height, width, 3))
    elif number == 1:
        made += rng.integers(0, 256, 3)
    elif number == 2:
        made += np.linspace(0, 255, width)[None, :, None]
    elif number == 3:
        made += np.linspace(0, 255, height)[:, None, None]
    else:
        made[height // 4 : height // 2, width // 3 : width // 2] = rng.integers(0, 256, 3)
    return np.asarray(made, np.uint8)


def test_hashes_are_those_of_imagehash(form: str) -> None:
    rng = np.random.default_rng(0)
    for number in range(60 if form == "kernel" else 15):
        height, width = rng.integers(1, 300, 2).tolist()
        if not HEIGHT_FIRST:
            height = min(height, 2 * width)
        pixels = degenerate(number % 5, height, width, rng)
        for kind in KINDS:
            assert image_hash(pixels, kind) == peer(Image.fromarray(pixels), kind), (kind, number % 5, height, width)


def test_hashes_of_pictures_are_those_of_imagehash(form: str) -> None:
    for seed in range(20 if form == "kernel" else 3):
        image = picture(seed, 160 + 7 * seed, 200 - 5 * seed)
        for kind in KINDS:
            assert image_hash(np.asarray(image), kind) == peer(image, kind)


def test_grey_pictures_count_as_what_they_are() -> None:
    image = picture(1).convert("L")
    assert image_hash(np.asarray(image.convert("RGB"))) == peer(image, "phash")


@pytest.mark.parametrize("size", [(32, 32), (9, 8), (1, 1), (500, 3), (3, 499)])
def test_thumbnails_are_those_of_pillow(form: str, size: tuple[int, int]) -> None:
    image = (
        picture(2, *size) if min(size) > 64 else Image.fromarray(degenerate(0, *size[::-1], np.random.default_rng(3)))
    )
    if size == (3, 499) and not HEIGHT_FIRST:
        pytest.skip("needs Pillow 13")
    for width, height in ((32, 32), (9, 8), (8, 8)):
        expected = np.asarray(image.convert("L").resize((width, height), Image.Resampling.LANCZOS))
        assert (grey_thumbnail(np.asarray(image), width, height) == expected).all()


def test_other_arrays_and_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="height x width x 3 of uint8"):
        image_hash(np.zeros((4, 4), np.uint8))
    with pytest.raises(ValueError, match="height x width x 3 of uint8"):
        image_hash(np.zeros((0, 4, 3), np.uint8))
    with pytest.raises(ValueError, match="one of phash, dhash, ahash"):
        image_hash(np.zeros((4, 4, 3), np.uint8), "whash")  # type: ignore[arg-type]  # what is tested
