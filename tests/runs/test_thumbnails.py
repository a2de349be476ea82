"""Small pictures for pages: whatever the file is, a page gets a JPEG that was made anew, or words."""

import base64
import io

import pytest
from image_runs import DRAWING, PAGE, bomb, samples
from PIL import Image, PngImagePlugin

from tamis.runs.thumbnails import MOST_BYTES, image_bytes_of, thumbnail


def opened(uri: str) -> Image.Image:
    head, data = uri.split(",")
    assert head == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


@pytest.mark.parametrize("key", ["owl", "flower", "moon", "rabbit", "factory", "penguin", "kite-thumbnail", "pixel"])
def test_a_picture_of_any_kind_becomes_a_small_jpeg(key: str) -> None:
    found = thumbnail(samples()[key], side=96)
    small = opened(found.uri)
    assert small.format == "JPEG"
    assert small.size == (found.width, found.height)
    assert max(small.size) <= 96


@pytest.mark.parametrize(
    "data",
    [b"", PAGE, DRAWING, bomb(), b"GIF89a", b"%!PS-Adobe-3.0 EPSF-3.0\n", samples()["chelsea"][:200]],
    ids=["empty", "page", "drawing", "bomb", "beginning", "program", "cut"],
)
def test_what_is_no_image_gives_words_and_no_picture(data: bytes) -> None:
    found = thumbnail(data)
    assert not found.uri
    assert found.problem


def test_an_image_of_too_many_pixels_is_not_decoded() -> None:
    found = thumbnail(bomb(12_000, 12_000))
    assert found.problem == "it has too many pixels to be shown: 12000 x 12000"
    assert thumbnail(b"\xff" * (MOST_BYTES + 1)).problem == "it is too large to be shown"


def test_nothing_of_the_file_but_its_pixels_is_shown() -> None:
    words, out = PngImagePlugin.PngInfo(), io.BytesIO()
    words.add_text("Comment", "<script>alert(1)</script>")
    Image.new("RGB", (300, 200), "green").save(out, "PNG", pnginfo=words)
    data = base64.b64decode(thumbnail(out.getvalue()).uri.split(",")[1])
    assert b"script" not in data


def test_the_image_of_a_row_is_found_in_the_columns_that_data_sets_use() -> None:
    assert image_bytes_of({"caption": "x", "image_bytes": b"1"}) == ("image_bytes", b"1")
    assert image_bytes_of({"image": {"bytes": b"2", "path": "a.jpg"}}) == ("image", b"2")
    assert image_bytes_of({"image": "a.jpg", "text": "x"}) == ("", None)
