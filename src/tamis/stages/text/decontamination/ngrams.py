"""N-grams of words in whole columns of text, and which of them are in an index.

An n-gram is looked up by a 64-bit hash, a combination of the hashes of its words; what is found is then compared word
by word, so that two n-grams with the same hash are never taken for the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.kernels.pieces import words
from tamis.kernels.utf8 import Utf8, spaces

__all__ = ["Hits", "NgramIndex", "Words", "normalized_words"]

Positions = NDArray[np.int64]
Hashes = NDArray[np.uint64]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_PUNCTUATION = r"[\p{P}\p{S}]"
_COMPARED = 2**20
"""How many words are compared at once."""

_IS_PUNCTUATION = np.zeros(256, np.bool_)
_IS_PUNCTUATION[list(b"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")] = True
_LOWER = np.arange(256, dtype=np.uint8)
_LOWER[ord("A") : ord("Z") + 1] += 32


@dataclass(frozen=True)
class Words:
    """The words of some texts in the form they are compared in (lower case, without punctuation and symbols, not
    empty), where each lies in the bytes of the texts, and the number of its text.
    """

    values: pa.Array
    starts: Positions
    ends: Positions
    texts: Positions


def normalized_words(block: Utf8) -> Words:
    """The words of texts: split at white space, in lower case, without punctuation and symbols (Unicode P and S).

    >>> normalized_words(Utf8.from_arrow(pa.array(["Don't -- «Stop»!"]))).values.to_pylist()
    ['dont', 'stop']
    """
    pieces = words(block)
    inside = ~spaces(block)
    kept = inside & ~_IS_PUNCTUATION[block.data]
    before = np.zeros(len(block.data) + 1, np.int32 if len(block.data) < 2**31 else np.int64)
    np.cumsum(kept, out=before[1:], dtype=before.dtype)
    offsets = np.append(before[pieces.starts], before[-1]).astype(np.int64)
    data = _LOWER[block.data[kept]]
    values = Utf8(data, offsets).to_arrow()
    if not block.is_ascii:
        values = _other_scripts(values, data, offsets)
    present = np.asarray(pc.greater(pc.binary_length(values), 0))
    return Words(
        values.filter(pa.array(present)), pieces.starts[present], pieces.ends[present], pieces.texts()[present]
    )


def _other_scripts(values: pa.Array, data: NDArray[np.uint8], offsets: Positions) -> pa.Array:
    """The same for the words that are not all ASCII, which are few in most texts."""
    beyond = np.zeros(len(data) + 1, np.int64)
    np.cumsum(data >= 0x80, out=beyond[1:])
    rows = pa.array(np.flatnonzero(np.diff(beyond[offsets])))
    some = pl.Series(pl.from_arrow(values.take(rows))).str.to_lowercase().str.replace_all(_PUNCTUATION, "")
    mask = np.zeros(len(values), np.bool_)
    mask[rows.to_numpy()] = True
    return pc.replace_with_mask(values, pa.array(mask), some.to_arrow().cast(pa.large_string()))


def _hashes(found: Words, n: int, seed: int) -> tuple[Hashes, Positions]:
    """The hash of each n-gram, and the number of its first word."""
    count = len(found.values) - n + 1
    if count < 1:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    of_words = pl.Series(pl.from_arrow(found.values)).hash(seed).to_numpy()
    mixed = np.zeros(count, np.uint64)
    for i in range(n):
        mixed *= _FACTOR
        mixed += of_words[i : i + count]
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    whole = np.flatnonzero(found.texts[:count] == found.texts[n - 1 :])  # not from one text into the next
    return mixed[whole], whole


@dataclass(frozen=True)
class Hits:
    """N-grams of texts that are in an index: the words of the texts, the number of the first word of each n-gram found,
    and its number in the index.
    """

    words: Words
    places: Positions
    grams: Positions

    def texts(self) -> Positions:
        """The text of each."""
        return self.words.texts[self.places]


@dataclass(frozen=True)
class NgramIndex:
    """The n-grams of the examples of benchmarks.

    Args:
        n: Words per n-gram.
        names: The benchmarks.
        examples: How many examples each benchmark has.
        too_short: How many of them have no n-gram, as no text of theirs has so many words: they are never found.
        hashes: The hash of each n-gram, ascending.
        firsts: The number of its first word in ``vocabulary``.
        vocabulary: All words of the benchmarks, one after the other.
        bounds, owners: The examples that have each n-gram: ``owners[bounds[i] : bounds[i + 1]]``.
        benchmark_of: The benchmark of each example.
        row_of: The row of each example in its benchmark.
        grams_of: How many different n-grams each example has.
        hash_bits: How many bits of the hashes are used.
    """

    n: int
    names: list[str]
    examples: Positions
    too_short: Positions
    hashes: Hashes
    firsts: Positions
    vocabulary: pa.Array
    bounds: Positions
    owners: Positions
    benchmark_of: Positions
    row_of: Positions
    grams_of: Positions
    hash_bits: int = 64

    @classmethod
    def build(cls, texts: Mapping[str, Iterable[tuple[pa.Array, pa.Array]]], n: int, hash_bits: int = 64) -> NgramIndex:
        """Make an index.

        Args:
            texts: For each benchmark, arrays of texts and of the example each text is of.
            n: Words per n-gram.
            hash_bits: How many bits of the hashes to use. Fewer are slower, and find the same.

        >>> index = NgramIndex.build({"b": [(pa.array(["one two three four"]), pa.array([0]))]}, 3)
        >>> len(index.hashes), index.grams_of.tolist()
        (2, [2])
        """
        vocabulary: list[pa.Array] = []
        parts: list[tuple[Hashes, Hashes, Positions, Positions]] = []
        benchmark_of, row_of, examples = [], [], []
        known = first_word = 0
        for number, batches in enumerate(texts.values()):
            count = 0
            for column, rows in batches:
                found = normalized_words(Utf8.from_arrow(column))
                hashes, places = _hashes(found, n, 0)
                check, _ = _hashes(found, n, 1)
                of_text = rows.to_numpy()
                parts.append((hashes, check, places + first_word, known + of_text[found.texts[places]]))
                vocabulary.append(found.values)
                first_word += len(found.values)
                count = max(count, int(of_text.max(initial=-1)) + 1)
            benchmark_of.append(np.full(count, number))
            row_of.append(np.arange(count))
            examples.append(count)
            known += count
        hashes, check, firsts, owners = (_joined([p[i] for p in parts], kind) for i, kind in enumerate(_KINDS))
        hashes = hashes >> np.uint64(64 - hash_bits)
        # Equal n-grams have equal pairs of hashes: with 128 bits, others do not.
        order = np.lexsort((owners, check, hashes))
        hashes, check, firsts, owners = hashes[order], check[order], firsts[order], owners[order]
        new_gram = np.ones(len(hashes), np.bool_)
        new_gram[1:] = (hashes[1:] != hashes[:-1]) | (check[1:] != check[:-1])
        new_owner = new_gram.copy()
        new_owner[1:] |= owners[1:] != owners[:-1]
        owners, starts = owners[new_owner], np.flatnonzero(new_gram[new_owner])
        grams_of = np.bincount(owners, minlength=known)
        benchmarks = _joined(benchmark_of, np.int64)
        return cls(
            n,
            list(texts),
            np.array(examples, np.int64),
            np.bincount(benchmarks[grams_of == 0], minlength=len(examples)),
            hashes[new_gram],
            firsts[new_gram],
            pa.concat_arrays([pa.array([], pa.large_string()), *vocabulary]),
            np.append(starts, len(owners)),
            owners,
            benchmarks,
            _joined(row_of, np.int64),
            grams_of,
            hash_bits,
        )

    def find(self, block: Utf8) -> Hits:
        """The n-grams of some texts that are in the index."""
        found = normalized_words(block)
        hashes, places = _hashes(found, self.n, 0)
        hashes = hashes >> np.uint64(64 - self.hash_bits)
        # Most n-grams are in no benchmark: a table of a few bits of the hash rules them out.
        table, bits = self._table()
        likely = np.flatnonzero(table[(hashes >> np.uint64(self.hash_bits - bits)).astype(np.int64)])
        hashes, places = hashes[likely], places[likely]
        low = np.searchsorted(self.hashes, hashes)
        there = np.flatnonzero(self.hashes[np.minimum(low, len(self.hashes) - 1)] == hashes)
        hashes, places, low = hashes[there], places[there], low[there]
        counts = np.searchsorted(self.hashes, hashes, side="right") - low
        grams = np.arange(int(counts.sum())) + np.repeat(low - (np.cumsum(counts) - counts), counts)
        places = np.repeat(places, counts)
        equal = self._equal(found, places, grams)
        return Hits(found, places[equal], grams[equal])

    def examples_with(self, grams: Positions) -> tuple[Positions, Positions]:
        """The examples that have each of some n-grams, one n-gram after the other, and how many each has."""
        counts = np.diff(self.bounds)[grams]
        first = self.bounds[grams] - (np.cumsum(counts) - counts)
        return self.owners[np.arange(int(counts.sum())) + np.repeat(first, counts)], counts

    def _table(self) -> tuple[NDArray[np.bool_], int]:
        cached: tuple[NDArray[np.bool_], int] | None = self.__dict__.get("_looked_up")
        if cached is None:
            bits = min(self.hash_bits, max(8, min(26, len(self.hashes).bit_length() + 4)))
            table = np.zeros(2**bits, np.bool_)
            table[(self.hashes >> np.uint64(self.hash_bits - bits)).astype(np.int64)] = True
            cached = table, bits
            self.__dict__["_looked_up"] = cached  # the class is frozen, and this is not part of its value
        return cached

    def _equal(self, found: Words, places: Positions, grams: Positions) -> NDArray[np.bool_]:
        """Whether the n-grams are the same, word by word."""
        equal = np.ones(len(places), np.bool_)
        steps = np.arange(self.n)
        for start in range(0, len(places), max(1, _COMPARED // self.n)):
            some = slice(start, start + max(1, _COMPARED // self.n))
            ours = found.values.take(pa.array((places[some, None] + steps).reshape(-1)))
            theirs = self.vocabulary.take(pa.array((self.firsts[grams[some], None] + steps).reshape(-1)))
            equal[some] = np.asarray(pc.equal(ours, theirs)).reshape(-1, self.n).all(axis=1)
        return equal


_KINDS: tuple[Any, ...] = (np.uint64, np.uint64, np.int64, np.int64)


def _joined(parts: list[NDArray[Any]], kind: Any) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, kind), *parts])
