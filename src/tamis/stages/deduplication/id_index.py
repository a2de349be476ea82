"""A sorted file of ids, to look up many of them without holding them in memory.

Ids are numbers, or texts and bytes, of which the 128-bit hash counts. The index is a file of sorted keys that is mapped
into memory: a lookup reads the pages it needs. It is made by sorting ranges of keys, each of which fits into the memory
budget.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import numpy_array
from tamis.errors import DataError
from tamis.kernels.hashing import hash_text_128
from tamis.tasks.storage import temporary_beside

__all__ = ["IdIndex", "IdKind", "id_keys", "id_kind"]

IdKind = Literal["numbers", "texts"]

_SIGN: Final = np.uint64(2**63)
_SAMPLE: Final = 2**16
_WORKING: Final = 4
"""How many bytes sorting takes for each byte of keys."""


def id_kind(column_type: pa.DataType) -> IdKind | None:
    """How ids of a type are compared; ``None`` if they cannot be.

    >>> id_kind(pa.int32()), id_kind(pa.string()), id_kind(pa.float64())
    ('numbers', 'texts', None)
    """
    kind = column_type.value_type if pa.types.is_dictionary(column_type) else column_type
    types = pa.types
    texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary)
    if types.is_integer(kind):
        return "numbers"
    return "texts" if any(is_it(kind) for is_it in (*texts, types.is_fixed_size_binary)) else None


def id_keys(column: pa.ChunkedArray) -> NDArray[np.uint64]:
    """The key of each id, in one column for numbers and in two for texts. There must be no nulls."""
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    column = column.cast(kind)
    if id_kind(kind) == "numbers":
        try:
            numbers = numpy_array(column.cast(pa.int64()))
        except pa.ArrowInvalid as e:
            raise DataError(f"ids must be less than 2**63: {e}") from e
        return (numbers.view(np.uint64) ^ _SIGN).reshape(-1, 1)
    if pa.types.is_fixed_size_binary(kind):
        column = column.cast(pa.large_binary())
    return hash_text_128(column)


@dataclass(frozen=True)
class IdIndex:
    """Sorted keys in a file.

    Args:
        path: The file.
        kind: Whether the ids are numbers or texts.
    """

    path: str
    kind: IdKind

    @classmethod
    def build(cls, path: str, kind: IdKind, ids: Sequence[Iterable[pa.ChunkedArray]], budget: int) -> IdIndex:
        """Write the file.

        Args:
            path: The file. It appears when it is complete.
            kind: Whether the ids are numbers or texts.
            ids: Readers of the ids, in pieces; they are gone through twice.
            budget: How many bytes of memory the sorting may take.
        """
        width = 1 if kind == "numbers" else 2
        most = max(_SAMPLE // 16, budget // (_WORKING * 8 * width))
        with temporary_beside(path) as temporary, tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
            ranges = _Ranges(folder, _bounds(ids, most))
            for keys in _all_keys(ids):
                ranges.add(keys)
            with Path(temporary).open("wb") as sink:
                for keys in ranges.read(width, most):
                    sink.write(_sorted(keys).tobytes())
            os.replace(temporary, path)
        return cls(path, kind)

    @functools.cached_property
    def _keys(self) -> NDArray[np.uint64]:
        width = 1 if self.kind == "numbers" else 2
        if not os.path.getsize(self.path):
            return np.zeros((0, width), np.uint64)
        return np.memmap(self.path, np.uint64, mode="r").reshape(-1, width)

    def opened(self) -> IdIndex:
        """The same index, with the file mapped: it can be used after another worker removed the file."""
        len(self)
        return self

    def __len__(self) -> int:
        return len(self._keys)

    def contains(self, ids: pa.ChunkedArray) -> NDArray[np.bool_]:
        """Whether each of some ids is in the index; a null is not."""
        found = np.zeros(len(ids), np.bool_)
        known = self._keys
        present = np.flatnonzero(numpy_array(pc.is_valid(ids)))
        if not len(known) or not len(present):
            return found
        keys = id_keys(ids.drop_null() if ids.null_count else ids)
        order = np.argsort(keys[:, 0], kind="stable")  # neighbouring keys are on the same pages of the file
        at = np.searchsorted(known[:, 0], keys[order, 0])
        matched = np.zeros(len(keys), np.bool_)
        open_rows = np.flatnonzero(at < len(known))
        while len(open_rows):  # more than once where the first halves of two hashes are equal
            places, wanted = at[open_rows], keys[order[open_rows]]
            here = known[places]
            matched[order[open_rows]] |= (here == wanted).all(axis=1)
            again = (here[:, 0] == wanted[:, 0]) & (here != wanted).any(axis=1) & (places + 1 < len(known))
            open_rows = open_rows[again]
            at[open_rows] += 1
        found[present] = matched
        return found


class _Ranges:
    """Keys in files by range, so that each file fits into memory."""

    def __init__(self, folder: str, bounds: NDArray[np.uint64]) -> None:
        self._folder, self._bounds = folder, bounds

    def add(self, keys: NDArray[np.uint64]) -> None:
        number = np.searchsorted(self._bounds, keys[:, 0], side="right")
        order = np.argsort(number, kind="stable")
        edges = np.searchsorted(number[order], np.arange(len(self._bounds) + 2))
        for i in np.unique(number).tolist():
            with Path(self._folder, str(i)).open("ab") as sink:
                sink.write(np.ascontiguousarray(keys[order[edges[i] : edges[i + 1]]]).tobytes())

    def read(self, width: int, most: int) -> Iterator[NDArray[np.uint64]]:
        """The keys of each range; a range in which few keys occur very often is made shorter while it is read."""
        for i in range(len(self._bounds) + 1):
            with contextlib.suppress(FileNotFoundError), Path(self._folder, str(i)).open("rb") as source:
                held = np.zeros((0, width), np.uint64)
                while piece := source.read(most * width * 8):
                    held = _sorted(np.concatenate([held, np.frombuffer(piece, np.uint64).reshape(-1, width)]))
                yield held


def _sorted(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The keys in order, each once."""
    keys = keys[np.lexsort(keys.T[::-1])]
    is_new = np.ones(len(keys), np.bool_)
    is_new[1:] = (keys[1:] != keys[:-1]).any(axis=1)
    unique: NDArray[np.uint64] = keys[is_new]
    return unique


def _all_keys(ids: Sequence[Iterable[pa.ChunkedArray]]) -> Iterator[NDArray[np.uint64]]:
    for source in ids:
        for piece in source:
            present = piece.drop_null() if piece.null_count else piece
            if len(present):
                yield id_keys(present)


def _bounds(ids: Sequence[Iterable[pa.ChunkedArray]], most: int) -> NDArray[np.uint64]:
    """Keys that divide all keys into ranges of at most about ``most``, from a sample."""
    total, step = 0, 1
    sample: list[Any] = []
    for keys in _all_keys(ids):
        first = -total % step
        total += len(keys)
        sample.append(keys[first::step, 0].copy())
        if sum(map(len, sample)) > 2 * _SAMPLE:
            sample, step = [np.concatenate(sample)[::2]], 2 * step
    if total <= most:
        return np.zeros(0, np.uint64)
    drawn = np.sort(np.concatenate(sample))
    ranges = -(-2 * total // most)  # twice as many as needed: a sample is not exact
    return np.unique(drawn[np.arange(1, ranges) * len(drawn) // ranges])
