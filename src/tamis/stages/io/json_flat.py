"""Parse JSON lines whose values are not nested, fast: straight into Arrow columns, without Python's lock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import text_scalar
from tamis.kernels import native
from tamis.kernels.buffers import PADDING
from tamis.kernels.lines import line_starts

__all__ = ["parse_flat"]

_GUESS_LINES = 20
_MOST_KEYS = 64
_STRING, _INTEGER, _FLOAT, _BOOLEAN = 1, 2, 4, 8


def parse_flat(data: bytes, fields: Sequence[str] | None = None, rows: int | None = None) -> pa.Table | None:
    """Parse a block of lines, each an object of strings, numbers, true, false and null, with keys that the first have.

    ``None`` for any other block, and as long as the kernel is not compiled: another parser has to do it then. What
    comes back is what that one would give.

    Args:
        data: The lines.
        fields: The keys that are wanted, if not all are.
        rows: How many lines are not blank, if that is known.

    >>> parse_flat(b'{"a": 1, "b": "x"}\\n{"b": null, "a": 2}\\n').to_pydict()
    {'a': [1, 2], 'b': ['x', None]}
    >>> parse_flat(b'{"a": [1]}\\n') is None
    True
    """
    kernel = native.load("json_rows")
    names = _first_keys(data) if kernel is not None else None
    if kernel is None or not names:
        return None
    wanted = np.array([fields is None or name in fields for name in names], np.uint8)
    if not wanted.any():
        return None  # a table without a column could not say how many rows there are
    columns = _Columns(names, wanted, len(data), len(line_starts(data)) if rows is None else rows)
    # The kernel reads somewhat beyond the end of a line, so the last lines are parsed in a copy with room after it.
    cut = data.rfind(b"\n", 0, max(len(data) - PADDING, 0)) + 1
    tail = np.zeros(len(data) - cut + PADDING, np.uint8)
    tail[: len(data) - cut] = np.frombuffer(data, np.uint8, offset=cut)
    tail[len(data) - cut] = ord("\n")
    row = 0
    for text, size in ((np.frombuffer(data, np.uint8), cut), (tail, len(data) - cut + 1)):
        row = kernel(text, size, row, columns.most_rows, *columns.arguments) if size else row
        if row < 0:
            return None
    return columns.to_table(row)


def _first_keys(data: bytes) -> list[str] | None:
    """The keys of the first lines, in the order they appear; ``None`` where they cannot be told so easily."""
    names: dict[str, None] = {}
    start = 0
    for _ in range(_GUESS_LINES):
        stop = data.find(b"\n", start)
        line = data[start : stop if stop >= 0 else len(data)]
        try:
            row = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError):
            return None
        if not isinstance(row, dict):
            return None
        names.update(dict.fromkeys(row))
        if stop < 0:
            break
        start = stop + 1
    plain = all(name.isprintable() and not set(name) & set('"\\\\') for name in names)
    return list(names) if plain and len(names) <= _MOST_KEYS else None


class _Columns:
    """Memory for the values of each key, as the kernel fills it: all as text first."""

    def __init__(self, names: list[str], wanted: NDArray[np.uint8], nbytes: int, most_rows: int) -> None:
        self.names, self.wanted, self.most_rows = names, wanted, most_rows
        encoded = [name.encode() for name in names]
        # Room for the worst case: what is not written to is never taken from the system. NumPy asks for huge pages, so
        # that fresh memory costs a fraction of what Arrow's does.
        self._bytes = [np.empty(nbytes + 2 * PADDING, np.uint8) for _ in names]
        self._used = np.zeros(len(names), np.int64)
        self._offsets = np.zeros((len(names), most_rows + 1), np.int64)
        self._validity = np.zeros((len(names), most_rows), np.uint8)
        self._kinds = np.zeros(len(names), np.int64)
        self.arguments = (
            np.frombuffer(b"".join(encoded) or b"\0", np.uint8),
            np.cumsum([len(name) for name in encoded], dtype=np.int64),
            wanted,
            len(names),
            self._bytes,
            self._used,
            self._offsets,
            self._validity,
            self._kinds,
        )

    def to_table(self, rows: int) -> pa.Table | None:
        """The columns in their own types; ``None`` where one holds several kinds, or a number that does not fit."""
        found: dict[str, pa.Array] = {}
        for number, name in enumerate(self.names):
            if self.wanted[number]:
                column = self._column(number, rows)
                if column is None:
                    return None
                found[name] = column
        return pa.table(found)

    def _column(self, number: int, rows: int) -> pa.Array | None:
        kind, valid = int(self._kinds[number]), self._validity[number, :rows]
        if kind == 0:
            return pa.nulls(rows)
        memory = self._bytes[number][: self._used[number]]
        if 2 * len(memory) < len(self._bytes[number]):
            memory = memory.copy()
        missing = rows - int(np.count_nonzero(valid))
        mask = None if not missing else pa.py_buffer(np.packbits(valid, bitorder="little"))
        offsets = self._offsets[number, : rows + 1]
        texts = pa.LargeStringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(memory), mask, missing)
        try:
            return _typed(texts, kind)
        except pa.ArrowInvalid:
            return None


def _typed(texts: Any, kind: int) -> pa.Array | None:
    import pyarrow.compute as pc

    if kind == _STRING:
        return texts  # the kernel has seen to it that they are UTF-8
    if kind == _INTEGER:
        return texts.cast(pa.int64())
    if kind == _FLOAT:
        numbers = texts.cast(pa.float64())
        return numbers if pc.all(pc.is_finite(numbers)).as_py() is not False else None
    return pc.equal(texts, text_scalar("true")) if kind == _BOOLEAN else None
