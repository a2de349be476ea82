"""Parse JSON lines whose values are not nested, fast: straight into Arrow columns, without Python's lock."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import text_scalar
from tamis.kernels import native
from tamis.kernels.buffers import PADDING
from tamis.kernels.lines import line_starts

__all__ = ["first_lines", "parse_flat"]

_GUESS_LINES = 20
_MOST_KEYS = 64
_KEPT_ROOM_BYTES = 64 << 20
_ROOM_STEP = 1 << 20
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
    if kernel is None:
        return None
    if fields is not None:  # the kernel does not check the bytes of values that are not wanted
        try:
            first_lines(data, _GUESS_LINES).decode()
        except UnicodeDecodeError:
            return None
    columns: _Columns | None = None
    for lines in (1, _GUESS_LINES):  # mostly the first line has all keys: then the others need not be read for them
        names = _first_keys(data, lines)
        if names is None or (columns is not None and columns.keys.names == names):
            return None
        keys = _Keys.of(names, None if fields is None else tuple(fields))
        if keys is not None:
            columns = _Columns(keys, len(data), len(line_starts(data)) if rows is None else rows)
            found = _fill(kernel, columns, data)
            if found >= 0:
                return columns.to_table(found)
    return None


def _fill(kernel: native.Kernel, columns: _Columns, data: bytes) -> int:
    """Parse a block into columns. Returns the number of rows; less than 0 if the kernel cannot parse it."""
    # The kernel reads somewhat beyond the end of a line, so the last lines are parsed in a copy with room after it.
    cut = data.rfind(b"\n", 0, max(len(data) - PADDING, 0)) + 1
    tail = np.zeros(len(data) - cut + PADDING, np.uint8)
    tail[: len(data) - cut] = np.frombuffer(data, np.uint8, offset=cut)
    tail[len(data) - cut] = ord("\n")
    row = 0
    for text, size in ((np.frombuffer(data, np.uint8), cut), (tail, len(data) - cut + 1)):
        row = kernel(text, size, row, columns.most_rows, *columns.arguments) if size and row >= 0 else row
    return row


def first_lines(data: bytes, count: int) -> bytes:
    """Some bytes up to the end of a line."""
    stop = 0
    for _ in range(count):
        stop = data.find(b"\n", stop) + 1
        if not stop:
            return data
    return data[:stop]


def _first_keys(data: bytes, count: int) -> tuple[str, ...] | None:
    """The keys of the first lines, in the order they appear; ``None`` where they cannot be told so easily."""
    names: dict[str, None] = {}
    for line in first_lines(data, count).split(b"\n"):
        try:
            row = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError):
            return None
        if not isinstance(row, dict):
            return None
        names.update(dict.fromkeys(row))
    return tuple(names)


@dataclass(frozen=True, eq=False)
class _Keys:
    """The keys that lines may have, as the kernel takes them: concatenated, where each ends, which are wanted."""

    names: tuple[str, ...]
    encoded: NDArray[np.uint8]
    ends: NDArray[np.int64]
    wanted: NDArray[np.uint8]

    @classmethod
    @functools.lru_cache(maxsize=64)
    def of(cls, names: tuple[str, ...], fields: tuple[str, ...] | None) -> _Keys | None:
        """``None`` where the kernel cannot tell them, or none of them is wanted."""
        wanted = np.array([fields is None or name in fields for name in names], np.uint8)
        # Without a column, a table could not say how many rows there are.
        if not wanted.any() or len(names) > _MOST_KEYS:
            return None
        if not all(name.isprintable() and not set(name) & set('"\\\\') for name in names):
            return None
        encoded = [name.encode() for name in names]
        ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
        return cls(names, np.frombuffer(b"".join(encoded) or b"\0", np.uint8), ends, wanted)


class _Rooms(threading.local):
    """Memory of this thread for the values of each key, which is kept for the next block unless it is very large.

    What is not written to is never taken from the system, and few keys have values of more than some bytes.
    """

    def __init__(self) -> None:
        self._kept: list[NDArray[np.uint8] | None] = [None] * _MOST_KEYS

    def take(self, number: int, nbytes: int) -> NDArray[np.uint8]:
        """Memory for the values of a key."""
        kept = self._kept[number]
        if kept is not None and len(kept) >= nbytes:
            return kept
        # NumPy asks for huge pages, so that fresh memory costs a fraction of what Arrow's does.
        room = np.empty(-(-nbytes // _ROOM_STEP) * _ROOM_STEP, np.uint8)
        self._kept[number] = room if len(room) <= _KEPT_ROOM_BYTES else None
        return room

    def give_away(self, number: int) -> None:
        """Keep this memory no longer: an array has it now."""
        self._kept[number] = None


_ROOMS = _Rooms()


class _Columns:
    """Memory for the values of each key, as the kernel fills it: all as text first."""

    def __init__(self, keys: _Keys, nbytes: int, most_rows: int) -> None:
        self.keys, self.most_rows = keys, most_rows
        count = len(keys.names)
        self._bytes = [_ROOMS.take(number, nbytes + 2 * PADDING) for number in range(count)]  # for the worst case
        self._used = np.zeros(count, np.int64)
        self._offsets = np.zeros((count, most_rows + 1), np.int64)
        self._validity = np.zeros((count, most_rows), np.uint8)
        self._kinds = np.zeros(count, np.int64)
        self.arguments = (
            *(keys.encoded, keys.ends, keys.wanted, count),
            *(self._bytes, self._used, self._offsets, self._validity, self._kinds),
        )

    def to_table(self, rows: int) -> pa.Table | None:
        """The columns in their own types; ``None`` where one holds several kinds, or a number that does not fit."""
        wanted = np.flatnonzero(self.keys.wanted).tolist()
        columns = [self._column(number, rows) for number in wanted]
        if any(column is None for column in columns):
            return None
        return pa.Table.from_arrays(columns, [self.keys.names[number] for number in wanted])

    def _column(self, number: int, rows: int) -> pa.Array | None:
        kind, valid = int(self._kinds[number]), self._validity[number, :rows]
        if kind == 0:
            return pa.nulls(rows)
        memory = self._bytes[number][: self._used[number]]
        if 2 * len(memory) < len(self._bytes[number]):
            memory = memory.copy()
        else:
            _ROOMS.give_away(number)
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
