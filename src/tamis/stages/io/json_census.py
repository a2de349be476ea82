"""Count what some JSON lines hold by looking at their bytes only: a check on a parser that is faster than careful."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["Census", "has_lone_surrogate", "line_end"]

_CHUNK_BYTES = 2**18
_QUOTE, _BACKSLASH, _COLON, _NULL, _BRACKET = 0x22, 0x5C, 0x3A, 0x6E, 0x5B
_ESCAPE = int.from_bytes(rb"\u", "little")
_NOTHING = np.zeros(5, dtype=np.int64)

_Bytes = np.ndarray[Any, Any]


def _one_of(characters: bytes) -> _Bytes:
    """A table that says for each byte whether it is one of these."""
    table = np.zeros(256, dtype=bool)
    table[list(characters)] = True
    return table


_IS_SPACE = _one_of(b" \t\r")
_IS_U, _IS_D = _one_of(b"u"), _one_of(b"dD")
_IS_HIGH, _IS_LOW = _one_of(b"89abAB"), _one_of(b"cdefCDEF")


@dataclass(frozen=True)
class Census:
    """What the bytes of some valid JSON lines hold, counted without parsing them.

    Args:
        keys: Keys, at any depth.
        nulls: Keys whose value is null.
        strings: Strings that are values, at any depth. (With chosen names: values of those keys.)
        lists: Keys whose value is a list.
    """

    keys: int
    nulls: int
    strings: int
    lists: int

    @classmethod
    def of(cls, data: bytes, names: Sequence[bytes] | None = None) -> Census | None:
        """Count a block, or only the keys with these names in it; ``None`` for a block that cannot be valid.

        Every quote that is not escaped opens or closes a string, in turn. A string is a key when a colon follows.

        >>> Census.of(b'{"a": {"b": null}, "c": ["x", "y"]}\\n')
        Census(keys=3, nulls=1, strings=2, lists=1)
        """
        keys = nulls = strings = lists = 0
        for chunk in _chunks(data):
            quotes = _unescaped_quotes(chunk)
            if len(quotes) % 2:
                return None
            opening, closing = quotes[0::2], quotes[1::2]
            follows = _skip_space(chunk, closing + 1)
            is_key = chunk[follows] == _COLON
            if names is None:
                strings += len(closing) - int(np.count_nonzero(is_key))
            else:
                is_key &= _is_named(chunk, opening, closing, names)
            value = chunk[_skip_space(chunk, follows[is_key] + 1)]
            keys += len(value)
            nulls += int(np.count_nonzero(value == _NULL))
            lists += int(np.count_nonzero(value == _BRACKET))
            if names is not None:
                strings += int(np.count_nonzero(value == _QUOTE))
        return cls(keys, nulls, strings, lists)

    def agrees(self, table: pa.Table, data: bytes) -> bool:
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
        return not suspects or _count_lists(data) == below[3]


def _chunks(data: bytes) -> Iterator[_Bytes]:
    """Pieces of whole lines that fit into the processor's cache."""
    start = 0
    while start < len(data):
        stop = line_end(data, start + _CHUNK_BYTES)
        yield np.frombuffer(data, dtype=np.uint8, count=stop - start, offset=start)
        start = stop


def _count_lists(data: bytes) -> int:
    """Opening brackets outside of strings: an even number of quotes comes before them."""
    lists = 0
    for chunk in _chunks(data):
        before = np.searchsorted(_unescaped_quotes(chunk), np.flatnonzero(chunk == _BRACKET))
        lists += int(np.count_nonzero(before % 2 == 0))
    return lists


def line_end(data: bytes, at_least: int) -> int:
    """The end of the line that a byte is in."""
    if at_least >= len(data):
        return len(data)
    found = data.find(b"\n", at_least)
    return len(data) if found < 0 else found + 1


def _unescaped_quotes(chunk: _Bytes) -> _Bytes:
    """Positions of quotes that an even number of backslashes (mostly none) comes before."""
    quotes = np.flatnonzero(chunk == _QUOTE)
    suspects = np.flatnonzero(chunk[quotes - 1] == _BACKSLASH)
    if not len(suspects):
        return quotes
    run = np.ones(len(suspects), dtype=np.int64)
    live = np.arange(len(suspects))
    before = quotes[suspects] - 2
    while len(live):
        live = live[chunk[before[live]] == _BACKSLASH]
        run[live] += 1
        before[live] -= 1
    keep = np.ones(len(quotes), dtype=bool)
    keep[suspects[run % 2 == 1]] = False
    return quotes[keep]


def _skip_space(chunk: _Bytes, positions: _Bytes) -> _Bytes:
    """Each position, moved on to the next byte that is no space (at most to the last one of the chunk)."""
    last = len(chunk) - 1
    positions = np.minimum(positions, last)
    spaces = _IS_SPACE[chunk[positions]] & (positions < last)
    while spaces.any():
        positions = positions + spaces
        spaces = _IS_SPACE[chunk[positions]] & (positions < last)
    return positions


def _is_named(chunk: _Bytes, opening: _Bytes, closing: _Bytes, names: Sequence[bytes]) -> _Bytes:
    """Which strings are one of the names."""
    lengths = closing - opening - 1
    result = np.zeros(len(opening), dtype=bool)
    for name in set(names):
        at = np.flatnonzero(lengths == len(name))
        for offset, byte in enumerate(name, 1):
            at = at[chunk[opening[at] + offset] == byte]
        result[at] = True
    return result


def _count(array: pa.Array) -> _Bytes:
    """What is in an array, without nulls: keys, strings, keys of lists, lists; then nulls in lists of nothing else."""
    kind, there = array.type, len(array) - array.null_count
    if pa.types.is_large_string(kind):
        return np.array([0, there, 0, 0, 0])
    if pa.types.is_large_list(kind):
        items = array.flatten()
        nulls = len(items) if pa.types.is_null(items.type) else 0
        below: _Bytes = np.array([0, 0, 0, there, nulls]) + _count(items)
        return below
    total = _NOTHING
    if pa.types.is_struct(kind):
        for child in array.flatten():
            there = len(child) - child.null_count
            lists = there if pa.types.is_large_list(child.type) else 0
            total = total + _count(child) + np.array([there, 0, lists, 0, 0])
    return total


def has_lone_surrogate(data: bytes) -> bool:
    r"""Whether some ``\ud83d`` is not followed by its other half.

    >>> has_lone_surrogate(rb'"\ud83d\ude00 \\\\ud83d"'), has_lone_surrogate(rb'"\ud83d"')
    (False, True)
    """
    characters, last = np.frombuffer(data, dtype=np.uint8), len(data) - 1
    for start in range(0, last, _CHUNK_BYTES):
        for odd in (start, start + 1):
            # Two bytes at a time: four times as fast as a search for the two characters.
            pairs = np.frombuffer(data, dtype="<u2", count=min(_CHUNK_BYTES, len(data) - odd) // 2, offset=odd)
            at = np.flatnonzero(pairs == _ESCAPE) * 2 + odd
            at = at[_IS_D[characters[np.minimum(at + 2, last)]] & _IS_HIGH[characters[np.minimum(at + 3, last)]]]
            whole = characters[np.minimum(at + 6, last)] == _BACKSLASH
            for offset, expected in ((7, _IS_U), (8, _IS_D), (9, _IS_LOW)):
                whole &= expected[characters[np.minimum(at + offset, last)]]
            for position in at[~whole]:
                before = data[max(0, position - 64) : position]
                if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:  # else the backslash itself is escaped
                    return True
    return False
