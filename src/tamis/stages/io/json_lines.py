"""Parse a block of JSON lines into an Arrow table without losing or changing a value.

Lines of strings and numbers, which most data sets consist of, have a parser of their own. For others Polars is the
fastest one when it is told the columns, so they are guessed from the first rows. A guess can be wrong in ways that
Polars does not report: it leaves out keys it does not know, takes the first of two equal keys, and turns a number in a
text column into text. So the bytes of the block are counted independently, and a table is only trusted when it accounts
for every row, every key and every string in them. A block that fails this test, or that Polars refuses, is parsed line
by line.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import DataError
from tamis.kernels.lines import line_starts
from tamis.stages.io.json_census import MOST_LEVELS, Census
from tamis.stages.io.json_flat import first_lines, parse_flat

__all__ = ["BrokenLine", "ParsedLines", "parse_json_lines"]

_GUESS_ROWS = 100
_ORDER_BYTES = 2**20
"""Columns that appear later than this come in the order Polars gives them."""

_SPARSE_VALUES = 100_000_000
_DEEPEST = 500
"""Levels of nesting that a line may have. Those beyond :data:`MOST_LEVELS` become JSON text: Arrow's own interchange
stops at 64, and Polars takes half a minute for 1,000."""

_TOO_DEEP = f"lists or objects are nested more than {_DEEPEST} levels deep"


@dataclass(frozen=True)
class BrokenLine:
    """A line that is not a JSON object: its first byte in the block, one past its last, and what is wrong with it."""

    start: int
    stop: int
    reason: str


class ParsedLines(NamedTuple):
    """The rows of a block of JSON lines, the first byte of the line of each, and the lines that could not be parsed."""

    table: pa.Table
    starts: NDArray[np.int64]
    broken: list[BrokenLine]


def parse_json_lines(data: bytes, fields: Sequence[str] | None = None) -> ParsedLines:
    """Parse a block of lines, one JSON object each. Lines of spaces, tabs and carriage returns only are skipped.

    Args:
        data: The lines.
        fields: The keys to keep, in this order; all of them when not given. A key that no line has is a null column.

    >>> table, starts, broken = parse_json_lines(b'{"a": 1}\\n\\n{"a": 2, "b": "x"}\\noops\\n')
    >>> table.to_pylist(), starts.tolist(), broken[0].reason
    ([{'a': 1, 'b': None}, {'a': 2, 'b': 'x'}], [0, 10], 'Expecting value at column 1')
    """
    starts = line_starts(data)
    table = _parse_fast(data, fields, len(starts))
    broken: list[BrokenLine] = []
    if table is None:
        rows, kept, broken = _parse_lines(data, starts)
        starts = starts[kept]
        if broken and rows:
            whole = b"\n".join(_lines(data, starts))
            table = _parse_fast(whole, fields, len(starts))
        if table is None:
            table = _table_of(rows, fields, _most_values(data))
    return ParsedLines(select(table, fields), starts, broken)


def select(table: pa.Table, fields: Sequence[str] | None) -> pa.Table:
    """Choose columns by name; one that is not there becomes a null column."""
    if fields is None:
        return table
    there = set(table.column_names)
    columns = [table.column(f) if f in there else pa.nulls(table.num_rows) for f in fields]
    return pa.table(columns, names=list(fields)) if fields else table.select([])


def _parse_fast(data: bytes, fields: Sequence[str] | None, rows: int) -> pa.Table | None:
    """Parse a block with so many rows; ``None`` when the result would not account for every row, key and string."""
    if not rows:
        return pa.table({})
    flat = parse_flat(data, fields, rows)
    if flat is not None:
        return flat
    import polars as pl

    # OSError: Polars takes bytes that begin like a gzip file for one.
    errors = (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, OSError)
    if fields is not None:
        table = _parse_chosen(data, fields, errors)
        if table is not None and table.num_rows == rows:
            return table
    census = Census.of(data)
    # Polars turns half of a surrogate pair into a NUL character instead of refusing it.
    if census is None or census.lone_surrogates or census.different_keys * rows > _most_values(data):
        return None
    for guess_rows in (_GUESS_ROWS, None):
        try:
            table = _as_arrow(pl.read_ndjson(data, infer_schema_length=guess_rows))
        except errors:
            continue
        # Without a single key Polars takes any line for a row.
        if table.num_columns and table.num_rows == rows and census.agrees(table):
            return table.select(_in_order(data, table.column_names))
    return None


def _parse_chosen(data: bytes, fields: Sequence[str], errors: tuple[type[BaseException], ...]) -> pa.Table | None:
    """Parse only some keys. Possible when all of them are in the first rows and none is nested."""
    import polars as pl

    census = Census.of(data, [json.dumps(f, ensure_ascii=False)[1:-1].encode() for f in fields])
    if census is None or census.lone_surrogates or census.different_keys * _GUESS_ROWS > _most_values(data):
        return None
    try:
        guess = pl.read_ndjson(first_lines(data, _GUESS_ROWS)).schema
        if not all(f in guess and not guess[f].is_nested() for f in fields):
            return None
        table = _as_arrow(pl.read_ndjson(data, schema={f: guess[f] for f in fields}))
    except errors:
        return None
    return table if census.agrees(table) else None


def _in_order(data: bytes, names: list[str]) -> list[str]:
    """Names in the order in which they appear first: Polars has an order of its own."""
    found: dict[str, None] = {}
    start = 0
    while start < min(len(data), _ORDER_BYTES) and len(found) < len(names):
        stop = data.find(b"\n", start) + 1 or len(data)
        with contextlib.suppress(ValueError, TypeError):  # a blank line, or one that only Polars can read
            found.update(dict.fromkeys(json.loads(data[start:stop])))
        start = stop
    known = set(names)
    return [*(name for name in found if name in known), *(name for name in names if name not in found)]


def _as_arrow(frame: Any) -> pa.Table:
    """A Polars frame as Arrow. Integers beyond 64 bits with a sign get 64 without; Arrow has no wider ones."""
    import polars as pl

    if "\\x00" in repr(frame.schema):
        raise pa.ArrowInvalid("Arrow's interface cannot name a column with a NUL character")
    wide = [name for name, kind in frame.schema.items() if str(kind) == "Int128"]
    if wide:
        frame = frame.with_columns(pl.col(wide).cast(pl.UInt64))
    return frame.to_arrow()


def _lines(data: bytes, starts: NDArray[np.int64]) -> Iterator[bytes]:
    """The lines that begin at some places."""
    for start in starts.tolist():
        stop = data.find(b"\n", start)
        yield data[start : stop if stop >= 0 else len(data)]


def _parse_lines(
    data: bytes, starts: NDArray[np.int64]
) -> tuple[list[dict[str, Any]], NDArray[np.bool_], list[BrokenLine]]:
    """Parse line by line with Python's own parser: rows, which lines they are, and the lines that are broken."""
    rows, broken = [], []
    is_row = np.ones(len(starts), np.bool_)
    for number, line in enumerate(_lines(data, starts)):
        try:
            rows.append(_parse_line(line))
        except ValueError as e:
            start = int(starts[number])
            broken.append(BrokenLine(start, start + len(line), str(e)))
            is_row[number] = False
    return rows, is_row, broken


def _parse_line(line: bytes) -> dict[str, Any]:
    """One JSON object; ``ValueError`` says in words what else the line is."""
    try:
        text = line.decode("utf-8").strip(" \t\r")
    except UnicodeDecodeError as e:
        raise ValueError(f"invalid UTF-8: byte {line[e.start]:#04x} at column {e.start + 1}") from None
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_float=_finite)
    except json.JSONDecodeError as e:
        raise ValueError(f"{e.msg.removesuffix(' at')} at column {e.colno}") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except ValueError as e:
        if "sys.set_int_max_str_digits" not in str(e):
            raise
        raise ValueError(f"an integer has more than {sys.get_int_max_str_digits():,} digits") from None
    if text.count("[") + text.count("{") > _DEEPEST and _levels(value) > _DEEPEST:
        raise ValueError(_TOO_DEEP)
    if not isinstance(value, dict):
        kind = {list: "a list", str: "text", type(None): "null", bool: "true or false"}.get(type(value), "a number")
        raise ValueError(f"the line is valid JSON, but {kind}, not an object in braces")
    if "\\ud" in text or "\\uD" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as e:
            half = f"\\u{ord(e.object[e.start]):04x}"
            raise ValueError(f"{half} is one half of a surrogate pair without the other") from None
    return value


def _levels(value: Any) -> int:
    """How deep lists and objects are nested."""
    level, values = 0, [value]
    while values := [v for v in values if isinstance(v, list | dict)]:
        level += 1
        values = list(itertools.chain.from_iterable(v.values() if isinstance(v, dict) else v for v in values))
    return level


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if any("\0" in key for key in result):
        raise ValueError("a key contains a NUL character")
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))  # type: ignore[func-returns-value]  # None is false
        raise ValueError(f"the key {twice!r} appears twice in one object")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:40]} is too large for a 64-bit float")
    return value


def _most_values(data: bytes) -> int:
    """How many values the table of a block may have, nulls for keys that a row does not have included.

    No block is refused in which each row has all keys: a value takes more than one byte there.
    """
    return max(_SPARSE_VALUES, len(data))


def _table_of(rows: list[dict[str, Any]], fields: Sequence[str] | None, most_values: int) -> pa.Table:
    """Rows as a table, with the types Polars would give; a column of mixed kinds becomes text."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if fields is not None:
        names = [name for name in fields if name in set(names)]
    if len(names) * len(rows) > most_values:
        raise DataError(
            f"{len(rows):,} rows have {len(names):,} different keys, which would make a table of"
            f" {len(names) * len(rows):,} values, almost all of them null; the limit is {most_values:,}",
            hint="Choose the keys with fields=[...], or read smaller blocks with blocksize=....",
        )
    if not names:
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))])
    return pa.table([_column([row.get(name) for row in rows], 1) for name in names], names=names)


def _column(values: list[Any], depth: int) -> pa.Array:
    """Values as an Arrow array. Where their kinds do not go together: strings as they are, all else as JSON text."""
    kinds = {type(v) for v in values if v is not None}
    if not kinds:
        return pa.nulls(len(values))
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds == {str}:
        return pa.array(values, pa.large_string())
    if kinds == {int}:
        numbers = [v for v in values if v is not None]
        if min(numbers) >= -(2**63) and max(numbers) < 2**63:
            return pa.array(values, pa.int64())
        if min(numbers) >= 0 and max(numbers) < 2**64:
            return pa.array(values, pa.uint64())
    if kinds in ({int, float}, {float}) and all(abs(v) < 1e308 for v in values if type(v) is int):
        return pa.array([None if v is None else float(v) for v in values], pa.float64())
    if kinds == {list} and depth < MOST_LEVELS:
        lengths = [0 if v is None else len(v) for v in values]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        items = _column([item for v in values if v is not None for item in v], depth + 1)
        missing = pa.array([v is None for v in values])
        return pa.LargeListArray.from_arrays(pa.array(offsets), items, mask=missing)
    if kinds == {dict} and depth < MOST_LEVELS:
        names = list(dict.fromkeys(name for v in values if v is not None for name in v))
        if not names:
            return pa.array(values, pa.struct([]))
        children = [_column([None if v is None else v.get(n) for v in values], depth + 1) for n in names]
        return pa.StructArray.from_arrays(children, names, mask=pa.array([v is None for v in values]))
    return pa.array([v if v is None or isinstance(v, str) else _json_text(v) for v in values], pa.large_string())


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
