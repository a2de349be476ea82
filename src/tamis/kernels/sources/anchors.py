"""The kernel that chooses the anchors of texts: what windows of n units have in common if they are equal.

The anchor of a window is the place of the smallest hash among the hashes of all short pieces in it, the last such place
if there are several (winnowing: Schleimer, Wilkerson and Aiken, 2003). It depends on the window's content alone, so
equal windows have anchors with equal hashes, at the same place in the window. Neighbouring windows mostly share their
anchor.
"""

from __future__ import annotations

from numpy import uint64

from tamis.kernels.sources.primitives import helper, load64
from tamis.kernels.sources.xxh3 import hash_128
from tamis.kernels.span_constants import PIECE_BASE, PIECE_MIX, PIECE_SPREAD

__all__ = ["kernel", "unit"]

_BASE, _MIX, _SPREAD = uint64(PIECE_BASE), uint64(PIECE_MIX), uint64(PIECE_SPREAD)
_LARGEST = uint64(0xFFFFFFFFFFFFFFFF)


@helper
def unit(data, at, width):
    """A byte, or a word of eight bytes, as a number."""
    return uint64(data[at]) if width == 1 else load64(data, 8 * at)


@helper
def close(data, width, window, start, end, at, secret, accumulators, spans, counts):
    """Note how many windows an anchor has, from ``start`` to before ``end``, and the hash of all that they cover."""
    counts[at] = end - start
    size = (end - start + window - 1) * width
    high, low = hash_128(data, start * width, size, secret, accumulators)
    spans[2 * at] = high
    spans[2 * at + 1] = low
    return at + 1


def hasher(width):
    """A function that hashes the pieces that begin from one place on to before another, given the state before."""

    @helper
    def hash_pieces(data, begin, end, piece, leaving, state, recent, mask):
        for at in range(begin, end):
            entering = unit(data, at + piece - 1, width) - unit(data, at - 1, width) * leaving
            state = state * _BASE + entering
            recent[at & mask] = (state ^ (state >> uint64(32))) * _MIX
        return state

    return hash_pieces


_hash_bytes, _hash_words = hasher(1), hasher(8)


@helper
def last_smallest(recent, mask, first, end):
    """The place of the smallest of some hashes, the last one if there are several."""
    smallest, place = _LARGEST, first
    for at in range(first, end):
        value = recent[at & mask]
        if value <= smallest:
            smallest, place = value, at
    return place


def kernel(
    data,
    offsets,
    row_count,
    width,
    window,
    piece,
    first_row,
    first_window,
    secret,
    accumulators,
    recent,
    recent_count,
    room,
    keys,
    spans,
    starts,
    counts,
    next_window,
):
    """Find the anchors of all windows, while there is room. Returns how many.

    Args:
        width: Bytes in a unit: 1 or 8. All other lengths and places are in units.
        window: The length of a window.
        piece: The length of the pieces that are hashed.
        first_row, first_window: Where to start: a row, and a place in it at which a window begins.
        secret, accumulators: See :mod:`tamis.kernels.sources.xxh3`.
        recent: Room for the latest hashes: a power of two, and at least twice as many as a window has.
        keys: The hash of each anchor.
        spans: Two words for each: the hash of everything that the windows with this anchor cover.
        starts: Where the first window with this anchor begins.
        counts: How many windows have it; each begins one unit after the one before.
        next_window: Row and place to continue at once there is more room; the number of rows at the end.
    """
    per_window = window - piece + 1
    mask = recent_count - 1
    leaving = uint64(1)  # what a unit has been multiplied with when it leaves a piece
    for _ in range(piece):
        leaving *= _BASE
    count = 0
    for row in range(first_row, row_count):
        begin, end = offsets[row], offsets[row + 1]
        if row == first_row and first_window > begin:
            begin = first_window
        if end - begin < window:
            continue
        state = uint64(0)
        for at in range(begin, begin + piece):
            state = state * _BASE + unit(data, at, width)
        recent[begin & mask] = (state ^ (state >> uint64(32))) * _MIX
        hashed = begin + 1  # hashes are known up to here
        last = end - piece + 1
        place = -1
        first = begin  # the window whose anchor is looked for next
        start = begin
        while first + window <= end:
            # The anchor stays until a piece with a hash that is not larger enters, or until it leaves.
            if place < first:
                need = first + per_window
                if need > hashed:
                    if width == 1:
                        state = _hash_bytes(data, hashed, need, piece, leaving, state, recent, mask)
                    else:
                        state = _hash_words(data, hashed, need, piece, leaving, state, recent, mask)
                    hashed = need
                new = last_smallest(recent, mask, first, need)
            else:
                new = first + per_window - 1
            if place >= 0:
                count = close(data, width, window, start, first, count, secret, accumulators, spans, counts)
            if count == room:
                next_window[0], next_window[1] = row, first
                return count
            place, start = new, first
            smallest = recent[place & mask]
            keys[count] = smallest * _SPREAD
            starts[count] = first
            # While this is the anchor, pieces enter up to the one that begins before place + per_window.
            entering = first + per_window
            stop = min(place + per_window, last)
            if stop > hashed:
                if width == 1:
                    state = _hash_bytes(data, hashed, stop, piece, leaving, state, recent, mask)
                else:
                    state = _hash_words(data, hashed, stop, piece, leaving, state, recent, mask)
                hashed = stop
            while entering < stop and recent[entering & mask] > smallest:
                entering += 1
            first = entering - per_window + 1
        count = close(data, width, window, start, end - window + 1, count, secret, accumulators, spans, counts)
    next_window[0], next_window[1] = row_count, offsets[row_count]
    return count
