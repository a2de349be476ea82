"""A table that keeps the tokens of short pieces of text, for kernels that tokenise.

Pieces repeat: most words of a text have been seen before. An entry has 64 bytes: the bytes of a piece, up to 32 and
filled up with zeros, up to seven ids, the size of the piece and the number of its tokens. So a lookup compares whole
pieces, and two pieces are never confused. A piece has two places, next to each other; a new one moves what is at its
first place to the second. A lookup has one branch: whether the piece is there.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy import int32, int64, uint8, uint64

from tamis.kernels.sources.primitives import BYTES, SHORT_INTS, as_short_ints, as_words, helper

__all__ = ["AHEAD", "KEPT_BYTES", "KEPT_IDS", "keep_ids", "kept_ids", "place_of"]

AHEAD = 32
"""How many pieces are looked at ahead."""
KEPT_BYTES = 32
KEPT_IDS = 7
_ENTRY = 64
_IDS, _SIZE, _COUNT = 32, 60, 61  # where in an entry
_OTHER = 64  # the second place of a piece

_WORD, _BYTE, _BIT, _INDEX = ir.IntType(64), ir.IntType(8), ir.IntType(1), ir.IntType(32)
_KEY = ir.VectorType(_BYTE, KEPT_BYTES)
_FACTORS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB)
_LAST_FACTOR = 0x8EBC6AF09C88C6E3


def _load(builder: Any, pointer: Any, index: Any) -> Any:
    return builder.load(builder.bitcast(builder.gep(pointer, [index]), _KEY.as_pointer()), align=1)


def _key(builder: Any, text: Any, start: Any, size: Any) -> Any:
    """The bytes of a piece, zeros after them."""
    nothing = ir.Constant(_KEY, ir.Undefined)
    first = builder.insert_element(nothing, builder.trunc(size, _BYTE), ir.Constant(_INDEX, 0))
    sizes = builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_INDEX, KEPT_BYTES), [0] * KEPT_BYTES))
    inside = builder.icmp_unsigned("<", ir.Constant(_KEY, list(range(KEPT_BYTES))), sizes)
    return builder.select(inside, _load(builder, text, start), ir.Constant(_KEY, [0] * KEPT_BYTES))


@intrinsic
def hash_of(typing_context: Any, text: Any, start: Any, size: Any) -> Any:
    """A hash of a piece of at most 32 bytes; its upper bits are the good ones."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        text, start, size = arguments
        words = builder.bitcast(_key(builder, text, start, size), ir.VectorType(_WORD, 4))
        total = size
        for place, factor in enumerate(_FACTORS):
            word = builder.extract_element(words, ir.Constant(_INDEX, place))
            total = builder.add(total, builder.mul(word, ir.Constant(_WORD, factor)))
        total = builder.xor(total, builder.lshr(total, ir.Constant(_WORD, 32)))
        return builder.mul(total, ir.Constant(_WORD, _LAST_FACTOR))

    return types.uint64(BYTES, types.int64, types.int64), generate


@intrinsic
def is_piece(typing_context: Any, cache: Any, place: Any, text: Any, start: Any, size: Any) -> Any:
    """Whether the 32 bytes at a place of the table are those of a piece, with zeros after them."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        cache, place, text, start, size = arguments
        differs = builder.xor(_load(builder, cache, place), _key(builder, text, start, size))
        bits = builder.bitcast(builder.icmp_unsigned("!=", differs, ir.Constant(_KEY, [0] * KEPT_BYTES)), _INDEX)
        return builder.icmp_unsigned("==", bits, ir.Constant(_INDEX, 0))

    return types.boolean(BYTES, types.int64, BYTES, types.int64, types.int64), generate


@intrinsic
def copy_ids(typing_context: Any, ids: Any, at: Any, cache: Any, place: Any) -> Any:
    """Copy 32 bytes: seven ids, and one that is not one."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        ids, at, cache, place = arguments
        target = builder.bitcast(builder.gep(ids, [at]), _KEY.as_pointer())
        builder.store(_load(builder, cache, place), target, align=4)
        return context.get_dummy_value()

    return types.void(SHORT_INTS, types.int64, BYTES, types.int64), generate


@helper
def place_of(shift, text, start, size):
    """The first place of a piece of at least 1 and at most :data:`KEPT_BYTES` bytes.

    Args:
        shift: 64 minus the exponent of the number of entries.
    """
    return int64(hash_of(text, start, size) >> uint64(shift)) * _ENTRY


@helper
def kept_ids(cache, place, text, start, size, tag, ids, at):
    """Write the ids of a piece and return their number; -1 if they are not kept.

    Args:
        place: The first place of the piece.
        tag: A multiple of 64 below 256. Pieces with different tags are different.
        ids: Has room for eight more.
    """
    mark = uint8(size + tag)
    is_first = (cache[place + _SIZE] == mark) & is_piece(cache, place, text, start, size)
    other = place ^ _OTHER
    is_second = (cache[other + _SIZE] == mark) & is_piece(cache, other, text, start, size)
    if not (is_first | is_second):
        return int64(-1)
    place = place if is_first else other
    copy_ids(ids, at, cache, place + _IDS)
    return int64(cache[place + _COUNT])


@helper
def keep_ids(cache, place, text, start, size, tag, ids, at, count):
    """Keep the ids of a piece, at most :data:`KEPT_IDS`, at its first place."""
    entry, other = as_words(cache, place), as_words(cache, place ^ _OTHER)
    for i in range(8):
        other[i] = entry[i]
        entry[i] = uint64(0)
    for i in range(size):
        cache[place + i] = text[start + i]
    cache[place + _SIZE] = size + tag
    cache[place + _COUNT] = count
    kept = as_short_ints(cache, place + _IDS)
    for i in range(count):
        kept[i] = int32(ids[at + i])
    return 0
