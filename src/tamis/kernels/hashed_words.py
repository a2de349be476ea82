"""Vectors of texts made by hashing their words: no model, no weights, nothing to download.

The cosine of two vectors says how many words two texts share: copies, edited copies and texts on the same subject are
close to each other, but synonyms and translations are not. :mod:`tamis.kernels.hashed_words_definition` says what is
counted, and with which weight. The vectors are the same bits on every machine, for any chunks of a column.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.kernels import hashed_words_definition as plain
from tamis.kernels import native
from tamis.kernels.buffers import TextBuffers

__all__ = ["MOST_ENTRIES", "HashedWords", "fit_rarity"]

MOST_ENTRIES: Final = 65536
"""The largest length of a vector."""

_NO_FLOATS: Final = np.zeros(1, np.float32)
_NO_COUNTS: Final = np.zeros(1, np.uint32)


@dataclass(frozen=True)
class HashedWords:
    """How vectors are made. Only vectors made with equal parameters can be compared.

    Args:
        dim: The length of a vector.
        seed: Of the entries that words are added to, and their signs.
        rarity: The weight of each bucket, from :func:`fit_rarity`; all the same when not given.

    >>> one, near, far = HashedWords().vectors(pa.array(["A small red boat.", "a SMALL boat", "Nothing alike"]))
    >>> bool(one @ near > 0.7), bool(abs(one @ far) < 0.2)
    (True, True)
    """

    dim: int = 512
    seed: int = 42
    rarity: NDArray[np.uint8] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.dim <= MOST_ENTRIES:
            raise ValueError(f"dim = {self.dim} is not between 1 and {MOST_ENTRIES}")
        if self.rarity is not None and (self.rarity.dtype != np.uint8 or self.rarity.shape != (plain.TOTAL_BUCKETS,)):
            raise ValueError(f"rarity must have {plain.TOTAL_BUCKETS} numbers of type uint8, as fit_rarity gives them")

    def vectors(self, texts: pa.Array | pa.ChunkedArray) -> NDArray[np.float32]:
        """The vector of each text, of length 1: a C-contiguous matrix. A text without words, and a null, has zeros.

        Args:
            texts: Of any Arrow type for texts.

        >>> HashedWords(dim=64).vectors(pa.array(["some text", "", None])).any(axis=1).tolist()
        [True, False, False]
        """
        made = np.empty((len(texts), self.dim), np.float32)
        done = 0
        for chunk in _chunks(texts):
            part = made[done : done + len(chunk)]
            kernel = native.load("hashed_words")
            if kernel is None:
                for row in range(len(chunk)):
                    part[row] = plain.vector_of(chunk.text(row), self.dim, self._table)
            else:
                sums = np.zeros(self.dim, np.int64)
                kernel(*_prepared(chunk), self._table, self.dim, sums, part.reshape(-1), _NO_COUNTS, 0)
            done += len(chunk)
        return made

    @functools.cached_property
    def _table(self) -> NDArray[np.uint32]:
        return plain.bucket_table(self.dim, self.seed, self.rarity)


def fit_rarity(columns: Iterable[pa.Array | pa.ChunkedArray]) -> NDArray[np.uint8]:
    """How rare words are in a sample of texts: what :class:`HashedWords` takes as ``rarity``.

    Args:
        columns: The texts, in as many parts as wanted. Nulls count as empty texts.

    >>> rarity = fit_rarity([pa.array(["the cat", "the dog", "the end"])])
    >>> plain, weighted = HashedWords(), HashedWords(rarity=rarity)
    >>> texts = pa.array(["the cat", "the dog"])
    >>> [bool(one @ other > 0.2) for one, other in (plain.vectors(texts), weighted.vectors(texts))]
    [True, False]
    """
    frequencies, count = np.zeros(plain.TOTAL_BUCKETS, np.uint32), 0
    for column in columns:
        for chunk in _chunks(column):
            kernel = native.load("hashed_words")
            if kernel is None:
                for row in range(len(chunk)):
                    frequencies[list(plain.buckets_of(chunk.text(row)))] += np.uint32(1)
            else:
                table = np.zeros(plain.TOTAL_BUCKETS, np.uint32)
                kernel(*_prepared(chunk), table, 1, np.zeros(1, np.int64), _NO_FLOATS, frequencies, 1)
            count += len(chunk)
    return plain.rarity_of(frequencies, count)


def _chunks(texts: pa.Array | pa.ChunkedArray) -> Iterator[TextBuffers]:
    for chunk in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
        yield TextBuffers.of(pc.fill_null(chunk.cast(pa.large_string()), "") if chunk.null_count else chunk)


def _prepared(texts: TextBuffers) -> tuple[NDArray[np.generic] | int, ...]:
    """The arguments of the kernel that are the same for all its work."""
    blocks, folds = plain.fold_tables()
    longest = int(np.diff(texts.offsets).max(initial=0))
    return (
        *(texts.data, texts.offsets, len(texts), len(texts.data), texts.tail()),
        *(blocks, folds, np.empty(2 * longest + 256, np.uint8)),
        *(np.zeros(plain.TOTAL_BUCKETS, np.uint32), np.empty(plain.TOTAL_BUCKETS + 1, np.int64)),
        *(plain.ROOTS, plain.SIZES),
    )
