"""Repeated spans of texts: the anchors of windows, hashes of windows, and texts without some spans.

A window is a span of a given length within one text, counted in units: bytes, or numbers that stand for words or
tokens. Every place of a text at which a window fits is the start of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.hashing import SECRET
from tamis.kernels.span_constants import (
    PIECE_BASE,
    PIECE_MIX,
    PIECE_SPREAD,
    WINDOW_BASES,
    WINDOW_PRIME,
    WINDOW_SPREAD,
)

__all__ = ["Anchors", "Units", "find_anchors", "hash_windows", "piece_length", "remove_spans"]

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]

_WORD = 2**64 - 1


@dataclass(frozen=True)
class Units:
    """Texts as runs of units.

    Args:
        values: The units of all texts: bytes (``uint8``) or numbers (``uint64``).
        offsets: Where in ``values`` each text begins, and as the last entry where the last one ends.

    >>> Units(np.frombuffer(b"abc", np.uint8), np.array([0, 1, 3])).width
    1
    """

    values: NDArray[np.uint8] | Hashes
    offsets: Ints

    @property
    def width(self) -> int:
        """Bytes in a unit."""
        return self.values.itemsize

    @property
    def data(self) -> NDArray[np.uint8]:
        """The units as bytes."""
        return np.ascontiguousarray(self.values).view(np.uint8)


@dataclass(frozen=True)
class Anchors:
    """Some anchors, in the order of the texts. Each window belongs to one of them.

    Args:
        keys: The hash of each anchor. Equal windows belong to anchors with equal hashes.
        spans: The hash of all that the windows of the anchor cover, 128 bits in two columns. If it is equal, the
            windows of both anchors are equal one by one.
        starts: Where the first window of the anchor begins, in units.
        counts: How many windows it has. Each begins one unit after the one before.
    """

    keys: Hashes
    spans: Hashes
    starts: Ints
    counts: Ints


def piece_length(window: int) -> int:
    """The length of the pieces whose hashes decide on the anchor of a window.

    Longer pieces are less often repeated by chance, but a window has fewer of them and so more anchors are needed.

    >>> piece_length(200), piece_length(1)
    (100, 1)
    """
    return max(1, window // 2)


def find_anchors(units: Units, window: int, room: int) -> Iterator[Anchors]:
    """The anchors of all windows, in several lots.

    The anchor of a window is the place of the smallest of the hashes of its pieces (see :func:`piece_length`), the last
    one if there are several. It follows from the content of the window. There is about one anchor for every
    ``window / 4`` units; in a text that repeats itself within a window there may be as many as windows.

    Args:
        units: The texts.
        window: The length of a window.
        room: How many anchors a lot has at most.

    >>> units = Units(np.frombuffer(b"abcdefgh-abcdefgh", np.uint8), np.array([0, 17]))
    >>> (found,) = find_anchors(units, 8, room=100)
    >>> found.keys[0] == found.keys[-1], int(found.counts.sum())
    (True, 10)
    """
    kernel = native.load("anchors")
    rows, at = len(units.offsets) - 1, np.array([0, units.offsets[0]], np.int64)
    recent = np.empty(2 << (window - piece_length(window)).bit_length(), np.uint64)
    while at[0] < rows:
        if kernel is None:
            found = _plain_anchors(units, window, room, at)
        else:
            # Most of this memory is never touched, and so never there.
            keys, spans = np.empty(room, np.uint64), np.empty((room, 2), np.uint64)
            starts, counts = np.empty(room, np.int64), np.empty(room, np.int64)
            count = kernel(
                *(units.data, units.offsets, rows, units.width, window, piece_length(window), int(at[0]), int(at[1])),
                *(SECRET, np.empty(8, np.uint64), recent, len(recent), room, keys, spans, starts, counts, at),
            )
            found = Anchors(keys[:count], spans[:count], starts[:count], counts[:count])
        if len(found.keys):
            yield found


def hash_windows(units: Units, window: int, starts: Ints, counts: Ints) -> Hashes:
    """A hash of 122 bits for each of some windows, in two columns.

    It is the value of the polynomial whose coefficients are the units, at two points, modulo 2^61 - 1. Two different
    windows of n units have the same hash with a probability of at most ``(n / 2**61) ** 2``.

    Args:
        units: The texts.
        window: The length of a window.
        starts: Where the first window of each run begins, ascending.
        counts: How many windows a run has; each begins one unit after the one before.

    >>> units = Units(np.frombuffer(b"abcabc", np.uint8), np.array([0, 6]))
    >>> hashes = hash_windows(units, 3, np.array([0]), np.array([4]))
    >>> (hashes[0] == hashes[3]).all(), (hashes[0] == hashes[1]).any()
    (np.True_, np.False_)
    """
    kernel = native.load("window_hashes")
    if kernel is None:
        return _plain_hashes(units, window, starts, counts)
    hashes = np.empty((int(counts.sum()), 2), np.uint64)
    kernel(units.data, units.width, window, starts, counts, len(starts), hashes)
    return hashes


def remove_spans(data: NDArray[np.uint8], offsets: Ints, begins: Ints, ends: Ints) -> tuple[NDArray[np.uint8], Ints]:
    """Texts without some spans: their bytes and offsets.

    Args:
        data: The bytes of the texts.
        offsets: Where each text begins, and where the last one ends.
        begins, ends: The bytes of each span, ascending and without overlaps, each within one text.

    >>> left, places = remove_spans(np.frombuffer(b"abcdef", np.uint8), np.array([0, 3, 6]), *np.array([[1], [3]]))
    >>> left.tobytes(), places.tolist()
    (b'adef', [0, 1, 4])
    """
    kernel = native.load("span_removal")
    if kernel is None:
        steps = np.zeros(len(data) + 1, np.int64)
        np.add.at(steps, [*begins, *ends], [*np.ones_like(begins), *-np.ones_like(ends)])
        is_kept = np.cumsum(steps[:-1]) == 0
        kept = np.append(0, np.cumsum(is_kept))
        inside = slice(offsets[0], offsets[-1])
        return data[inside][is_kept[inside]], kept[offsets] - kept[offsets[0]]
    made = np.empty(int(offsets[-1] - offsets[0]), np.uint8)
    made_offsets = np.empty(len(offsets), np.int64)
    left = kernel(data, offsets, len(offsets) - 1, begins, ends, len(begins), made, made_offsets)
    return made[:left], made_offsets


# -- plain definitions -------------------------------------------------------------------------------------------------


def _plain_anchors(units: Units, window: int, room: int, at: Ints) -> Anchors:
    """As the kernel: from ``at`` on, while there is room; ``at`` is set to where it stopped."""
    piece = piece_length(window)
    found: list[list[int]] = []
    for row in range(int(at[0]), len(units.offsets) - 1):
        begin, end = int(units.offsets[row]), int(units.offsets[row + 1])
        begin = max(begin, int(at[1])) if row == at[0] else begin
        keys = _piece_keys(units.values[begin:end].tolist(), piece)
        anchor = -1
        for first in range(end - begin - window + 1):
            smallest = min(keys[first : first + window - piece + 1])
            place = max(i for i in range(first, first + window - piece + 1) if keys[i] == smallest)
            if place == anchor:
                found[-1][2] += 1
                continue
            if len(found) == room:
                at[:] = row, begin + first
                return _put_together(units, window, found)
            anchor = place
            found.append([smallest * PIECE_SPREAD & _WORD, begin + first, 1])
    at[:] = len(units.offsets) - 1, units.offsets[-1]
    return _put_together(units, window, found)


def _piece_keys(values: list[int], piece: int) -> list[int]:
    """The hash of each piece of a text, by which pieces are ordered."""
    states, state, leaving = [], 0, pow(PIECE_BASE, piece, 2**64)
    for i, value in enumerate(values):
        state = (state * PIECE_BASE + value - (values[i - piece] * leaving if i >= piece else 0)) & _WORD
        states.append(state)
    return [(state ^ state >> 32) * PIECE_MIX & _WORD for state in states[piece - 1 :]]


def _put_together(units: Units, window: int, found: list[list[int]]) -> Anchors:
    import xxhash

    data, width = units.data.data, units.width
    keys, starts, counts = np.array(found, object).reshape(-1, 3).T
    digests = [
        xxhash.xxh3_128_digest(data[start * width : (start + count - 1 + window) * width]) for _, start, count in found
    ]
    spans = np.frombuffer(b"".join(digests), ">u8").astype(np.uint64).reshape(-1, 2)
    return Anchors(keys.astype(np.uint64), spans, starts.astype(np.int64), counts.astype(np.int64))


def _plain_hashes(units: Units, window: int, starts: Ints, counts: Ints) -> Hashes:
    hashes: list[int] = []
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        values = units.values[start : start + count - 1 + window].tolist()
        columns = [_rolled(values, window, base) for base in WINDOW_BASES]
        hashes += [
            number for one, other in zip(*columns, strict=True) for number in (one * WINDOW_SPREAD & _WORD, other)
        ]
    return np.array(hashes, np.uint64).reshape(-1, 2)


def _rolled(values: list[int], window: int, base: int) -> list[int]:
    """The polynomial of each window of a run, at one point."""
    found, state, leaving = [], 0, pow(base, window, WINDOW_PRIME)
    for i, value in enumerate(values):
        state = (state * base + value - (values[i - window] * leaving if i >= window else 0)) % WINDOW_PRIME
        found.append(state)
    return found[window - 1 :]
