"""What a span of text is counted in: bytes or words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels.hashing import hash_text_64
from tamis.kernels.pieces import words
from tamis.kernels.spans import Ints, Units
from tamis.kernels.utf8 import Utf8, continues

__all__ = ["SpanRule", "SpanText"]


@dataclass(frozen=True)
class SpanRule:
    """Which repeated spans are looked for.

    Args:
        text_field: The column with the texts.
        length: The length of the shortest span that counts, in units.
        unit: What the length is counted in.
        keep: Which occurrence of a span stays: ``"first"`` or ``"none"``.
    """

    text_field: str
    length: int
    unit: Literal["byte", "word"]
    keep: Literal["first", "none"]

    def text_of(self, column: pa.ChunkedArray) -> SpanText:
        """The texts of a column, in units. A null has none."""
        texts = Utf8.from_arrow(column)
        return SpanText.of_bytes(texts) if self.unit == "byte" else SpanText.of_words(texts)


@dataclass(frozen=True)
class SpanText:
    """Texts in units.

    Args:
        texts: The texts.
        units: The same as units; unit offsets and values.
        places: The first byte of each unit, and of each end of a text; ``None`` if units are bytes.
    """

    texts: Utf8
    units: Units
    places: Ints | None = None

    @classmethod
    def of_bytes(cls, texts: Utf8) -> SpanText:
        """Each byte is a unit."""
        return cls(texts, Units(texts.data, texts.offsets))

    @classmethod
    def of_words(cls, texts: Utf8) -> SpanText:
        """Each word, as ``str.split()`` defines it, is a unit: the hash of its bytes."""
        hashes, places, counts = [np.zeros(0, np.uint64)], [np.zeros(0, np.int64)], [np.zeros(1, np.int64)]
        done = 0
        for block in texts.blocks():
            found = words(block)
            hashes.append(_hashes_between(block.data, found.starts, found.ends))
            places.append(found.starts + done)
            counts.append(found.counts)
            done += len(block.data)
        return cls(texts, Units(np.concatenate(hashes), np.cumsum(np.concatenate(counts))), np.concatenate(places))

    def to_bytes(self, begins: Ints, ends: Ints) -> tuple[Ints, Ints]:
        """Spans in units, each within one text, as spans of whole characters, in bytes; empty ones are left out.

        Of a span of bytes, a character that is only partly in it does not belong to it. To a span of words belongs the
        white space after each of its words.
        """
        if self.places is None:
            begins, ends = begins.copy(), ends.copy()
            self._shrink(begins, ends)
        elif len(begins):
            row = np.searchsorted(self.units.offsets, begins, side="right") - 1
            ends_text = ends == self.units.offsets[row + 1]
            following = self.places[np.minimum(ends, len(self.places) - 1)]
            begins, ends = self.places[begins], np.where(ends_text, self.texts.offsets[row + 1], following)
        is_there = begins < ends
        return begins[is_there], ends[is_there]

    def _shrink(self, begins: Ints, ends: Ints) -> None:
        """Move the ends of spans of bytes inwards to the borders of characters."""
        data = self.texts.data
        row_ends = self.texts.offsets[np.searchsorted(self.texts.offsets, begins, side="right")]
        for _ in range(3):  # a character has up to three bytes after the first
            inside = np.flatnonzero(begins < ends)
            begins[inside[continues(data[begins[inside]])]] += 1
            inside = np.flatnonzero((begins < ends) & (ends < row_ends))
            ends[inside[continues(data[ends[inside]])]] -= 1


def _hashes_between(data: NDArray[np.uint8], starts: Ints, ends: Ints) -> NDArray[np.uint64]:
    """The hashes of pieces of a block of text. What lies between them is hashed, too: it is short."""
    if not len(starts):
        return np.zeros(0, np.uint64)
    offsets = np.stack([starts, ends], axis=1).reshape(-1)
    pieces = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    )
    return hash_text_64(pieces)[::2]
