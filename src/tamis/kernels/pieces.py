"""Words, lines and paragraphs of UTF-8 text: where each begins and ends, for a whole column at once.

What they are is what ``str.split()`` and ``str.strip()`` say. Positions are byte positions in a block of texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels.utf8 import Mask, Positions, Utf8, continues, spaces, word_starts

__all__ = [
    "Pieces",
    "end_with_any",
    "equal_to_any",
    "first_in_text",
    "largest_of_pieces",
    "lines",
    "paragraphs",
    "stripped_lines",
    "sum_of_pieces",
    "words",
    "words_inside",
]


@dataclass(frozen=True)
class Pieces:
    """Parts of texts, in order.

    Args:
        starts: First byte of each.
        ends: One past the last byte of each.
        counts: How many each text has.
    """

    starts: Positions
    ends: Positions
    counts: Positions

    def texts(self) -> Positions:
        """The number of the text each piece is part of."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def select(self, mask: Mask) -> Pieces:
        """Some of the pieces."""
        counts = sum_of_pieces(mask, self.counts)
        return Pieces(self.starts[mask], self.ends[mask], counts)

    def lengths(self, block: Utf8) -> Positions:
        """How many characters each has."""
        if block.is_ascii:
            return self.ends - self.starts
        return _count_inside(~continues(block.data), self)


def words(block: Utf8) -> Pieces:
    """The words of each text: ``str.split()``.

    >>> words(Utf8.from_arrow(pa.array([" one  two", ""]))).counts.tolist()
    [2, 0]
    """
    return words_inside(block, ~spaces(block))


def words_inside(block: Utf8, inside: Mask) -> Pieces:
    """The words of each text, given the bytes that are not white space.

    >>> block = Utf8.from_arrow(pa.array(["a b"]))
    >>> words_inside(block, ~spaces(block)).ends.tolist()
    [1, 3]
    """
    starts, ends = np.flatnonzero(word_starts(block, inside)), _word_ends(block, inside)
    return Pieces(starts, ends, np.diff(np.searchsorted(starts, block.offsets)))


def lines(block: Utf8) -> Pieces:
    """The lines of each text that hold more than white space.

    >>> lines(Utf8.from_arrow(pa.array(["a\\n\\n b\\n"]))).starts.tolist()
    [0, 3]
    """
    every = _split(block, np.flatnonzero(block.data == 0x0A), 1)
    return every.select(_count_inside(word_starts(block, ~spaces(block)), every) > 0)


def stripped_lines(block: Utf8) -> Pieces:
    """The lines of each text that hold more than white space, without the white space at their ends.

    >>> stripped_lines(Utf8.from_arrow(pa.array(["a\\n\\n b\\n"]))).starts.tolist()
    [0, 4]
    """
    inside = ~spaces(block)
    begins_word = word_starts(block, inside)
    every = _split(block, np.flatnonzero(block.data == 0x0A), 1)
    words_in = _count_inside(begins_word, every)
    # A line begins with its first word and ends with its last.
    last = np.cumsum(words_in)[words_in > 0] - 1
    first = np.append(0, last[:-1] + 1) if len(last) else last
    return Pieces(
        np.flatnonzero(begins_word)[first],
        _word_ends(block, inside)[last],
        sum_of_pieces(words_in > 0, every.counts),
    )


def paragraphs(block: Utf8) -> Pieces:
    """The paragraphs of each text: ``text.split("\\n\\n")``, empty ones included.

    >>> paragraphs(Utf8.from_arrow(pa.array(["a\\n\\nb", "", "\\n\\n\\n"]))).counts.tolist()
    [2, 1, 2]
    """
    newlines = np.flatnonzero(block.data == 0x0A)
    if not len(newlines):
        return _split(block, newlines, 2)
    # In a run of newlines every second one begins a separator. A run ends where its text ends.
    begins_run = np.ones(len(newlines), np.bool_)
    begins_run[1:] = np.diff(newlines) > 1
    begins_run |= np.isin(newlines, block.offsets)
    run_start = np.maximum.accumulate(np.where(begins_run, newlines, 0))
    has_next = np.append(~begins_run[1:], False)
    return _split(block, newlines[has_next & ((newlines - run_start) % 2 == 0)], 2)


def first_in_text(block: Utf8, pieces: Pieces) -> Mask:
    """Which pieces did not occur before in the same text.

    >>> block = Utf8.from_arrow(pa.array(["a b a", "a"]))
    >>> first_in_text(block, words(block)).tolist()
    [True, True, False, True]
    """
    first = np.ones(len(pieces.starts), np.bool_)
    suspects = _with_equal_fingerprint(block, pieces)
    if len(suspects):
        compared = _pieces_to_arrow(block, pieces.starts[suspects], pieces.ends[suspects]).dictionary_encode()
        keys = pieces.texts()[suspects] * len(compared.dictionary) + compared.indices.to_numpy()
        first[suspects] = False
        first[suspects[np.unique(keys, return_index=True)[1]]] = True
    return first


def equal_to_any(block: Utf8, pieces: Pieces, texts: Iterable[str]) -> Mask:
    """Which pieces are one of some texts of at most seven bytes.

    >>> block = Utf8.from_arrow(pa.array(["to be or not to be"]))
    >>> equal_to_any(block, words(block), ["be", "not"]).tolist()
    [False, True, False, True, False, True]
    """
    wanted = [text.encode() for text in texts]
    beginnings = np.zeros(256, np.bool_)
    beginnings[[text[0] for text in wanted]] = True
    lengths = pieces.ends - pieces.starts
    likely = np.flatnonzero((lengths <= max(map(len, wanted))) & (lengths > 0))
    starts = pieces.starts[likely]
    begin_right = beginnings[block.data[starts]]
    likely, starts = likely[begin_right], starts[begin_right]
    # The length is the eighth byte, so that a text is not taken for the same one with a byte 0 behind it.
    keys = block.numbers_at(starts, lengths[likely]) | lengths[likely].astype(np.uint64) << np.uint64(56)
    equal = np.zeros(len(pieces.starts), np.bool_)
    for text in wanted:
        equal[likely[keys == int.from_bytes(text.ljust(7, b"\0") + bytes([len(text)]), "little")]] = True
    return equal


def end_with_any(block: Utf8, pieces: Pieces, texts: Iterable[str]) -> Mask:
    """Which pieces end with one of some texts, whose ASCII letters (given in lower case) are found in any case.

    >>> block = Utf8.from_arrow(pa.array(["Read MORE", "ore"]))
    >>> end_with_any(block, words(block), ["more", "..."]).tolist()
    [False, True, False]
    """
    wanted = [text.encode() for text in texts]
    endings = np.zeros(256, np.bool_)
    endings[[ending for text in wanted for ending in (text[-1], text.upper()[-1])]] = True
    likely = np.flatnonzero(pieces.ends > pieces.starts)
    likely = likely[endings[block.data[pieces.ends[likely] - 1]]]
    found = np.zeros(len(pieces.ends), np.bool_)
    for text in wanted:
        candidates = likely[pieces.ends[likely] - pieces.starts[likely] >= len(text)]
        for back, byte in enumerate(reversed(text), start=1):
            there = block.data[pieces.ends[candidates] - back]
            candidates = candidates[(there == byte) | (there == bytes([byte]).upper()[0])]
        found[candidates] = True
    return found


def sum_of_pieces(values: NDArray[Any], counts: Positions) -> Positions:
    """The sum of whole numbers given per piece, for each text.

    >>> sum_of_pieces(np.array([1, 2, 3]), np.array([2, 0, 1])).tolist()
    [3, 0, 3]
    """
    running = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=running[1:])
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    return np.diff(running[bounds])


def largest_of_pieces(values: Positions, counts: Positions) -> Positions:
    """The largest of the numbers given per piece, for each text; 0 for a text without pieces.

    >>> largest_of_pieces(np.array([1, 2, 3]), np.array([2, 0, 1])).tolist()
    [2, 0, 3]
    """
    largest = np.zeros(len(counts), np.int64)
    some = np.flatnonzero(counts)
    if len(some):
        begins = np.cumsum(counts) - counts
        largest[some] = np.maximum.reduceat(values, begins[some])
    return largest


def _count_inside(mask: Mask, pieces: Pieces) -> Positions:
    """How many bytes of each piece the mask holds for: for many small pieces, where reduceat is slow."""
    size: Any = np.int32 if len(mask) < 2**31 else np.int64
    before = np.empty(len(mask) + 1, size)
    before[0] = 0
    np.cumsum(mask, dtype=size, out=before[1:])
    return (before[pieces.ends] - before[pieces.starts]).astype(np.int64)


def _split(block: Utf8, separators: Positions, nbytes: int) -> Pieces:
    """What is between separators of some length: ``str.split(separator)``."""
    before = np.searchsorted(separators, block.offsets)
    starts = np.insert(separators + nbytes, before[:-1], block.offsets[:-1])
    ends = np.insert(separators, before[1:], block.offsets[1:])
    return Pieces(starts, ends, np.diff(before) + 1)


def _word_ends(block: Utf8, inside: Mask) -> Positions:
    """One past the last byte of each word, given the bytes that are inside one."""
    last = inside.copy()
    last[:-1] &= ~inside[1:]
    edges = block.offsets[1:-1]
    edges = edges[edges > 0] - 1
    last[edges] = inside[edges]
    return np.flatnonzero(last) + 1


def _with_equal_fingerprint(block: Utf8, pieces: Pieces) -> Positions:
    """Pieces that share a fingerprint with another: all that occur twice in a text, and few others."""
    nbytes = pieces.ends - pieces.starts
    beyond = np.maximum(nbytes - 8, 0)
    mixed = pieces.texts().astype(np.uint64) * _MULTIPLIERS[0] + nbytes.astype(np.uint64) * _MULTIPLIERS[1]
    for skipped, multiplier in zip((0, beyond // 2, beyond), _MULTIPLIERS[2:], strict=True):
        mixed ^= mixed >> np.uint64(29)
        mixed += block.numbers_at(pieces.starts + skipped, nbytes) * multiplier
    mixed = (mixed ^ (mixed >> np.uint64(32))) * _MULTIPLIERS[0]
    # Counting in about eight times as many buckets as there are pieces leaves few of them to be sorted.
    buckets = (mixed >> np.uint64(61 - len(nbytes).bit_length())).astype(np.int64)
    crowded = np.flatnonzero(np.bincount(buckets)[buckets] > 1)
    values, place = np.unique(mixed[crowded], return_inverse=True)
    return crowded[np.bincount(place, minlength=len(values))[place] > 1]


_MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F], np.uint64
)


def _pieces_to_arrow(block: Utf8, starts: Positions, ends: Positions) -> pa.Array:
    """Pieces as an Arrow array: their bytes are copied next to each other."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(ends - starts, out=offsets[1:])
    # Byte i of the copy is byte i of the texts, moved by as much as its piece is.
    data = block.data[np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], ends - starts)]
    return Utf8(data, offsets).to_arrow()
