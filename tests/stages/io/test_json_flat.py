"""The fast parser of flat JSON lines gives what Python's own parser gives, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st
from property_tests import examples

from tamis.stages.io.json_flat import parse_flat
from tamis.stages.io.json_lines import parse_json_lines

MANY = examples(300, suppress_health_check=[HealthCheck.too_slow])

KEYS = ("a", "text", "é", "a b", "x" * 70)
STRINGS = st.one_of(
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    st.lists(
        st.sampled_from(['"', "\\", "/", "\n", "\t", "\0", "\x1f", "\x7f", "é", "日", "😀", "x" * 63, "y" * 64])
    ).map("".join),
)
KINDS = (
    STRINGS,
    st.integers(-(10**18) + 1, 10**18 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
)


@st.composite
def flat_rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    kinds = {
        key: draw(st.sampled_from(KINDS)) for key in draw(st.lists(st.sampled_from(KEYS), min_size=1, unique=True))
    }
    optional = {key: st.one_of(kind, st.none()) for key, kind in kinds.items()}
    return draw(st.lists(st.fixed_dictionaries({}, optional=optional), max_size=8))


def parsed(lines: bytes) -> list[dict[str, Any]] | None:
    """What Python makes of lines, with a null for each key that is missing; ``None`` if one of them is no object."""
    try:
        rows = [
            json.loads(line, object_pairs_hook=_no_key_twice)
            for line in lines.decode().split("\n")
            if line.strip(" \t\r")
        ]
        json.dumps(rows, ensure_ascii=False).encode()  # no halves of characters
    except ValueError:
        return None
    if not all(isinstance(row, dict) for row in rows):
        return None
    keys = dict.fromkeys(key for row in rows for key in row)
    return [{key: row.get(key) for key in keys} for row in rows]


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key twice")
    return dict(pairs)


def same(table: pa.Table, rows: list[dict[str, Any]]) -> bool:
    """Whether a table holds these values, each of its own type: 1 is not 1.0 and not true."""
    return [_typed(row) for row in table.to_pylist()] == [_typed(row) for row in rows]


def _typed(row: dict[str, Any]) -> list[tuple[str, type, Any]]:
    return [(key, type(value), value) for key, value in row.items()]


@MANY
@given(
    flat_rows(),
    st.booleans(),
    st.sampled_from([(",", ":"), (" , ", "\t:  ")]),
    st.sampled_from(["\n", "\r\n", "\n \n"]),
)
@example([{"a": "x" * 500}, {"a": '"' * 200}], False, (",", ":"), "\n")
@example([{"a": 0.1}, {"a": 1e300}, {"a": None}], True, (",", ":"), "\n")
def test_flat_lines(rows: list[dict[str, Any]], escape: bool, separators: tuple[str, str], end: str) -> None:
    data = "".join(json.dumps(row, ensure_ascii=escape, separators=separators) + end for row in rows).encode()
    table = parse_flat(data)
    expected = parsed(data)
    assert expected is not None
    if table is None:
        # Only where there is no key at all, or one is written with an escape.
        assert not any(rows) or (escape and any("é" in row for row in rows))
    else:
        assert same(table, expected)
        table.validate(full=True)
    assert parse_flat(data.rstrip()) == table or end != "\n"


@MANY
@given(flat_rows(), st.lists(st.tuples(st.integers(0, 10_000), st.binary(max_size=3)), min_size=1, max_size=3))
def test_damaged_lines_are_refused_or_are_what_python_says_they_are(
    rows: list[dict[str, Any]], damages: list[tuple[int, bytes]]
) -> None:
    data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    for place, replacement in damages:
        at = place % (len(data) + 1)
        data = data[:at] + replacement + data[at + 1 :]
    table = parse_flat(data)
    if table is None:
        return
    try:
        expected = parsed(data)
    except UnicodeDecodeError:
        expected = None
    assert expected is not None
    assert same(table, expected)


@pytest.mark.parametrize(
    "line",
    [
        *('{"a": 01}', '{"a": 1.}', '{"a": .5}', '{"a": +1}', '{"a": 1e}', '{"a": --1}', '{"a": 0x1}', '{"a": NaN}'),
        *('{"a": "\\x"}', '{"a": "\\u12"}', '{"a": "\\ud800"}', '{"a": "\\udc00\\ud800"}', '{"a": "tab\there"}'),
        *('{"a": tru}', '{"a": nul}', '{"a" 1}', '{"a": 1,}', '{"a": 1} x', '{"a": 1', '"a"', "[1]", "{a: 1}"),
        *('{"a": 1, "a": 2}', '{"a": {}}', '{"a": []}', '{"a": 1e999}', '{"b": 1, "\\u0062": 2}'),
    ],
)
def test_what_is_not_flat_json_is_left_to_others(line: str) -> None:
    assert parse_flat(f'{{"a": 1, "b": 2}}\n{line}\n'.encode()) is None


def test_invalid_utf8_is_left_to_others() -> None:
    for broken in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xc0\x80"):
        assert parse_flat(b'{"a": "' + broken + b'"}\n') is None


def test_only_the_wanted_keys_are_kept() -> None:
    table = parse_flat(b'{"a": 1, "b": "x", "c": null}\n{"c": 2.5, "a": 2}\n', ["c", "a"])
    assert table is not None
    assert table.to_pydict() == {"a": [1, 2], "c": [None, 2.5]}


def test_rows_without_any_wanted_key_are_left_to_others() -> None:
    assert parse_flat(b'{"a": 1}\n{"a": 2}\n', ["b"]) is None
    table, _, broken = parse_json_lines(b'{"a": 1}\n{"a": 2}\n', ["b"])
    assert table.to_pydict() == {"b": [None, None]}
    assert not broken


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_table_stays_as_it_is_when_the_next_block_is_parsed(size: int) -> None:
    first, second = parse_flat(b'{"a": "%s", "n": 1}\n' % (b"x" * size)), parse_flat(b'{"a": "%s"}\n' % (b"y" * size))
    assert first is not None
    assert second is not None
    assert first.to_pydict() == {"a": ["x" * size], "n": [1]}
    assert second.to_pydict() == {"a": ["y" * size]}


def test_keys_that_the_first_line_lacks_are_found_in_the_next() -> None:
    table = parse_flat(b'\n{"a": 1}\n{"b": 2, "a": 3}\n')
    assert table is not None
    assert table.to_pydict() == {"a": [1, 3], "b": [None, 2]}


def test_invalid_utf8_is_left_to_others_also_where_it_is_not_wanted() -> None:
    assert parse_flat(b'{"a": 1, "b": "x"}\n{"a": 2, "b": "\xff"}\n', ["a"]) is None
