"""The kernel that makes the hash table of a fastText model's words, and how words are looked up in it."""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.hashing import FULL, piece_hash
from tamis.kernels.sources.primitives import helper, load64

__all__ = ["find_word", "kernel"]

_NUMBER = uint64(0xFFFFFFFF)


@helper
def _are_equal(one, at, other, begin, length):
    """Whether two pieces are the same; eight bytes after each must be readable."""
    place = 0
    while place + 8 <= length:
        if load64(one, at + place) != load64(other, begin + place):
            return False
        place += 8
    if place == length:
        return True
    rest = FULL >> uint64(64 - 8 * (length - place))
    return (load64(one, at + place) ^ load64(other, begin + place)) & rest == uint64(0)


@helper
def find_word(text, start, length, slots, mask, words, word_ends):
    """The number of a word, a label included; -1 for one that is not known."""
    wanted = piece_hash(text, start, length)
    place = int64(wanted & uint64(mask))
    while slots[place] != uint64(0):
        slot = slots[place]
        if (slot ^ wanted) & ~_NUMBER == uint64(0):
            number = int64(slot & _NUMBER) - 1
            begin = word_ends[number - 1] if number > 0 else int64(0)
            if word_ends[number] - begin == length and _are_equal(text, start, words, begin, length):
                return number
        place = (place + 1) & mask
    return int64(-1)


def kernel(words, word_ends, word_count, slots, slot_count):
    """Enter all words: the upper half of a word's hash and its number plus one, in the first free place from its hash on.

    Args:
        words: The bytes of all words, and eight more; ``word_ends`` says where each ends.
        slots: The table, all zero.
    """
    mask, begin = slot_count - 1, int64(0)
    for number in range(word_count):
        value = piece_hash(words, begin, word_ends[number] - begin)
        begin = word_ends[number]
        place = int64(value & uint64(mask))
        while slots[place] != uint64(0):
            place = (place + 1) & mask
        slots[place] = (value & ~_NUMBER) | uint64(number + 1)
    return 0
