"""Fast Similarity Sketching: each hash goes to one place of the sketch, in as many rounds as fill all places.

Dahlgaard, Knudsen, Thorup: Fast Similarity Sketching (FOCS 2017). A place keeps the least value of the first round that
reached it: the number of the round, and below it bits of the hash.
"""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.hashing import FULL, K0, K1, mix
from tamis.kernels.sources.primitives import helper

__all__ = ["count_empty", "fill_one", "first_round", "later_round"]


@helper
def place_of(h, places):
    return int64(((h >> uint64(32)) * uint64(places)) >> uint64(32))


@helper
def value_of(h, bits):
    """So many bits, those that decide the place as the last ones."""
    return (h << uint64(32) | h >> uint64(32)) >> uint64(64 - bits)


@helper
def first_round(hashes, count, places, bits, sketch):
    for i in range(count):
        h = hashes[i]
        place = place_of(h, places)
        sketch[place] = min(sketch[place], value_of(h, bits))


@helper
def later_round(hashes, count, number, places, bits, sketch):
    """Returns how many places were filled for the first time. A value of all ones counts as none."""
    salt = uint64(number) * K0
    tag = uint64(number) << uint64(bits)
    ones = FULL >> uint64(64 - bits)
    filled = 0
    for i in range(count):
        h = mix(hashes[i] ^ salt, K1 ^ salt)
        value = value_of(h, bits)
        if value != ones:
            place = place_of(h, places)
            held = sketch[place]
            filled += 1 if held == FULL else 0
            sketch[place] = min(held, tag | value)
    return filled


@helper
def fill_one(hashes, count, number, place, bits, sketch):
    """A round in which all hashes go to one place. Returns 1 if it was filled for the first time."""
    salt = uint64(number) * K0
    least = ones = FULL >> uint64(64 - bits)
    for i in range(count):
        least = min(least, value_of(mix(hashes[i] ^ salt, K1 ^ salt), bits))
    held = sketch[place]
    if least != ones:
        sketch[place] = min(held, uint64(number) << uint64(bits) | least)
    return 1 if held == FULL and least != ones else 0


@helper
def count_empty(sketch, places, bits):
    """How many places are empty after the first round. A value of all ones counts as none."""
    ones = FULL >> uint64(64 - bits)
    empty = 0
    for place in range(places):
        if sketch[place] & ones == ones:
            sketch[place] = FULL
            empty += 1
    return empty
