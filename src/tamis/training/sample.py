"""A sample of texts that follows from the seed and the texts alone, of limited size.

Each text has a random number that follows from its content, and the texts with the smallest numbers are kept. So the
sample does not depend on the order of the input, and equal texts are one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array
from tamis.kernels.hashing import hash_text_64
from tamis.stages.mixing.row_keys import scrambled

__all__ = ["OF_EACH_LABEL", "TextSample", "content_keys"]

OF_EACH_LABEL: Final = 1000
"""Of each label so many texts are kept, if there are as many, even where a sample of all texts has fewer."""

_STEP: Final = 0x9E3779B97F4A7C15
_SPARE: Final = 1.5
"""How much larger than its limits the sample may become before it is cut."""


def content_keys(texts: pa.Array, seed: int) -> NDArray[np.uint64]:
    """A number for each text that follows from the text and the seed.

    >>> bool(content_keys(pa.array(["a"]), 0)[0] == content_keys(pa.array(["a"]), 1)[0])
    False
    """
    return scrambled(hash_text_64(texts) + np.uint64(seed * _STEP % 2**64))


class TextSample:
    """Collects texts with labels, and keeps a random part of them that is within limits.

    Args:
        max_rows: How many texts to keep.
        max_bytes: How many bytes of text to keep.
        seed: Another seed chooses other texts.
        of_each_label: How many texts of each label to keep in any case, as far as there are.

    >>> sample = TextSample(max_rows=2, max_bytes=100, seed=0, of_each_label=0)
    >>> sample.add(pa.array(["a", "b", "a", "c"]), np.array([0, 0, 0, 0]))
    >>> len(sample.finish()[0]), sample.seen.tolist()
    (2, [4])
    """

    def __init__(self, max_rows: int, max_bytes: int, seed: int, of_each_label: int = OF_EACH_LABEL) -> None:
        self._max_rows, self._max_bytes, self._seed, self._floor = max_rows, max_bytes, seed, of_each_label
        self._texts: list[pa.Array] = []
        self._keys: list[NDArray[np.uint64]] = []
        self._labels: list[NDArray[np.int32]] = []
        self._rows = self._nbytes = 0
        self.seen: NDArray[np.int64] = np.zeros(0, np.int64)
        """How many texts of each label were added."""
        self.is_whole = True
        """Whether every text that was added is kept, once."""

    def add(self, texts: pa.Array, labels: NDArray[np.int32]) -> None:
        """Add texts of type ``string`` or ``large_string``, with the numbers of their labels."""
        if not len(texts):
            return
        texts = texts.cast(pa.large_string())
        counts = np.bincount(labels, minlength=len(self.seen))
        counts[: len(self.seen)] += self.seen
        self.seen = counts.astype(np.int64)
        self._texts.append(texts)
        self._keys.append(content_keys(texts, self._seed))
        self._labels.append(labels.astype(np.int32))
        self._rows += len(texts)
        self._nbytes += texts.nbytes
        if self._rows > _SPARE * max(self._max_rows, 1000) or self._nbytes > _SPARE * self._max_bytes:
            self._cut()

    def finish(self) -> tuple[pa.Array, NDArray[np.int32], NDArray[np.uint64]]:
        """The sample: texts, numbers of labels and keys, ordered by the keys."""
        self._cut()
        if not self._texts:
            return pa.array([], pa.large_string()), np.zeros(0, np.int32), np.zeros(0, np.uint64)
        return self._texts[0], self._labels[0], self._keys[0]

    def _cut(self) -> None:
        if not self._texts:
            return
        texts = pa.concat_arrays(self._texts)
        keys, labels = np.concatenate(self._keys), np.concatenate(self._labels)
        order = np.lexsort((labels, keys))
        keys, labels = keys[order], labels[order]
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = (keys[1:] != keys[:-1]) | (labels[1:] != labels[:-1])
        order, keys, labels = order[is_new], keys[is_new], labels[is_new]
        lengths = np.diff(np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1])
        before = np.cumsum(lengths[order]) - lengths[order]
        kept = (np.arange(len(order)) < self._max_rows) & (before < self._max_bytes)
        known = int(labels.max()) + 1
        floor = min(self._floor, -(-self._max_rows // known))
        for label in range(known):
            kept[np.flatnonzero(labels == label)[:floor]] = True
        self.is_whole &= bool(kept.all())
        self._texts = [texts.take(arrow_array(order[kept]))]
        self._keys, self._labels = [keys[kept]], [labels[kept]]
        self._rows, self._nbytes = int(kept.sum()), self._texts[0].nbytes
