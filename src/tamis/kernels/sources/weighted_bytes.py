"""Sums of bytes with weights, many at a time, and blocks of bytes turned on their side: what resizing is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tamis.kernels.sources.primitives import BYTES, SHORT_INTS

__all__ = ["LANES", "WEIGHT_BITS", "turn_block", "weighted_sums"]

LANES = 16
"""How many bytes are worked on at a time, and how many rows and columns a block has that is turned."""

WEIGHT_BITS = 22
"""Weights are fractions of 1 << 22."""

_BYTE, _INT = ir.IntType(8), ir.IntType(32)
_ROW = ir.VectorType(_BYTE, LANES)
_SUMS = ir.VectorType(_INT, LANES)


def _all_lanes(value: int) -> ir.Constant:
    return ir.Constant(_SUMS, [value] * LANES)


def weighted_sums(parts: int) -> Callable[..., Any]:
    """A function ``(source, first, step, weights, at, count, target, place)`` for ``parts * LANES`` bytes at a time.

    ``count`` rows of bytes, ``step`` bytes apart, are added with a weight each, rounded, cut to 0 to 255 and written.
    """

    @intrinsic
    def sums(
        typing_context: Any,
        source: Any,
        first: Any,
        step: Any,
        weights: Any,
        at: Any,
        count: Any,
        target: Any,
        place: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            source, first, step, weights, at, count, target, place = arguments
            half = _all_lanes(1 << (WEIGHT_BITS - 1))
            held = [cgutils.alloca_once_value(builder, half) for _ in range(parts)]
            with cgutils.for_range(builder, count) as loop:
                weight = builder.load(builder.gep(weights, [builder.add(at, loop.index)]))
                one = builder.insert_element(ir.Constant(_SUMS, ir.Undefined), weight, ir.Constant(_INT, 0))
                every = builder.shuffle_vector(one, ir.Constant(_SUMS, ir.Undefined), _all_lanes(0))
                row = builder.add(first, builder.mul(step, loop.index))
                for part in range(parts):
                    begin = builder.add(row, ir.Constant(row.type, part * LANES))
                    lanes = builder.load(builder.bitcast(builder.gep(source, [begin]), _ROW.as_pointer()), align=1)
                    product = builder.mul(builder.zext(lanes, _SUMS), every)
                    builder.store(builder.add(builder.load(held[part]), product), held[part])
            for part in range(parts):
                value = builder.ashr(builder.load(held[part]), _all_lanes(WEIGHT_BITS))
                for sign, limit in (("<", 0), (">", 255)):
                    beyond = builder.icmp_signed(sign, value, _all_lanes(limit))
                    value = builder.select(beyond, _all_lanes(limit), value)
                begin = builder.add(place, ir.Constant(place.type, part * LANES))
                there = builder.bitcast(builder.gep(target, [begin]), _ROW.as_pointer())
                builder.store(builder.trunc(value, _ROW), there, align=1)
            return context.get_dummy_value()

        number = types.int64
        kinds = (BYTES, number, number, SHORT_INTS, number, number, BYTES, number)
        return types.void(*kinds), generate

    return sums


@intrinsic
def turn_block(typing_context: Any, source: Any, first: Any, step: Any, rows: Any, target: Any, place: Any) -> Any:
    """Write a block of ``LANES`` rows of ``LANES`` bytes column by column; rows after the last one repeat that.

    ``first`` is where the first row begins, ``step`` how far rows are apart, ``rows`` how many there are.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source, first, step, rows, target, place = arguments
        last = builder.sub(rows, ir.Constant(rows.type, 1))
        found = []
        for row in range(LANES):
            number = ir.Constant(rows.type, row)
            number = builder.select(builder.icmp_signed("<", number, last), number, last)
            begin = builder.add(first, builder.mul(step, number))
            found.append(builder.load(builder.bitcast(builder.gep(source, [begin]), _ROW.as_pointer()), align=1))
        half = LANES // 2
        halves = [ir.Constant(_SUMS, [start + i // 2 + LANES * (i % 2) for i in range(LANES)]) for start in (0, half)]
        for _ in range(LANES.bit_length() - 1):
            found = [
                builder.shuffle_vector(found[pair], found[pair + half], order)
                for pair in range(half)
                for order in halves
            ]
        for column, lanes in enumerate(found):
            begin = builder.add(place, ir.Constant(place.type, column * LANES))
            builder.store(lanes, builder.bitcast(builder.gep(target, [begin]), _ROW.as_pointer()), align=1)
        return context.get_dummy_value()

    number = types.int64
    return types.void(BYTES, number, number, number, BYTES, number), generate
