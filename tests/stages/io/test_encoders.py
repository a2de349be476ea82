"""Tables as files: what is written does not depend on who writes it."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.errors import DataError
from tamis.stages.io import encoders
from tamis.stages.io.encoders import JsonlEncoder

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.bool_(), st.booleans()),
    (pa.float64(), st.floats()),
    (pa.null(), st.none()),
]


def written(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    JsonlEncoder().write(table, sink)
    return sink.getvalue()


def by_polars(table: pa.Table) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoders, "write_rows", lambda *_: False)  # as long as the kernel is not compiled
        return written(table)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 5))
    names = draw(st.lists(TEXTS.filter(lambda name: "\0" not in name), min_size=1, max_size=4, unique=True))
    columns = []
    for _ in names:
        kind, values = draw(st.sampled_from(KINDS))
        columns.append(pa.array(draw(st.lists(values | st.none(), min_size=rows, max_size=rows)), kind))
    return pa.table(columns, names=names)


@given(tables())
def test_the_kernel_writes_a_table_as_polars_does(table: pa.Table) -> None:
    assert written(table) == by_polars(table)


def test_every_character() -> None:
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    table = pa.table({"text": ["".join(characters[i : i + 4096]) for i in range(0, len(characters), 4096)]})
    for row in range(table.num_rows):
        assert written(table.slice(row, 1)) == by_polars(table.slice(row, 1))


@pytest.mark.parametrize("rows", [1, 100_000])
def test_a_large_table_is_written_as_a_small_one(rows: int) -> None:
    table = pa.table({"text": ['a "b"\n'] * rows, "n": list(range(rows))})
    lines = written(table).splitlines()
    assert lines[0] == written(table.slice(0, 1)).strip()
    assert len(lines) == rows


def test_a_row_with_very_many_columns_is_written_in_linear_time() -> None:
    row = {f"key {i}": i for i in range(20_000)}
    table = pa.table([pa.array([value]) for value in row.values()], names=list(row))
    assert json.loads(written(table)) == row
    with pytest.raises(DataError, match="there are two columns 'key 7'"):
        written(table.rename_columns([*table.column_names[:-1], "key 7"]))


def test_a_slice_of_vectors_with_nulls_is_written_as_json() -> None:
    """Polars cannot read such a slice."""
    vectors = pa.array([[1.0, 2.0], None, [3.0, 4.0], None], pa.list_(pa.float32(), 2))
    sink = io.BytesIO()
    JsonlEncoder().write(pa.table({"v": vectors}).slice(1), sink)
    assert [json.loads(line)["v"] for line in sink.getvalue().splitlines()] == [None, [3.0, 4.0], None]
