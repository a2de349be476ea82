"""Find out which rows of a table another table was made of, where the code in between did not say.

A stage of a user's may filter with pandas, sort with Polars or build a new table: then only the data can tell. Values
in the columns that both tables share are compared; the match that most columns agree with is taken.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array

__all__ = ["UNKNOWN", "parents_of"]

_Pair = tuple[pa.ChunkedArray, pa.ChunkedArray]

UNKNOWN = -1
"""Stands for the parent of a row that is made of none, as far as the data tells."""


def parents_of(before: pa.Table, after: pa.Table, hint: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """For each row of ``after`` the row of ``before`` that it is, or :data:`UNKNOWN`.

    Equal rows are matched in the order in which they stand. A table with as many rows as before, none of which can be
    found again, is taken to be the same rows with other values.

    Args:
        before: The rows that a stage was given.
        after: The rows that it made.
        hint: Row numbers that a pandas index suggests; used unless the values say otherwise.

    >>> before = pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]})
    >>> parents_of(before, before.filter(pa.array([True, False, True]))).tolist()
    [0, 2]
    >>> parents_of(before, pa.table({"text": ["A", "B", "C"]})).tolist()
    [0, 1, 2]
    """
    count, made = before.num_rows, after.num_rows
    shared = [name for name in after.column_names if before.column_names.count(name) == 1]
    if made == count and any(_same_memory(before.column(name), after.column(name)) for name in shared):
        return np.arange(count)
    pairs = {name: pair for name in shared if (pair := _comparable(before.column(name), after.column(name)))}
    if hint is not None and (len(hint) != made or not made or hint.min() < 0 or hint.max() >= count):
        hint = None
    found = [] if hint is None else [hint]
    found += [_matched(count, codes) for codes in _identifying(pairs, count)]
    agreeing = [sum(_agrees(*pair, parents) for pair in pairs.values()) for parents in found]
    most = max(agreeing, default=0)
    if most:
        return found[agreeing.index(most)]
    if hint is not None:
        return hint
    return np.arange(count) if made == count else np.full(made, UNKNOWN)


def _identifying(pairs: dict[str, _Pair], count: int) -> Iterator[NDArray[np.int64]]:
    """Numbers for the rows of both tables, equal for rows that may be the same, from all columns that can tell.

    A column with a value that was not there before was written by the stage and identifies nothing.
    """
    together: NDArray[np.int64] | None = None
    # Text says more about a row than numbers do, which may have been given anew.
    for pair in sorted(pairs.values(), key=lambda pair: (pa.types.is_primitive(pair[1].type), -int(pair[1].nbytes))):
        codes = _codes(*pair)
        if codes is None or not np.isin(codes[count:], codes[:count]).all():
            continue
        if len(np.unique(codes[:count])) == count:
            yield codes
        if together is None:
            together = codes
        else:
            combined = together * (int(codes.max(initial=0)) + 1) + codes
            together = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    if together is not None:
        yield together


def _agrees(before: pa.ChunkedArray, after: pa.ChunkedArray, parents: NDArray[np.int64]) -> bool:
    """Whether a column says of every row the same as its parent says."""
    if len(parents) and parents.min() < 0:
        return False
    return bool(before.take(arrow_array(parents)).equals(after))


def _matched(count: int, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first row after with a number is the first row before with it, and so on; further ones are copies of it."""
    own, made = codes[:count], codes[count:]
    if not count:
        return np.full(len(made), UNKNOWN)
    by_key = np.argsort(own, kind="stable")
    starts = np.searchsorted(own[by_key], made, side="left")
    stops = np.searchsorted(own[by_key], made, side="right")
    nth = np.clip(np.minimum(starts + _occurrence(made), stops - 1), 0, None)
    return np.where(stops > starts, by_key[nth], UNKNOWN)


def _occurrence(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each key how many equal ones stand before it."""
    by_key = np.argsort(keys, kind="stable")
    ordered = keys[by_key]
    is_first = np.concatenate([[True], ordered[1:] != ordered[:-1]]) if len(keys) else np.zeros(0, np.bool_)
    firsts = np.flatnonzero(is_first)
    nth = np.empty(len(keys), np.int64)
    nth[by_key] = np.arange(len(keys)) - np.repeat(firsts, np.diff(np.append(firsts, len(keys))))
    return nth


def _same_memory(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    """Whether two columns are the same buffers: certain, and free."""
    if one.num_chunks != other.num_chunks or one.type != other.type:
        return False
    return all(_addresses(a) == _addresses(b) for a, b in zip(one.chunks, other.chunks, strict=True))


def _addresses(chunk: pa.Array) -> tuple[object, ...]:
    return (chunk.offset, len(chunk), *(b.address if b is not None else None for b in chunk.buffers()))


def _codes(one: pa.ChunkedArray, other: pa.ChunkedArray) -> NDArray[np.int64] | None:
    """A number for each value of both columns, equal for equal values; ``None`` where Arrow cannot compare them."""
    try:
        both = pa.chunked_array([*one.chunks, *other.chunks], one.type).combine_chunks()
        both = both.combine_chunks() if isinstance(both, pa.ChunkedArray) else both
        encoded = both.dictionary_encode("encode")
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return None
    codes: NDArray[np.int64] = numpy_array(encoded.indices).astype(np.int64)
    return codes


def _comparable(one: pa.ChunkedArray, other: pa.ChunkedArray) -> tuple[pa.ChunkedArray, pa.ChunkedArray] | None:
    """Both columns in one type: pandas gives text and numbers with nulls other types than they had."""
    one, other = (c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in (one, other))
    if one.type == other.type:
        return (one, other) if not pa.types.is_nested(one.type) else None
    for kinds, common in ((_TEXT, pa.large_string()), (_NUMBERS, pa.float64())):
        if all(any(is_kind(c.type) for is_kind in kinds) for c in (one, other)):
            return one.cast(common, safe=False), other.cast(common, safe=False)
    return None


_TEXT = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_null)
