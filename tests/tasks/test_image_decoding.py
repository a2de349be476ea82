"""Images of every kind become upright RGB, equal to what Pillow gives, and broken ones an error that names them."""

from __future__ import annotations

import io
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from made_images import broken_images, photograph, png_of, saved
from PIL import Image, ImageOps

from tamis.errors import DataError
from tamis.kernels.resize import axis_weights
from tamis.tasks import ImageBatch, image_decoding


def of(*data: bytes) -> ImageBatch:
    return ImageBatch(pa.table({"image_bytes": pa.array(data, pa.large_binary())})).named("x")


def pixels_of(data: bytes, **options: Any) -> np.ndarray:
    return next(of(data).pixels(**options))


def with_pillow(data: bytes) -> np.ndarray:
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))


@pytest.fixture(params=["libjpeg-turbo", "pillow alone"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pillow alone":
        monkeypatch.setattr(image_decoding, "_turbo", lambda: None)
    return request.param


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_jpeg_gives_the_bits_of_pillow(decoder: str, subsampling: int, progressive: bool, mode: str) -> None:
    options = {} if mode == "L" else {"subsampling": subsampling}
    data = saved(photograph(201, 133).convert(mode), quality=85, progressive=progressive, **options)
    assert np.array_equal(pixels_of(data), with_pillow(data))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("order", ["little", "big"])
def test_the_orientation_of_exif_is_applied(decoder: str, orientation: int, order: str) -> None:
    exif = Image.Exif()
    exif.endian = "<" if order == "little" else ">"
    exif[0x0112] = orientation
    exif[0x010F] = "a maker"
    data = saved(photograph(96, 64), exif=exif)
    wanted = with_pillow(data)
    assert np.array_equal(pixels_of(data), wanted)
    assert pixels_of(data, min_side=32).shape == ((48, 32, 3) if orientation >= 5 else (32, 48, 3))
    square = next(of(data).squares(32))
    sides = (32, 48) if orientation >= 5 else (48, 32)
    left, top = (sides[0] - 32) // 2, (sides[1] - 32) // 2
    resized = Image.fromarray(wanted).resize(sides, Image.Resampling.BICUBIC)
    assert np.array_equal(square, np.asarray(resized.crop((left, top, left + 32, top + 32))))
    heads = of(data).with_metadata()
    assert [heads[name].to_pylist() for name in ("width", "height")] == [[wanted.shape[1]], [wanted.shape[0]]]


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF"])
def test_other_formats_have_orientations_too(kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(photograph(96, 64), kind, exif=exif, **({"lossless": True} if kind == "WEBP" else {}))
    assert np.array_equal(pixels_of(data), np.rot90(np.asarray(photograph(96, 64)), 3))


def test_a_turned_tiff_has_the_size_that_is_seen() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    heads = of(saved(photograph(96, 64), "TIFF", exif=exif)).with_metadata()
    assert [heads[name].to_pylist() for name in ("width", "height")] == [[64], [96]]


def test_orientations_may_be_numbers_of_four_bytes(decoder: str) -> None:
    entry = b"\1\x12\0\4\0\0\0\1\0\0\0\6"  # type 4 is LONG
    data = saved(photograph(96, 64), exif=b"Exif\0\0MM\0*\0\0\0\x08\0\1" + entry + bytes(4))
    assert np.array_equal(pixels_of(data), with_pillow(data))
    assert pixels_of(data).shape == (96, 64, 3)


def test_a_picture_a_pixel_wide_needs_no_more_memory_than_what_is_seen_of_it() -> None:
    tall = np.arange(30_000, dtype=np.uint8)[:, None, None].repeat(3, 2)
    square = next(of(saved(Image.fromarray(tall), "PNG")).squares(224))
    middle = Image.fromarray(tall[14_990:15_010]).resize((224, 224 * 20), Image.Resampling.BICUBIC)
    assert np.array_equal(square, np.asarray(middle)[2240 - 112 : 2240 + 112])
    assert axis_weights(30_000, 224 * 30_000, "bicubic", (0, 224))[2].shape == (224, 5)


def test_the_inverted_cmyk_of_adobe_is_right(decoder: str) -> None:
    data = saved(photograph().convert("CMYK"), quality=95)
    assert b"Adobe" in data
    difference = pixels_of(data).astype(int) - np.asarray(photograph())
    assert np.abs(difference).mean() < 6


def test_16_bits_become_the_upper_8() -> None:
    ramp = np.linspace(0, 65535, 64 * 64).astype(np.uint16).reshape(64, 64)
    for kind in ("PNG", "TIFF"):
        found = pixels_of(saved(Image.fromarray(ramp), kind))
        assert np.array_equal(found, np.repeat((ramp >> 8).astype(np.uint8)[:, :, None], 3, 2))
    with pytest.raises(DataError, match="floating-point numbers, which have no known range"):
        pixels_of(saved(Image.fromarray(ramp.astype(np.float32)), "TIFF"))


def test_what_shines_through_is_put_on_white() -> None:
    half = photograph(64, 40).convert("RGBA")
    half.putalpha(Image.linear_gradient("L").resize(half.size))
    wanted = np.asarray(Image.alpha_composite(Image.new("RGBA", half.size, "white"), half).convert("RGB"))
    assert np.array_equal(pixels_of(saved(half, "PNG")), wanted)
    grey = half.convert("LA")
    assert pixels_of(saved(grey, "PNG"))[0, 20].min() > 240
    palette = photograph(64, 40).quantize(16)
    seen = pixels_of(saved(palette, "PNG", transparency=int(np.asarray(palette)[3, 3])))
    assert seen[3, 3].tolist() == [255, 255, 255]
    assert np.array_equal(pixels_of(saved(palette, "PNG")), np.asarray(palette.convert("RGB")))
    keyed = photograph(64, 40)
    assert pixels_of(saved(keyed, "PNG", transparency=(250, 20, 30)))[3, 3].tolist() == [255, 255, 255]


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_of_animations_the_first_frame_is_taken(kind: str) -> None:
    frames = [Image.new("RGB", (40, 30), color) for color in ("red", "blue", "green")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    found = pixels_of(data)
    assert (found.shape, found[5, 5].tolist()) == ((30, 40, 3), [255, 0, 0])


@pytest.mark.parametrize("mode", ["1", "L"])
def test_grey_and_black_and_white_have_three_channels(mode: str) -> None:
    image = photograph(64, 40).convert(mode)
    assert np.array_equal(pixels_of(saved(image, "PNG")), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("way", ["bicubic", "bilinear", "lanczos", "box"])
@pytest.mark.parametrize("size", [(400, 300), (300, 401), (50, 70), (90, 900), (64, 64)])
def test_exact_squares_have_the_bits_of_pillow(way: str, size: tuple[int, int]) -> None:
    data = saved(photograph(*size), quality=90)
    whole = Image.open(io.BytesIO(data)).convert("RGB")
    short = min(size)
    new = tuple(64 if side == short else int(64 * side / short) for side in size)
    left, top = (new[0] - 64) // 2, (new[1] - 64) // 2
    wanted = whole.resize(new, Image.Resampling[way.upper()]).crop((left, top, left + 64, top + 64))
    assert np.array_equal(next(of(data).squares(64, way)), np.asarray(wanted))


def test_squares_that_are_not_exact_differ_a_little(decoder: str) -> None:
    data = (Path(__file__).parent / "data" / "face.jpg").read_bytes()
    exact, fast = next(of(data).squares(100)), next(of(data).squares(100, exact=False))
    difference = np.abs(exact.astype(int) - fast)
    assert fast.shape == (100, 100, 3)
    assert 0 < difference.mean() < 4


def test_the_shorter_or_the_longer_side_can_be_limited(decoder: str) -> None:
    batch = of(saved(photograph(300, 200)), saved(photograph(100, 50), "PNG"))
    assert [p.shape for p in batch.pixels(min_side=80)] == [(80, 120, 3), (50, 100, 3)]
    assert [p.shape for p in batch.pixels(max_side=80)] == [(53, 80, 3), (40, 80, 3)]
    with pytest.raises(ValueError, match="set only one"):
        batch.pixels(max_side=3, min_side=3)
    with pytest.raises(ValueError, match="resample in box"):
        batch.squares(3, "nearest")


def test_threads_keep_the_order_and_stay_a_little_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    count, begun, lock = 40, [0], threading.Lock()
    plain = image_decoding.decode

    def counting(*arguments: Any) -> Any:
        with lock:
            begun[0] += 1
        return plain(*arguments)

    monkeypatch.setattr("tamis.tasks.image.decode", counting)
    batch = of(*(saved(photograph(30 + n, 20), "PNG") for n in range(count)))
    found = batch.pixels(threads=3)
    assert next(found).shape == (20, 30, 3)
    assert begun[0] <= 7
    assert [p.shape[1] for p in found] == list(range(31, 30 + count))


def test_images_that_claim_to_be_huge_are_refused_before_they_are_decoded(decoder: str) -> None:
    jpeg = bytearray(saved(photograph()))
    at = jpeg.index(b"\xff\xc0")
    jpeg[at + 5 : at + 9] = struct.pack(">HH", 65000, 65000)
    for data in (bytes(jpeg), png_of(60_000, 60_000)):
        with pytest.raises(
            DataError, match=r"x:0 cannot be decoded.*(more than max_pixels=89,478,485|decompression bomb)"
        ):
            pixels_of(data)
    with pytest.raises(DataError, match=r"200 x 120 = 24,000 pixels, more than max_pixels=10,000"):
        pixels_of(saved(photograph()), max_pixels=10_000)


@pytest.mark.parametrize(("kind", "data"), [pytest.param(*each, id=each[0]) for each in broken_images()])
def test_a_broken_image_is_an_error_that_names_it(decoder: str, kind: str, data: bytes) -> None:
    ways: list[Callable[[ImageBatch], Iterator[Any]]] = [
        ImageBatch.pixels,
        lambda batch: batch.pixels(max_side=50),
        ImageBatch.squares,
        lambda batch: batch.squares(exact=False),
    ]
    for way in ways:
        with pytest.raises(DataError, match=r"the image x:0 cannot be decoded: \S"):
            next(way(of(data)))


def test_bytes_that_do_not_belong_to_the_picture_do_no_harm(decoder: str) -> None:
    data = saved(photograph())
    scan = data.index(b"\xff\xda")
    for odd in (data + b"more", data[:scan] + bytes(7) + data[scan:]):
        assert np.array_equal(pixels_of(odd), with_pillow(data))


def test_bytes_of_a_column_are_decoded_with_libjpeg_turbo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of Arrow's is of signed bytes, which must not be taken for something else than a JPEG."""
    monkeypatch.setattr(image_decoding, "_with_pillow", None)
    data = saved(photograph())
    assert (pixels_of(data) == with_pillow(data)).all()
