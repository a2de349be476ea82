"""Count what some JSON lines hold by looking at their bytes only: a check on a parser that is faster than careful."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.buffers import PADDING

__all__ = ["MOST_LEVELS", "Census"]

MOST_LEVELS = 30
"""Levels of nesting that a block may have to be counted, the object of a line included."""

_KEY_BITS = 1 << 16
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
        different_keys: How many different keys there are, about; those of other names too.
    """

    keys: int
    nulls: int
    strings: int
    lists: int
    brackets: int = 0
    lone_surrogates: int = 0
    different_keys: int = field(default=0, compare=False)

    @classmethod
    def of(cls, data: bytes, names: Sequence[bytes] | None = None) -> Census | None:
        """Count a block, or only the keys with these names in it.

        ``None`` for a block that cannot be valid or is nested more than :data:`MOST_LEVELS` deep, for names where a key
        has escapes in it, so that it may be one of them, and as long as the kernel that counts is not compiled.

        >>> Census.of(b'{"a": {"b": null}, "c": ["x", "y"]}\\n')
        Census(keys=3, nulls=1, strings=2, lists=1, brackets=1, lone_surrogates=0, different_keys=3)
        """
        kernel = native.load("json_census")
        if kernel is None:
            return None
        chosen = sorted(set(names or ()))
        joined = np.frombuffer(b"".join(chosen) or b"\0", np.uint8)
        ends = np.cumsum([0, *map(len, chosen)], dtype=np.int64)[1:]
        counts = np.zeros(6, np.int64)
        tail = np.empty(2 * PADDING, np.uint8)
        seen = np.zeros(_KEY_BITS // 64, np.uint64)
        is_valid = kernel(
            *(np.frombuffer(data, np.uint8), len(data), joined, ends, len(chosen)), *(MOST_LEVELS, tail, counts, seen)
        )
        return cls(*map(int, [*counts, _distinct(seen)])) if is_valid else None

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
        # What is a list of nulls now may have held numbers or truth values: Polars drops what it did not expect.
        if below[4]:
            return False
        # Only a list of strings can hide lists that were turned into text.
        suspects = any("list<item: large_" in str(column.type) for column in table.columns)
        return not suspects or self.brackets == below[3]


def _distinct(seen: NDArray[np.uint64]) -> int:
    """About how many keys set these bits, each one of them (Whang, Vander-Zanden and Taylor, 1990)."""
    clear = _KEY_BITS - int(np.unpackbits(seen.view(np.uint8)).sum())
    return round(_KEY_BITS * math.log(_KEY_BITS / max(clear, 0.5)))


def _count(array: pa.Array) -> _Counts:
    """What an array holds, without nulls: keys, strings, keys of lists, lists; then nulls in lists of nothing else."""
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
