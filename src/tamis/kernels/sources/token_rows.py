"""What the kernels that tokenise share: rows, runs of bits, and the trie of a vocabulary."""

from __future__ import annotations

from numpy import int64, uint64

from tamis.kernels.sources.buckets import lookup
from tamis.kernels.sources.hashing import FULL
from tamis.kernels.sources.primitives import PADDING, as_bytes, helper, trailing_zeros

__all__ = ["SLACK", "child_of", "put_ids", "readable_row", "run_end"]

SLACK = 8
"""How many ids more than needed a kernel has room for."""


@helper
def readable_row(texts, start, size, readable, scratch):
    """A text, or a copy of it if fewer bytes follow it than a kernel may read."""
    if start + size + PADDING <= readable:
        return as_bytes(texts, start)
    for i in range(size):
        scratch[i] = texts[start + i]
    for i in range(size, size + PADDING):
        scratch[i] = 0
    return as_bytes(scratch, 0)


@helper
def run_end(bits, at):
    """The first bit from a place on that is not set. There is one."""
    word = at >> 6
    rest = ~bits[word] >> uint64(at & 63)
    if rest != uint64(0):
        return at + trailing_zeros(rest)
    word += 1
    while bits[word] == FULL:
        word += 1
    return (word << 6) + trailing_zeros(~bits[word])


_edge = lookup(32)


@helper
def child_of(trie, shift, node, byte):
    """The node after a byte; 0 if there is none. See :mod:`tamis.kernels.sources.buckets` for the table."""
    return int64(_edge(trie, shift, (uint64(node) << uint64(8)) | uint64(byte)))


@helper
def put_ids(ids, at, added, count):
    """Write ids that are put before or after each text."""
    for i in range(count):
        ids[at + i] = added[i]
    return at + count
