"""A hash table that is looked up without a branch: eight entries are compared at once.

An entry is a key and, in its lower bits, a number that is not 0; an empty one is 0. If a bucket of eight is full, its
other keys are in the next one that is not. The caller vouches for this, and for a bucket that is not full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy import int64, uint64

from tamis.kernels.sources.hashing import FULL, K0
from tamis.kernels.sources.primitives import WORDS, helper

__all__ = ["lookup"]

_WORD = ir.IntType(64)
_BUCKET = ir.VectorType(_WORD, 8)


def _entry_in_bucket(low_bits: int) -> Callable[..., Any]:
    @intrinsic
    def entry(typing_context: Any, pointer: Any, index: Any, key: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer, index, key = arguments
            place = builder.bitcast(builder.gep(pointer, [index]), _BUCKET.as_pointer())
            held = builder.load(place, align=8)
            nothing = ir.Constant(_BUCKET, ir.Undefined)
            first = builder.insert_element(nothing, key, ir.Constant(ir.IntType(32), 0))
            places = ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8)
            wanted = builder.shuffle_vector(first, nothing, places)
            same = builder.icmp_unsigned("==", builder.lshr(held, ir.Constant(_BUCKET, [low_bits] * 8)), wanted)
            chosen = builder.select(same, held, ir.Constant(_BUCKET, [0] * 8))
            kind = ir.FunctionType(_WORD, [_BUCKET])
            merge = cgutils.get_or_insert_function(builder.module, kind, "llvm.vector.reduce.or.v8i64")
            return builder.call(merge, [chosen])

        return types.uint64(WORDS, types.int64, types.uint64), generate

    return entry


def lookup(low_bits: int) -> Callable[..., Any]:
    """A function ``(table, shift, key)`` that returns the number of a key, 0 if it is not there.

    The number is in so many lower bits; the shift is 64 minus the exponent of the number of buckets.
    """
    entry = _entry_in_bucket(low_bits)
    number = uint64((1 << low_bits) - 1)

    @helper
    def look_up(table: Any, shift: Any, key: Any) -> Any:
        bucket = (key * K0) >> uint64(shift)
        while True:
            found = entry(table, int64(bucket << uint64(3)), key)
            if found != uint64(0) or table[(bucket << uint64(3)) | uint64(7)] == uint64(0):
                return found & number
            bucket = (bucket + uint64(1)) & (FULL >> uint64(shift))

    return look_up
