"""The kernel that numbers 64-bit ids in the order in which they are first seen: a hash table with linear probing."""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.hashing import K0, K1, mix
from tamis.kernels.sources.primitives import helper, prefetch

__all__ = ["kernel"]

_AHEAD = 16


@helper
def place_of(node, shift):
    """The place of the table at which the search for an id begins."""
    return int64(mix(node ^ K1, K0) >> uint64(shift))


def kernel(ids, id_count, first, table, places, shift, nodes, node_count, room, numbers):
    """Number ids. Returns the first id that was not numbered because there was no room for a new one.

    Args:
        first: The first id to number.
        table: One plus the number of the id at each place, 0 for an empty place. The caller vouches for this.
        places: The size of the table: a power of two.
        shift: 64 minus the exponent of the size.
        nodes: The ids by their number.
        node_count: How many there are: read and written.
        room: How many there may be: fewer than places.
        numbers: The results.
    """
    count, mask = node_count[0], places - 1
    for at in range(first, id_count):
        if at + 2 * _AHEAD < id_count:
            prefetch(table, place_of(ids[at + 2 * _AHEAD], shift))
        if at + _AHEAD < id_count:
            prefetch(nodes, table[place_of(ids[at + _AHEAD], shift)])
        node = ids[at]
        place = place_of(node, shift)
        found = table[place]
        while found != 0 and nodes[found - 1] != node:
            place = (place + 1) & mask
            found = table[place]
        if found == 0:
            if count == room:
                node_count[0] = count
                return at
            nodes[count] = node
            count += 1
            table[place] = count
            found = table[place]
        numbers[at] = found - 1
    node_count[0] = count
    return id_count
