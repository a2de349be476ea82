"""Tables of vocabularies for the kernels that tokenise: tokens as a trie, and pairs of tokens by rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_IDS", "MOST_PAIRS", "Crossings", "HashTable", "Trie", "pair_table"]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_OTHER_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
MOST_NODES = 1 << 24
MOST_IDS, MOST_PAIRS = (1 << 21) - 1, (1 << 22) - 1


@dataclass(frozen=True)
class HashTable:
    """Keys and their numbers, for :mod:`tamis.kernels.sources.buckets`.

    Args:
        slots: The entries, eight to a bucket; the number of buckets is a power of two.
        shift: 64 minus the exponent of the number of buckets.

    >>> table = HashTable.of(np.array([5, 9], np.uint64), np.array([7, 8], np.uint64), low_bits=4)
    >>> sorted((entry >> 4, entry & 15) for entry in table.slots.tolist() if entry)
    [(5, 7), (9, 8)]
    """

    slots: NDArray[np.uint64]
    shift: int

    @classmethod
    def of(cls, keys: NDArray[np.uint64], numbers: NDArray[np.uint64], low_bits: int) -> HashTable:
        """The table of some keys, which differ, and their numbers, which are not 0 and have at most so many bits."""
        bits = max(len(keys) // 4, 1).bit_length()  # two to four entries in a bucket
        buckets = np.zeros(8 * ((1 << bits) + 1), np.uint64)
        first = -buckets.ctypes.data % 64 // 8  # so that a bucket is one line of the processor's cache
        slots = buckets[first : first + (8 << bits)]
        used = np.zeros(1 << bits, np.int64)
        entries = keys << np.uint64(low_bits) | numbers
        wanted = ((keys * _MULTIPLIER) >> np.uint64(64 - bits)).astype(np.int64)
        while len(entries):
            order = np.argsort(wanted, kind="stable")
            entries, wanted = entries[order], wanted[order]
            begins = np.searchsorted(wanted, wanted)
            places = used[wanted] + np.arange(len(wanted)) - begins
            fits = places < 8
            slots[8 * wanted[fits] + places[fits]] = entries[fits]
            np.add.at(used, wanted[fits], 1)
            entries, wanted = entries[~fits], (wanted[~fits] + 1) & ((1 << bits) - 1)
        return cls(slots, 64 - bits)


@dataclass(frozen=True)
class Trie:
    """Tokens byte by byte. Node 0 is the begin of a token, node 1 that of a token inside a word.

    Args:
        edges: A node and a byte, and the node after them.
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


@dataclass(frozen=True)
class Crossings:
    """Where tokens reach over the boundary of two characters, for :mod:`tamis.kernels.sources.crossings`.

    Args:
        bits: A bit for each pair of bytes on the left and on the right of such a boundary that one token has.
        shift: 64 minus the exponent of the number of bits.
    """

    bits: NDArray[np.uint64]
    shift: int

    @classmethod
    def of(cls, tokens: Iterable[bytes]) -> Crossings:
        """The crossings of tokens; those between two ASCII characters are left out.

        >>> int(np.count_nonzero(Crossings.of([b"ab", "né".encode(), "日本".encode(), b"x"]).bits))
        2
        """
        left: list[int] = []
        right: list[int] = []
        for token in tokens:
            if token.isascii():
                continue
            begins = [at for at, byte in enumerate(token) if byte & 0xC0 != 0x80]
            ends = [*begins[1:], len(token)][: len(begins)]
            before = begins if begins[:1] == [0] else [0, *begins]  # the first character may lack its first bytes
            for at, end in zip(begins, ends, strict=True):
                if at and not (token[at] < 0x80 and token[at - 1] < 0x80):
                    left.append(int.from_bytes(token[before[before.index(at) - 1] : at], "big"))
                    right.append(int.from_bytes(token[at:end], "big"))
        lefts, rights = np.array(left, np.uint64), np.array(right, np.uint64)
        exponent = min(max(64 * len(left), 1 << 16).bit_length(), 24)
        mixed = ((lefts << np.uint64(32)) + rights) * _MULTIPLIER ^ rights * _OTHER_MULTIPLIER
        numbers = np.unique(mixed * _OTHER_MULTIPLIER >> np.uint64(64 - exponent))
        bits = np.zeros(1 << (exponent - 6), np.uint64)
        np.bitwise_or.at(bits, (numbers >> np.uint64(6)).astype(np.int64), np.uint64(1) << (numbers & np.uint64(63)))
        return cls(bits, 64 - exponent)


def pair_table(pairs: NDArray[np.int64]) -> HashTable:
    """The table of pairs of ids, two columns, whose rank is their row."""
    left, right = pairs[:, 0].astype(np.uint64), pairs[:, 1].astype(np.uint64)
    return HashTable.of(left << np.uint64(21) | right, np.arange(1, len(pairs) + 1, dtype=np.uint64), 22)
