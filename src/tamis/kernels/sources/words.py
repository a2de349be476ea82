"""The words of a text: their places, hashes and kinds."""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.measures import (
    COMMON,
    COMMON_WORDS,
    DIFFERENT_COMMON_WORDS,
    FIRST_COMMON,
    HASH_SIGNS,
    LONGEST_WORD,
    SYMBOL,
    SYMBOL_WORDS,
    WORD_CHARACTERS,
    WORDS,
)
from tamis.kernels.sources.hashing import K1, K2, K3, low_bytes, mix, piece_hash, rank
from tamis.kernels.sources.primitives import count_ones, helper, trailing_zeros

__all__ = ["find_words"]

_HASH_SIGN = 35


@helper
def find_words(text, size, is_ascii, spaces, continued, continued_before, vocabulary, counts, edges, hashes, before):
    """Where words begin and end, their hashes, how many characters those before each have, and counts of them."""
    found = 0
    previous = uint64(1)
    for word in range(((size + 63) >> 6) + 1):
        space = spaces[word]
        changes = space ^ ((space << uint64(1)) | previous)
        previous = space >> uint64(63)
        while changes != uint64(0):
            edges[found] = (word << 6) + trailing_zeros(changes)
            found += 1
            changes &= changes - uint64(1)
    total = common = symbols = longest = seen = 0
    has_signs = counts[HASH_SIGNS] > 0
    before[0] = 0
    multiplier = vocabulary[0]
    for i in range(counts[WORDS]):
        start, end = edges[2 * i], edges[2 * i + 1]
        length = end - start
        if length <= 8:
            value = low_bytes(text, start, length)
            hashes[i] = mix(value ^ K2, K1 + uint64(length) * K3)
            slot = int64((value * multiplier) >> uint64(59))
            # A word that ends in NUL has the same number as without the NUL, but is another word.
            is_known = vocabulary[1 + slot] == value and text[end - 1] != 0
            kind = int64(vocabulary[33 + slot]) if is_known else 0
            common += kind & COMMON
            symbols += (kind // SYMBOL) & 1
            seen |= kind // FIRST_COMMON
        else:
            hashes[i] = piece_hash(text, start, length)
        characters = length
        if not is_ascii:
            characters -= rank(continued, continued_before, end) - rank(continued, continued_before, start)
        total += characters
        before[i + 1] = total
        longest = max(longest, characters)
        if has_signs and text[start] == _HASH_SIGN and text[end - 1] == _HASH_SIGN:
            # Only "#", "#x#", "#x#x#", ... have more runs of hash signs than half of their characters.
            runs = inside = 0
            for at in range(start, end):
                is_sign = 1 if text[at] == _HASH_SIGN else 0
                runs += is_sign & (1 - inside)
                inside = is_sign
            symbols += 1 if 2 * runs > characters else 0
    counts[WORD_CHARACTERS] = total
    counts[LONGEST_WORD] = longest
    counts[COMMON_WORDS] = common
    counts[DIFFERENT_COMMON_WORDS] = count_ones(uint64(seen))
    counts[SYMBOL_WORDS] = symbols
