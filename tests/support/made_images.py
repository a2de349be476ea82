"""Images that tests make: photographs of a kind, and files of many kinds that cannot be decoded."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image


def photograph(width: int = 200, height: int = 120, seed: int = 0) -> Image.Image:
    """Something with soft and hard edges, not alike on its four sides."""
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / (9 + c) + seed) * 60 + np.cos(y / (5 + c)) * 40 + x / width * 50 + 90 for c in range(3)]
    pixels = np.clip(np.stack(waves, 2), 0, 255).astype(np.uint8)
    pixels[: height // 4, : width // 8] = (250, 20, 30)
    return Image.fromarray(pixels)


def saved(image: Image.Image, kind: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png_of(width: int, height: int) -> bytes:
    """A PNG that claims to have a size."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(b"\0" * 100)), (b"IEND", b""))
    parts = [struct.pack(">I", len(b)) + name + b + struct.pack(">I", zlib.crc32(name + b)) for name, b in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def broken_images() -> Iterator[tuple[str, bytes]]:
    """Files of 22 kinds that cannot be decoded."""
    jpeg = saved(photograph(400, 300), quality=90)
    progressive = saved(photograph(400, 300), quality=90, progressive=True)
    yield "empty", b""
    yield "one byte", b"\xff"
    yield "text", b"this is not an image at all, but a sentence"
    yield "html", b"<!DOCTYPE html><html><body>404 Not Found</body></html>"
    yield "zeros", bytes(1000)
    yield "noise", np.random.default_rng(0).bytes(3000)
    yield "jpeg: cut in the head", jpeg[:200]
    yield "jpeg: cut in the middle", jpeg[: len(jpeg) // 2]
    yield "jpeg: only its first two bytes", jpeg[:2]
    yield "jpeg: progressive, cut", progressive[: len(progressive) // 2]
    yield "jpeg: huge", jpeg.replace(jpeg[jpeg.index(b"\xff\xc0") + 5 :][:4], struct.pack(">HH", 65500, 65500), 1)
    at = jpeg.index(b"\xff\xc0")
    yield "jpeg: no height", jpeg[: at + 5] + b"\0\0" + jpeg[at + 7 :]
    yield "jpeg: no tables", jpeg[:2] + jpeg[jpeg.index(b"\xff\xc0") :]
    for kind in ("PNG", "GIF", "WEBP", "BMP", "TIFF"):
        whole = saved(photograph(), kind)
        yield f"{kind.lower()}: cut", whole[: len(whole) // 2]
    png = saved(photograph(), "PNG")
    yield "png: damaged pixels", png[:100] + bytes(200) + png[300:]
    yield "png: huge", png_of(60_000, 60_000)
    yield "png: only its signature", png[:8]
    yield "webp: damaged head", saved(photograph(), "WEBP").replace(b"VP8 ", b"VPX ", 1)
    yield "tiff: floating-point", saved(Image.fromarray(np.ones((9, 9), np.float32)), "TIFF")
    yield "zip", b"PK\x03\x04" + bytes(100)
