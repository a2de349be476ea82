"""What a fastText model computes of texts: the native kernel, and its definition in plain Python.

:mod:`tamis.models.fasttext` reads model files and makes probabilities of the outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import InitVar, dataclass

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.signatures import PADDING, longest_near_end

__all__ = ["FastTextNetwork", "piece_hashes", "subword_hashes", "word_hash"]

_OUTPUTS_PER_CALL = 1 << 20
_WORDS_AT_A_TIME = 20_000
_SPACES = b" \n\r\t\v\f\0"
_LINE_END = b"</s>"
_LABEL = b"__label__"


def word_hash(word: bytes) -> int:
    """FNV-1a of 32 bits with signed bytes, as fastText computes it.

    >>> word_hash(b"</s>")
    3617362777
    """
    value = 2166136261
    for byte in word:
        value = (value ^ (byte if byte < 0x80 else byte | 0xFFFFFF00)) * 16777619 & 0xFFFFFFFF
    return value


@dataclass
class FastTextNetwork:
    """A supervised fastText model as arrays.

    Args:
        words: The bytes of all words and then all labels, one after the other, and eight more.
        word_ends: Where each of them ends.
        word_count: How many are words; the others are labels.
        least: The fewest characters of a subword.
        most: The most characters of a subword; 0 for none.
        word_ngrams: The most words of an n-gram of words.
        buckets: How many numbers n-grams share.
        kept: The row of each of these, after those of the words, or -1; ``None`` if none is dropped.
        vectors: The input matrix: a row for each word, then one for each bucket. The number of columns is a multiple
            of 8.
        weights: The output matrix, transposed.
        scales: What the product with each of its rows is multiplied by.
        sums_words: Whether to add up the vectors of each known word beforehand. Sums then differ in the last bits.
    """

    words: NDArray[np.uint8]
    word_ends: NDArray[np.int64]
    word_count: int
    least: int
    most: int
    word_ngrams: int
    buckets: int
    kept: NDArray[np.int32] | None
    vectors: NDArray[np.float32]
    weights: NDArray[np.float32]
    scales: NDArray[np.float32]
    sums_words: InitVar[bool] = True

    def __post_init__(self, sums_words: bool) -> None:
        starts = np.concatenate(([0], self.word_ends)).astype(np.int64)[: self.word_count]
        ends = self.word_ends[: self.word_count]
        self._hashes = piece_hashes(self.words, starts, ends)
        alike = np.flatnonzero(self._hashes == word_hash(_LINE_END)).tolist()
        found = [i for i in alike if self.words[starts[i] : ends[i]].tobytes() == _LINE_END]
        self._line_end = found[0] if found else self.word_count
        self._slots: NDArray[np.uint64] | None = None
        self._sizes = np.zeros(self.word_count, np.int32)
        self._is_summed = sums_words and self.most > 0
        if self._is_summed:
            self._add_subwords(starts, ends)

    def _add_subwords(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """Make the row of each word the sum of its own and those of its subwords."""
        for first in range(0, self.word_count, _WORDS_AT_A_TIME):
            part = slice(first, min(first + _WORDS_AT_A_TIME, self.word_count))
            owners, hashes = subword_hashes(self.words, starts[part], ends[part], self.least, self.most)
            owners += first
            buckets = (hashes % np.uint32(self.buckets)).astype(np.int64)
            if self.kept is not None:
                buckets = self.kept[buckets].astype(np.int64)
            chosen = (buckets >= 0) & (owners != self._line_end)
            owners, rows = owners[chosen], self.word_count + buckets[chosen]
            counts = np.bincount(owners - first, minlength=part.stop - first)
            self._sizes[part] = 1 + counts
            # Position by position of the subwords, so that each sum is made in order.
            places = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
            order = np.argsort(places, kind="stable")
            edges = np.searchsorted(places[order], np.arange(int(counts.max(initial=0)) + 1))
            for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
                chosen = order[begin:end]
                self.vectors[owners[chosen]] += self.vectors[rows[chosen]]

    @functools.cached_property
    def _numbers(self) -> dict[bytes, int]:
        """The number of each word and label, for the plain definition."""
        data, ends = self.words.tobytes(), self.word_ends.tolist()
        entries = [data[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
        return {entry: number for number, entry in reversed(list(enumerate(entries)))}

    def outputs(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
        """The outputs of texts, and how many vectors each text has: some rows at a time.

        Args:
            data: UTF-8 bytes. A newline counts as a space.
            offsets: Where each text begins, and as the last entry where the last one ends.
            ends: Where to stop reading each.
        """
        rows = max(1, _OUTPUTS_PER_CALL // max(self.weights.shape[1], 1))
        for first in range(0, len(ends), rows):
            yield self._outputs(data, offsets[first : first + rows + 1], ends[first : first + rows])

    def _outputs(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        kernel, slots = native.load("fasttext"), self._table()
        if kernel is None or slots is None:
            lines = [self._line(data[begin:end].tobytes()) for begin, end in zip(offsets[:-1], ends, strict=True)]
            return np.stack([output for output, _ in lines]), np.array([count for _, count in lines])
        made = np.empty((len(ends), self.weights.shape[1]), np.float32)
        counts = np.empty(len(ends), np.int64)
        longest = int((ends - offsets[:-1]).max())
        columns = self.vectors.shape[1]
        kernel(
            *(data, np.ascontiguousarray(offsets), np.ascontiguousarray(ends), len(ends), len(data), longest),
            *(slots, len(slots) // 2, self.words, self.word_ends, len(self.word_ends), self.word_count),
            *(self._hashes, self._sizes, int(self._is_summed), self._line_end),
            *(self.least, self.most, self.word_ngrams, self.buckets),
            *(np.zeros(0, np.int32) if self.kept is None else self.kept, int(self.kept is not None)),
            *(self.vectors.reshape(-1), *self.vectors.shape, self.weights.reshape(-1), self.scales, len(self.scales)),
            *(np.empty(longest_near_end(offsets, len(data)) + 2 * PADDING, np.uint8),),
            *(np.empty(longest + 2 + PADDING, np.uint8), np.empty(longest // 2 + 2, np.uint32)),
            *(np.empty(256, np.uint64), np.empty(1024 + self.most, np.int64)),
            *(np.empty(2049 * columns, np.float32), np.zeros(4 * 2048, np.uint64)),
            *(np.empty(columns, np.float32), made.reshape(-1), counts),
        )
        return made, counts

    def _table(self) -> NDArray[np.uint64] | None:
        """The hash table of the words and labels, for the kernel; ``None`` until it can be made."""
        if self._slots is None and (kernel := native.load("fasttext_words")) is not None:
            slots = np.zeros(2 << (3 * len(self.word_ends) // 2 + 8).bit_length(), np.uint64)
            kernel(self.words, self.word_ends, len(self.word_ends), slots, len(slots) // 2)
            self._slots = slots
        return self._slots

    def _line(self, text: bytes) -> tuple[NDArray[np.float32], int]:
        """The plain definition: the outputs of one text, and how many vectors it has."""
        groups: list[list[int]] = []  # rows that are summed before they are added to the others
        hashes: list[int] = []
        count = 0
        for token in (*_tokens(text), _LINE_END):
            number = self._numbers.get(token, -1)
            if number >= self.word_count or (number < 0 and token.startswith(_LABEL)):
                continue
            hashes.append(word_hash(token))
            if number >= 0:
                groups.append([number])
                count += max(0, int(self._sizes[number]) - 1)
            if token != _LINE_END and (number < 0 or not self._sizes[number]):
                subwords = self._subwords(b"<" + token + b">")
                groups += [subwords] if self._is_summed else [[row] for row in subwords]
        for first in range(len(hashes)):
            joined = _signed(hashes[first])
            for value in hashes[first + 1 : first + self.word_ngrams]:
                joined = (joined * 116049371 + _signed(value)) % 2**64
                groups.append(self._bucket(joined % self.buckets))
        count += sum(map(len, groups))
        if not count:
            return np.zeros(len(self.scales), np.float32), 0
        hidden = np.zeros(self.vectors.shape[1], np.float32)
        for group in groups:
            total = np.zeros_like(hidden)
            for row in group:
                total += self.vectors[row]
            hidden += total
        hidden *= np.float32(1 / count)
        made = np.zeros(len(self.scales), np.float32)
        for share, weights in zip(hidden, self.weights, strict=True):
            made += weights * share
        return made * self.scales, count

    def _subwords(self, word: bytes) -> list[int]:
        edges = [i for i, byte in enumerate(word) if byte & 0xC0 != 0x80] + [len(word)]
        last, rows = len(edges) - 1, []
        for first in range(last):
            for end in range(first + 1, min(last, first + self.most) + 1):
                if end - first >= self.least and not (end - first == 1 and (first == 0 or end == last)):
                    rows += self._bucket(word_hash(word[edges[first] : edges[end]]) % self.buckets)
        return rows

    def _bucket(self, bucket: int) -> list[int]:
        kept = bucket if self.kept is None else int(self.kept[bucket])
        return [self.word_count + kept] if kept >= 0 else []


def _tokens(text: bytes) -> Iterator[bytes]:
    for token in text.translate(bytes.maketrans(_SPACES, b" " * len(_SPACES))).split(b" "):
        if token == _LINE_END:
            return
        if token:
            yield token


def _signed(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


def piece_hashes(data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.uint32]:
    """The hash of each piece of some bytes: see :func:`word_hash`."""
    hashes = np.full(len(begins), 2166136261, np.uint32)
    order = np.argsort(begins - ends, kind="stable")  # the longest first
    shortness = (begins - ends)[order]
    for place in range(int(-shortness.min(initial=0))):
        longer = order[: np.searchsorted(shortness, -place, side="left")]
        hashes[longer] = _next_hash(hashes[longer], data[begins[longer] + place])
    return hashes


def subword_hashes(
    words: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], least: int, most: int
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """The n-grams of characters of words in ``<`` and ``>``: the number of the word, and the hash.

    Args:
        words: The bytes of all words.
        starts: Where each begins.
        ends: Where each ends.
        least: The fewest characters of an n-gram.
        most: The most.

    >>> owners, hashes = subword_hashes(np.frombuffer(b"abc", np.uint8), np.array([0, 1]), np.array([1, 3]), 3, 3)
    >>> owners.tolist(), hashes.tolist() == [word_hash(b"<a>"), word_hash(b"<bc"), word_hash(b"bc>")]
    ([0, 1, 1], True)
    """
    sizes = ends - starts + 2
    lasts = np.cumsum(sizes)
    data = np.full(int(lasts[-1]) if len(lasts) else 0, ord("<"), np.uint8)
    data[lasts - 1] = ord(">")
    inside = np.ones(len(data), np.bool_)
    inside[lasts - 1] = inside[lasts - sizes] = False
    lengths = ends - starts
    data[inside] = words[np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))]
    begins = np.flatnonzero(data & 0xC0 != 0x80)
    owners = np.searchsorted(lasts, begins, side="right")
    first_of = np.searchsorted(begins, lasts - sizes)[owners] == np.arange(len(begins))
    edges = np.append(begins, len(data))
    hashes = np.full(len(begins), 2166136261, np.uint32)
    found = np.zeros((len(begins), max(most - least + 1, 0)), np.uint32)
    is_ngram = np.zeros(found.shape, np.bool_)
    alive = np.arange(len(begins))
    for characters in range(1, most + 1):
        alive = alive[alive + characters <= len(begins)]
        alive = alive[owners[alive + characters - 1] == owners[alive]]
        ends_at = edges[alive + characters]
        for place in range(4 if len(data) else 0):
            at = edges[alive + characters - 1] + place
            some = at < ends_at
            hashes[alive[some]] = _next_hash(hashes[alive[some]], data[at[some]])
        if characters >= max(least, 1):
            is_end = ends_at == lasts[owners[alive]]
            given = alive[~(first_of[alive] | is_end)] if characters == 1 else alive
            found[given, characters - least] = hashes[given]
            is_ngram[given, characters - least] = True
    places = np.nonzero(is_ngram)
    return owners[places[0]], found[places]


def _next_hash(hashes: NDArray[np.uint32], data: NDArray[np.uint8]) -> NDArray[np.uint32]:
    made: NDArray[np.uint32] = (hashes ^ data.view(np.int8).astype(np.int32).view(np.uint32)) * np.uint32(16777619)
    return made
