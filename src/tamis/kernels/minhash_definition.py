"""What MinHash signatures are, in NumPy: the native kernels give the same bits, hundreds of times faster.

All arithmetic is that of unsigned numbers of 64 bits, modulo 2 ** 64.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "band_hashes",
    "classic_signature",
    "fast_signature",
    "mix_words",
    "mixing_of",
    "permutations_of",
    "random_words",
    "shingle_hashes",
    "value_bits_of",
    "word_hash",
]

Words: TypeAlias = NDArray[np.uint64]

_K0: Final = 0x9E3779B97F4A7C15
_K1: Final = 0xD6E8FEB86659FD93
_K2: Final = 0xA0761D6478BD642F
_K3: Final = 0xE7037ED1A0B428DB
_FULL: Final = (1 << 64) - 1


def random_words(seed: int, count: int) -> Words:
    """Numbers that follow from a seed: the generator SplitMix64 (Steele, Lea, Flood 2014).

    Args:
        seed: Any whole number.
        count: How many.

    >>> random_words(0, 1).tolist() == [0xE220A8397B1DCDAF]
    True
    """
    words: Words = np.full(count, seed & _FULL, np.uint64) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_K0)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def mixing_of(seed: int) -> Words:
    """The multiplier of the polynomial, whose powers differ from each other longest, and the key of the mixing.

    Args:
        seed: Any whole number.

    >>> mixing_of(42)[0] % np.uint64(8)
    np.uint64(5)
    """
    multiplier, key = random_words(seed, 2).tolist()
    return np.array([multiplier & ~7 | 5, key], np.uint64)


def permutations_of(seed: int, num_hashes: int, bits: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """The factors, which are odd, and the terms of the classic scheme.

    Args:
        seed: Any whole number.
        num_hashes: How many permutations.
        bits: Of each number: 32 or 64.

    >>> [numbers.dtype for numbers in permutations_of(42, 3, bits=32)]
    [dtype('uint32'), dtype('uint32')]
    """
    words = random_words(seed, 2 + 2 * num_hashes)[2:]
    numbers = words if bits == 64 else (words >> np.uint64(32)).astype(np.uint32)
    return np.ascontiguousarray(numbers[::2] | numbers.dtype.type(1)), np.ascontiguousarray(numbers[1::2])


def value_bits_of(num_hashes: int, bits: int) -> int:
    """How many bits of a number come from a hash, with the fast scheme: with 64, the others are the round's number.

    Args:
        num_hashes: The length of a signature.
        bits: Of each of its numbers: 32 or 64.

    >>> value_bits_of(260, 32), value_bits_of(260, 64)
    (32, 54)
    """
    return 32 if bits == 32 else 64 - (2 * num_hashes - 1).bit_length()


def shingle_hashes(text: bytes, by_words: bool, ngram: int, mixing: Words) -> Words:
    """The hash of each n-gram of a text, in order. A text with fewer items has one n-gram, of all of them.

    Args:
        text: UTF-8.
        by_words: Whether items are words, as ``str.split()`` gives them, or characters.
        ngram: The number of items.
        mixing: See :func:`mixing_of`.

    >>> len(shingle_hashes(b"abcd", by_words=False, ngram=3, mixing=mixing_of(42)))
    2
    """
    characters = text.decode()
    if by_words:
        items = [word_hash(word.encode()) for word in characters.split()]
    else:
        items = [int.from_bytes(character.encode(), "little") for character in characters]
    values = np.array(items, np.uint64)
    multiplier, key = mixing
    is_short = len(values) < ngram
    taken = len(values) if is_short else ngram
    sums = np.full(len(values) - taken + 1, len(values) + 1 if is_short else 0, np.uint64)
    for i in range(taken):
        sums = sums * multiplier + values[i : i + len(sums)]
    return mix_words(sums ^ key, np.uint64(_K1))


def fast_signature(hashes: Words, num_hashes: int, bits: int) -> NDArray[Any]:
    """Fast Similarity Sketching of the hashes of n-grams (Dahlgaard, Knudsen, Thorup 2017).

    Args:
        hashes: At least one.
        num_hashes: The length of the signature.
        bits: Of each number: 32 or 64.

    >>> fast_signature(np.array([1], np.uint64), 4, bits=32).shape
    (4,)
    """
    value_bits = value_bits_of(num_hashes, bits)
    ones = np.uint64(_FULL >> (64 - value_bits))
    full = np.uint64(_FULL)
    sketch = np.full(num_hashes, full)
    for number in range(2 * num_hashes):
        rehashed = hashes
        if number:
            salt = np.array([number], np.uint64) * np.uint64(_K0)
            rehashed = mix_words(hashes ^ salt, np.uint64(_K1) ^ salt)
        upper = rehashed >> np.uint64(32)
        places = upper * np.uint64(num_hashes) >> np.uint64(32)
        if number >= num_hashes:
            places = np.full_like(hashes, number - num_hashes)
        values = (rehashed << np.uint64(32) | upper) >> np.uint64(64 - value_bits)
        np.minimum.at(sketch, places.astype(np.int64), values | np.uint64(number << value_bits & _FULL))
        sketch[sketch & ones == ones] = full
        if not (sketch == full).any():
            break
    return sketch.astype(np.uint32) if bits == 32 else sketch


def classic_signature(hashes: Words, factors: NDArray[Any], terms: NDArray[Any]) -> NDArray[Any]:
    """The least value of each permutation ``factor * hash + term``, with the upper bits of the hashes.

    Args:
        hashes: At least one.
        factors: Of each permutation.
        terms: Of each permutation.

    >>> classic_signature(np.array([1 << 32], np.uint64), np.array([3], np.uint32), np.array([4], np.uint32))
    array([7], dtype=uint32)
    """
    if factors.dtype == np.uint32:
        hashes = (hashes >> np.uint64(32)).astype(np.uint32)
    return np.array([(hashes * a + b).min() for a, b in zip(factors, terms, strict=True)], factors.dtype)


def band_hashes(signatures: NDArray[Any], num_bands: int) -> Words:
    """A hash of each band of each signature, in which the number of the band counts.

    Args:
        signatures: One per row.
        num_bands: A divisor of their length.

    >>> band_hashes(np.zeros((2, 6), np.uint32), 3).shape
    (2, 3)
    """
    bands = signatures.reshape(len(signatures), num_bands, -1)
    hashes = np.broadcast_to(np.arange(1, num_bands + 1, dtype=np.uint64) * np.uint64(_K0), bands.shape[:2])
    for i in range(bands.shape[2]):
        hashes = (hashes ^ bands[:, :, i].astype(np.uint64)) * np.uint64(_K1)
        hashes = hashes ^ (hashes >> np.uint64(32))
    hashes = hashes * np.uint64(_K2)
    hashes ^= hashes >> np.uint64(29)
    return hashes


def mix_words(one: Words, other: Words | np.uint64) -> Words:
    """Both halves of the products of numbers, folded into one number each.

    Args:
        one: Factors.
        other: The other factors.

    >>> mix_words(np.array([1 << 63], np.uint64), np.uint64(2)).tolist()
    [1]
    """
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a, b, c, d = one >> half, one & low, other >> half, other & low
    middle = a * d + (b * d >> half)
    other_middle = b * c + (middle & low)
    upper: Words = a * c + (middle >> half) + (other_middle >> half)
    return upper ^ (one * other)


def word_hash(word: bytes) -> int:
    """The hash of a word's bytes, as the kernels compute it.

    Args:
        word: UTF-8.

    >>> word_hash(b"word") == word_hash(b"word "), 0 <= word_hash(b"") < 2**64
    (False, True)
    """

    def mix(one: int, other: int) -> int:
        product = (one & _FULL) * (other & _FULL)
        return (product ^ (product >> 64)) & _FULL

    def number(start: int, size: int = 8) -> int:
        return int.from_bytes(word[start : start + size], "little")

    size, state = len(word), _K2
    if size <= 8:
        return mix(number(0) ^ state, _K1 + size * _K3)
    at = 0
    while at + 16 < size:
        state = (mix(state ^ number(at), _K0) + mix(number(at + 8) ^ _K3, state)) & _FULL
        at += 16
    first = number(0) if size <= 16 else number(size - 16)
    return mix(first ^ state, (number(size - 8) ^ _K1) + size * _K3)
