"""The lines or paragraphs of a block of texts: where each is, its hash, and the texts without some of them."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels.hashing import hash_text_64, normalize_text
from tamis.kernels.pieces import Pieces, sum_of_pieces
from tamis.kernels.utf8 import Mask, Positions, Utf8, continues, spaces

__all__ = ["Unit", "cut", "lengths", "piece_hashes", "with_text", "without"]

Unit: TypeAlias = Literal["line", "paragraph"]

_NEWLINE: Final = ord("\n")

_FIRST_VISIBLE: Final = np.uint8(0x21)
_VISIBLE: Final = 0x5E
"""The visible characters of ASCII: the first one, and how many there are. Bytes below it wrap around to large ones."""


def cut(block: Utf8, unit: Unit) -> Pieces:
    """The lines of each text, ``text.split("\\n")``, or its paragraphs, which two or more newlines separate.

    Args:
        block: The texts.
        unit: Lines or paragraphs.

    >>> block = Utf8.from_arrow(pa.array(["a\\nb\\n\\n\\nc", ""]))
    >>> cut(block, "line").counts.tolist(), cut(block, "paragraph").counts.tolist()
    ([5, 1], [2, 1])
    """
    newlines = np.flatnonzero(block.data == _NEWLINE)
    if unit == "line":
        begins, ends = newlines, newlines + 1
    else:
        begins, ends = _runs(newlines, block.offsets)
    counts = np.diff(np.searchsorted(begins, block.offsets)) + 1
    # Within a text, begins and ends come in turn; texts follow each other. So in both lists the n-th is of one piece.
    starts = np.sort(np.concatenate([block.offsets[:-1], ends]), kind="stable")
    stops = np.sort(np.concatenate([begins, block.offsets[1:]]), kind="stable")
    return Pieces(starts, stops, counts)


def _runs(newlines: Positions, offsets: Positions) -> tuple[Positions, Positions]:
    """Begin and end of each run of two or more newlines within a text."""
    if not len(newlines):
        return newlines, newlines
    is_first = np.ones(len(newlines), np.bool_)
    is_first[1:] = np.diff(newlines) > 1
    at_begin = np.searchsorted(newlines, offsets)  # the first newline at or after each begin of a text
    at_begin, begins = at_begin[at_begin < len(newlines)], offsets[at_begin < len(newlines)]
    is_first[at_begin[newlines[at_begin] == begins]] = True
    firsts = np.flatnonzero(is_first)
    lasts = np.append(firsts[1:], len(newlines)) - 1
    is_long = lasts > firsts
    return newlines[firsts[is_long]], newlines[lasts[is_long]] + 1


def lengths(block: Utf8, pieces: Pieces) -> Positions:
    """How many characters each piece has.

    >>> block = Utf8.from_arrow(pa.array(["né\\nabc"]))
    >>> lengths(block, cut(block, "line")).tolist()
    [2, 3]
    """
    if block.is_ascii:
        return pieces.ends - pieces.starts
    return _over_pieces(np.add, ~continues(block.data), pieces, np.int64)


def with_text(block: Utf8, pieces: Pieces) -> Mask:
    """Which pieces hold more than white space.

    >>> block = Utf8.from_arrow(pa.array(["a\\n \\t\\n\\u3000\\n\\n b"]))
    >>> with_text(block, cut(block, "line")).tolist()
    [True, False, False, False, True]
    """
    data = block.data
    found: Mask = _over_pieces(np.logical_or, data - _FIRST_VISIBLE < _VISIBLE, pieces, np.bool_)
    if found[pieces.starts < pieces.ends].all():
        return found
    is_space = (data - np.uint8(9) < 5) | (data - np.uint8(28) < 5)  # ASCII's
    others: Mask = _over_pieces(np.logical_or, ~is_space, pieces, np.bool_)
    if np.array_equal(found, others):
        return found
    exact: Mask = _over_pieces(np.logical_or, ~spaces(block), pieces, np.bool_)
    return exact


def _over_pieces(function: np.ufunc, values: NDArray[Any], pieces: Pieces, kind: Any) -> NDArray[Any]:
    """A function of the values of the bytes of each piece; 0 for an empty piece."""
    padded = np.append(values, values.dtype.type(0))  # an empty piece may begin where the block ends
    places = np.stack([pieces.starts, pieces.ends], axis=1).reshape(-1)
    found = function.reduceat(padded, places, dtype=kind)[::2].copy()
    found[pieces.starts == pieces.ends] = 0
    return found


def piece_hashes(block: Utf8, pieces: Pieces, normalize: bool = False) -> NDArray[np.uint64]:
    """The 64-bit hash of each piece.

    Args:
        block: The texts.
        pieces: Their lines or paragraphs.
        normalize: Whether pieces that differ in case and white space only have the same hash.

    >>> block = Utf8.from_arrow(pa.array(["a\\nb", "b", " B"]))
    >>> exact, normal = (piece_hashes(block, cut(block, "line"), n).tolist() for n in (False, True))
    >>> exact[1] == exact[2] != exact[3], normal[1] == normal[2] == normal[3] != normal[0]
    (True, True)
    """
    # Each piece and what separates it from the next are values of one array, which shares the bytes of the texts.
    places = np.stack([pieces.starts, pieces.ends], axis=1).reshape(-1)
    buffers = [None, pa.py_buffer(places), pa.py_buffer(np.ascontiguousarray(block.data))]
    values = pa.Array.from_buffers(pa.large_string(), max(0, len(places) - 1), buffers)
    if normalize:
        values = normalize_text(values.take(pa.array(np.arange(0, len(places), 2))))
        return hash_text_64(values)
    return np.ascontiguousarray(hash_text_64(values)[::2])


def without(block: Utf8, pieces: Pieces, removed: Mask) -> Utf8:
    """The texts without some of their pieces: the others stay as they are, with what separates them.

    With a piece goes what separates it from the next one; with the last ones of a text, what comes before them.

    Args:
        block: The texts.
        pieces: Their lines or paragraphs.
        removed: Which of them to leave out.

    >>> block = Utf8.from_arrow(pa.array(["a\\n\\nb\\nc", "b"]))
    >>> without(block, cut(block, "line"), np.array([False, False, True, True, True])).to_arrow().to_pylist()
    ['a\\n', '']
    """
    text = pieces.texts()
    kept = np.flatnonzero(~removed)
    last_kept = np.full(len(block), -1)
    last_kept[text[kept]] = kept  # of several values for one place, the last counts
    # A piece and what follows it up to the next one; the last one that stays keeps nothing that follows.
    stops = np.append(pieces.starts[1:], pieces.ends[-1:])
    stops[last_kept[last_kept >= 0]] = pieces.ends[last_kept[last_kept >= 0]]
    sizes = np.where(removed, 0, stops - pieces.starts)
    edges = np.stack([pieces.starts, pieces.starts + sizes], axis=1).reshape(-1)
    gaps = np.diff(edges, prepend=0, append=len(block.data))  # left out and kept in turn
    is_kept = np.repeat(np.arange(len(gaps)) % 2 == 1, gaps)
    offsets = np.zeros(len(block) + 1, np.int64)
    np.cumsum(sum_of_pieces(sizes, pieces.counts), out=offsets[1:])
    return Utf8(block.data[is_kept], offsets)
