"""The kernel that hashes windows of n units: polynomials over two bases, modulo the prime 2^61 - 1."""

from __future__ import annotations

from numpy import uint64

from tamis.kernels.sources.anchors import unit
from tamis.kernels.sources.primitives import helper, multiply_high
from tamis.kernels.span_constants import WINDOW_BASES, WINDOW_SPREAD

__all__ = ["kernel"]

_PRIME = uint64(0x1FFFFFFFFFFFFFFF)
_BITS = uint64(61)
_ONE, _OTHER = uint64(WINDOW_BASES[0]), uint64(WINDOW_BASES[1])
_SPREAD = uint64(WINDOW_SPREAD)


@helper
def reduced(value):
    """A number below 2^64, modulo the prime."""
    value = (value & _PRIME) + (value >> _BITS)
    return value - _PRIME if value >= _PRIME else value


@helper
def product(one, other):
    """The product of two numbers below the prime, modulo the prime."""
    low, high = one * other, multiply_high(one, other)
    return reduced((low & _PRIME) + ((low >> _BITS) | (high << uint64(3))))


def kernel(data, width, window, starts, counts, run_count, hashes):
    """Hash windows. Returns how many.

    Args:
        width: Bytes in a unit: 1 or 8. All other lengths and places are in units.
        window: The length of a window.
        starts: Where the first window of each run begins, ascending.
        counts: How many windows a run has; each begins one unit after the one before.
        hashes: Two words for each window.
    """
    leaving_one, leaving_other = uint64(1), uint64(1)
    for _ in range(window):
        leaving_one, leaving_other = product(leaving_one, _ONE), product(leaving_other, _OTHER)
    one, other = uint64(0), uint64(0)
    done = 0
    at = -1  # the window whose hash is known
    for run in range(run_count):
        for place in range(starts[run], starts[run] + counts[run]):
            if place == at + 1 and at >= 0:
                old, new = reduced(unit(data, at, width)), reduced(unit(data, at + window, width))
                one = reduced(product(one, _ONE) + new + (_PRIME - product(old, leaving_one)))
                other = reduced(product(other, _OTHER) + new + (_PRIME - product(old, leaving_other)))
            else:
                one, other = uint64(0), uint64(0)
                for i in range(place, place + window):
                    new = reduced(unit(data, i, width))
                    one, other = reduced(product(one, _ONE) + new), reduced(product(other, _OTHER) + new)
            at = place
            hashes[2 * done] = one * _SPREAD
            hashes[2 * done + 1] = other
            done += 1
    return done
