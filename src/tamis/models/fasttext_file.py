"""Reads fastText model files: ``.bin``, and ``.ftz``, which is quantised."""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.errors import DataError
from tamis.kernels.fasttext import FastTextNetwork

__all__ = ["HIERARCHICAL", "NEGATIVE", "ONE_VS_ALL", "SOFTMAX", "FastTextFile", "read_fasttext"]

HIERARCHICAL: Final = 1
NEGATIVE: Final = 2
SOFTMAX: Final = 3
ONE_VS_ALL: Final = 4

_MAGIC: Final = 793712314
_VERSIONS: Final = (11, 12)
_SUPERVISED: Final = 3
_CENTROIDS: Final = 256
_SIZES: Final = {
    "dim": (1, 1 << 16),
    "bucket": (0, 1 << 27),
    "minn": (0, 255),
    "maxn": (0, 255),
    "wordNgrams": (0, 255),
}
_CACHE_LINE: Final = 64
_LARGEST_WORD: Final = 1 << 20


@dataclass(frozen=True)
class FastTextFile:
    """What a supervised fastText model file holds.

    Args:
        network: The model.
        labels: Its labels, in the order of its outputs.
        label_counts: How often each was seen in training.
        loss: How its outputs become probabilities.
    """

    network: FastTextNetwork
    labels: list[str]
    label_counts: NDArray[np.int64]
    loss: int


def read_fasttext(path: str) -> FastTextFile:
    """Read a model file. A quantised matrix is stored as floats of 32 bits in memory.

    Args:
        path: A ``.bin`` or ``.ftz`` file of a supervised model.
    """
    if os.path.getsize(path) == 0:
        raise DataError("it is no fastText model", path=path, hint="the file is empty; copy or download it again")
    with Path(path).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Reader(path, data).model()


class _Reader:
    def __init__(self, path: str, data: mmap.mmap) -> None:
        self._path, self._data, self._at = path, data, 0

    def model(self) -> FastTextFile:
        if len(self._data) < 8 or self._numbers("ii") != (_MAGIC, self._version()):
            raise DataError(
                "it is no fastText model",
                path=self._path,
                hint="a fastText .bin or .ftz file begins with its mark and version 11 or 12",
            )
        dim, _, _, _, _, word_ngrams, loss, kind, buckets, least, most, _, _ = self._numbers("12id")
        if self._version() == 11 and kind == _SUPERVISED:
            most = 0  # models of that time had no subwords
        if kind != _SUPERVISED:
            raise self._wrong("it holds word vectors, not a classifier", "train it with fasttext.train_supervised")
        if loss not in (HIERARCHICAL, NEGATIVE, SOFTMAX, ONE_VS_ALL):
            raise self._wrong(f"it has the unknown loss {loss}")
        sizes = {"dim": dim, "bucket": buckets, "minn": least, "maxn": most, "wordNgrams": word_ngrams}
        for name, size in sizes.items():
            if not _SIZES[name][0] <= size <= _SIZES[name][1]:
                raise self._wrong(f"its {name} is {size}, not {_SIZES[name][0]} to {_SIZES[name][1]:,}")
        words, word_ends, counts, word_count, pruned = self._dictionary()
        needs_buckets = most > 0 or word_ngrams > 1
        if needs_buckets and buckets == 0:
            raise self._wrong("it has n-grams and no buckets for them")
        is_quantised = self._flag()
        if pruned is not None and not is_quantised:
            raise self._wrong("its dictionary is pruned, but its matrix is not quantised")
        vectors, norms = self._quantised() if is_quantised else (self._dense(), None)
        if norms is not None:
            vectors *= norms[:, None]
        kept = self._kept(pruned, buckets, len(vectors) - word_count) if needs_buckets else None
        if len(vectors) < word_count + (buckets if needs_buckets and kept is None else 0):
            raise self._wrong(f"its input matrix has {len(vectors)} rows, fewer than words and n-grams need")
        weights, scales = self._quantised() if self._flag() and is_quantised else (self._dense(), None)
        labels = len(word_ends) - word_count
        if len(weights) != labels:
            raise self._wrong(f"its output matrix has {len(weights)} rows for {labels} labels")
        if vectors.shape[1] != dim or weights.shape[1] != dim:
            raise self._wrong(f"its matrices have {vectors.shape[1]} and {weights.shape[1]} columns, not {dim}")
        if self._at != len(self._data):
            raise self._wrong(f"{len(self._data) - self._at} bytes follow its end")
        network = FastTextNetwork(
            *(words, word_ends, word_count, least, most, word_ngrams, buckets if needs_buckets else 0, kept),
            vectors=_padded(vectors),
            weights=_padded(weights).T.copy(),
            scales=np.ones(labels, np.float32) if scales is None else scales,
            # Sigmoids are taken from a table, where the last bit of a sum can make a step.
            sums_words=loss in (HIERARCHICAL, SOFTMAX),
        )
        starts = np.concatenate(([0], word_ends[:-1])).tolist()
        data = words.tobytes()
        names = [data[starts[i] : word_ends[i]].decode("utf-8", "replace") for i in range(word_count, len(word_ends))]
        return FastTextFile(network, names, counts[word_count:], loss)

    def _version(self) -> int:
        version = int(struct.unpack_from("<i", self._data, 4)[0])
        return version if version in _VERSIONS else -1

    def _dictionary(
        self,
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], int, NDArray[np.int32] | None]:
        size, word_count, label_count, _, pruned_count = self._numbers("3i2q")
        if min(size, word_count, label_count) < 0 or size != word_count + label_count or pruned_count < -1:
            raise self._wrong("the sizes of its dictionary do not fit together")
        if label_count == 0:
            raise self._wrong("it has no labels")
        parts, counts = [], np.zeros(size, np.int64)
        data, at = self._data, self._at
        for number in range(size):
            end = data.find(b"\0", at, at + _LARGEST_WORD)
            if end < 0 or end + 10 > len(data):
                raise self._cut(f"in word {number} of {size} of its dictionary")
            parts.append(data[at:end])
            count, is_label = struct.unpack_from("<qb", data, end + 1)
            counts[number] = count
            if is_label != (number >= word_count):
                raise self._wrong(f"its dictionary is damaged at byte {end + 9}: words do not come before labels")
            at = end + 10
        self._at = at
        pruned = None
        if pruned_count >= 0:
            pruned = np.frombuffer(self._take(8 * pruned_count), "<i4").reshape(-1, 2)
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        return np.frombuffer(b"".join(parts) + bytes(8), np.uint8), ends, counts, word_count, pruned

    def _kept(self, pruned: NDArray[np.int32] | None, buckets: int, rows: int) -> NDArray[np.int32] | None:
        if pruned is None:
            return None
        if ((pruned < 0) | (pruned >= (buckets, rows))).any():
            raise self._wrong("its table of n-grams points outside of its matrix")
        kept = np.full(buckets, -1, np.int32)
        kept[pruned[:, 0]] = pruned[:, 1]
        return kept

    def _dense(self) -> NDArray[np.float32]:
        rows, columns = self._numbers("2q")
        if min(rows, columns) < 0:
            raise self._wrong("the size of a matrix is negative")
        values = np.frombuffer(self._take(4 * rows * columns), "<f4")
        return values.reshape(rows, columns)

    def _quantised(self) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """A matrix of product quantisation (Jégou et al., 2011), and the norm of each row if they are separate."""
        has_norms = self._flag()
        rows, columns, code_bytes = self._numbers("2qi")
        if min(rows, columns, code_bytes) < 0:
            raise self._wrong("the size of a matrix is negative")
        codes = np.frombuffer(self._take(code_bytes), np.uint8)
        parts = self._centroids(columns)
        if code_bytes != rows * len(parts):
            raise self._wrong(f"a matrix has {code_bytes} codes, not {rows} x {len(parts)}")
        codes = codes.reshape(rows, len(parts))
        matrix = np.empty((rows, columns), np.float32)
        first = 0
        for number, part in enumerate(parts):
            matrix[:, first : first + part.shape[1]] = part[codes[:, number]]
            first += part.shape[1]
        if not has_norms:
            return matrix, None
        of_rows = np.frombuffer(self._take(rows), np.uint8)
        (norms,) = self._centroids(1)
        return matrix, norms[:, 0][of_rows]

    def _centroids(self, columns: int) -> list[NDArray[np.float32]]:
        """For each part of the columns, its centroids."""
        dim, part_count, width, last_width = self._numbers("4i")
        if dim != columns or part_count < 1 or width < 1 or (part_count - 1) * width + last_width != dim:
            raise self._wrong("the sizes of a quantised matrix do not fit together")
        values = np.frombuffer(self._take(4 * dim * _CENTROIDS), "<f4").astype(np.float32)
        whole = _CENTROIDS * width * (part_count - 1)
        parts = list(values[:whole].reshape(part_count - 1, _CENTROIDS, width))
        return [*parts, values[whole:].reshape(_CENTROIDS, last_width)]

    def _flag(self) -> bool:
        (value,) = self._numbers("B")
        if value > 1:
            raise self._wrong(f"it is damaged at byte {self._at - 1}")
        return bool(value)

    def _numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(f"<{form}", self._take(struct.calcsize(f"<{form}")))

    def _take(self, size: int) -> bytes:
        begin, self._at = self._at, self._at + size
        if self._at > len(self._data):
            raise self._cut(f"{self._at:,} bytes are needed")
        return self._data[begin : self._at]

    def _cut(self, where: str) -> DataError:
        return self._wrong(f"it ends after {len(self._data):,} bytes, {where}", "copy or download it again")

    def _wrong(self, what: str, hint: str = "") -> DataError:
        return DataError(f"the fastText model cannot be used: {what}", path=self._path, hint=hint)


def _padded(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """A copy with columns of zeros, so that their number is a multiple of 8, in as few cache lines as possible."""
    rows, columns = matrix.shape
    width = -(-columns // 8) * 8
    memory = np.zeros(rows * width + _CACHE_LINE // 4, np.float32)
    first = -memory.ctypes.data % _CACHE_LINE // 4
    padded = memory[first : first + rows * width].reshape(rows, width)
    padded[:, :columns] = matrix
    return padded
