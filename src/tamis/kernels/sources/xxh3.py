"""The kernel that hashes byte strings: XXH3 with 64 or 128 bits, seed 0, as the specification of xxHash defines it.

See https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md. Only bytes of the string itself are read.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy import int64, uint64

from tamis.kernels.sources.hashing import mix
from tamis.kernels.sources.primitives import BYTES, WORDS, helper, load64, multiply_high

__all__ = ["kernel"]

_P32_1, _P32_2, _P32_3 = uint64(0x9E3779B1), uint64(0x85EBCA77), uint64(0xC2B2AE3D)
_P64_1, _P64_2 = uint64(0x9E3779B185EBCA87), uint64(0xC2B2AE3D27D4EB4F)
_P64_3, _P64_4 = uint64(0x165667B19E3779F9), uint64(0x85EBCA77C2B2AE63)
_P64_5 = uint64(0x27D4EB2F165667C5)
_MX_1, _MX_2 = uint64(0x165667919E3779F9), uint64(0x9FB21C651E98DF25)
_LOW_32 = uint64(0xFFFFFFFF)

_STRIPE, _STRIPES_PER_BLOCK, _BLOCK = 64, 16, 1024
_SCRAMBLE_AT, _LAST_STRIPE_AT, _MERGE_LOW_AT, _MERGE_HIGH_AT = 128, 121, 11, 117

_WORD = ir.IntType(64)
_LANES = ir.VectorType(_WORD, 8)


def _lanes(builder, pointer, index):
    place = builder.bitcast(builder.gep(pointer, [index]), _LANES.as_pointer())
    return builder.load(place, align=1)


@intrinsic
def accumulate(typing_context, accumulators, data, at, secret, place):
    """Take 64 bytes into the eight accumulators, with 64 bytes of the secret."""

    def generate(context, builder, signature, arguments):
        accumulators, data, at, secret, place = arguments
        here = builder.bitcast(accumulators, _LANES.as_pointer())
        values = _lanes(builder, data, at)
        keys = builder.xor(values, _lanes(builder, secret, place))
        low = builder.and_(keys, ir.Constant(_LANES, [0xFFFFFFFF] * 8))
        high = builder.lshr(keys, ir.Constant(_LANES, [32] * 8))
        neighbours = ir.Constant(ir.VectorType(ir.IntType(32), 8), [1, 0, 3, 2, 5, 4, 7, 6])
        swapped = builder.shuffle_vector(values, ir.Constant(_LANES, ir.Undefined), neighbours)
        total = builder.add(builder.load(here, align=8), builder.add(swapped, builder.mul(low, high)))
        builder.store(total, here, align=8)
        return context.get_dummy_value()

    return types.void(WORDS, BYTES, types.int64, BYTES, types.int64), generate


@intrinsic
def swap_bytes(typing_context, word):
    """The bytes of a word in the opposite order."""

    def generate(context, builder, signature, arguments):
        return builder.bswap(arguments[0])

    return types.uint64(types.uint64), generate


@helper
def load32(data, at):
    """Four bytes as a number, the first the lowest."""
    return (
        uint64(data[at])
        | uint64(data[at + 1]) << uint64(8)
        | uint64(data[at + 2]) << uint64(16)
        | (uint64(data[at + 3]) << uint64(24))
    )


@helper
def avalanche(value):
    value ^= value >> uint64(37)
    value *= _MX_1
    return value ^ (value >> uint64(32))


@helper
def avalanche_64(value):
    value ^= value >> uint64(33)
    value *= _P64_2
    value ^= value >> uint64(29)
    value *= _P64_3
    return value ^ (value >> uint64(32))


@helper
def rotate(value, bits):
    return (value << uint64(bits)) | (value >> uint64(64 - bits))


@helper
def up_to_3(data, begin, size):
    """One to three bytes and their number as one number of 32 bits."""
    first, middle, last = uint64(data[begin]), uint64(data[begin + (size >> 1)]), uint64(data[begin + size - 1])
    return first << uint64(16) | middle << uint64(24) | last | uint64(size) << uint64(8)


@helper
def mix_16(data, at, secret, place):
    """Sixteen bytes of data and of the secret."""
    return mix(load64(data, at) ^ load64(secret, place), load64(data, at + 8) ^ load64(secret, place + 8))


@helper
def accumulate_long(data, begin, size, secret, accumulators):
    """The accumulators after more than 240 bytes."""
    accumulators[0], accumulators[1], accumulators[2], accumulators[3] = _P32_3, _P64_1, _P64_2, _P64_3
    accumulators[4], accumulators[5], accumulators[6], accumulators[7] = _P64_4, _P32_2, _P64_5, _P32_1
    at = begin
    for _ in range((size - 1) // _BLOCK):
        for stripe in range(_STRIPES_PER_BLOCK):
            accumulate(accumulators, data, at + _STRIPE * stripe, secret, 8 * stripe)
        at += _BLOCK
        for lane in range(8):
            value = accumulators[lane]
            value ^= (value >> uint64(47)) ^ load64(secret, _SCRAMBLE_AT + 8 * lane)
            accumulators[lane] = value * _P32_1
    for stripe in range((begin + size - 1 - at) // _STRIPE):
        accumulate(accumulators, data, at + _STRIPE * stripe, secret, 8 * stripe)
    accumulate(accumulators, data, begin + size - _STRIPE, secret, _LAST_STRIPE_AT)


@helper
def merged(accumulators, secret, place, value):
    for pair in range(4):
        one = accumulators[2 * pair] ^ load64(secret, place + 16 * pair)
        other = accumulators[2 * pair + 1] ^ load64(secret, place + 16 * pair + 8)
        value += mix(one, other)
    return avalanche(value)


@helper
def hash_64(data, begin, size, secret, accumulators):
    """64 bits."""
    length, end = uint64(size), begin + size
    if size == 0:
        return avalanche_64(load64(secret, 56) ^ load64(secret, 64))
    if size <= 3:
        return avalanche_64(up_to_3(data, begin, size) ^ load32(secret, 0) ^ load32(secret, 4))
    if size <= 8:
        value = load32(data, end - 4) + (load32(data, begin) << uint64(32))
        value ^= load64(secret, 8) ^ load64(secret, 16)
        value ^= rotate(value, 49) ^ rotate(value, 24)
        value *= _MX_2
        value ^= (value >> uint64(35)) + length
        value *= _MX_2
        return value ^ (value >> uint64(28))
    if size <= 16:
        low = load64(data, begin) ^ load64(secret, 24) ^ load64(secret, 32)
        high = load64(data, end - 8) ^ load64(secret, 40) ^ load64(secret, 48)
        return avalanche(length + swap_bytes(low) + high + mix(low, high))
    value = length * _P64_1
    if size <= 128:
        for pair in range((size - 1) >> 5, -1, -1):
            value += mix_16(data, begin + 16 * pair, secret, 32 * pair)
            value += mix_16(data, end - 16 * (pair + 1), secret, 32 * pair + 16)
        return avalanche(value)
    if size <= 240:
        for part in range(8):
            value += mix_16(data, begin + 16 * part, secret, 16 * part)
        value = avalanche(value)
        for part in range(8, size >> 4):
            value += mix_16(data, begin + 16 * part, secret, 16 * (part - 8) + 3)
        return avalanche(value + mix_16(data, end - 16, secret, 119))
    accumulate_long(data, begin, size, secret, accumulators)
    return merged(accumulators, secret, _MERGE_LOW_AT, value)


@helper
def mix_32(low, high, data, one, other, secret, place):
    """Sixteen bytes from one place and sixteen from another."""
    low += mix_16(data, one, secret, place)
    low ^= load64(data, other) + load64(data, other + 8)
    high += mix_16(data, other, secret, place + 16)
    high ^= load64(data, one) + load64(data, one + 8)
    return low, high


@helper
def hash_128(data, begin, size, secret, accumulators):
    """128 bits: the upper half and the lower half."""
    length, end = uint64(size), begin + size
    if size == 0:
        return avalanche_64(load64(secret, 80) ^ load64(secret, 88)), avalanche_64(
            load64(secret, 64) ^ load64(secret, 72)
        )
    if size <= 3:
        low = up_to_3(data, begin, size)
        swapped = swap_bytes(low) >> uint64(32)
        high = ((swapped << uint64(13)) | (swapped >> uint64(19))) & _LOW_32
        low ^= load32(secret, 0) ^ load32(secret, 4)
        return avalanche_64(high ^ load32(secret, 8) ^ load32(secret, 12)), avalanche_64(low)
    if size <= 8:
        value = load32(data, begin) + (load32(data, end - 4) << uint64(32))
        value ^= load64(secret, 16) ^ load64(secret, 24)
        factor = _P64_1 + (length << uint64(2))
        low, high = value * factor, multiply_high(value, factor)
        high += low << uint64(1)
        low ^= high >> uint64(3)
        low ^= low >> uint64(35)
        low *= _MX_2
        return avalanche(high), low ^ (low >> uint64(28))
    if size <= 16:
        first, last = load64(data, begin), load64(data, end - 8)
        value = first ^ last ^ load64(secret, 32) ^ load64(secret, 40)
        last ^= load64(secret, 48) ^ load64(secret, 56)
        low, high = value * _P64_1, multiply_high(value, _P64_1)
        low += (length - uint64(1)) << uint64(54)
        high += last + (last & _LOW_32) * (_P32_2 - uint64(1))
        low ^= swap_bytes(high)
        return avalanche(multiply_high(low, _P64_2) + high * _P64_2), avalanche(low * _P64_2)
    low, high = length * _P64_1, uint64(0)
    if size > 240:
        accumulate_long(data, begin, size, secret, accumulators)
        return merged(accumulators, secret, _MERGE_HIGH_AT, ~(length * _P64_2)), merged(
            accumulators, secret, _MERGE_LOW_AT, low
        )
    if size <= 128:
        for pair in range((size - 1) >> 5, -1, -1):
            low, high = mix_32(low, high, data, begin + 16 * pair, end - 16 * (pair + 1), secret, 32 * pair)
    else:
        for part in range(4):
            low, high = mix_32(low, high, data, begin + 32 * part, begin + 32 * part + 16, secret, 32 * part)
        low, high = avalanche(low), avalanche(high)
        for part in range(4, size >> 5):
            at = begin + 32 * part
            low, high = mix_32(low, high, data, at, at + 16, secret, 32 * (part - 4) + 3)
        low, high = mix_32(low, high, data, end - 16, end - 32, secret, 103)
    upper = low * _P64_1 + high * _P64_4 + length * _P64_2
    return ~avalanche(upper) + uint64(1), avalanche(low + high)


def kernel(data, offsets, row_count, secret, accumulators, width, hashes):
    """Hash byte strings. Returns 0.

    Args:
        secret: The 192 bytes that the specification calls the default secret.
        width: 1 for 64 bits; 2 for 128 bits, of which the upper half comes first.
    """
    for row in range(row_count):
        begin = offsets[row]
        size = offsets[row + 1] - begin
        if width == 1:
            hashes[row] = hash_64(data, begin, size, secret, accumulators)
        else:
            high, low = hash_128(data, begin, size, secret, accumulators)
            hashes[2 * row] = high
            hashes[2 * row + 1] = low
    return int64(0)
