"""The n-grams of a text: the most frequent one, and those that occurred before.

The hash of a short n-gram is the hash of a shorter one with the hashes of more words mixed in. The hash of a long
n-gram takes the same time for any n (Karp and Rabin, 1987): it is computed from the hash of all words up to its end and
the hash of those before it. A longer n-gram can repeat only where its first n words do. So the places where n-grams
repeat are kept from one n to the next larger one, and there are few of them.
"""

from __future__ import annotations

from numpy import int64, uint8, uint64

from tamis.kernels.measures import CHARACTERS, WORDS
from tamis.kernels.sources.hashing import K0, K1
from tamis.kernels.sources.lines import table_size
from tamis.kernels.sources.primitives import equal_mask, helper, load64, multiply_high, trailing_zeros

__all__ = ["LONGEST_SHORT", "find_ngrams", "hash_prefixes"]

LONGEST_SHORT = 16
"""Words of an n-gram that are hashed one by one. Modulo a power of two, as these are, hashes of very long sequences can
be equal by design; modulo a prime, as those of longer n-grams are, they cannot."""

_PRIME = uint64((1 << 61) - 1)
_BASE = uint64(0xD6E8FEB86659FD93 % ((1 << 61) - 1))
_COUNT = uint64(0xFFFFFFFF)


@helper
def is_same(text, at, other, length):
    """Whether the bytes at two places of the text are equal."""
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
    """How often a part occurs in the text, as ``str.count`` counts."""
    first, middle, last = uint8(wanted[0]), uint8(wanted[length // 2]), uint8(wanted[length - 1])
    found = at = last_end = 0
    while at + length <= size:
        hits = (
            equal_mask(text, at, first)
            & equal_mask(text, at + length - 1, last)
            & equal_mask(text, at + length // 2, middle)
        )
        while hits != uint64(0):
            place = at + trailing_zeros(hits)
            hits &= hits - uint64(1)
            if place >= last_end and place + length <= size and is_same(text, place, wanted, length):
                found += 1
                last_end = place + length
        at += 64
    return found


@helper
def removed_characters(text, size, first, n, edges, before, pattern):
    """The characters that are lost if an n-gram, written with single spaces, is removed from the text."""
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
def remainder_of_product(one, other):
    """The product of two numbers below the prime, modulo the prime."""
    low, high = one * other, multiply_high(one, other)
    folded = (low & _PRIME) + ((low >> uint64(61)) | (high << uint64(3)))
    return folded - _PRIME if folded >= _PRIME else folded


@helper
def hash_prefixes(hashes, words, prefixes):
    """The hash of the first n words, for every n: a polynomial whose coefficients are the words' hashes."""
    value = uint64(0)
    prefixes[0] = value
    for word in range(words):
        value = remainder_of_product(value, _BASE) + (hashes[word] >> uint64(4))
        value = value - _PRIME if value >= _PRIME else value
        prefixes[word + 1] = value


@helper
def power_of_base(exponent):
    """The base of the polynomial to a power."""
    result, factor = uint64(1), _BASE
    while exponent > 0:
        if exponent & 1:
            result = remainder_of_product(result, factor)
        factor = remainder_of_product(factor, factor)
        exponent >>= 1
    return result


@helper
def hash_all(n, begins, hashes, ngrams):
    """The hashes of all n-grams, which are short."""
    for i in range(begins):
        ngram = hashes[i]
        for word in range(i + 1, i + n):
            ngram = ngram * K1 + hashes[word]
        ngrams[i] = ngram


@helper
def hash_more(n, smaller, places, begins, hashes, active, ngrams):
    """The hashes of short n-grams at some places, made of those of shorter ones."""
    for j in range(places):
        i = active[j]
        if i >= begins:
            break
        ngram = ngrams[i]
        for word in range(i + smaller, i + n):
            ngram = ngram * K1 + hashes[word]
        ngrams[i] = ngram


@helper
def hash_long(n, places, begins, is_first, prefixes, active, ngrams):
    """The hashes of long n-grams: the hash of all words up to its end, minus the hash of those before it."""
    power = power_of_base(n)
    for j in range(places):
        i = j if is_first else active[j]
        if i >= begins:
            break
        ngram = prefixes[i + n] + _PRIME - remainder_of_product(prefixes[i], power)
        ngrams[i] = ngram - _PRIME if ngram >= _PRIME else ngram


@helper
def find_ngrams(
    text,
    size,
    n,
    smaller,
    places,
    wants_top,
    edges,
    hashes,
    prefixes,
    before,
    ngrams,
    slots,
    active,
    table,
    pattern,
    counts,
    result,
):
    """Count the n-grams of one n, given a smaller n and the number of places where its n-grams repeat (0 and -1: all).

    The counts go to ``counts[result]`` (characters of the most frequent one) and the place after it (characters of
    those that occurred before). Returns the number of places where n-grams of n words repeat.
    """
    words = counts[WORDS]
    begins = words - n + 1
    if begins <= 0:
        counts[result] = counts[result + 1] = counts[CHARACTERS]
        return 0
    is_first = places < 0
    if is_first:
        places = begins
    room, shift = table_size(places)
    # Two words each: the hash, and where it was first seen and how often.
    for slot in range(room):
        table[2 * slot + 1] = uint64(0)
    last_slot = 2 * room - 1
    if n > LONGEST_SHORT:
        hash_long(n, places, begins, is_first, prefixes, active, ngrams)
    elif is_first:
        hash_all(n, begins, hashes, ngrams)
    else:
        hash_more(n, smaller, places, begins, hashes, active, ngrams)
    most, most_first, repeated, previous, seen = 1, 0, 0, -(n + 1), 0
    for j in range(places):
        i = j if is_first else active[j]
        if i >= begins:
            break
        ngram = ngrams[i]
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
        counts[result] = removed_characters(text, size, most_first, n, edges, before, pattern)
    counts[result + 1] = repeated
    return left
