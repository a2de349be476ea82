"""The kernel that finds pairs of hashes that differ in few bits, among those that agree in some blocks of bits."""

from __future__ import annotations

from numpy import int32, uint64

from tamis.kernels.sources.hamming_order import spread
from tamis.kernels.sources.primitives import count_ones, helper

__all__ = ["kernel"]


@helper
def first_agreeing(difference, blocks, block_count, wanted):
    """The first blocks without a difference, as many as wanted, as bits of a number."""
    found, count = 0, 0
    for block in range(block_count):
        if count < wanted and difference & blocks[block] == uint64(0):
            found |= 1 << block
            count += 1
    return found


def kernel(
    hashes,
    places,
    count,
    mask,
    used_bits,
    blocks,
    block_count,
    chosen,
    chosen_count,
    max_distance,
    most,
    state,
    left,
    right,
    distances,
    room,
    begins,
    ends,
    large_room,
):
    """Write pairs, and runs that are too long to compare all with all. Returns how many pairs.

    A pair is written only if the blocks that were chosen are the first ones in which it agrees: so once, if all
    choices of blocks are gone through.

    Args:
        hashes, places: In the order of the kernel ``hamming_order``.
        mask: The bits of the chosen blocks.
        used_bits: How many bits the hashes are sorted by.
        blocks: The bits of each block.
        chosen: The chosen blocks, as bits of a number.
        chosen_count: How many they are.
        most: The length of the longest run that is compared.
        state: Where to begin: the first hash of the pair, the second one or 0, the end of the run; then how many long
            runs there are. Written when there is no room; the first is ``count`` at the end.
        left, right, distances: The places of pairs, and how many bits differ.
        begins, ends: The long runs.
    """
    bits = uint64(mask[0])
    shift = uint64(64 - used_bits)
    found, large = 0, 0
    i, j, end = state[0], state[1], state[2]
    while i < count:
        if i >= end:  # a new run
            key = spread(hashes[i] & bits) >> shift
            end = i + 1
            while end < count and spread(hashes[end] & bits) >> shift == key:
                end += 1
            if end - i > most:
                if large == large_room:
                    break
                begins[large] = i
                ends[large] = end
                large += 1
                i = end
                j = 0
                continue
        if j == 0:
            j = i + 1
        value = hashes[i]
        while j < end:
            difference = value ^ hashes[j]
            if difference & bits == uint64(0):
                distance = count_ones(difference)
                if distance <= max_distance and first_agreeing(difference, blocks, block_count, chosen_count) == chosen:
                    if found == room:
                        state[0], state[1], state[2], state[3] = i, j, end, large
                        return found
                    left[found] = places[i]
                    right[found] = places[j]
                    distances[found] = int32(distance)
                    found += 1
            j += 1
        i += 1
        j = 0
    state[0], state[1], state[2], state[3] = i, 0, i, large
    return found
