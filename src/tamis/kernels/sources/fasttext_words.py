"""The kernel that makes the hash table of a fastText model's words, and how words are looked up in it.

A slot of the table has four numbers. For a word of at most 16 bytes, the first two are its bytes; for a longer one,
its hash and its length. The third is the number of the word plus one, with the highest bit set for a longer word; 0 is
an empty slot. The fourth is free.
"""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.hashing import FULL, K0, K1, mix, piece_hash
from tamis.kernels.sources.primitives import helper, load64

__all__ = ["SHORT", "find_word", "kernel", "keys_of", "place_of"]

SHORT = 16
"""The most bytes of a word that is its own key. No byte of a word is zero, so words of unequal length differ."""

_LONG = uint64(1) << uint64(63)
_NUMBER = uint64(0xFFFFFFFF)


@helper
def _tail(text, start, length):
    """Up to eight bytes as a number."""
    return load64(text, start) & (FULL >> uint64(64 - 8 * length)) if length > 0 else uint64(0)


@helper
def keys_of(text, start, length):
    """The first two numbers of a word's slot."""
    if length <= 8:
        return _tail(text, start, length), uint64(0)
    if length <= SHORT:
        return load64(text, start), _tail(text, start + 8, length - 8)
    return piece_hash(text, start, length), uint64(length)


@helper
def place_of(first, second):
    """A hash of both."""
    return mix(first ^ K0, second ^ K1)


@helper
def _are_equal(one, at, other, begin, length):
    place = 0
    while place + 8 <= length:
        if load64(one, at + place) != load64(other, begin + place):
            return False
        place += 8
    return _tail(one, at + place, length - place) == _tail(other, begin + place, length - place)


@helper
def find_word(text, start, length, first, second, place, slots, mask, words, word_ends):
    """The number of a word, a label included; -1 for one that is not known."""
    at = 4 * int64(place & uint64(mask))
    while slots[at + 2] != uint64(0):
        if slots[at] == first and slots[at + 1] == second:
            number = int64(slots[at + 2] & _NUMBER) - 1
            if length <= SHORT:
                if slots[at + 2] & _LONG == uint64(0):
                    return number
            elif slots[at + 2] & _LONG != uint64(0):
                begin = word_ends[number] - length
                if _are_equal(text, start, words, begin, length):
                    return number
        at = (at + 4) & (4 * mask + 3)
    return int64(-1)


def kernel(words, word_ends, word_count, slots, slot_count):
    """Enter all words, each into the first free slot from its place on.

    Args:
        words: The bytes of all words, and eight more; ``word_ends`` says where each ends.
        slots: The table, all zero.
    """
    mask, begin = slot_count - 1, int64(0)
    for number in range(word_count):
        length = word_ends[number] - begin
        first, second = keys_of(words, begin, length)
        begin = word_ends[number]
        at = 4 * int64(place_of(first, second) & uint64(mask))
        while slots[at + 2] != uint64(0):
            at = (at + 4) & (4 * mask + 3)
        slots[at], slots[at + 1] = first, second
        slots[at + 2] = uint64(number + 1) | (_LONG if length > SHORT else uint64(0))
    return 0
