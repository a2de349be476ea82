"""Tables of vocabularies for the kernels that tokenise: tokens as a trie, and pairs of tokens by rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["HashTable", "Trie", "pair_table"]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
MOST_NODES = 1 << 24
MOST_IDS, MOST_PAIRS = (1 << 21) - 1, 1 << 22


@dataclass(frozen=True)
class HashTable:
    """Numbers in slots of a table, to be found by their upper bits, with linear probing.

    Args:
        slots: The table; its size is a power of two.
        shift: 64 minus the exponent of its size.

    >>> table = HashTable.of(np.array([5, 9], np.uint64), np.array([7, 8], np.uint64), low_bits=4)
    >>> sorted(number >> 4 for number in table.slots.tolist())[:2]
    [5, 9]
    """

    slots: NDArray[np.uint64]
    shift: int

    @classmethod
    def of(cls, keys: NDArray[np.uint64], values: NDArray[np.uint64], low_bits: int) -> HashTable:
        """The table of some keys, which differ, with their values in so many lower bits."""
        bits = max(2 * len(keys), 16).bit_length()
        slots = np.full(1 << bits, _EMPTY, np.uint64)
        entries = keys << np.uint64(low_bits) | values
        places = (keys * _MULTIPLIER) >> np.uint64(64 - bits)
        mask = np.uint64((1 << bits) - 1)
        # All at once: of those that want the same empty slot the first gets it, and the others look at the next one.
        while len(entries):
            wanted, first = np.unique(places, return_index=True)
            is_free = slots[wanted] == _EMPTY
            slots[wanted[is_free]] = entries[first[is_free]]
            is_left = np.ones(len(entries), np.bool_)
            is_left[first[is_free]] = False
            entries, places = entries[is_left], (places[is_left] + np.uint64(1)) & mask
        return cls(slots, 64 - bits)


@dataclass(frozen=True)
class Trie:
    """Tokens byte by byte. Node 0 is the begin of a token, node 1 that of a token inside a word.

    Args:
        edges: Node, byte and the node after it.
        tokens: The id of the token that ends at each node, -1 if none does.
    """

    edges: HashTable
    tokens: NDArray[np.int32]

    @classmethod
    def of(cls, tokens: Sequence[bytes], ids: Sequence[int], roots: Sequence[int]) -> Trie:
        """The trie of some tokens, which have at least one byte, and begin at node 0 or 1 each.

        >>> trie = Trie.of([b"a", b"ab"], [4, 7], [0, 0])
        >>> trie.tokens.tolist()
        [-1, -1, 4, 7]
        """
        lengths = np.array([len(token) for token in tokens], np.int64)
        begins = np.cumsum(lengths) - lengths
        data = np.frombuffer(b"".join(tokens), np.uint8)
        node = np.array(roots, np.uint64)
        count = 2
        keys: list[NDArray[np.uint64]] = []
        for depth in range(int(lengths.max(initial=0))):
            alive = np.flatnonzero(lengths > depth)
            key = node[alive] << np.uint64(8) | data[begins[alive] + depth]
            unique, inverse = np.unique(key, return_inverse=True)
            node[alive] = inverse.reshape(-1).astype(np.uint64) + np.uint64(count)
            keys.append(unique)
            count += len(unique)
        if count > MOST_NODES:
            raise ValueError(f"a vocabulary of {count} nodes is too large")
        every = np.concatenate([np.zeros(0, np.uint64), *keys])
        found = np.full(count, -1, np.int32)
        found[node.astype(np.int64)] = np.array(ids, np.int32)
        found[:2] = -1
        return cls(HashTable.of(every, np.arange(2, count, dtype=np.uint64), 32), found)


def pair_table(pairs: NDArray[np.int64]) -> HashTable:
    """The table of pairs of ids, two columns, whose rank is their row."""
    left, right = pairs[:, 0].astype(np.uint64), pairs[:, 1].astype(np.uint64)
    return HashTable.of(left << np.uint64(21) | right, np.arange(len(pairs), dtype=np.uint64), 22)
