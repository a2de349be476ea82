"""What a fastText model computes of texts: the native kernel, and its definition in plain Python.

:mod:`tamis.models.fasttext` reads model files and makes probabilities of the outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native

__all__ = ["FastTextNetwork", "word_hash"]

_OUTPUTS_PER_CALL = 1 << 20
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
        words: The bytes of all words and then all labels, one after the other.
        word_ends: Where each of them ends.
        word_count: How many are words; the others are labels.
        least: The fewest characters of a subword.
        most: The most characters of a subword; 0 for none.
        word_ngrams: The most words of an n-gram of words.
        buckets: How many numbers n-grams share.
        kept: The row of each of these, after those of the words, or -1; ``None`` if none is dropped.
        vectors: The input matrix: a row for each word, then one for each bucket.
        weights: The output matrix, transposed.
        scales: What the product with each of its rows is multiplied by.
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

    def __post_init__(self) -> None:
        starts = np.concatenate(([0], self.word_ends[:-1])).astype(np.int64)
        hashes = _word_hashes(self.words, starts, self.word_ends)
        self._slots = _hash_table(hashes)
        alike = np.flatnonzero(hashes[: self.word_count] == word_hash(_LINE_END)).tolist()
        found = [i for i in alike if self.words[starts[i] : self.word_ends[i]].tobytes() == _LINE_END]
        self._line_end = found[0] if found else self.word_count

    @functools.cached_property
    def _numbers(self) -> dict[bytes, int]:
        """The number of each word and label, for the plain definition."""
        data, ends = self.words.tobytes(), self.word_ends.tolist()
        entries = [data[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
        return {entry: number for number, entry in reversed(list(enumerate(entries)))}

    def outputs(
        self, data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64]]]:
        """The outputs of texts, and how many vectors each text has: some rows at a time.

        Args:
            data: UTF-8 bytes. A newline counts as a space.
            begins: Where each text begins.
            ends: Where each ends.
        """
        rows = max(1, _OUTPUTS_PER_CALL // max(self.weights.shape[1], 1))
        for first in range(0, len(begins), rows):
            yield self._outputs(data, begins[first : first + rows], ends[first : first + rows])

    def _outputs(
        self, data: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        kernel = native.load("fasttext")
        if kernel is None:
            lines = [self._line(data[begin:end].tobytes()) for begin, end in zip(begins, ends, strict=True)]
            return np.stack([output for output, _ in lines]), np.array([count for _, count in lines])
        made = np.empty((len(begins), self.weights.shape[1]), np.float32)
        counts = np.empty(len(begins), np.int64)
        longest = int((ends - begins).max())
        kernel(
            *(data, np.ascontiguousarray(begins), np.ascontiguousarray(ends), len(begins), longest),
            *(self._slots, len(self._slots), self.words, self.word_ends, len(self.word_ends), self.word_count),
            *(self._line_end, word_hash(_LINE_END), self.least, self.most, self.word_ngrams, self.buckets),
            *(np.zeros(0, np.int32) if self.kept is None else self.kept, int(self.kept is not None)),
            *(self.vectors.reshape(-1), *self.vectors.shape, self.weights.reshape(-1), self.scales, len(self.scales)),
            *(np.empty(longest + 2, np.uint8), np.empty(longest // 2 + 2, np.uint32), np.zeros(33, np.int64)),
            *(np.empty(self.vectors.shape[1], np.float32), made.reshape(-1), counts),
        )
        return made, counts

    def _line(self, text: bytes) -> tuple[NDArray[np.float32], int]:
        """The plain definition: the outputs of one text, and how many vectors it has."""
        rows, hashes = [], []
        for token in (*_tokens(text), _LINE_END):
            number = self._numbers.get(token, -1)
            if number >= self.word_count or (number < 0 and token.startswith(_LABEL)):
                continue
            hashes.append(word_hash(token))
            if number >= 0:
                rows.append(number)
            if token != _LINE_END:
                rows += self._subwords(b"<" + token + b">")
        for first in range(len(hashes)):
            joined = _signed(hashes[first])
            for value in hashes[first + 1 : first + self.word_ngrams]:
                joined = (joined * 116049371 + _signed(value)) % 2**64
                rows += self._bucket(joined % self.buckets)
        if not rows:
            return np.zeros(len(self.scales), np.float32), 0
        hidden = np.zeros(self.vectors.shape[1], np.float32)
        for row in rows:
            hidden += self.vectors[row]
        hidden *= np.float32(1 / len(rows))
        made = np.zeros(len(self.scales), np.float32)
        for value, weights in zip(hidden, self.weights, strict=True):
            made += weights * value
        return made * self.scales, len(rows)

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


def _word_hashes(
    words: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """The hash of each word: the first byte of all of them, then the second of those that have one, and so on."""
    hashes = np.full(len(starts), 2166136261, np.uint32)
    order = np.argsort(starts - ends, kind="stable")  # the longest first
    lengths = (ends - starts)[order]
    for place in range(int(lengths.max(initial=0))):
        longer = order[: np.searchsorted(-lengths, -place, side="left")]
        byte = words[starts[longer] + place].view(np.int8).astype(np.int32).view(np.uint32)
        hashes[longer] = (hashes[longer] ^ byte) * np.uint32(16777619)
    return hashes


def _hash_table(hashes: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Open addressing: the hash of each entry and its number plus one, in the first free place from its hash on."""
    size = 1 << max(4, (2 * len(hashes)).bit_length())
    table = np.zeros(size, np.uint64)
    waiting = np.arange(len(hashes))
    places = (hashes & np.uint32(size - 1)).astype(np.int64)
    values = hashes.astype(np.uint64) << np.uint64(32) | np.arange(1, len(hashes) + 1, dtype=np.uint64)
    while len(waiting):
        free = table[places[waiting]] == 0
        wanted = waiting[free]
        _, first = np.unique(places[wanted], return_index=True)
        table[places[wanted[first]]] = values[wanted[first]]
        done = np.zeros(len(hashes), np.bool_)
        done[wanted[first]] = True
        waiting = waiting[~done[waiting]]
        places[waiting] = (places[waiting] + (table[places[waiting]] != 0)) & (size - 1)
    return table
