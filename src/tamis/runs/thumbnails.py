"""Small pictures of images, for pages: decoded, made smaller and encoded anew, so that pages hold nothing of the file.

An image of a data set may be anything: broken, a decompression bomb, a page of HTML under the name of a picture. Only
formats of pixels are opened, the size is looked at before anything is decoded, and what a page gets is a JPEG that was
made here.
"""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tamis.errors import MissingExtraError, TamisError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MOST_BYTES", "Thumbnail", "image_bytes_of", "may_hold_images", "thumbnail"]

MOST_BYTES: Final = 32 * 2**20
"""Larger files are not shown."""

_MOST_PIXELS: Final = 100_000_000
_FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PPM")
_QUALITY: Final = 72
_COLUMNS: Final = ("image_bytes", "image", "jpg", "jpeg", "png", "webp", "bytes", "content")


@dataclass(frozen=True)
class Thumbnail:
    """A small picture of an image.

    Args:
        uri: The picture as the address of an ``<img>``, a JPEG; empty if there is none.
        width, height: Its size in pixels.
        problem: Why there is none, in words.
    """

    uri: str = ""
    width: int = 0
    height: int = 0
    problem: str = ""


def thumbnail(data: bytes, side: int = 160) -> Thumbnail:
    """A small picture of an encoded image. Nothing is raised: what cannot be shown says why.

    Args:
        data: The bytes of the file.
        side: The longer side of the small picture, in pixels.

    >>> thumbnail(b"<html><script>alert(1)</script>").problem
    'it is not an image that can be shown'
    """
    if len(data) > MOST_BYTES:
        return Thumbnail(problem="it is too large to be shown")
    try:
        from PIL import Image
    except ImportError:
        return Thumbnail(problem=str(MissingExtraError("showing images", package="pillow", extra="image")))
    from tamis.tasks import ImageBatch

    try:
        Image.preinit()  # so that the usual formats are tried first
        Image.init()
        formats = tuple(name for name in _FORMATS if name in Image.OPEN)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # its size is looked at below
            head = Image.open(io.BytesIO(data), formats=formats)
        with head:
            if head.width * head.height > _MOST_PIXELS:
                return Thumbnail(problem=f"it has too many pixels to be shown: {head.width} x {head.height}")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return Thumbnail(problem="it is not an image that can be shown")
    try:
        (pixels,) = ImageBatch({"image_bytes": [data]}).pixels(max_side=side)
        small, out = Image.fromarray(pixels), io.BytesIO()
        small.save(out, "JPEG", quality=_QUALITY)
    except (TamisError, OSError, ValueError, MemoryError, OverflowError):
        return Thumbnail(problem="the image is broken")
    encoded = base64.b64encode(out.getvalue()).decode()
    return Thumbnail(f"data:image/jpeg;base64,{encoded}", small.width, small.height)


def may_hold_images(column: pa.Field) -> bool:
    """Whether a column of a table may hold images, or paths to them.

    >>> import pyarrow as pa
    >>> may_hold_images(pa.field("content", pa.binary())), may_hold_images(pa.field("content", pa.string()))
    (True, False)
    """
    import pyarrow as pa

    if column.name not in _COLUMNS:
        return bool(column.name == "image_path")
    return any(is_kind(column.type) for is_kind in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_struct))


def image_bytes_of(values: Mapping[str, Any]) -> tuple[str, bytes | None]:
    """The column of a row that holds an encoded image, and its bytes; an empty name if there is none.

    >>> image_bytes_of({"image": {"bytes": b"...", "path": None}, "text": "a cat"})
    ('image', b'...')
    """
    for name in _COLUMNS:
        value = values.get(name)
        if isinstance(value, dict):
            value = value.get("bytes")
        if isinstance(value, bytes):
            return name, value
    return "", None
