"""Parse a block of JSON lines into an Arrow table without losing or changing a value.

Lines of strings and numbers, which is what most data sets are made of, have a parser of their own. For others Polars is
the fastest there is when it is told the columns, so they are guessed from the first rows. A guess can be wrong in ways
that Polars does not report: it leaves out keys it does not know, takes the first of two equal keys, and turns a number
in a text column into text. So the block's bytes are counted independently, and a table is only trusted when it accounts
for every key and every string in them. What fails that test, and what Polars refuses, is parsed line by line.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.stages.io.json_census import Census
from tamis.stages.io.json_flat import parse_flat

__all__ = ["BrokenLine", "parse_json_lines"]

_GUESS_ROWS = 100
_ORDER_BYTES = 2**20
"""Columns that appear later than this come in the order Polars gives them."""

_DEEPEST = 30
"""Levels of nesting that are kept as such; what is deeper becomes JSON text. Arrow's own interchange stops at 64."""


@dataclass(frozen=True)
class BrokenLine:
    """A line that is no JSON object.

    Args:
        start: Its first byte in the block.
        stop: One past its last byte.
        reason: What is wrong with it.
    """

    start: int
    stop: int
    reason: str


def parse_json_lines(data: bytes, fields: Sequence[str] | None = None) -> tuple[pa.Table, list[BrokenLine]]:
    """Parse a block of lines, one JSON object each.

    Args:
        data: The lines.
        fields: The keys to keep, in this order; all of them when not given. A key that no line has is a null column.

    Returns:
        The rows, and the lines that could not be parsed.

    >>> table, broken = parse_json_lines(b'{"a": 1}\\n{"a": 2, "b": "x"}\\noops\\n')
    >>> table.to_pylist(), broken[0].reason
    ([{'a': 1, 'b': None}, {'a': 2, 'b': 'x'}], 'Expecting value at column 1')
    """
    table = _parse_fast(data, fields)
    broken: list[BrokenLine] = []
    if table is None:
        rows, lines, broken = _parse_lines(data)
        if broken and lines:
            table = _parse_fast(b"\n".join(lines), fields)
        if table is None:
            table = _table_of(rows)
    return select(table, fields), broken


def select(table: pa.Table, fields: Sequence[str] | None) -> pa.Table:
    """Choose columns by name; one that is not there becomes a null column."""
    if fields is None:
        return table
    there = set(table.column_names)
    columns = [table.column(f) if f in there else pa.nulls(table.num_rows) for f in fields]
    return pa.table(columns, names=list(fields)) if fields else table.select([])


def _parse_fast(data: bytes, fields: Sequence[str] | None) -> pa.Table | None:
    """Parse with Polars; ``None`` when the result does not account for every byte that matters."""
    if not data or data.isspace():
        return pa.table({})
    flat = parse_flat(data, fields)
    if flat is not None:
        return flat
    import polars as pl

    errors = (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException)
    if fields is not None:
        table = _parse_chosen(data, fields, errors)
        if table is not None:
            return table
    census = Census.of(data)
    # Polars turns half of a surrogate pair into a NUL character instead of refusing it.
    if census is None or census.lone_surrogates:
        return None
    for guess_rows in (_GUESS_ROWS, None):
        try:
            table = _as_arrow(pl.read_ndjson(data, infer_schema_length=guess_rows))
        except errors:
            continue
        # Without a single key Polars takes any line for a row.
        if table.num_columns and census.agrees(table):
            return table.select(_in_order(data, table.column_names))
    return None


def _parse_chosen(data: bytes, fields: Sequence[str], errors: tuple[type[BaseException], ...]) -> pa.Table | None:
    """Parse only some keys. Possible when all of them are in the first rows and none is nested."""
    import polars as pl

    census = Census.of(data, [json.dumps(f, ensure_ascii=False)[1:-1].encode() for f in fields])
    if census is None or census.lone_surrogates:
        return None
    try:
        guess = pl.read_ndjson(_first_lines(data, _GUESS_ROWS)).schema
        if not all(f in guess and not guess[f].is_nested() for f in fields):
            return None
        table = _as_arrow(pl.read_ndjson(data, schema={f: guess[f] for f in fields}))
    except errors:
        return None
    return table if census.agrees(table) else None


def _in_order(data: bytes, names: list[str]) -> list[str]:
    """Names in the order in which they appear first: Polars has an order of its own."""
    start = data[:_ORDER_BYTES]
    places = {}
    for name in names:
        key = json.dumps(name, ensure_ascii=False).encode("utf-8", "surrogatepass")
        place = start.find(key + b":")
        place = start.find(key) if place < 0 else place
        places[name] = len(start) if place < 0 else place
    return sorted(names, key=places.__getitem__)


def _first_lines(data: bytes, count: int) -> bytes:
    stop = 0
    for _ in range(count):
        stop = data.find(b"\n", stop) + 1
        if not stop:
            return data
    return data[:stop]


def _as_arrow(frame: Any) -> pa.Table:
    """A Polars frame as Arrow. Integers beyond 64 bits with a sign get 64 without; Arrow has no wider ones."""
    import polars as pl

    if "\\x00" in repr(frame.schema):
        raise pa.ArrowInvalid("Arrow's interface cannot name a column with a NUL character")
    wide = [name for name, kind in frame.schema.items() if str(kind) == "Int128"]
    if wide:
        frame = frame.with_columns(pl.col(wide).cast(pl.UInt64))
    return frame.to_arrow()


def _parse_lines(data: bytes) -> tuple[list[dict[str, Any]], list[bytes], list[BrokenLine]]:
    """Parse line by line with Python's own parser: rows, their lines, and the lines that are broken."""
    rows, lines, broken = [], [], []
    start = 0
    for line in data.split(b"\n"):
        if line.strip(b" \t\r"):
            try:
                rows.append(_parse_line(line))
                lines.append(line)
            except ValueError as e:
                broken.append(BrokenLine(start, start + len(line), str(e)))
        start += len(line) + 1
    return rows, lines, broken


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
        raise ValueError("nested too deeply") from None
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


def _table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows as a table, with the types Polars would give; a column of mixed kinds becomes text."""
    names = list(dict.fromkeys(name for row in rows for name in row))
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
    if kinds == {list} and depth < _DEEPEST:
        lengths = [0 if v is None else len(v) for v in values]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        items = _column([item for v in values if v is not None for item in v], depth + 1)
        missing = pa.array([v is None for v in values])
        return pa.LargeListArray.from_arrays(pa.array(offsets), items, mask=missing)
    if kinds == {dict} and depth < _DEEPEST:
        names = list(dict.fromkeys(name for v in values if v is not None for name in v))
        if not names:
            return pa.array(values, pa.struct([]))
        children = [_column([None if v is None else v.get(n) for v in values], depth + 1) for n in names]
        return pa.StructArray.from_arrays(children, names, mask=pa.array([v is None for v in values]))
    return pa.array([v if v is None or isinstance(v, str) else _json_text(v) for v in values], pa.large_string())


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
