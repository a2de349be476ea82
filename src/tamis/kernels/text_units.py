"""Texts as sequences of units, each as a hash of 64 bits: what classifiers and n-gram models count.

What a unit is depends on the kind:

- ``"token"``: a run of ASCII letters, digits, ``_`` and characters of two UTF-8 bytes from U+00C0 on (Latin, Greek,
  Cyrillic, Arabic ...), in ASCII lower case; or any other single character, such as a punctuation mark or one of
  Chinese. White space is that of ASCII.
- ``"word"``: what ``bytes.split()`` gives, as it is.
- ``"character"``: one character, a space too; only newlines are none.

Bytes that are not UTF-8 are units of their own.
"""

from __future__ import annotations

import functools
import re
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.buffers import TextBuffers
from tamis.kernels.operations import JOINED, LEAD, LETTER, SPACE, SYMBOL

__all__ = ["LINE_BEGIN", "LINE_END", "UNITS", "UNKNOWN", "hash_units", "settled", "unit_hash"]

UNITS: Final = ("token", "word", "character")
"""The kinds of units."""

LINE_END: Final = 1
"""Stands for the end of a line in a sequence of units."""

LINE_BEGIN: Final = 2
"""Stands for the beginning of a line, as n-gram models have it before the first unit."""

UNKNOWN: Final = 3
"""Stands for a unit that a model does not know."""

_START: Final = 0xCBF29CE484222325  # FNV-1a (Fowler, Noll and Vo)
_FACTOR: Final = 0x100000001B3
_WORD: Final = 2**64 - 1
_PLAIN: Final = {
    "token": re.compile(
        rb"(?:[0-9A-Za-z_]|[\xc3-\xdf][\x80-\xbf])+|[\xc0-\xdf][\x80-\xbf]?|[\xe0-\xef][\x80-\xbf]{0,2}"
        rb"|[\xf0-\xff][\x80-\xbf]{0,3}|[^\t-\r\x20]"
    ),
    "word": re.compile(rb"[^\t-\r\x20]+"),
    "character": re.compile(
        rb"[\xc0-\xdf][\x80-\xbf]?|[\xe0-\xef][\x80-\xbf]{0,2}|[\xf0-\xff][\x80-\xbf]{0,3}|[^\n]", re.DOTALL
    ),
}


def hash_units(
    texts: pa.Array | pa.ChunkedArray, unit: str, line_marks: bool = False
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The hashes of the units of all texts, one text after another, and how many each text has.

    Args:
        texts: Of any Arrow type for texts. A null has no units.
        unit: One of :data:`UNITS`.
        line_marks: Whether :data:`LINE_END` follows the units of each line that has some.

    >>> hashes, counts = hash_units(pa.array(["Don't, she said.", None]), "token")
    >>> counts.tolist(), bool(hashes[0] == unit_hash(b"don"))
    ([7, 0], True)
    """
    array = pa.concat_arrays(texts.chunks) if isinstance(texts, pa.ChunkedArray) and texts.num_chunks else texts
    if isinstance(array, pa.ChunkedArray):
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    if array.null_count:
        array = pc.fill_null(array.cast(pa.large_string()) if pa.types.is_null(array.type) else array, "")
    buffers = TextBuffers.of(array)
    kernel = native.load("text_units")
    if kernel is None:
        return _plain(buffers, unit, line_marks)
    kinds, folded = _tables(unit)
    hashes = np.empty(buffers.nbytes + len(buffers), np.uint64)
    counts = np.empty(len(buffers), np.int64)
    mark = np.array([LINE_END], np.uint64)
    found = kernel(*(buffers.data, buffers.offsets, len(buffers), kinds, folded, int(line_marks), mark, hashes, counts))
    return hashes[:found], counts


def unit_hash(unit: bytes) -> int:
    """The hash of one unit, given its bytes in lower case.

    >>> unit_hash(b"a") == unit_hash(b"b")
    False
    """
    value = _START
    for byte in unit:
        value = (value ^ byte) * _FACTOR & _WORD
    return int(settled(np.array([value], np.uint64))[0])


def settled(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The last step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): every bit depends on every bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


@functools.cache
def _tables(unit: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The kind of each byte, and what it is hashed as."""
    if unit not in UNITS:
        raise ValueError(f"unit = {unit!r} is not one of {', '.join(map(repr, UNITS))}")
    folded = np.arange(256, dtype=np.uint8)
    kinds = np.full(256, SYMBOL, np.uint8)
    kinds[0xC0:] = LEAD
    if unit == "character":
        kinds[10] = SPACE
        return kinds, folded
    if unit == "word":
        kinds[:] = LETTER
    else:
        kinds[[byte for byte in range(128) if chr(byte).isalnum() or byte == ord("_")]] = LETTER
        kinds[0xC3:0xE0] = JOINED
        folded[ord("A") : ord("Z") + 1] += 32
    kinds[[*range(9, 14), 32]] = SPACE
    return kinds, folded


def _plain(buffers: TextBuffers, unit: str, line_marks: bool) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """What the kernel does."""
    _tables(unit)  # refuses other units
    known: dict[bytes, int] = {}  # the hash of each unit
    hashes: list[int] = []
    counts = np.empty(len(buffers), np.int64)
    for row in range(len(buffers)):
        before = len(hashes)
        for line in buffers.text(row).split(b"\n"):
            found: list[Any] = _PLAIN[unit].findall(line)
            for piece in found:
                key = piece.lower() if unit == "token" else piece
                if key not in known:
                    known[key] = unit_hash(key)
                hashes.append(known[key])
            if found and line_marks:
                hashes.append(LINE_END)
        counts[row] = len(hashes) - before
    return np.array(hashes, np.uint64), counts
