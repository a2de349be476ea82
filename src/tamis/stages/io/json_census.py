"""Count what some JSON lines hold by looking at their bytes only: a check on a parser that is faster than careful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.kernels import native

__all__ = ["Census"]

_TAIL_BYTES = 256
_NOTHING = np.zeros(5, dtype=np.int64)

_Counts = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Census:
    """What the bytes of some valid JSON lines hold, counted without parsing them.

    Args:
        keys: Keys, at any depth.
        nulls: Keys whose value is null.
        strings: Strings that are values, at any depth. (With chosen names: values of those keys.)
        lists: Keys whose value is a list.
        brackets: Lists, at any depth.
        lone_surrogates: Halves of pairs of surrogates (``\\ud83d``) that the other half does not follow.
    """

    keys: int
    nulls: int
    strings: int
    lists: int
    brackets: int = 0
    lone_surrogates: int = 0

    @classmethod
    def of(cls, data: bytes, names: Sequence[bytes] | None = None) -> Census | None:
        """Count a block, or only the keys with these names in it.

        ``None`` for a block that cannot be valid, for names where a key has escapes in it, which may be one of them in
        disguise, and as long as the kernel that counts is not compiled.

        >>> Census.of(b'{"a": {"b": null}, "c": ["x", "y"]}\\n')
        Census(keys=3, nulls=1, strings=2, lists=1, brackets=1, lone_surrogates=0)
        """
        kernel = native.load("json_census")
        if kernel is None:
            return None
        chosen = sorted(set(names or ()))
        joined = np.frombuffer(b"".join(chosen) or b"\0", np.uint8)
        ends = np.cumsum([0, *map(len, chosen)], dtype=np.int64)[1:]
        counts = np.zeros(6, np.int64)
        tail = np.empty(_TAIL_BYTES, np.uint8)
        characters = np.frombuffer(data or b" ", np.uint8)
        is_valid = kernel(characters, len(data), joined, ends if len(chosen) else counts, len(chosen), tail, counts)
        return cls(*counts.tolist()) if is_valid else None

    def agrees(self, table: pa.Table) -> bool:
        """Whether the table made of these bytes holds exactly these keys, strings and lists."""
        keys = lists = 0
        below = _NOTHING
        for column in table.columns:
            there = len(column) - column.null_count
            keys += there
            lists += there if pa.types.is_large_list(column.type) else 0
            for chunk in column.chunks:
                below = below + _count(chunk)
        if (self.keys, self.strings, self.lists) != (keys + self.nulls + below[0], below[1], lists + below[2]):
            return False
        # In a list of nulls anything but a string, a key or a list may have stood: Polars drops what it did not expect.
        if below[4]:
            return False
        # Only a list of strings can hide lists that were turned into text.
        suspects = any("list<item: large_" in str(column.type) for column in table.columns)
        return not suspects or self.brackets == below[3]


def _count(array: pa.Array) -> _Counts:
    """What is in an array, without nulls: keys, strings, keys of lists, lists; then nulls in lists of nothing else."""
    kind, there = array.type, len(array) - array.null_count
    if pa.types.is_large_string(kind):
        return np.array([0, there, 0, 0, 0])
    if pa.types.is_large_list(kind):
        items = array.flatten()
        nulls = len(items) if pa.types.is_null(items.type) else 0
        below: _Counts = np.array([0, 0, 0, there, nulls]) + _count(items)
        return below
    total = _NOTHING
    if pa.types.is_struct(kind):
        for child in array.flatten():
            there = len(child) - child.null_count
            lists = there if pa.types.is_large_list(child.type) else 0
            total = total + _count(child) + np.array([there, 0, lists, 0, 0])
    return total
