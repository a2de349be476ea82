"""The least value of each of many permutations over some hashes, in the registers of the processor."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy import uint32, uint64

from tamis.kernels.sources.primitives import HALVES, helper

__all__ = ["LANES", "least_32", "least_64"]

LANES = 16
"""Permutations are taken in groups of so many."""

_MOST_GROUPS = 6  # three registers for each, of the 32 that AVX-512 has

_HALF, _WORD = ir.IntType(32), ir.IntType(64)
_GROUP = ir.VectorType(_HALF, LANES)


def _least_of(groups):
    """A function that takes hashes into the least values of so many groups, from one permutation on."""

    @intrinsic
    def least(typing_context, hashes, count, factors, terms, values, first):
        def generate(context, builder, signature, arguments):
            hashes, count, factors, terms, values, first = arguments

            def place(pointer, group):
                index = builder.add(first, ir.Constant(_WORD, group * LANES))
                return builder.bitcast(builder.gep(pointer, [index]), _GROUP.as_pointer())

            def loaded(pointer):
                return [builder.load(place(pointer, group), align=4) for group in range(groups)]

            factor, term, value = loaded(factors), loaded(terms), loaded(values)
            before, loop, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
            builder.cbranch(builder.icmp_signed(">", count, ir.Constant(_WORD, 0)), loop, after)
            builder.position_at_end(loop)
            index = builder.phi(_WORD)
            index.add_incoming(ir.Constant(_WORD, 0), before)
            current = [builder.phi(_GROUP) for _ in range(groups)]
            one = builder.load(builder.gep(hashes, [index]))
            undefined = ir.Constant(_GROUP, ir.Undefined)
            everywhere = builder.insert_element(undefined, one, ir.Constant(_HALF, 0))
            everywhere = builder.shuffle_vector(everywhere, undefined, ir.Constant(_GROUP, [0] * LANES))
            smaller = []
            for group in range(groups):
                made = builder.add(builder.mul(factor[group], everywhere), term[group])
                is_less = builder.icmp_unsigned("<", made, current[group])
                smaller.append(builder.select(is_less, made, current[group]))
                current[group].add_incoming(value[group], before)
                current[group].add_incoming(smaller[group], loop)
            following = builder.add(index, ir.Constant(_WORD, 1))
            index.add_incoming(following, loop)
            builder.cbranch(builder.icmp_signed("<", following, count), loop, after)
            builder.position_at_end(after)
            final = [builder.phi(_GROUP) for _ in range(groups)]
            for group in range(groups):
                final[group].add_incoming(value[group], before)
                final[group].add_incoming(smaller[group], loop)
            for group in range(groups):
                builder.store(final[group], place(values, group), align=4)
            return context.get_dummy_value()

        return types.void(HALVES, types.int64, HALVES, HALVES, HALVES, types.int64), generate

    return least


_least_1, _least_2, _least_3, _least_4, _least_5, _least_6 = (_least_of(n) for n in range(1, _MOST_GROUPS + 1))


@helper
def least_32(hashes, count, factors, terms, values, width):
    """Take hashes of 32 bits into the least values of ``width`` permutations, a multiple of :data:`LANES`."""
    first = 0
    while first < width:
        groups = (width - first) // LANES
        turns = (groups + _MOST_GROUPS - 1) // _MOST_GROUPS
        groups = (groups + turns - 1) // turns  # turns of about the same size
        if groups == 6:
            _least_6(hashes, count, factors, terms, values, first)
        elif groups == 5:
            _least_5(hashes, count, factors, terms, values, first)
        elif groups == 4:
            _least_4(hashes, count, factors, terms, values, first)
        elif groups == 3:
            _least_3(hashes, count, factors, terms, values, first)
        elif groups == 2:
            _least_2(hashes, count, factors, terms, values, first)
        else:
            _least_1(hashes, count, factors, terms, values, first)
        first += groups * LANES


@helper
def least_64(hashes, count, factors, terms, values, width):
    """The same for hashes of 64 bits, four at a time, for any number of permutations."""
    i = 0
    while i + 4 <= count:
        x0, x1, x2, x3 = hashes[i], hashes[i + 1], hashes[i + 2], hashes[i + 3]
        for j in range(width):
            a, b = factors[j], terms[j]
            values[j] = min(min(values[j], a * x0 + b), min(min(a * x1 + b, a * x2 + b), a * x3 + b))
        i += 4
    while i < count:
        x0 = hashes[i]
        for j in range(width):
            values[j] = min(values[j], factors[j] * x0 + terms[j])
        i += 1


@helper
def upper_halves(hashes, count, halves):
    for i in range(count):
        halves[i] = uint32(hashes[i] >> uint64(32))
