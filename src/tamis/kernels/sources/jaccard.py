"""The kernel that compares the sets of n-grams of two texts, row by row."""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.hashing import K0
from tamis.kernels.sources.primitives import helper
from tamis.kernels.sources.shingles import begin_text, next_shingles, power_of, readable_text

__all__ = ["kernel"]


@helper
def most_shingles(size, by_words, ngram):
    """No text of so many bytes has more n-grams."""
    items = size if by_words == 0 else (size + 1) // 2
    return max(items - ngram + 1, 1)


def kernel(
    texts,
    offsets,
    readable,
    scratch,
    other_texts,
    other_offsets,
    other_readable,
    other_scratch,
    row_count,
    by_words,
    ngram,
    mixing,
    room,
    items,
    state,
    hashes,
    table,
    marks,
    slots,
    results,
):
    """Write the Jaccard index of the n-grams of the two texts of each row. Returns 0, or -1 if the table is too small.

    Args:
        by_words, ngram, mixing, room, scratch, items, state, hashes: See :mod:`tamis.kernels.sources.shingles`.
        table, marks, slots: A table of hashes with so many slots, a power of two. A mark says whether a hash was found
            in the second text too. Texts whose n-grams together are more than half of that are gone through several
            times, for another range of hashes each time.
    """
    multiplier, key = mixing[0], mixing[1]
    power = power_of(multiplier, ngram)
    for row in range(row_count):
        size = offsets[row + 1] - offsets[row]
        other_size = other_offsets[row + 1] - other_offsets[row]
        needed = 2 * (most_shingles(size, by_words, ngram) + most_shingles(other_size, by_words, ngram))
        used = 64
        while used < needed and used < slots:
            used *= 2
        ranges = (needed + used - 1) // used
        if used > slots or ranges > 65536:
            return int64(-1)
        distinct = shared = 0
        for number in range(ranges):
            for i in range(used):
                table[i] = uint64(0)
                marks[i] = 0
            most = distinct + used - 1  # one slot stays empty, where the search for a hash ends
            for turn in range(2):
                if turn == 0:
                    length = size
                    text = readable_text(texts, offsets[row], offsets[row + 1], readable, scratch)
                else:
                    length = other_size
                    text = readable_text(
                        other_texts, other_offsets[row], other_offsets[row + 1], other_readable, other_scratch
                    )
                begin_text(text, length, state)
                while True:
                    count = next_shingles(
                        text, length, by_words, ngram, multiplier, power, key, state, items, room, hashes
                    )
                    if count == 0:
                        break
                    for i in range(count):
                        value = hashes[i] if hashes[i] != uint64(0) else K0  # zero stands for an empty slot
                        if ranges > 1 and (int64(value >> uint64(48)) * ranges) >> 16 != number:
                            continue
                        slot = int64(value >> uint64(20)) & (used - 1)
                        while table[slot] != uint64(0) and table[slot] != value:
                            slot = (slot + 1) & (used - 1)
                        if table[slot] == uint64(0):
                            if distinct == most:
                                return int64(-1)
                            table[slot] = value
                            distinct += 1
                            marks[slot] = turn
                        elif turn == 1 and marks[slot] == 0:
                            marks[slot] = 1
                            shared += 1
        results[row] = shared / distinct
    return int64(0)
