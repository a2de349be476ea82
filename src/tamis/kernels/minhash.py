"""MinHash: short signatures of texts whose agreement estimates how much the sets of n-grams of two texts overlap.

An n-gram is a run of ``ngram`` characters (code points) or words (as ``str.split()`` gives them). A text with fewer has
one n-gram, the whole of it; so has an empty text. Two texts are compared by the Jaccard index of their sets of n-grams:
the size of the intersection through that of the union.

The work is done by native kernels. :mod:`tamis.kernels.minhash_definition` says what they compute, and serves as long
as they are not compiled. :mod:`tamis.kernels.gpu.minhash` gives the same bits on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels import minhash_definition as plain
from tamis.kernels import native
from tamis.kernels.buffers import TextBuffers
from tamis.kernels.normalizing import STEPS, normalized
from tamis.kernels.signatures import most_shingles

__all__ = ["SCHEMES", "UNITS", "MinHash", "band_hashes", "similarity"]

SCHEMES: Final = ("fast", "classic")
UNITS: Final = ("character", "word")

_ROOM: Final = 4096  # n-grams of a text that are hashed at a time: their hashes fit the first cache
_SLOTS: Final = 32768
_MOST_SLOTS: Final = 1 << 24  # of the table of n-grams of a pair of texts
_LANES: Final = 16
_LARGEST: Final = 1 << 24
_NOTHING: Final = np.zeros(1, np.uint64)


@dataclass(frozen=True)
class MinHash:
    """How signatures are made.

    Signatures depend on these parameters and the text alone: they are the same on every machine, for any chunks of a
    column, and on a GPU. Only signatures made with equal parameters can be compared.

    Args:
        num_hashes: The length of a signature.
        ngram: The number of characters or words of an n-gram.
        unit: What an n-gram is made of: ``"character"`` or ``"word"``.
        scheme: ``"fast"`` for Fast Similarity Sketching (Dahlgaard, Knudsen, Thorup 2017), whose cost does not grow
            with ``num_hashes``; ``"classic"`` for the least values of as many permutations.
        seed: Of all hashes.
        bits: Of each number of a signature: 32 or 64. With 32, different n-grams of texts of many megabytes may have
            the same number by chance.
        normalize: What is done to a text first: any of ``"lower"``, ``"punctuation"`` and ``"whitespace"``, always in
            this order. See :func:`tamis.kernels.normalizing.normalized`.

    >>> minhash = MinHash(num_hashes=64, ngram=3)
    >>> one, other, far = minhash.signatures(pa.array(["a small text", "a small test", "nothing alike"]))
    >>> bool(similarity(one[None], other[None]) > similarity(one[None], far[None]))
    True
    """

    num_hashes: int = 260
    ngram: int = 24
    unit: str = "character"
    scheme: str = "fast"
    seed: int = 42
    bits: int = 32
    normalize: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "normalize", tuple(self.normalize))
        for name in ("num_hashes", "ngram"):
            if not 0 < getattr(self, name) < _LARGEST:
                raise ValueError(f"{name} = {getattr(self, name)} is not between 1 and {_LARGEST - 1}")
        for name, known in (("unit", UNITS), ("scheme", SCHEMES), ("bits", (32, 64))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} = {getattr(self, name)!r} is not one of {', '.join(map(repr, known))}")
        for step in self.normalize:
            if step not in STEPS:
                raise ValueError(f"normalize: {step!r} is not one of {', '.join(map(repr, STEPS))}")

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers of a signature."""
        return np.dtype(f"uint{self.bits}")

    def signatures(self, texts: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
        """The signature of each text: a C-contiguous matrix with ``num_hashes`` columns.

        The row of a null has no meaning: leave it out.

        Args:
            texts: Of any Arrow type for texts.

        >>> MinHash().signatures(pa.array(["one text", "another"])).shape
        (2, 260)
        """
        made = np.empty((len(texts), self.num_hashes), self.dtype)
        done = 0
        for chunk in self._chunks(texts):
            self._sign(chunk, made[done : done + len(chunk)])
            done += len(chunk)
        return made

    def shingles(self, texts: pa.Array | pa.ChunkedArray) -> pa.LargeListArray:
        """The hashes of the n-grams of each text, in order, with 64 bits.

        Args:
            texts: Of any Arrow type for texts.

        >>> MinHash(ngram=3).shingles(pa.array(["abcd", ""])).value_lengths().to_pylist()
        [2, 1]
        """
        parts, counts = [np.zeros(0, np.uint64)], [np.zeros(1, np.int64)]
        for chunk in self._chunks(texts):
            found, of_each = self._shingles(chunk)
            parts.append(found)
            counts.append(of_each)
        offsets = np.cumsum(np.concatenate(counts))
        return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(parts)))

    def jaccard(self, texts: pa.Array | pa.ChunkedArray, others: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
        """The Jaccard index of the sets of n-grams of two texts, row by row: what signatures estimate, exactly.

        n-grams are compared by their hashes of 64 bits. Rows with a null have no meaning: leave them out. The table of
        n-grams takes 18 to 36 bytes for each byte of the longest pair of texts, and 144 MiB at most: longer texts are
        gone through several times.

        Args:
            texts: Of any Arrow type for texts.
            others: As many.

        >>> MinHash(ngram=1).jaccard(pa.array(["abc", ""]), pa.array(["bcd", ""])).tolist()
        [0.5, 1.0]
        """
        if len(texts) != len(others):
            raise ValueError(f"there are {len(texts)} texts on one side and {len(others)} on the other")
        kernel = native.load("jaccard")
        one, other = (TextBuffers.of(_joined(normalized(each, self.normalize))) for each in (texts, others))
        results = np.empty(len(one), np.float64)
        if kernel is None:
            for row in range(len(one)):
                sets = [set(self._plain_shingles(each, row).tolist()) for each in (one, other)]
                results[row] = len(sets[0] & sets[1]) / len(sets[0] | sets[1])
            return results
        most = int((self._most_shingles(one) + self._most_shingles(other)).max(initial=1))
        slots = min(max(64, 1 << (2 * most - 1).bit_length()), _MOST_SLOTS)

        def compare(slots: int) -> int:
            return kernel(
                *(one.data, one.offsets, len(one.data), one.tail()),
                *(other.data, other.offsets, len(other.data), other.tail()),
                *(len(one), int(self.unit == "word"), self.ngram, plain.mixing_of(self.seed), _ROOM),
                *(np.empty(_ROOM + self.ngram, np.uint64), np.empty(8, np.int64), np.empty(_ROOM, np.uint64)),
                *(np.empty(slots, np.uint64), np.empty(slots, np.uint8), slots, results),
            )

        while compare(slots) < 0:  # more hashes in one range than it has slots
            slots *= 2
        return results

    def _chunks(self, texts: pa.Array | pa.ChunkedArray) -> Iterator[TextBuffers]:
        for chunk in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
            yield TextBuffers.of(_joined(normalized(chunk, self.normalize)))

    def _sign(self, texts: TextBuffers, made: NDArray[Any]) -> None:
        kernel = native.load("minhash")
        factors, terms = plain.permutations_of(self.seed, self.num_hashes, self.bits)
        if kernel is None:
            for row in range(len(texts)):
                hashes = self._plain_shingles(texts, row)
                if self.scheme == "fast":
                    made[row] = plain.fast_signature(hashes, self.num_hashes, self.bits)
                else:
                    made[row] = plain.classic_signature(hashes, factors, terms)
            return
        width = -(-self.num_hashes // _LANES) * _LANES
        halves = [np.zeros(width, np.uint32) for _ in range(2)]
        words = [_NOTHING, _NOTHING]
        if self.bits == 32:
            halves[0][: self.num_hashes], halves[1][: self.num_hashes] = factors, terms
        else:
            words = [factors, terms]
        is_fast = self.scheme == "fast"
        flat = made.reshape(-1)
        kernel(
            *(texts.data, texts.offsets, len(texts), len(texts.data)),
            *(int(self.unit == "word"), self.ngram, plain.mixing_of(self.seed)),
            *(self.num_hashes, self.bits, plain.value_bits_of(self.num_hashes, self.bits) if is_fast else 0),
            *(halves[0], halves[1], width, words[0], words[1], _ROOM, texts.tail()),
            *(np.empty(_ROOM + self.ngram, np.uint64), np.empty(8, np.int64), np.empty(_ROOM, np.uint64)),
            *(np.empty(2 * _SLOTS if is_fast else 1, np.uint64), _SLOTS if is_fast else 0),
            *(np.empty(_ROOM, np.uint32), np.empty(width, np.uint32), np.empty(self.num_hashes, np.uint64)),
            flat if self.bits == 32 else np.empty(1, np.uint32),
            flat if self.bits == 64 else np.empty(1, np.uint64),
        )

    def _shingles(self, texts: TextBuffers) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        kernel = native.load("shingles")
        if kernel is None:
            parts = [self._plain_shingles(texts, row) for row in range(len(texts))]
            counts = np.array([len(part) for part in parts], np.int64)
            return np.concatenate([np.zeros(0, np.uint64), *parts]), counts
        hashes = np.empty(int(self._most_shingles(texts).sum()), np.uint64)
        counts = np.empty(len(texts), np.int64)
        total = kernel(
            *(texts.data, texts.offsets, len(texts), len(texts.data)),
            *(int(self.unit == "word"), self.ngram, plain.mixing_of(self.seed), _ROOM, texts.tail()),
            *(np.empty(_ROOM + self.ngram, np.uint64), np.empty(8, np.int64), hashes, counts),
        )
        return hashes[:total], counts

    def _plain_shingles(self, texts: TextBuffers, row: int) -> NDArray[np.uint64]:
        return plain.shingle_hashes(texts.text(row), self.unit == "word", self.ngram, plain.mixing_of(self.seed))

    def _most_shingles(self, texts: TextBuffers) -> NDArray[np.int64]:
        return most_shingles(texts.offsets, int(self.unit == "word"), self.ngram)


def band_hashes(signatures: NDArray[Any], num_bands: int) -> NDArray[np.uint64]:
    """A hash of each band of each signature: equal where the same band of two signatures is equal.

    The number of the band is part of the hash, so that bands of different numbers never meet (but by chance, of 64
    bits).

    Args:
        signatures: One per row, as :meth:`MinHash.signatures` gives them.
        num_bands: A divisor of the length of a signature.

    >>> signatures = MinHash(num_hashes=6).signatures(pa.array(["a", "a", "b"]))
    >>> one, same, other = band_hashes(signatures, num_bands=3).tolist()
    >>> one == same, set(one) & set(other), len(set(one))
    (True, set(), 3)
    """
    rows, length = signatures.shape
    if num_bands < 1 or length % num_bands:
        raise ValueError(f"{length} numbers of a signature cannot be split into {num_bands} bands of the same size")
    kernel = native.load("bands")
    if kernel is None:
        return plain.band_hashes(signatures, num_bands)
    flat = np.ascontiguousarray(signatures).reshape(-1)
    is_wide = signatures.dtype == np.uint64
    hashes = np.empty((rows, num_bands), np.uint64)
    kernel(
        np.empty(0, np.uint32) if is_wide else flat,
        flat if is_wide else np.empty(0, np.uint64),
        *(int(is_wide), rows, num_bands, length // num_bands, hashes),
    )
    return hashes


def similarity(signatures: NDArray[Any], others: NDArray[Any]) -> NDArray[np.float64]:
    """The estimated Jaccard index of the n-grams of two texts, row by row: the share of equal numbers.

    Args:
        signatures: One per row.
        others: As many, made with the same parameters.

    >>> similarity(np.array([[1, 2, 3, 4]]), np.array([[1, 2, 3, 5]])).tolist()
    [0.75]
    """
    shares: NDArray[np.float64] = (signatures == others).mean(axis=1, dtype=np.float64)
    return shares


def _joined(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    return texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
