"""UTF-8 text in whole columns: its characters, and where words begin.

Functions take Arrow buffers, return NumPy arrays, make no Python object per text, and release the GIL. Python's ``str``
is the specification: white space, digits and characters are those of ``str.split()``, ``str.isdecimal()`` and
``len()``, for any Unicode text. Positions are byte positions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.kernels.buffers import check_offsets

__all__ = [
    "WHITE_SPACE",
    "CharacterSet",
    "Utf8",
    "character_counts",
    "continues",
    "measure",
    "spaces",
    "word_starts",
]

Bytes: TypeAlias = NDArray[np.uint8]
Positions: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

BLOCK_BYTES = 1 << 20
"""Texts are processed in blocks of this size, so that intermediate results stay in the cache."""

WHITE_SPACE = "".join(c for c in map(chr, range(0x3001)) if c.isspace())
"""Every character that ``str.split()`` splits at and ``str.strip()`` strips: there is none beyond U+3000."""

_KEPT_BYTES = 31 << 20


@dataclass(frozen=True)
class Utf8:
    """Texts as one run of UTF-8 bytes.

    Args:
        data: The bytes of all texts, one after the other.
        offsets: Where each text begins, and as the last entry where the last one ends.

    >>> texts = Utf8.from_arrow(pa.array(["ab", None, "é"]))
    >>> texts.data.tobytes(), texts.offsets.tolist()
    (b'ab\\xc3\\xa9', [0, 2, 2, 4])
    """

    data: Bytes
    offsets: Positions

    @classmethod
    def from_arrow(cls, column: pa.Array | pa.ChunkedArray) -> Utf8:
        """The texts of an Arrow column, without a copy if it has one chunk. A null is an empty text."""
        if not pa.types.is_large_string(column.type):
            column = column.cast(pa.large_string())
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if column.null_count:
            column = pc.fill_null(column, "")
        if len(column) == 0:
            return cls(np.zeros(0, np.uint8), np.zeros(1, np.int64))
        _, offsets_buffer, data_buffer = column.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int64)[column.offset : column.offset + len(column) + 1]
        data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.zeros(0, np.uint8)
        check_offsets(offsets, len(data), column.type)
        return cls(data[offsets[0] : offsets[-1]], offsets - offsets[0])

    def to_arrow(self) -> pa.Array:
        """The texts as an Arrow array of type ``large_string`` that shares the bytes."""
        return pa.LargeStringArray.from_buffers(
            len(self), pa.py_buffer(self.offsets), pa.py_buffer(np.ascontiguousarray(self.data))
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @functools.cached_property
    def is_ascii(self) -> bool:
        """Whether every character is one byte."""
        return not len(self.data) or bool(self.data.max() < 0x80)

    def blocks(self, block_bytes: int = BLOCK_BYTES) -> Iterator[Utf8]:
        """The texts in runs of about ``block_bytes`` bytes; a text is never cut."""
        # glibc returns freed memory to the system and requests it again for each block, which halves the speed. Once
        # a large array was freed, it keeps more. The array is never touched, so it takes no memory.
        np.empty(_KEPT_BYTES, np.uint8)
        begin = 0
        while begin < len(self):
            wanted = int(np.searchsorted(self.offsets, self.offsets[begin] + block_bytes, side="right")) - 1
            end = min(max(wanted, begin + 1), len(self))
            first, last = self.offsets[begin], self.offsets[end]
            yield Utf8(self.data[first:last], self.offsets[begin : end + 1] - first)
            begin = end


def measure(column: pa.Array | pa.ChunkedArray, score: Callable[[Utf8], NDArray[Any]]) -> NDArray[Any]:
    """One number per text: ``score`` is called with a block of texts at a time.

    >>> measure(pa.array(["a b", "c"]), character_counts).tolist()
    [3, 1]
    """
    texts = Utf8.from_arrow(column)
    parts = [score(block) for block in texts.blocks()]
    return np.concatenate(parts) if parts else score(texts)


def character_counts(block: Utf8) -> Positions:
    """How many characters (code points) each text has.

    >>> character_counts(Utf8.from_arrow(pa.array(["", "né", "日本"]))).tolist()
    [0, 2, 2]
    """
    if block.is_ascii:
        return np.diff(block.offsets)
    return _sum_of_bytes(~continues(block.data), block.offsets)


class CharacterSet:
    """A set of characters that can be counted.

    >>> CharacterSet("()⟨⟩").counts(Utf8.from_arrow(pa.array(["f(x)", "⟨a|b", ""]))).tolist()
    [2, 1, 0]
    """

    def __init__(self, members: Iterable[str]) -> None:
        code_points = [ord(character) for character in members]
        others = [code_point for code_point in code_points if code_point >= 0x80]
        beginnings = [chr(other).encode()[:2] for other in others]
        self._ascii = _ranges(code_point for code_point in code_points if code_point < 0x80)
        self._leads = _ranges(beginning[0] for beginning in beginnings)
        self._beginnings = np.zeros(0x10000, np.bool_)
        self._beginnings[[int.from_bytes(beginning, "big") for beginning in beginnings]] = True
        self._others = np.zeros(max(others, default=-1) + 1, np.bool_)
        self._others[others] = True

    def counts(self, block: Utf8) -> Positions:
        """How many characters of each text are in the set."""
        hits = _in_ranges(block.data, self._ascii)
        if self._leads and not block.is_ascii:
            hits[self._confirmed(block, np.flatnonzero(_in_ranges(block.data, self._leads)))] = True
        return _sum_of_bytes(hits, block.offsets)

    def bytes_of(self, block: Utf8) -> Mask:
        """Which bytes belong to a character of the set.

        >>> CharacterSet("é").bytes_of(Utf8.from_arrow(pa.array(["né"]))).tolist()
        [False, True, True]
        """
        hits = _in_ranges(block.data, self._ascii)
        if self._leads and not block.is_ascii:
            found = self._confirmed(block, np.flatnonzero(_in_ranges(block.data, self._leads)))
            first = block.data[found]
            for lead, following in ((0xC0, 1), (0xE0, 2), (0xF0, 3)):
                hits[found] = True
                hits[found[first >= lead] + following] = True
        return hits

    def _confirmed(self, block: Utf8, leads: Positions) -> Positions:
        """Of the bytes that may begin a character of the set, those that do."""
        # Few are left after the second byte is compared, so few characters are decoded.
        pairs = block.data[leads].astype(np.uint16) << 8 | block.data[leads + 1]
        leads = leads[self._beginnings[pairs]]
        code_points = _code_points(block.data, leads)
        known = code_points < len(self._others)
        return leads[known][self._others[code_points[known]]]


def spaces(block: Utf8) -> Mask:
    """Which bytes belong to white space, as ``str.split()`` and ``str.strip()`` define it.

    >>> spaces(Utf8.from_arrow(pa.array(["a\\x1cb"]))).tolist()
    [False, True, False]
    """
    data = block.data
    mask = _in_ranges(data, [(9, 4), (28, 4)])  # tab to carriage return; the four separators and the space
    if block.is_ascii:
        return mask
    two = np.flatnonzero(data == 0xC2)
    if len(two):
        second = data[two + 1]
        _mark(mask, two[(second == 0x85) | (second == 0xA0)], 2)  # U+0085, U+00A0
    for lead, is_space in _SPACES_OF_THREE_BYTES.items():
        three = np.flatnonzero(data == lead)
        if len(three):
            _mark(mask, three[is_space(data[three + 1], data[three + 2])], 3)
    return mask


_SPACES_OF_THREE_BYTES: dict[int, Callable[[Bytes, Bytes], Mask]] = {
    0xE1: lambda second, third: (second == 0x9A) & (third == 0x80),  # U+1680
    0xE2: lambda second, third: (
        # U+2000 to U+200A, U+2028, U+2029, U+202F; U+205F
        ((second == 0x80) & ((third <= 0x8A) | (third == 0xA8) | (third == 0xA9) | (third == 0xAF)))
        | ((second == 0x81) & (third == 0x9F))
    ),
    0xE3: lambda second, third: (second == 0x80) & (third == 0x80),  # U+3000
}


def continues(data: Bytes) -> Mask:
    """Which bytes continue a character.

    >>> continues(np.frombuffer("né".encode(), np.uint8)).tolist()
    [False, False, True]
    """
    mask: Mask = data.view(np.int8) < -64  # 0x80 to 0xBF are the smallest of the signed bytes
    return mask


def _ranges(values: Iterable[int]) -> list[tuple[int, int]]:
    """Numbers as runs: the first of each and how many follow it."""
    runs: list[tuple[int, int]] = []
    for value in sorted(set(values)):
        if runs and value == sum(runs[-1]) + 1:
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((value, 0))
    return runs


def _in_ranges(data: Bytes, ranges: list[tuple[int, int]]) -> Mask:
    """Which bytes are in one of the runs. A few comparisons of whole arrays are faster than a table."""
    mask = np.zeros(len(data), np.bool_)
    for first, following in ranges:
        # Numbers below the first wrap around and become large.
        mask |= data - np.uint8(first) <= following if following else data == first
    return mask


def _code_points(data: Bytes, leads: Positions) -> NDArray[np.int64]:
    """The characters that begin at these bytes."""
    lead, second, third, fourth = (data.take(leads + i, mode="clip").astype(np.int64) for i in range(4))
    second, third, fourth = second & 0x3F, third & 0x3F, fourth & 0x3F
    two = (lead & 0x1F) << 6 | second
    three = (lead & 0x0F) << 12 | second << 6 | third
    four = (lead & 0x07) << 18 | second << 12 | third << 6 | fourth
    return np.where(lead < 0x80, lead, np.where(lead < 0xE0, two, np.where(lead < 0xF0, three, four)))


def _mark(mask: Mask, starts: Positions, nbytes: int) -> None:
    for i in range(nbytes):
        mask[starts + i] = True


def _sum_of_bytes(values: NDArray[Any], offsets: Positions) -> Positions:
    """The sum of one small number per byte, for each text."""
    sums = np.zeros(len(offsets) - 1, np.int64)
    some = np.flatnonzero(np.diff(offsets))
    if len(some):
        # reduceat sums up to the next start: right, as there is nothing between two texts that are not empty.
        sums[some] = np.add.reduceat(values.view(np.uint8), offsets[some], dtype=np.int64)
    return sums


def word_starts(block: Utf8, inside: Mask) -> Mask:
    """Which bytes begin a word, given those that are inside one.

    >>> block = Utf8.from_arrow(pa.array(["ab c", "d"]))
    >>> word_starts(block, ~spaces(block)).tolist()
    [True, False, False, True, True]
    """
    first = inside.copy()
    first[1:] &= ~inside[:-1]
    edges = block.offsets[1:-1]
    edges = edges[edges < len(inside)]
    first[edges] = inside[edges]
    return first
