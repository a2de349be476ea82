"""Decodes one image: JPEG with libjpeg-turbo, at a smaller scale where that is enough, anything else with Pillow."""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from io import BytesIO
from typing import Any, BinaryIO, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import MissingExtraError
from tamis.tasks.jpeg_head import JpegHead, jpeg_head

__all__ = ["MAX_PIXELS", "Size", "check_size", "decode", "in_order", "open_image", "reasons", "upright_size"]

MAX_PIXELS = 89_478_485
"""Images with more pixels are refused: a small file can claim to be of any size. Pillow warns from here on."""

Size = tuple[int, int]
"""Width and height in pixels."""

Pixels = NDArray[np.uint8]

T = TypeVar("T")

_TOLERATED = "extraneous bytes"
"""The one complaint of libjpeg about what is not part of the picture."""

_DAMAGED = (
    "Corrupt JPEG data",
    "Premature end of JPEG",
    "Invalid SOS",
    "Bogus",
    "Inconsistent",
    "Application transferred",
)


def pillow() -> Any:
    """The package Pillow."""
    try:
        from PIL import Image
    except ImportError as e:
        raise MissingExtraError("decoding images", package="pillow", extra="image") from e
    return Image


@cache
def _turbo() -> Any:
    """The package ``simplejpeg``, which is libjpeg-turbo; ``None`` if it is not installed."""
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


def reasons() -> tuple[type[Exception], ...]:
    """What decoders raise for files that they cannot read."""
    plain = (OSError, SyntaxError, ValueError, EOFError, LookupError, TypeError, AttributeError, ArithmeticError)
    return (*plain, NotImplementedError, struct.error, zlib.error, pillow().DecompressionBombError)


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Refuse images that are too large."""
    if width * height > max_pixels:
        raise ValueError(
            f"it has {width} x {height} = {width * height:,} pixels, more than max_pixels={max_pixels:,}; it was not "
            "decoded. Set a larger max_pixels if such images are expected"
        )


def open_image(file: BinaryIO) -> Any:
    """An image of Pillow's, of which only the head is read."""
    if isinstance(file, pa.BufferReader):
        file = BytesIO(file.read_buffer())  # some of Pillow's formats ask for methods that Arrow's files lack
    begin = file.read(8)
    if not begin:
        raise ValueError("it is empty: 0 bytes")
    file.seek(0)
    library = pillow()
    try:
        return library.open(file)
    except library.UnidentifiedImageError:
        raise ValueError(
            f"it is not an image of a known format, or its head is damaged: it begins with {begin!r}"
        ) from None


def decode(
    data: Any, needed: Callable[[Size], Size] | None = None, max_pixels: int = MAX_PIXELS
) -> tuple[Pixels, Size]:
    """The pixels of an image as they are meant to be seen (height, width and RGB, of uint8), and its whole size.

    Args:
        data: The encoded image.
        needed: Given its size, the least size that is needed: a JPEG may then be decoded at a smaller scale.
        max_pixels: Images with more pixels are refused.
    """
    if isinstance(data, memoryview) and data.nbytes:
        data = data.cast("B")  # Arrow's memory is of signed bytes, which are not taken for those of a JPEG
    head = jpeg_head(data)
    if head is None or head.channels not in (1, 3) or head.bits != 8:
        return _with_pillow(data, needed, max_pixels)
    check_size(head.width, head.height, max_pixels)
    least = needed(head.upright_size) if needed is not None else head.upright_size
    turbo = _turbo()
    if turbo is not None:
        stored = least[::-1] if head.orientation >= 5 else least
        found = _with_turbo(turbo, data, head, stored)
        if found is not None:
            return _upright(found, head.orientation), head.upright_size
    return _with_pillow(data, needed, max_pixels)


def _scaled(whole: Size, least: Size) -> Size:
    """The smallest of a whole picture, its half, quarter and eighth that has a size at least.

    libjpeg-turbo can decode at any number of eighths, but the others are slower than the next larger of these.

    >>> _scaled((1152, 864), (298, 224)), _scaled((1152, 864), (1152, 864)), _scaled((99, 99), (12, 12))
    ((576, 432), (1152, 864), (13, 13))
    """
    sizes = [(-(-whole[0] // scale), -(-whole[1] // scale)) for scale in (8, 4, 2)]
    return next((size for size in sizes if size[0] >= least[0] and size[1] >= least[1]), whole)


def _with_turbo(turbo: Any, data: Any, head: JpegHead, least: Size) -> Pixels | None:
    """The pixels of a JPEG as stored; ``None`` if another decoder should try."""
    width, height = _scaled((head.width, head.height), least)
    try:
        pixels: Pixels = turbo.decode_jpeg(data, min_width=width, min_height=height)
    except ValueError as e:
        message = str(e)
        if _TOLERATED not in message and any(words in message for words in _DAMAGED):
            raise
        return None
    return pixels


def _upright(pixels: Pixels, orientation: int) -> Pixels:
    """Pixels as an orientation of EXIF says that they are to be seen."""
    if orientation == 1:
        return pixels
    if orientation >= 5:
        pixels = pixels.swapaxes(0, 1)
    flips_columns, flips_rows = orientation in (2, 3, 6, 7), orientation in (3, 4, 7, 8)
    return np.ascontiguousarray(pixels[:: -1 if flips_rows else 1, :: -1 if flips_columns else 1])


def upright_size(image: Any) -> Size:
    """Width and height of an image of Pillow's as it is meant to be seen."""
    width, height = image.size
    if image.format == "TIFF":  # of which Pillow may or may not have exchanged them, depending on its version
        width, height = (int(image.tag_v2[tag]) for tag in (256, 257))
    return (height, width) if image.getexif().get(0x0112, 1) in (5, 6, 7, 8) else (width, height)


def _with_pillow(data: Any, needed: Callable[[Size], Size] | None, max_pixels: int) -> tuple[Pixels, Size]:
    image = open_image(BytesIO(data))
    check_size(image.width, image.height, max_pixels)
    from PIL import ImageOps

    if image.format == "JPEG":
        whole = upright_size(image)
        if needed is not None:
            least = needed(whole)
            image.draft(None, least if whole == image.size else least[::-1])
        return _rgb(ImageOps.exif_transpose(image)), whole
    pixels = _rgb(ImageOps.exif_transpose(image))
    return pixels, pixels.shape[1::-1]


def _rgb(image: Any) -> Pixels:
    """RGB of any mode of Pillow's: what shines through is put on white, 16 bits become the upper 8."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        grey = (np.asarray(image) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)
    if image.mode in ("I", "F"):
        kind = "32-bit integers" if image.mode == "I" else "floating-point numbers"
        raise ValueError(f"its pixels are {kind}, which have no known range: convert it to 8 or 16 bits per channel")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = pillow().alpha_composite(pillow().new("RGBA", image.size, (255, 255, 255, 255)), image)
    return np.asarray(image.convert("RGB"))


def in_order(function: Callable[[int], T], count: int, threads: int) -> Iterator[T]:
    """The results of a function for 0, 1, 2, ..., in this order, computed in threads that are a little ahead."""
    if threads <= 1 or count <= 1:
        yield from map(function, range(count))
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[T]] = deque()
        try:
            for number in range(count):
                if len(waiting) >= 2 * threads:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(function, number))
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
