"""Byte pair encoding of one piece of text: adjacent symbols are merged, the pair that was learned first comes first.

The rank of each pair is kept beside its left symbol, in blocks of 16, with the least rank of each block. So finding the
next pair takes few steps even in a piece of thousands of bytes, and equal ranks are merged from left to right.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy import int32, int64, uint32, uint64

from tamis.kernels.sources.buckets import lookup
from tamis.kernels.sources.primitives import HALVES, helper, trailing_zeros

__all__ = ["merge_piece"]

_BLOCK = 16
_HALF = ir.IntType(32)
_VECTOR = ir.VectorType(_HALF, _BLOCK)
_NO_RANK = uint32(0xFFFFFFFF)
_ID_BITS, _RANK_BITS = 21, 22  # of an entry of the table of pairs: two ids and a rank


def _vector(builder: Any, pointer: Any, index: Any) -> Any:
    return builder.load(builder.bitcast(builder.gep(pointer, [index]), _VECTOR.as_pointer()), align=4)


@intrinsic
def least_of_block(typing_context: Any, pointer: Any, index: Any) -> Any:
    """The least of the 16 numbers from an index on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_HALF, [_VECTOR])
        least = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.umin.v{_BLOCK}i32")
        return builder.call(least, [_vector(builder, *arguments)])

    return types.uint32(HALVES, types.int64), generate


@intrinsic
def equal_in_block(typing_context: Any, pointer: Any, index: Any, number: Any) -> Any:
    """Which of the 16 numbers from an index on equal a number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, index, number = arguments
        first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.Constant(_HALF, 0))
        everywhere = builder.shuffle_vector(
            first, ir.Constant(_VECTOR, ir.Undefined), ir.Constant(_VECTOR, [0] * _BLOCK)
        )
        same = builder.icmp_unsigned("==", _vector(builder, pointer, index), everywhere)
        return builder.zext(builder.bitcast(same, ir.IntType(_BLOCK)), ir.IntType(64))

    return types.uint64(HALVES, types.int64, types.uint32), generate


_rank_and_one = lookup(_RANK_BITS)


@helper
def rank_of(pairs, shift, left, right):
    """The rank of a pair of symbols."""
    key = (uint64(left) << uint64(_ID_BITS)) | uint64(right)
    return uint32(_rank_and_one(pairs, shift, key) - uint64(1))


@helper
def merge_piece(text, start, size, byte_ids, byte_ranks, pairs, shift, merged, links, ranks, most, ids, at):
    """Write the ids of a piece, and return their number.

    Args:
        byte_ids: The id of each byte.
        byte_ranks: The rank of each pair of bytes.
        pairs, shift: A hash table: see :mod:`tamis.kernels.sources.buckets`. Two ids are a key, and the rank of the
            pair plus one is its number.
        merged: The id that the pair of a rank becomes.
        links: Room for three times ``most``: symbols, and the places of the next and the previous one.
        ranks: Room for the ranks of ``most`` pairs, a sixteenth of that, and 32 more.
        most: The most bytes of a piece, a multiple of 16.
    """
    following, previous, least = most, 2 * most, most + _BLOCK
    blocks = (size + _BLOCK - 1) >> 4
    for i in range(size):
        links[i] = byte_ids[text[start + i]]
        links[following + i] = i + 1
        links[previous + i] = i - 1
    for i in range(size - 1):
        ranks[i] = byte_ranks[(int64(text[start + i]) << 8) | int64(text[start + i + 1])]
    for i in range(size - 1, blocks * _BLOCK):
        ranks[i] = _NO_RANK
    if blocks > 1:
        for block in range(blocks):
            ranks[least + block] = least_of_block(ranks, block * _BLOCK)
    groups = (blocks + _BLOCK - 1) >> 4
    for block in range(blocks, groups * _BLOCK):
        ranks[least + block] = _NO_RANK
    while True:
        block = 0
        if blocks == 1:
            rank = least_of_block(ranks, 0)
        else:
            group = 0
            rank = least_of_block(ranks, least)
            for other in range(1, groups):
                here = least_of_block(ranks, least + other * _BLOCK)
                if here < rank:
                    rank, group = here, other
            block = group * _BLOCK + trailing_zeros(equal_in_block(ranks, least + group * _BLOCK, rank))
        if rank == _NO_RANK:
            break
        left = block * _BLOCK + trailing_zeros(equal_in_block(ranks, block * _BLOCK, rank))
        right = int64(links[following + left])
        after = int64(links[following + right])
        symbol = merged[rank]
        links[left] = symbol
        links[following + left] = int32(after)
        ranks[right] = _NO_RANK
        if after < size:
            links[previous + after] = int32(left)
            ranks[left] = rank_of(pairs, shift, symbol, links[after])
        else:
            ranks[left] = _NO_RANK
        before = int64(links[previous + left])
        if before >= 0:
            ranks[before] = rank_of(pairs, shift, links[before], symbol)
        if blocks > 1:
            ranks[least + (left >> 4)] = least_of_block(ranks, (left >> 4) * _BLOCK)
            if right >> 4 != left >> 4:
                ranks[least + (right >> 4)] = least_of_block(ranks, (right >> 4) * _BLOCK)
            if before >= 0 and before >> 4 != left >> 4:
                ranks[least + (before >> 4)] = least_of_block(ranks, (before >> 4) * _BLOCK)
    count = 0
    i = 0
    while i < size:
        ids[at + count] = links[i]
        count += 1
        i = int64(links[following + i])
    return count
