"""The n-grams of a text: the most frequent one, and those that were there before.

An n-gram of n + 1 words can repeat only where the one of its first n words does. So the places of n-grams that repeat
are kept from one n to the next, and there are few of them: long n-grams cost next to nothing.
"""

from __future__ import annotations

from numpy import int64, uint8, uint64

from tamis.kernels.measures import CHARACTERS, REPEATED_NGRAM_CHARACTERS, TOP_NGRAM_CHARACTERS, WORDS
from tamis.kernels.sources.hashing import K0, K1
from tamis.kernels.sources.lines import table_size
from tamis.kernels.sources.primitives import equal_mask, helper, load64, trailing_zeros

__all__ = ["find_ngrams"]

_COUNT = uint64(0xFFFFFFFF)


@helper
def is_same(text, at, other, length):
    """Whether as many bytes at a place of the text are those of another."""
    i = 0
    while i + 8 <= length:
        if load64(text, at + i) != load64(other, i):
            return False
        i += 8
    while i < length:
        if text[at + i] != other[i]:
            return False
        i += 1
    return True


@helper
def occurrences(text, size, wanted, length):
    """How often a text is in the text, as ``str.count`` counts."""
    first, middle, last = uint8(wanted[0]), uint8(wanted[length // 2]), uint8(wanted[length - 1])
    found = at = behind = 0
    while at + length <= size:
        hits = (
            equal_mask(text, at, first)
            & equal_mask(text, at + length - 1, last)
            & equal_mask(text, at + length // 2, middle)
        )
        while hits != uint64(0):
            place = at + trailing_zeros(hits)
            hits &= hits - uint64(1)
            if place >= behind and place + length <= size and is_same(text, place, wanted, length):
                found += 1
                behind = place + length
        at += 64
    return found


@helper
def removed_characters(text, size, first, n, edges, before, pattern):
    """The characters that go when an n-gram, written with single spaces, is removed from the text."""
    length = 0
    for word in range(first, first + n):
        if word > first:
            pattern[length] = 32
            length += 1
        for at in range(edges[2 * word], edges[2 * word + 1]):
            pattern[length] = text[at]
            length += 1
    return occurrences(text, size, pattern, length) * (before[first + n] - before[first] + n - 1)


@helper
def find_ngrams(
    text,
    size,
    n,
    places,
    wants_top,
    wants_repeated,
    edges,
    hashes,
    before,
    ngrams,
    slots,
    active,
    table,
    pattern,
    counts,
):
    """Count in the n-grams of one n, given the number of places left from the one before (-1: all).

    Gives the number of places where n-grams of n words repeat.
    """
    words = counts[WORDS]
    begins = words - n + 1
    if begins <= 0:
        counts[TOP_NGRAM_CHARACTERS + n] = counts[REPEATED_NGRAM_CHARACTERS + n] = counts[CHARACTERS]
        return 0
    is_first = places < 0
    if is_first:
        places = begins
    room, shift = table_size(places)
    # Two words each: the hash, and where it was first seen and how often.
    for slot in range(room):
        table[2 * slot + 1] = uint64(0)
    last_slot = 2 * room - 1
    most, most_first, repeated, previous, seen = 1, 0, 0, -(n + 1), 0
    for j in range(places):
        i = j if is_first else active[j]
        if i >= begins:
            break
        if is_first:
            ngram = hashes[i]
            for word in range(1, n):
                ngram = ngram * K1 + hashes[i + word]
        else:
            ngram = ngrams[i] * K1 + hashes[i + n - 1]
        ngrams[i] = ngram
        slot = int64((ngram * K0) >> uint64(shift)) * 2
        entry = table[slot + 1]
        while entry != uint64(0) and table[slot] != ngram:
            slot = (slot + 2) & last_slot
            entry = table[slot + 1]
        if entry == uint64(0):
            table[slot] = ngram
            table[slot + 1] = (uint64(i) << uint64(32)) | uint64(1)
        else:
            entry += uint64(1)
            table[slot + 1] = entry
            count, first = int64(entry & _COUNT), int64(entry >> uint64(32))
            if count > most or (count == most and first < most_first):
                most, most_first = count, first
            overlap = max(n - (i - previous), 0)
            repeated += before[i + n] - before[i + overlap] + min(n - overlap, n - 1)
            previous = i
        slots[j] = slot
        seen = j + 1
    left = 0
    for j in range(seen):
        place = j if is_first else active[j]
        if table[slots[j] + 1] & _COUNT > uint64(1):
            active[left] = place
            left += 1
    if wants_top:
        counts[TOP_NGRAM_CHARACTERS + n] = removed_characters(text, size, most_first, n, edges, before, pattern)
    if wants_repeated:
        counts[REPEATED_NGRAM_CHARACTERS + n] = repeated
    return left
