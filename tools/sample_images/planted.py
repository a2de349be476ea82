"""What is planted: pictures that were made, copies, near copies, poor pictures, and files that are no images."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

import segno
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont

from .pictures import encoded

CC0 = "CC0-1.0"


@dataclass(frozen=True)
class Entry:
    """One image of the sample, with what its companions say.

    Args:
        key: Its name, without an ending.
        ending: The ending of its file.
        data: The bytes of its file.
        caption: Its caption; ``None`` for none.
        source, file: Where it comes from.
        creator, licence: Whose it is.
        defect: The class of what is wrong with it; empty if nothing is.
        of: The picture that it was made of; empty if of none.
    """

    key: str
    ending: str
    data: bytes
    caption: str | None
    source: str
    file: str
    creator: str
    licence: str
    defect: str = ""
    of: str = ""


DEFECTS = {
    "exact_duplicate": "the same bytes as another picture",
    "pixel_duplicate": "other bytes, the same pixels",
    "near_duplicate": "smaller, compressed more, brighter, cropped a little, framed or marked",
    "blurred": "out of focus",
    "dark": "exposed far too little",
    "low_contrast": "almost one colour",
    "tiny": "too small to show anything",
    "banner": "eight times as wide as high",
    "one_colour": "no picture at all",
    "screenshot": "a window with text and buttons",
    "qr_code": "a QR code",
    "text": "a page of text",
    "broken": "a file that is no image, or not a whole one",
    "caption": "a caption that says nothing",
}


def planted(pictures: dict[str, Entry], images: dict[str, Image.Image]) -> list[Entry]:
    """Everything that is put in beside the pictures."""
    return [*_copies(pictures, images), *_poor(pictures, images), *_made(), *_broken(pictures)]


def _copies(pictures: dict[str, Entry], images: dict[str, Image.Image]) -> list[Entry]:
    def exact(key: str, of: str) -> Entry:
        return _like(pictures[of], key, pictures[of].data, pictures[of].ending, "exact_duplicate")

    def near(key: str, of: str, change: Callable[[Image.Image], Image.Image], quality: int = 75) -> Entry:
        data = encoded(change(images[of].convert("RGB")), "jpg", quality)
        return _like(pictures[of], key, data, "jpg", "near_duplicate")

    whole = Image.open(io.BytesIO(pictures["cherries"].data))
    lossless = io.BytesIO()
    whole.convert("RGB").save(lossless, "WEBP", lossless=True, method=6)
    return [
        exact("hot-dog-2", "hot-dog"),
        exact("apple-copy", "apple"),
        exact("img-0117", "bricks"),
        _like(pictures["cherries"], "cherries-lossless", lossless.getvalue(), "webp", "pixel_duplicate"),
        near("owl-small", "owl", lambda image: image.resize((image.width * 3 // 4, image.height * 3 // 4)), 60),
        near("parrot-compressed", "parrot", lambda image: image, 35),
        near("coffee-bright", "coffee", lambda image: ImageEnhance.Brightness(image).enhance(1.15)),
        near("temple-cropped", "temple", lambda image: image.crop((4, 3, image.width - 4, image.height - 3))),
        near("rocket-marked", "rocket", _marked),
        near("astronaut-small", "astronaut", lambda image: image.resize((160, 160))),
    ]


def _poor(pictures: dict[str, Entry], images: dict[str, Image.Image]) -> list[Entry]:
    def made(key: str, of: str, change: Callable[[Image.Image], Image.Image], defect: str) -> Entry:
        return _like(pictures[of], key, encoded(change(images[of].convert("RGB")), "jpg"), "jpg", defect)

    return [
        made("galaxies-blurred", "galaxies", lambda image: image.filter(ImageFilter.GaussianBlur(9)), "blurred"),
        made("petals-blurred", "petals", lambda image: image.filter(ImageFilter.GaussianBlur(6)), "blurred"),
        made("dogs-at-night", "dog-running", lambda image: image.point(lambda value: value // 12), "dark"),
        made("sea-in-fog", "waves", lambda image: image.point(lambda value: 205 + value // 14), "low_contrast"),
        made("kite-thumbnail", "kite-beach", lambda image: image.resize((24, 16)), "tiny"),
        made("temple-banner", "temple", lambda image: image.crop((0, 90, image.width, 130)), "banner"),
        _own("pixel", Image.new("RGB", (1, 1), "white"), "a pixel", "tiny", "png"),
        _own("grey", Image.new("RGB", (256, 256), (128, 128, 128)), "grey", "one_colour", "png"),
    ]


def _made() -> list[Entry]:
    code = io.BytesIO()
    segno.make("https://example.org/a-page-with-an-offer", error="m").save(code, kind="png", scale=6, border=4)
    qr = Image.open(code).convert("RGB")
    return [
        _own("settings", _screenshot(), "a window with settings", "screenshot", "png"),
        _own("scan-me", qr, "scan me", "qr_code", "png"),
        _own("notice", _page(), "a printed notice", "text", "jpg"),
    ]


def _broken(pictures: dict[str, Entry]) -> list[Entry]:
    whole = pictures["chelsea"]
    page = b"<!doctype html><title>404</title><script>alert('not an image')</script><p>This picture was removed."
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="64" height="64"><script>alert(1)</script></svg>'
    return [
        _like(whole, "chelsea-truncated", whole.data[: len(whole.data) // 3], "jpg", "broken"),
        Entry("removed", "jpg", page, "IMG_2041.JPG", "made", "", "tamis", CC0, "broken"),
        Entry("drawing", "png", svg, "a drawing", "made", "", "tamis", CC0, "broken"),
        Entry("empty", "jpg", b"", None, "made", "", "tamis", CC0, "broken"),
    ]


def _like(entry: Entry, key: str, data: bytes, ending: str, defect: str) -> Entry:
    source = (entry.source, entry.file, entry.creator, entry.licence)
    return Entry(key, ending, data, entry.caption, *source, defect, entry.key)


def _own(key: str, image: Image.Image, caption: str, defect: str, form: str) -> Entry:
    return Entry(key, form, encoded(image, form), caption, "made", "", "tamis", CC0, defect)


def _marked(image: Image.Image) -> Image.Image:
    """Words across the picture, as agencies put them on what they sell."""
    layer = Image.new("RGBA", image.size, (0, 0, 0, 0))
    font = ImageFont.load_default(18)
    draw = ImageDraw.Draw(layer)
    for y in range(20, image.height, 60):
        draw.text((10 + y % 50, y), "SAMPLE   SAMPLE   SAMPLE", fill=(255, 255, 255, 90), font=font)
    return Image.alpha_composite(image.convert("RGBA"), layer).convert("RGB")


def _screenshot() -> Image.Image:
    image = Image.new("RGB", (480, 320), (236, 236, 236))
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(14)
    draw.rectangle((0, 0, 479, 28), fill=(52, 101, 164))
    draw.text((12, 6), "Settings", fill="white", font=font)
    for number, name in enumerate(("General", "Network", "Sound", "Display", "Users")):
        y = 48 + 48 * number
        draw.rectangle((16, y, 130, y + 34), fill="white", outline=(180, 180, 180))
        draw.text((26, y + 8), name, fill="black", font=font)
        draw.text((160, y + 8), f"Enable {name.lower()} at start", fill="black", font=font)
        draw.rectangle((430, y + 8, 448, y + 26), fill=(52, 101, 164) if number % 2 else "white", outline="black")
    return image


def _page() -> Image.Image:
    image = Image.new("RGB", (360, 260), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(16)
    lines = ("NOTICE", "The library is closed on Monday.", "Books can be returned at the desk", "on the first floor.")
    for number, line in enumerate(lines):
        draw.text((24, 24 + 44 * number), line, fill="black", font=font)
    return image
