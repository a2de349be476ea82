"""Write a table as JSON lines, fast: straight from Arrow columns, without Python's lock, in memory that stays warm."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import numpy_array
from tamis.kernels import native
from tamis.kernels.buffers import PADDING, TextBuffers

__all__ = ["write_rows"]

_LINES_BYTES = 2**20
"""Lines are made in pieces of this size, which the processor's cache has room for."""


class _Values(NamedTuple):
    """What each row says: texts of one column, or anything else as JSON.

    Args:
        head: What comes before the value.
        data: The bytes in which the values are.
        begins: Where each begins.
        ends: Where each ends.
        valid: Which of them are there, a byte for each; ``None`` if all are.
        are_texts: Whether they are texts.
    """

    head: bytes
    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    valid: NDArray[np.uint8] | None = None
    are_texts: bool = False

    @classmethod
    def of_column(cls, name: str, array: pa.Array) -> _Values:
        """Texts, or what Arrow writes as JSON does."""
        texts = TextBuffers.of(array)
        valid = numpy_array(array.is_valid()).view(np.uint8) if array.null_count else None
        return cls(_head(name), texts.data, texts.offsets[:-1], texts.offsets[1:], valid, array.type.id in _TEXTS)

    @classmethod
    def of_lines(cls, lines: memoryview) -> _Values:
        """Objects of some columns each, without their braces."""
        data = np.frombuffer(lines, np.uint8)
        newlines = np.flatnonzero(data == ord("\n"))
        return cls(b"", data, np.concatenate([[0], newlines[:-1] + 1]) + len("{"), newlines - len("}"))


_TEXTS = frozenset({pa.string().id, pa.large_string().id})
_OTHERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool", "null")
_WRITTEN_HERE = _TEXTS | {pa.type_for_alias(name).id for name in _OTHERS}


@functools.lru_cache(maxsize=256)
def _head(name: str) -> bytes:
    """What comes before the value of a key."""
    return f"{json.dumps(name, ensure_ascii=False)}:".encode()


def _values(batch: pa.RecordBatch, as_json: Callable[[pa.Table], memoryview]) -> Iterator[_Values]:
    """What there is to write, in order. Columns side by side that need another writer are given to it together."""
    others: list[int] = []
    for number, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        if column.type.id not in _WRITTEN_HERE:
            others.append(number)
            continue
        if others:
            yield _Values.of_lines(as_json(pa.Table.from_batches([batch.select(others)])))
            others = []
        yield _Values.of_column(name, column)
    if others:
        yield _Values.of_lines(as_json(pa.Table.from_batches([batch.select(others)])))


def write_rows(table: pa.Table, sink: BinaryIO, as_json: Callable[[pa.Table], memoryview]) -> bool:
    """Write a table with at least one column; ``False``, and nothing is written, as long as the kernel is not compiled.

    Args:
        table: The rows.
        sink: Where the lines go.
        as_json: Writes columns that are neither texts nor whole numbers nor truth values, slower.
    """
    kernel = native.load("json_text")
    if kernel is None:
        return False
    lines, scratch = np.empty(_LINES_BYTES, np.uint8), np.empty(2 * PADDING, np.uint8)
    for batch in table.to_batches():
        values = list(_values(batch, as_json))
        heads = [(b"," if number else b"{") + some.head for number, some in enumerate(values)]
        following = np.zeros(1, np.int64)
        arguments = (
            *(batch.num_rows, len(values), np.frombuffer(b"".join(heads), np.uint8)),
            *(
                np.array(list(itertools.accumulate(map(len, heads))), np.int64),
                np.array([some.are_texts for some in values], np.uint8),
            ),
            *([some.data for some in values], [some.begins for some in values], [some.ends for some in values]),
            *([some.valid for some in values], np.array([len(some.data) for some in values], np.int64), scratch),
        )
        while following[0] < batch.num_rows:
            row = int(following[0])
            size = kernel(row, *arguments, lines, len(lines), following)
            if following[0] == row:
                lines = np.empty(size, np.uint8)  # a row that is longer than any before
            else:
                sink.write(lines[:size].data)
    return True
