"""A table that keeps the tokens of short pieces of text, for kernels that tokenise.

Pieces repeat: most words of a text have been seen before. An entry has 64 bytes: the bytes of a piece, up to 32 and
filled up with zeros, its size, the number of its tokens, and their ids. So a lookup compares whole pieces, and two
pieces are never confused. A piece has two places; a new one moves an old one from its first place to its second.
"""

from __future__ import annotations

from numpy import int32, int64, uint64

from tamis.kernels.sources.hashing import K0, K1, K2, K3, low_bytes, mix
from tamis.kernels.sources.primitives import as_short_ints, as_words, helper, load64

__all__ = ["KEPT_BYTES", "KEPT_IDS", "keep_ids", "kept_ids"]

KEPT_BYTES = 32
KEPT_IDS = 7
_ENTRY = 64
_SIZE, _COUNT, _FIRST_ID = 32, 33, 9  # where in an entry: bytes 32 and 33, 32-bit words 9 to 15
_OTHER = 1  # the second place of a piece is the one beside the first


@helper
def place_of(text, start, size, shift):
    """Where the entry of a piece is looked for: the number of a byte of the table."""
    if size <= 8:
        state = mix(low_bytes(text, start, size) ^ K2, K1 + uint64(size) * K3)
    elif size <= 16:
        state = mix(load64(text, start) ^ K2, low_bytes(text, start + 8, size - 8) ^ (K1 + uint64(size) * K3))
    else:
        state = mix(load64(text, start) ^ K2, load64(text, start + 8) ^ K1)
        state = mix(state ^ load64(text, start + size - 16), load64(text, start + size - 8) ^ (K0 + uint64(size)))
    return int64(state >> uint64(shift)) * _ENTRY


@helper
def holds(cache, place, text, start, size):
    """Whether an entry is that of a piece."""
    if cache[place + _SIZE] != size:
        return False
    if size <= 8:
        return load64(cache, place) == low_bytes(text, start, size)
    if size <= 16:
        differs = load64(cache, place) ^ load64(text, start)
        return differs | (load64(cache, place + 8) ^ low_bytes(text, start + 8, size - 8)) == uint64(0)
    differs = load64(cache, place) ^ load64(text, start)
    differs |= load64(cache, place + 8) ^ load64(text, start + 8)
    # The last sixteen bytes overlap those before.
    differs |= load64(cache, place + size - 16) ^ load64(text, start + size - 16)
    return differs | (load64(cache, place + size - 8) ^ load64(text, start + size - 8)) == uint64(0)


@helper
def kept_ids(cache, shift, text, start, size, ids, at):
    """Write the ids of a piece and return their number; -1 if they are not kept.

    Args:
        shift: 64 minus the exponent of the number of entries.
        size: At least 1 and at most :data:`KEPT_BYTES`.
        ids: Has room for at least one more id than there are bytes in the piece.
    """
    place = place_of(text, start, size, shift)
    if not holds(cache, place, text, start, size):
        place ^= _OTHER * _ENTRY
        if not holds(cache, place, text, start, size):
            return -1
    kept = as_short_ints(cache, place)
    count = int64(cache[place + _COUNT])
    ids[at] = kept[_FIRST_ID]
    for i in range(1, count):
        ids[at + i] = kept[_FIRST_ID + i]
    return count


@helper
def keep_ids(cache, shift, text, start, size, ids, at, count):
    """Keep the ids of a piece, at most :data:`KEPT_IDS`."""
    place = place_of(text, start, size, shift)
    entry, other = as_words(cache, place), as_words(cache, place ^ (_OTHER * _ENTRY))
    for i in range(8):
        other[i] = entry[i]
        entry[i] = uint64(0)
    for i in range(size):
        cache[place + i] = text[start + i]
    cache[place + _SIZE] = size
    cache[place + _COUNT] = count
    kept = as_short_ints(cache, place)
    for i in range(count):
        kept[_FIRST_ID + i] = int32(ids[at + i])
    return 0
