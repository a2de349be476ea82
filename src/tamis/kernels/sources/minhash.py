"""The kernel that makes MinHash signatures: for each text, one number for each of some hash functions."""

from __future__ import annotations

from numpy import int64, uint32, uint64

from tamis.kernels.sources.hashing import FULL, K0
from tamis.kernels.sources.permutations import least_32, least_64, upper_halves
from tamis.kernels.sources.primitives import helper
from tamis.kernels.sources.shingles import begin_text, next_shingles, power_of, readable_text
from tamis.kernels.sources.sketches import count_empty, fill_one, first_round, later_round

__all__ = ["kernel"]


@helper
def distinct_shingles(text, size, by_words, ngram, multiplier, power, key, state, items, room, hashes, seen, slots):
    """All hashes of a text, each once, in ``seen``; -1 if there are more than ``slots // 4``.

    ``seen`` has twice as many words as there are slots: a table, and then the list.
    """
    for i in range(slots):
        seen[i] = uint64(0)
    found = 0
    begin_text(text, size, state)
    while True:
        count = next_shingles(text, size, by_words, ngram, multiplier, power, key, state, items, room, hashes)
        if count == 0:
            return found
        for i in range(count):
            # Zero stands for an empty slot; one that is zero is kept each time it occurs.
            slot = int64((hashes[i] * K0) >> uint64(32)) & (slots - 1)
            while seen[slot] != uint64(0) and seen[slot] != hashes[i]:
                slot = (slot + 1) & (slots - 1)
            if seen[slot] == uint64(0):
                if found >= slots // 4:
                    return -1
                seen[slot] = hashes[i]
                seen[slots + found] = hashes[i]
                found += 1


@helper
def fill_sketch(
    text, size, by_words, ngram, multiplier, power, key, state, items, room, hashes, seen, slots, places, bits, sketch
):
    """The sketch of a text."""
    for place in range(places):
        sketch[place] = FULL
    begin_text(text, size, state)
    parts = held = 0
    while True:
        count = next_shingles(text, size, by_words, ngram, multiplier, power, key, state, items, room, hashes)
        if count == 0:
            break
        first_round(hashes, count, places, bits, sketch)
        parts += 1
        held = count
    empty = count_empty(sketch, places, bits)
    if empty == 0:
        return
    known = hashes
    if parts > 1:
        # A long text that leaves places empty repeats itself.
        held = distinct_shingles(
            text, size, by_words, ngram, multiplier, power, key, state, items, room, hashes, seen, slots
        )
        if held >= 0:
            for i in range(held):
                seen[i] = seen[slots + i]
            known = seen
    # After as many rounds as there are places, which is rare, the places that are still empty have a round each.
    for number in range(1, 2 * places):
        place = number - places
        if place >= 0 and sketch[place] != FULL:
            continue
        if held < 0:
            begin_text(text, size, state)
        while True:
            count = held
            if held < 0:
                count = next_shingles(text, size, by_words, ngram, multiplier, power, key, state, items, room, hashes)
            if place < 0:
                empty -= later_round(known, count, number, places, bits, sketch)
            else:
                empty -= fill_one(known, count, number, place, bits, sketch)
            if held >= 0 or count == 0:
                break
        if empty == 0:
            return


def kernel(
    texts,
    offsets,
    row_count,
    readable,
    by_words,
    ngram,
    mixing,
    num_hashes,
    bits,
    value_bits,
    factors,
    terms,
    width,
    factors_64,
    terms_64,
    room,
    scratch,
    items,
    state,
    hashes,
    seen,
    slots,
    halves,
    values,
    sketch,
    narrow,
    wide,
):
    """Make the signature of each text. Returns 0.

    Args:
        by_words, ngram, mixing, room, scratch, items, state, hashes: See :mod:`tamis.kernels.sources.shingles`.
        bits: How many each number has, 32 or 64.
        value_bits: Of these, those that come from a hash, with the fast scheme; 0 for the classic one.
        factors, terms: Of the permutations of 32 bits, ``width`` each: the number of hashes, rounded up to 16.
        factors_64, terms_64: Of those of 64 bits.
        seen, slots: A table of hashes with so many slots, a power of two, and as many more words.
        halves, values, sketch: For hashes and results on the way.
        narrow, wide: The signatures, one after another, with 32 or 64 bits.
    """
    multiplier, key = mixing[0], mixing[1]
    power = power_of(multiplier, ngram)
    for row in range(row_count):
        begin = offsets[row]
        size = offsets[row + 1] - begin
        text = readable_text(texts, begin, offsets[row + 1], readable, scratch)
        here = row * num_hashes
        if value_bits > 0:
            fill_sketch(
                *(text, size, by_words, ngram, multiplier, power, key, state, items, room, hashes),
                *(seen, slots, num_hashes, value_bits, sketch),
            )
        else:
            for i in range(num_hashes):
                sketch[i] = FULL
            for i in range(width):
                values[i] = uint32(0xFFFFFFFF)
            begin_text(text, size, state)
            while True:
                count = next_shingles(text, size, by_words, ngram, multiplier, power, key, state, items, room, hashes)
                if count == 0:
                    break
                if bits == 32:
                    upper_halves(hashes, count, halves)
                    least_32(halves, count, factors, terms, values, width)
                else:
                    least_64(hashes, count, factors_64, terms_64, sketch, num_hashes)
            if bits == 32:
                for i in range(num_hashes):
                    sketch[i] = uint64(values[i])
        if bits == 32:
            for i in range(num_hashes):
                narrow[here + i] = uint32(sketch[i])
        else:
            for i in range(num_hashes):
                wide[here + i] = sketch[i]
    return int64(0)
