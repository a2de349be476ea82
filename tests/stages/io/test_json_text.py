"""JSON lines from the kernel: what Python's own reader makes of them, and the same bytes as the other writer's."""

from __future__ import annotations

import io
import json

import polars as pl
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tamis.stages.io.json_flat import parse_flat
from tamis.stages.io.json_text import write_rows

MANY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

TEXTS = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from('\n"\\\x00\x1f\x7f é😀')), max_size=200
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "text": st.none() | TEXTS,
            'k"\\\n': TEXTS,
            "number": st.none() | st.integers(-(2**63), 2**63 - 1),
            "is": st.none() | st.booleans(),
            "score": st.none() | st.floats(),
            "deep": st.fixed_dictionaries({"x": TEXTS}),
        }
    ),
    min_size=1,
    max_size=20,
)
SCHEMA = pa.schema(
    {
        "text": pa.string(),
        'k"\\\n': pa.large_string(),
        "number": pa.int64(),
        "is": pa.bool_(),
        "score": pa.float64(),
        "deep": pa.struct({"x": pa.string()}),
    }
)


def polars_lines(table: pa.Table) -> memoryview:
    buffer = io.BytesIO()
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    frame.write_ndjson(buffer)
    return buffer.getbuffer()


def written(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    assert write_rows(table, buffer, polars_lines)
    return buffer.getvalue()


@MANY
@given(ROWS, st.permutations(SCHEMA.names), st.integers(0, 19))
def test_the_same_bytes_as_polars(rows: list[dict[str, object]], names: list[str], start: int) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA).select(names).slice(start % len(rows))
    assert written(table) == polars_lines(table).tobytes()
    twice = pa.concat_tables([table, table])
    assert written(twice) == 2 * written(table)


def test_a_row_longer_than_the_room_for_lines() -> None:
    rows = [{"t": "a"}, {"t": '"' * 3_000_000}, {"t": "b"}]
    assert [json.loads(line) for line in written(pa.Table.from_pylist(rows)).splitlines()] == rows


@MANY
@given(st.binary(max_size=80), st.text("aé中😀\u0800\ud7ff\ue000\U0010ffff", max_size=80), st.integers(0, 300))
def test_only_utf8_is_parsed(some: bytes, text: str, place: int) -> None:
    allowed = bytes(byte for byte in some if byte >= 32 and byte not in b'"\\')
    encoded = text.encode()
    value = encoded[:place] + allowed + encoded[place:]
    try:
        expected = value.decode()
    except UnicodeDecodeError:
        assert parse_flat(b'{"t":"' + value + b'"}\n') is None
    else:
        table = parse_flat(b'{"t":"' + value + b'"}\n')
        assert table is not None
        assert table.to_pydict() == {"t": [expected]}
