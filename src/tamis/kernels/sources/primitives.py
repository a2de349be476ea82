"""The building blocks of kernels: pointers, operations on 64 bytes at a time, and bits of a word.

Text is read 64 bytes at a time: comparing them gives a mask of 64 bits, one per byte, and the bits of a mask are then
walked with :func:`trailing_zeros`. That is several times faster than a loop over bytes, on any processor.

Indices are bytes (or elements) from where a pointer points. They are not checked here: :mod:`tamis.kernels.arguments`
checks the arrays of a call, and kernels that read :data:`PADDING` bytes after a text copy the last texts of a buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from tamis.kernels.arguments import Arrays, Number, Signature
from tamis.kernels.signatures import PADDING

__all__ = [
    "BYTES",
    "FLOATS",
    "HALVES",
    "INTS",
    "PADDING",
    "SHORT_INTS",
    "WORDS",
    "any_of",
    "as_bytes",
    "as_ints",
    "as_short_ints",
    "as_words",
    "at_address",
    "between_mask",
    "byte_mask",
    "compiled_for",
    "copy_64",
    "copy_64_replacing",
    "copy_64_with_bit_5",
    "count_ones",
    "equal_mask",
    "floats_from",
    "folded_mask",
    "helper",
    "ints_from",
    "leading_zeros",
    "load64",
    "multiply_high",
    "prefetch",
    "row_adder",
    "trailing_zeros",
    "words_from",
]

BYTES = types.CPointer(types.uint8)
WORDS = types.CPointer(types.uint64)
HALVES = types.CPointer(types.uint32)
INTS = types.CPointer(types.int64)
SHORT_INTS = types.CPointer(types.int32)
FLOATS = types.CPointer(types.float64)
SHORT_FLOATS = types.CPointer(types.float32)

# No wrapper that Python could call, and so nothing in the compiled code that needs Python; divisions as in NumPy.
_OPTIONS = {
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "error_model": "numpy",
    "boundscheck": False,
}

helper = njit(**_OPTIONS)
"""A function that kernels call."""


_POINTERS = {
    "uint8": BYTES,
    "int32": SHORT_INTS,
    "uint32": HALVES,
    "uint64": WORDS,
    "int64": INTS,
    "float32": SHORT_FLOATS,
    "float64": FLOATS,
}


def compiled_for(signature: Signature, function: Callable[..., Any]) -> Any:
    """A kernel, compiled by Numba. For a sequence of arrays it gets the address of their addresses."""
    arguments = [
        types.int64 if isinstance(item, Number) else INTS if isinstance(item, Arrays) else _POINTERS[item.dtype]
        for item in signature.parameters.values()
    ]
    return njit(types.int64(*arguments), **_OPTIONS)(function)


_BYTE, _WORD, _BIT = ir.IntType(8), ir.IntType(64), ir.IntType(1)
_BLOCK = ir.VectorType(_BYTE, 64)


def _block(builder: Any, pointer: Any, index: Any) -> Any:
    place = builder.bitcast(builder.gep(pointer, [index]), _BLOCK.as_pointer())
    return builder.load(place, align=1)


def _same(value: int) -> ir.Constant:
    return ir.Constant(_BLOCK, [value] * 64)


def _between(builder: Any, block: Any, low: int, high: int) -> Any:
    if low == high:
        return builder.icmp_unsigned("==", block, _same(low))
    return builder.icmp_unsigned("<=", builder.sub(block, _same(low)), _same(high - low))


def byte_mask(*ranges: tuple[int, int]) -> Callable[..., Any]:
    """A function ``(bytes, index)``: which of the 64 bytes from the index on are in one of the ranges."""

    @intrinsic
    def mask(typing_context: Any, pointer: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            block = _block(builder, arguments[0], arguments[1])
            found = _between(builder, block, *ranges[0])
            for low, high in ranges[1:]:
                found = builder.or_(found, _between(builder, block, low, high))
            return builder.bitcast(found, _WORD)

        return types.uint64(BYTES, types.int64), generate

    return mask


def any_of(characters: str) -> Callable[..., Any]:
    """Like :func:`byte_mask`, for single ASCII characters."""
    return byte_mask(*((ord(c), ord(c)) for c in characters))


def _everywhere(builder: Any, byte: Any) -> Any:
    first = builder.insert_element(ir.Constant(_BLOCK, ir.Undefined), byte, ir.Constant(ir.IntType(32), 0))
    places = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
    return builder.shuffle_vector(first, ir.Constant(_BLOCK, ir.Undefined), places)


@intrinsic
def equal_mask(typing_context: Any, pointer: Any, index: Any, byte: Any) -> Any:
    """Which of the 64 bytes from an index on equal a byte."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = _block(builder, arguments[0], arguments[1])
        return builder.bitcast(builder.icmp_unsigned("==", block, _everywhere(builder, arguments[2])), _WORD)

    return types.uint64(BYTES, types.int64, types.uint8), generate


@intrinsic
def folded_mask(typing_context: Any, pointer: Any, index: Any, byte: Any) -> Any:
    """Which of the 64 bytes from an index on equal a byte, ignoring the case: once bit 5 is set in both."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = builder.or_(_block(builder, arguments[0], arguments[1]), _same(32))
        wanted = builder.or_(_everywhere(builder, arguments[2]), _same(32))
        return builder.bitcast(builder.icmp_unsigned("==", block, wanted), _WORD)

    return types.uint64(BYTES, types.int64, types.uint8), generate


@intrinsic
def between_mask(typing_context: Any, pointer: Any, index: Any, set_bits: Any, low: Any, span: Any) -> Any:
    """Which of the 64 bytes from an index on, with some bits set in each, are at least low and at most that + span."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        block = builder.or_(_block(builder, arguments[0], arguments[1]), _everywhere(builder, arguments[2]))
        above = builder.sub(block, _everywhere(builder, arguments[3]))
        return builder.bitcast(builder.icmp_unsigned("<=", above, _everywhere(builder, arguments[4])), _WORD)

    return types.uint64(BYTES, types.int64, types.uint8, types.uint8, types.uint8), generate


@intrinsic
def copy_64(typing_context: Any, target: Any, at: Any, source: Any, index: Any) -> Any:
    """Copy the 64 bytes from an index on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, at, source, index = arguments
        place = builder.bitcast(builder.gep(target, [at]), _BLOCK.as_pointer())
        builder.store(_block(builder, source, index), place, align=1)
        return context.get_dummy_value()

    return types.void(BYTES, types.int64, BYTES, types.int64), generate


@intrinsic
def copy_64_with_bit_5(typing_context: Any, target: Any, at: Any, source: Any, index: Any) -> Any:
    """Copy the 64 bytes from an index on with bit 5 set in each, which makes ASCII letters lower case."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, at, source, index = arguments
        block = builder.or_(_block(builder, source, index), _same(32))
        builder.store(block, builder.bitcast(builder.gep(target, [at]), _BLOCK.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(BYTES, types.int64, BYTES, types.int64), generate


@intrinsic
def prefetch(typing_context: Any, pointer: Any, index: Any) -> Any:
    """Prefetch the memory around an index of bytes or other elements, which need not exist."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        how = (0, 3, 1)  # to read it, soon, as data
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), _BYTE.as_pointer())
        builder.call(fetch, [place, *(ir.Constant(number, value) for value in how)])
        return context.get_dummy_value()

    return types.void(pointer, types.int64), generate


@intrinsic
def at_address(typing_context: Any, address: Any) -> Any:
    """The memory at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], _BYTE.as_pointer())

    return BYTES(types.int64), generate


@intrinsic
def copy_64_replacing(typing_context: Any, target: Any, at: Any, source: Any, index: Any, old: Any, new: Any) -> Any:
    """Copy the 64 bytes from an index on, with one byte in the place of another."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target, at, source, index, old, new = arguments
        block = _block(builder, source, index)
        replaced = builder.icmp_unsigned("==", block, _everywhere(builder, old))
        block = builder.select(replaced, _everywhere(builder, new), block)
        builder.store(block, builder.bitcast(builder.gep(target, [at]), _BLOCK.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(BYTES, types.int64, BYTES, types.int64, types.uint8, types.uint8), generate


@intrinsic
def load64(typing_context: Any, pointer: Any, index: Any) -> Any:
    """The eight bytes from an index on as one number, the first byte the lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.bitcast(builder.gep(arguments[0], [arguments[1]]), _WORD.as_pointer())
        return builder.load(place, align=1)

    return types.uint64(BYTES, types.int64), generate


@intrinsic
def as_bytes(typing_context: Any, pointer: Any, index: Any) -> Any:
    """The memory from a byte on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return BYTES(BYTES, types.int64), generate


@intrinsic
def as_words(typing_context: Any, pointer: Any, index: Any) -> Any:
    """The memory from a byte on, as words of 64 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.gep(arguments[0], [arguments[1]]), _WORD.as_pointer())

    return WORDS(BYTES, types.int64), generate


@intrinsic
def words_from(typing_context: Any, pointer: Any, index: Any) -> Any:
    """The words from an index on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return WORDS(WORDS, types.int64), generate


@intrinsic
def ints_from(typing_context: Any, pointer: Any, index: Any) -> Any:
    """The signed integers of 64 bits from an index on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return INTS(INTS, types.int64), generate


@intrinsic
def as_ints(typing_context: Any, pointer: Any, index: Any) -> Any:
    """The memory from a byte on, as signed integers of 64 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(builder.gep(arguments[0], [arguments[1]]), _WORD.as_pointer())

    return INTS(BYTES, types.int64), generate


@intrinsic
def as_short_ints(typing_context: Any, pointer: Any, index: Any) -> Any:
    """The memory from a byte on, as signed integers of 32 bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.gep(arguments[0], [arguments[1]])
        return builder.bitcast(place, ir.IntType(32).as_pointer())

    return SHORT_INTS(BYTES, types.int64), generate


@intrinsic
def floats_from(typing_context: Any, pointer: Any, index: Any) -> Any:
    """The floats of 32 bits from an index on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return SHORT_FLOATS(SHORT_FLOATS, types.int64), generate


def row_adder(width: int) -> Callable[..., Any]:
    """A function ``(values, places, begin, end, first, sums, at)``: adds blocks of floats, one after the other.

    The blocks begin at those of the places from ``begin`` to ``end``, plus ``first``. They are added to the sums
    from an index on.
    """
    block = ir.VectorType(ir.FloatType(), width)

    @intrinsic
    def add(typing_context: Any, values: Any, places: Any, begin: Any, end: Any, first: Any, sums: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            values, places, begin, end, first, sums, at = arguments
            source = builder.gep(values, [first])
            target = builder.bitcast(builder.gep(sums, [at]), block.as_pointer())
            held = cgutils.alloca_once_value(builder, builder.load(target, align=4))
            with cgutils.for_range(builder, end, start=begin) as loop:
                place = builder.load(builder.gep(places, [loop.index]), align=8)
                added = builder.bitcast(builder.gep(source, [place]), block.as_pointer())
                builder.store(builder.fadd(builder.load(held), builder.load(added, align=4)), held)
            builder.store(builder.load(held), target, align=4)
            return context.get_dummy_value()

        number = types.int64
        return types.void(SHORT_FLOATS, INTS, number, number, number, SHORT_FLOATS, number), generate

    return add


@intrinsic
def trailing_zeros(typing_context: Any, word: Any) -> Any:
    """How many zeros are below the lowest bit that is set; 64 if there is none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(_BIT, 0))

    return types.int64(types.uint64), generate


@intrinsic
def leading_zeros(typing_context: Any, word: Any) -> Any:
    """How many zeros are above the highest bit that is set; 64 if there is none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(_BIT, 0))

    return types.int64(types.uint64), generate


@intrinsic
def count_ones(typing_context: Any, word: Any) -> Any:
    """How many bits are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@intrinsic
def multiply_high(typing_context: Any, one: Any, other: Any) -> Any:
    """The upper half of the product of two numbers."""
    double = ir.IntType(128)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.mul(builder.zext(arguments[0], double), builder.zext(arguments[1], double))
        return builder.trunc(builder.lshr(product, ir.Constant(double, 64)), _WORD)

    return types.uint64(types.uint64, types.uint64), generate
