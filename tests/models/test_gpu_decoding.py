"""Which JPEG files a card may decode: those that it shows as the CPU does. (That it does is tested on a card.)"""

from __future__ import annotations

import io

import pytest
from PIL import Image

pytest.importorskip("torch")

from tamis.models.gpu_decoding import _is_plain


def jpeg(size: tuple[int, int] = (64, 48), **options: object) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, (200, 30, 90)).save(file, "JPEG", **options)
    return file.getvalue()


def test_pictures_in_colours_are_for_the_card() -> None:
    assert _is_plain(jpeg())
    assert _is_plain(jpeg(progressive=True))


def test_colours_that_were_not_transformed_are_for_the_cpu() -> None:
    assert not _is_plain(jpeg(keep_rgb=True))


def test_very_long_pictures_are_for_the_cpu() -> None:
    assert _is_plain(jpeg((1600, 100)))
    assert not _is_plain(jpeg((1601, 100)))


def test_what_is_cut_off_is_for_the_cpu() -> None:
    assert not _is_plain(jpeg()[:-20])
