"""Hashes of pieces of a text, and counts of bits up to a position. See :mod:`tamis.kernels.sources.primitives`."""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.primitives import count_ones, helper, load64, multiply_high

__all__ = ["FULL", "K0", "K1", "low_bytes", "mix", "piece_hash", "rank"]

K0 = uint64(0x9E3779B97F4A7C15)
K1 = uint64(0xD6E8FEB86659FD93)
K2 = uint64(0xA0761D6478BD642F)
K3 = uint64(0xE7037ED1A0B428DB)
FULL = uint64(0xFFFFFFFFFFFFFFFF)


@helper
def mix(one, other):
    """Both halves of a product, folded into one word."""
    return (one * other) ^ multiply_high(one, other)


@helper
def low_bytes(text, start, length):
    """One to eight bytes as a number."""
    return load64(text, start) & (FULL >> uint64(64 - 8 * length))


@helper
def piece_hash(text, start, length):
    """A hash of a piece with 64 bits."""
    end = start + length
    state = K2
    if length <= 8:
        first = low_bytes(text, start, length) if length > 0 else uint64(0)
        last = uint64(0)
    else:
        # The last sixteen bytes are read together, though some may have been read before.
        at = start
        while at + 16 < end:
            state = mix(state ^ load64(text, at), K0) + mix(load64(text, at + 8) ^ K3, state)
            at += 16
        first = load64(text, start if length <= 16 else end - 16)
        last = load64(text, end - 8)
    return mix(first ^ state, (last ^ K1) + uint64(length) * K3)


@helper
def rank(bits, before, position):
    """How many bits are set below a position, given how many are set before each word."""
    word = position >> 6
    below = (uint64(1) << uint64(position & 63)) - uint64(1)
    return before[word] + int64(count_ones(bits[word] & below))
