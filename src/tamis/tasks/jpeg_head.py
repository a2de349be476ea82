"""What the head of a JPEG file says, read without a decoder."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["JpegHead", "jpeg_head"]

_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_INTEGERS = {3: 2, 4: 4, 8: 2, 9: 4}
"""The types of EXIF that are integers, and how many bytes they have: it asks for 3, and cameras write others too."""

_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD8)})
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_XMP_ORIENTATION = re.compile(rb"tiff:Orientation(?:=[\"']|>)([1-8])")


@dataclass(frozen=True)
class JpegHead:
    """The head of a JPEG file.

    Args:
        width, height: In pixels, as stored.
        channels: 1 for grey, 3 for colours, 4 for CMYK.
        bits: Of a sample: 8 or 12.
        orientation: 1 to 8, as EXIF defines them; 1 is upright, and 5 to 8 exchange width and height.
    """

    width: int
    height: int
    channels: int
    bits: int
    orientation: int = 1

    @property
    def upright_size(self) -> tuple[int, int]:
        """Width and height of the picture as it is meant to be seen."""
        return (self.height, self.width) if self.orientation >= 5 else (self.width, self.height)


def jpeg_head(data: bytes | memoryview) -> JpegHead | None:
    """The head of a JPEG file, or ``None`` if these bytes are none or are damaged.

    >>> jpeg_head(b"not a picture") is None
    True
    """
    at, end, orientation = 2, len(data), 0
    if bytes(data[:3]) != b"\xff\xd8\xff":
        return None
    while at + 4 <= end and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # filling
            at += 1
            continue
        if marker in _WITHOUT_LENGTH:
            at += 2
            continue
        size = data[at + 2] << 8 | data[at + 3]
        if size < 2 or at + 2 + size > end:
            return None
        body = at + 4
        if marker in _FRAMES:
            if size < 8:
                return None
            height, width = data[body + 1] << 8 | data[body + 2], data[body + 3] << 8 | data[body + 4]
            if not height or not width:
                return None
            return JpegHead(width, height, data[body + 5], data[body], orientation or 1)
        if marker == 0xE1 and not orientation:
            orientation = _orientation(bytes(data[body : body + size - 2]))
        if marker in (0xD9, 0xDA):
            return None
        at += 2 + size
    return None


def _orientation(segment: bytes) -> int:
    """The orientation that an application segment gives; 0 for none."""
    if segment.startswith(_XMP):
        found = _XMP_ORIENTATION.search(segment)
        return int(found[1]) if found else 0
    if not segment.startswith(b"Exif\0\0"):
        return 0
    tiff = segment[6:]
    order = {b"II": "little", b"MM": "big"}.get(tiff[:2])
    if order is None:
        return 0

    def number(at: int, size: int) -> int:
        return int.from_bytes(tiff[at : at + size], order)  # type: ignore[arg-type]  # one of the two

    directory = number(4, 4)
    for entry in range(directory + 2, directory + 2 + 12 * number(directory, 2), 12):
        if entry + 12 > len(tiff):
            break
        if number(entry, 2) == 0x0112:
            size = _INTEGERS.get(number(entry + 2, 2))
            value = number(entry + 8, size) if size is not None else 0
            return value if 1 <= value <= 8 else 0
    return 0
