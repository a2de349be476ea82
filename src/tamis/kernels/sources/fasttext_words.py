"""The kernel that makes the hash table of a fastText model's words, and how words are looked up in it.

A slot of the table has two numbers. The first is the first eight bytes of a word. The second has the number of the word
plus one in its lowest 31 bits, and above them a tag: the next four bytes, or, of a word of more than twelve bytes, a
hash of all after the eighth and bit 31. An empty slot is 0. No byte of a word is zero, so words of up to twelve bytes
are in the table as they are.
"""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.hashing import FULL, K0, K1, mix, piece_hash
from tamis.kernels.sources.primitives import helper, load64

__all__ = ["find_word", "kernel", "place_of", "tag_of", "up_to_8"]

_EXACT = 12
_NUMBER = uint64(0x7FFFFFFF)
_IS_HASH = uint64(0x80000000)
_LOWER_HALF = uint64(0xFFFFFFFF)


@helper
def up_to_8(text, start, length):
    """The first bytes of a word, at most eight, as a number; 0 if there are none. Eight bytes are read."""
    missing = uint64(4 * (8 - min(max(length, 0), 8)))
    return load64(text, start) & (FULL >> missing >> missing)  # two shifts: one by 64 is not defined


@helper
def tag_of(text, start, length):
    """The tag of a word, where it is in a slot."""
    if length <= _EXACT:
        return up_to_8(text, start + min(length, 8), length - 8) << uint64(32)  # no more bytes than follow a word
    return (piece_hash(text, start + 8, length - 8) & ~_LOWER_HALF) | _IS_HASH


@helper
def place_of(first, tag):
    """A hash of both."""
    return mix(first ^ K0, tag ^ K1)


@helper
def _are_equal(one, at, other, begin, length):
    place = 0
    while place < length:
        if up_to_8(one, at + place, length - place) != up_to_8(other, begin + place, length - place):
            return False
        place += 8
    return True


@helper
def find_word(text, start, length, first, tag, place, slots, mask, words, word_ends):
    """The number of a word, a label included; -1 for one that is not known."""
    at = 2 * int64(place & uint64(mask))
    while slots[at + 1] != uint64(0):
        if slots[at] == first and slots[at + 1] & ~_NUMBER == tag:
            number = int64(slots[at + 1] & _NUMBER) - 1
            if length <= _EXACT:
                return number
            begin = word_ends[number - 1] if number > 0 else int64(0)
            if word_ends[number] - begin == length and _are_equal(text, start, words, begin, length):
                return number
        at = (at + 2) & (2 * mask + 1)
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
        first, tag = up_to_8(words, begin, length), tag_of(words, begin, length)
        begin = word_ends[number]
        at = 2 * int64(place_of(first, tag) & uint64(mask))
        while slots[at + 1] != uint64(0):
            at = (at + 2) & (2 * mask + 1)
        slots[at], slots[at + 1] = first, tag | uint64(number + 1)
    return 0
