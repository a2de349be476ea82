"""What vectors of hashed words are, in Python and NumPy: the native kernel gives the same bits, far faster.

All arithmetic on hashes is that of unsigned numbers of 64 bits, modulo 2 ** 64.
"""

from __future__ import annotations

import functools
import math
import unicodedata
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.minhash_definition import mix_words, random_words, word_hash
from tamis.kernels.unit_length import unit_vector

__all__ = [
    "BUCKETS",
    "COUNTED",
    "KEPT",
    "PREFIX",
    "ROOTS",
    "SEPARATE",
    "SIZES",
    "TOTAL_BUCKETS",
    "bucket_table",
    "buckets_of",
    "fold",
    "fold_tables",
    "rarity_of",
    "vector_of",
]

BUCKETS: Final = 1 << 15
"""Buckets for words; there are as many for begins of words, and as many for pairs of words."""

TOTAL_BUCKETS: Final = 3 * BUCKETS

PREFIX: Final = 5
"""How many characters the begin of a word has."""

COUNTED: Final = 1024
"""A bucket that has counted more than this, less one, weighs as much as with that."""

KINDS: Final = (2, 2, 1)
"""The weights of words, begins of words and pairs of words."""

SIZES: Final = np.array([0, 5, 8, 11, 14, 16], np.int64)
"""The weights of words by their number of characters, :data:`PREFIX` and more as the last: short words say less."""

ROOTS: Final = np.array([math.isqrt(count << 8) for count in range(COUNTED)], np.int64)
"""The weights of counts: sixteen times the square root, rounded down."""

MOST_RARITY: Final = 63
"""The largest weight of a rare bucket."""

KEPT, SEPARATE = 1, 2
"""What a character that stays as it is folds to, and one that is a word of its own. Others fold to their bytes."""

_SPACE: Final = 32
_ALONE: Final = (
    *((0xE00, 0xEFF), (0x1000, 0x109F), (0x1780, 0x17FF)),  # Thai, Lao, Burmese, Khmer
    *((0x2E80, 0x312F), (0x3190, 0xA4CF), (0xF900, 0xFAFF), (0xFF66, 0xFF9F), (0x20000, 0x3FFFF)),  # Chinese, Japanese
)
_BLOCKS: Final = 0x1100
_WEIGHT_BITS: Final = 15


@functools.cache
def fold_tables() -> tuple[NDArray[np.uint8], NDArray[np.uint32]]:
    """What each character becomes: ``folds[256 * blocks[c >> 8] + (c & 255)]``.

    The tables follow Unicode 3.2, which every Python has, so that they are the same everywhere: a character that is
    younger is kept as it is.

    >>> blocks, folds = fold_tables()
    >>> folds = folds.reshape(-1, 256)
    >>> chr(folds[blocks[0], ord("A")]), int(folds[blocks[0x4E], 0]) == SEPARATE
    ('a', True)
    """
    folds = np.full(_BLOCKS << 8, KEPT, np.uint32)
    for first, last in _ALONE:
        folds[first : last + 1] = SEPARATE
    for first, last in ((0, 0xD800), (0xE000, 0x10600), (0x1D000, 0x1D800), (0xE0000, 0xE0080)):
        for code in range(first, last):
            character = chr(code)
            category = unicodedata.ucd_3_2_0.category(character)
            if category[0] in "PSZ" or category in ("Cc", "Cf"):
                folds[code] = _SPACE
            elif category in ("Lu", "Lt") and len(lower := character.lower()) == 1 and lower != character:
                folds[code] = int.from_bytes(lower.encode(), "little")
    ascii_folds = folds[:128]
    ascii_folds[ascii_folds == KEPT] = np.flatnonzero(ascii_folds == KEPT)
    rows, numbers = np.unique(folds.reshape(_BLOCKS, 256), axis=0, return_inverse=True)
    return numbers.reshape(-1).astype(np.uint8), rows.reshape(-1)


def fold(text: str) -> str:
    """A text in lower case, with spaces between its words and for everything else.

    >>> fold("The Größe of a_word: 漢字!").split()
    ['the', 'größe', 'of', 'a', 'word', '漢', '字']
    """
    blocks, folds = fold_tables()
    made = []
    for character in text:
        code = ord(character)
        folded = int(folds[256 * int(blocks[code >> 8]) + (code & 255)])
        if folded == KEPT:
            made.append(character)
        elif folded == SEPARATE:
            made.append(f" {character} ")
        else:
            made.append(folded.to_bytes(4, "little").rstrip(b"\0").decode())
    return "".join(made)


def buckets_of(text: bytes) -> dict[int, tuple[int, int]]:
    """The buckets that a text touches: for each its count, and the size of the word that touched it first.

    Args:
        text: UTF-8.

    >>> sorted(count for count, size in buckets_of(b"a rose is a rose").values())
    [1, 1, 1, 2, 2, 2]
    """
    found: dict[int, tuple[int, int]] = {}

    def add(kind: int, value: int, size: int) -> None:
        bucket = kind * BUCKETS + (value >> (64 - BUCKETS.bit_length() + 1))
        count, first_size = found.get(bucket, (0, size))
        found[bucket] = count + 1, first_size

    previous, previous_size = 0, 0
    for word in fold(text.decode()).split(" "):
        if not word:
            continue
        size, value = min(len(word), PREFIX), word_hash(word.encode())
        add(0, value, size)
        if size == PREFIX:
            add(1, word_hash(word[:PREFIX].encode()), size)
        if previous_size:
            add(2, _pair(previous, value), min(previous_size, size))
        previous, previous_size = value, size
    return found


def bucket_table(dim: int, seed: int, rarity: NDArray[np.uint8] | None = None) -> NDArray[np.uint32]:
    """For each bucket its weight, and below it (17 bits) the entry of the vector it belongs to and its sign.

    Args:
        dim: The length of a vector.
        seed: Of entries and signs.
        rarity: How rare each bucket is; 1 for all when not given.

    >>> bucket_table(256, seed=42).shape
    (98304,)
    """
    words = random_words(seed, TOTAL_BUCKETS)
    entries = (words >> np.uint64(32)) * np.uint64(dim) >> np.uint64(32)
    weights = np.repeat(np.array(KINDS, np.uint64), BUCKETS)
    if rarity is not None:
        weights *= rarity
    table: NDArray[np.uint32] = (weights << np.uint64(17) | entries << np.uint64(1) | words & np.uint64(1)).astype(
        np.uint32
    )
    return table


def rarity_of(frequencies: NDArray[np.uint32], texts: int) -> NDArray[np.uint8]:
    """The weights of buckets, 1 to 63, by the number of texts of a sample that touch them.

    Args:
        frequencies: That number, for each bucket.
        texts: How many texts the sample has.

    >>> rarity_of(np.array([0, 10, 1000], np.uint32), 1000).tolist()
    [40, 26, 1]
    """
    bits = np.log2((texts + 1) / (frequencies.astype(np.float64) + 1))
    return np.clip(np.round(4 * bits), 1, MOST_RARITY).astype(np.uint8)


def vector_of(text: bytes, dim: int, table: NDArray[np.uint32]) -> NDArray[np.float32]:
    """The vector of a text: of length 1, or all zeros if the text has no words.

    Args:
        text: UTF-8.
        dim: The length of the vector.
        table: See :func:`bucket_table`.

    >>> vector = vector_of(b"some words", 16, bucket_table(16, seed=42))
    >>> vector.shape, bool(abs((vector**2).sum() - 1) < 1e-6)
    ((16,), True)
    """
    sums = np.zeros(dim, np.int64)
    found = buckets_of(text)
    for bucket, (count, size) in found.items():
        value = int(table[bucket])
        weight = int(ROOTS[min(count, COUNTED - 1)]) * int(SIZES[size]) * (value >> 17)
        sums[value >> 1 & 0xFFFF] += -weight if value & 1 else weight
    if found and not sums.any():  # all entries cancel each other out: take the first alone
        sums[int(table[next(iter(found))]) >> 1 & 0xFFFF] = 1
    return unit_vector(sums)


def _pair(one: int, other: int) -> int:
    both = np.array([one * 0x9E3779B97F4A7C15 + other & (1 << 64) - 1], np.uint64)
    return int(mix_words(both, np.uint64(0xD6E8FEB86659FD93))[0])
