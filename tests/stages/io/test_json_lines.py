"""What becomes of each kind of JSON, valid or not. Nothing may be lost, changed or dropped in silence."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.errors import DataError
from tamis.kernels.lines import line_starts
from tamis.stages.io import json_lines
from tamis.stages.io.json_census import Census
from tamis.stages.io.json_lines import parse_json_lines


def lines(*rows: str) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode("utf-8", "surrogatepass")


def parsed(data: bytes, fields: list[str] | None = None) -> pa.Table:
    table, _, broken = parse_json_lines(data, fields)
    assert broken == []
    return table


def reasons(data: bytes) -> list[str]:
    return [line.reason for line in parse_json_lines(data).broken]


FAR = 300
"""More rows than the columns are guessed from."""


def test_a_key_that_appears_late_is_kept() -> None:
    table = parsed(lines(*['{"a": 1}'] * FAR, '{"a": 2, "b": "x"}'))
    assert table.column_names == ["a", "b"]
    assert table.slice(FAR).to_pylist() == [{"a": 2, "b": "x"}]


def test_a_nested_key_that_appears_late_is_kept() -> None:
    table = parsed(lines(*['{"a": {"x": 1}}'] * FAR, '{"a": {"y": [2]}}'))
    assert table["a"][FAR].as_py() == {"x": None, "y": [2]}


@pytest.mark.parametrize("far", [1, FAR])
def test_integers_and_floats_become_floats(far: int) -> None:
    column = parsed(lines(*['{"a": 1}'] * far, '{"a": 1.5}'))["a"]
    assert column.type == pa.float64()
    assert column.to_pylist() == [1.0] * far + [1.5]


def test_a_column_of_nulls_has_the_null_type() -> None:
    assert parsed(lines('{"a": null}', '{"a": null}'))["a"].type == pa.null()


@pytest.mark.parametrize("fields", [None, ["a"]])
@pytest.mark.parametrize(
    ("before", "value"),
    [([], [3, 7]), ([None], [True]), ([[]], [[0.5]]), ({"s": []}, {"s": [3]}), ([{"s": []}], [{"s": [2**63]}])],
)
def test_numbers_in_a_list_that_was_empty_or_null_before(before: Any, value: Any, fields: list[str] | None) -> None:
    column = parsed(lines(*[json.dumps({"a": before})] * FAR, json.dumps({"a": value})), fields)["a"]
    assert column.to_pylist() == [before] * FAR + [value]


def test_nulls_before_the_first_value() -> None:
    column = parsed(lines(*['{"a": null}'] * FAR, '{"a": "x"}'))["a"]
    assert column[FAR].as_py() == "x"


def test_nested_values() -> None:
    rows = ['{"a": {"b": [1, 2], "c": null}}', '{"a": {"b": [], "d": "x"}}', '{"a": null}']
    assert parsed(lines(*rows)).to_pylist() == [
        {"a": {"b": [1, 2], "c": None, "d": None}},
        {"a": {"b": [], "c": None, "d": "x"}},
        {"a": None},
    ]


def test_columns_come_in_the_order_of_their_first_appearance() -> None:
    table = parsed(lines('{"z": 1}', '{"a": 1, "z": 2, "m": 3}', '{"b": 1}'))
    assert table.column_names == ["z", "a", "m", "b"]


MIXED = [
    (['{"a": 1}', '{"a": "x"}'], ["1", "x"]),
    (['{"a": "x"}', '{"a": 1}', '{"a": 1.50}', '{"a": true}'], ["x", "1", "1.5", "true"]),
    (['{"a": true}', '{"a": 1}'], ["true", "1"]),
    (['{"a": {"x": "\\\\"}}', '{"a": "s"}'], ['{"x":"\\\\"}', "s"]),
    (['{"a": ["x"]}', '{"a": "y"}'], ['["x"]', "y"]),
    (['{"a": [1]}', '{"a": 1}'], ["[1]", "1"]),
    (['{"a": {"x": 1}}', '{"a": [1]}'], ['{"x":1}', "[1]"]),
    (['{"a": [1, "x"]}', '{"a": [2]}'], [["1", "x"], ["2"]]),
    (['{"a": [["x"], "y"]}'], [['["x"]', "y"]]),
    (['{"a": {"x": 1}}', '{"a": {"x": "s"}}'], [{"x": "1"}, {"x": "s"}]),
    (['{"a": null}', '{"a": 1}', '{"a": "x"}'], [None, "1", "x"]),
]


@pytest.mark.parametrize(("rows", "expected"), MIXED)
def test_mixed_kinds_become_text_and_nothing_is_lost(rows: list[str], expected: list[Any]) -> None:
    assert parsed(lines(*rows))["a"].to_pylist() == expected


@pytest.mark.parametrize(("rows", "expected"), MIXED)
def test_mixed_kinds_are_noticed_far_into_a_block(rows: list[str], expected: list[Any]) -> None:
    assert parsed(lines(*[rows[0]] * FAR, *rows))["a"].to_pylist() == [expected[0]] * FAR + expected


@pytest.mark.parametrize(("rows", "expected"), MIXED)
def test_mixed_kinds_are_noticed_when_only_that_key_is_read(rows: list[str], expected: list[Any]) -> None:
    data = lines(*(row[:-1] + ', "b": [1, "x"]}' for row in [*[rows[0]] * FAR, *rows]))
    assert parsed(data, ["a"]).to_pylist() == [{"a": v} for v in [expected[0]] * FAR + expected]


@pytest.mark.parametrize("far", [0, FAR])
def test_a_key_that_appears_twice_is_an_error(far: int) -> None:
    assert reasons(lines(*['{"a": 1}'] * far, '{"a": 1, "a": 2}')) == ["the key 'a' appears twice in one object"]


def test_a_nested_key_that_appears_twice_is_an_error() -> None:
    assert reasons(lines('{"a": {"x": 1, "x": 2}}')) == ["the key 'x' appears twice in one object"]


def test_blank_lines_are_no_rows() -> None:
    assert parsed(b'\n{"a": 1}\n\n  \t\n{"a": 2}\n\n').to_pylist() == [{"a": 1}, {"a": 2}]


def test_windows_line_ends() -> None:
    assert parsed(b'{"a": "x"}\r\n{"a": "y"}\r\n').to_pylist() == [{"a": "x"}, {"a": "y"}]


def test_the_last_line_needs_no_end() -> None:
    assert parsed(b'{"a": 1}\n{"a": 2}').num_rows == 2


@pytest.mark.parametrize("data", [b"", b"\n\n", b" \r\n"])
def test_nothing_gives_no_rows(data: bytes) -> None:
    assert parsed(data).num_rows == 0


@pytest.mark.parametrize(
    ("line", "kind"), [("[1, 2]", "a list"), ("5", "a number"), ('"x"', "text"), ("null", "null"), ("true", "true or")]
)
@pytest.mark.parametrize("others", ['{"a": 1}', "{}"])
def test_json_that_is_no_object_is_an_error(line: str, kind: str, others: str) -> None:
    [reason] = reasons(lines(others, line, others))
    assert reason.startswith(f"the line is valid JSON, but {kind}")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"a":', "Expecting value at column 6"),
        ('{"a": 1', "Expecting ',' delimiter at column 8"),
        ('{"a": 1,}', "Expecting property name enclosed in double quotes at column 9"),
        ('{"a": 1} x', "Extra data at column 10"),
        ('{"a": 1}{"a": 2}', "Extra data at column 9"),
        ("{'a': 1}", "Expecting property name enclosed in double quotes at column 2"),
        ('{"a": 01}', "Expecting ',' delimiter at column 8"),
        ('{"a": +1}', "Expecting value at column 7"),
        ('{"a": .5}', "Expecting value at column 7"),
        ('{"a": 1.}', "Expecting ',' delimiter at column 8"),
        ('{"a": "\\x"}', "Invalid \\escape at column 8"),
        ('{"a": "x\ty"}', "Invalid control character at column 9"),
        ('{"a": "x\0y"}', "Invalid control character at column 9"),
        ("oops", "Expecting value at column 1"),
        ("// comment", "Expecting value at column 1"),
        ('{"a": 1e400}', "the number 1e400 is too large for a 64-bit float"),
        ('{"a\\u0000b": 1}', "a key contains a NUL character"),
        ("{" + '"a":{' * 501 + "}" * 502, "lists or objects are nested more than 500 levels deep"),
        ('{"a": ' + "[" * 5000 + "]" * 5000 + "}", "lists or objects are nested more than 500 levels deep"),
        ('{"a": ' + "[" * 1_000_000 + "}", "lists or objects are nested more than 500 levels deep"),
        ('{"a": ' + "9" * 5000 + "}", "an integer has more than 4,300 digits"),
    ],
)
def test_invalid_json_is_an_error_and_the_other_lines_are_read(line: str, reason: str) -> None:
    table, _, [broken] = parse_json_lines(lines('{"a": 1}', line, '{"a": 2}'))
    assert broken.reason == reason
    assert broken.start == 9
    assert table.to_pylist() == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    "line", [b'{"a": "\xff"}', b'{"\xff": 1}', b'{"a": "\xed\xa0\x80"}', b'{"a": "\xc3"}', b'{"a": "\xf0\x9f\x98"}']
)
def test_invalid_utf8_is_an_error(line: bytes) -> None:
    table, _, [broken] = parse_json_lines(b'{"a": "x"}\n' + line + b'\n{"a": "y"}\n')
    assert broken.reason.startswith("invalid UTF-8: byte 0x")
    assert table.to_pylist() == [{"a": "x"}, {"a": "y"}]


@pytest.mark.parametrize("text", ["\\ud800", "\\udc00", "x\\ud83dy", "\\ud83d\\ud83d\\ude00", "\\ude00\\ud83d"])
@pytest.mark.parametrize("fields", [None, ["a"]])
def test_half_a_surrogate_pair_is_an_error(text: str, fields: list[str] | None) -> None:
    _, _, [broken] = parse_json_lines(lines('{"a": "x"}', f'{{"a": "{text}"}}'), fields)
    assert broken.reason.endswith("is one half of a surrogate pair without the other")


def test_whole_surrogate_pairs_and_escaped_backslashes_are_text() -> None:
    rows = [{"a": "\U0001f600"}, {"a": "\\ud800 is written \\\\ud800"}]
    assert parsed(lines(*map(json.dumps, rows))).to_pylist() == rows


def test_the_words_python_writes_for_odd_floats_are_read() -> None:
    values = parsed(lines('{"a": NaN}', '{"a": Infinity}', '{"a": -Infinity}', '{"a": 1}'))["a"].to_pylist()
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, -math.inf, 1.0]


@pytest.mark.parametrize(
    ("numbers", "kind", "expected"),
    [
        ([2**63 - 1, -(2**63)], pa.int64(), [2**63 - 1, -(2**63)]),
        ([2**64 - 1, 1], pa.uint64(), [2**64 - 1, 1]),
        ([2**64, 1], pa.large_string(), [str(2**64), "1"]),
        ([2**63, -1], pa.large_string(), [str(2**63), "-1"]),
        ([10**50, 1], pa.large_string(), [str(10**50), "1"]),
    ],
)
def test_large_integers_keep_every_digit(numbers: list[int], kind: pa.DataType, expected: list[Any]) -> None:
    column = parsed(lines(*(f'{{"a": {n}}}' for n in numbers)))["a"]
    assert (column.type, column.to_pylist()) == (kind, expected)


def test_large_integers_in_nested_values_keep_every_digit() -> None:
    assert parsed(lines('{"a": [18446744073709551615]}'))["a"].to_pylist() == [[2**64 - 1]]


def test_dates_stay_text() -> None:
    rows = [{"a": "2020-01-01"}, {"a": "2021-01-01T00:00:00Z"}]
    assert parsed(lines(*map(json.dumps, rows))).to_pylist() == rows


def test_objects_without_keys_are_rows() -> None:
    assert parsed(b"{}\n{}\n").num_rows == 2
    assert parsed(b'{}\n{"a": 1}\n').to_pylist() == [{"a": None}, {"a": 1}]


@pytest.mark.parametrize("depth", [29, 30, 31, 100, 499])
def test_deep_nesting_becomes_text_below_some_depth(depth: int) -> None:
    column = parsed(lines('{"a": ' + "[" * depth + "1" + "]" * depth + "}"))["a"]
    value = column[0].as_py()
    text = depth - min(depth, 29)
    for _ in range(depth - text):
        [value] = value
    assert value == ("[" * text + "1" + "]" * text if text else 1)


def test_shallow_values_in_number_are_not_taken_for_deep_ones() -> None:
    rows = [{"a": [[{"b": [i]}] * 40]} for i in range(FAR)]
    assert Census.of(lines(*map(json.dumps, rows))) is not None
    assert parsed(lines(*map(json.dumps, rows))).to_pylist() == rows


@pytest.mark.slow
def test_a_row_with_very_many_keys_is_read_in_the_order_of_its_keys() -> None:
    row = {f"key {i}": i for i in range(30_000)}
    table = parsed(lines(json.dumps(row)))
    assert table.column_names == list(row)
    assert table.column(29_999).to_pylist() == [row["key 29999"]]


def test_rows_that_share_no_key_are_refused_before_they_fill_the_memory() -> None:
    data = b"".join(b'{"%d": [1]}\n' % i for i in range(20_000))
    with pytest.raises(DataError, match=r"20,000 rows have 20,000 different keys.* the limit is 100,000,000"):
        parse_json_lines(data)
    assert parsed(data, ["7", "19999"])["19999"].null_count == 19_999


BLANK = st.sampled_from([b"", b" ", b"\t\r", b"\r", b" " * 70])
OTHER = st.sampled_from([b'{"a": 1}', b'{"a": "x"}', b'{"b": {"c": 1}}', b" {}", b"oops", b"\x0c", b'\xff{"a": 1}'])


@examples(400)
@given(lines=st.lists(BLANK | OTHER, max_size=12), end=st.sampled_from([b"", b"\n"]), chosen=st.booleans())
def test_each_row_begins_where_its_line_does(lines: list[bytes], end: bytes, chosen: bool) -> None:
    data = b"\n".join(lines) + end
    table, starts, broken = parse_json_lines(data, ["a"] if chosen else None)
    begins = [0, *(i + 1 for i, byte in enumerate(data) if byte == 10)]
    there = {begin: line for begin, line in zip(begins, data.split(b"\n"), strict=True) if line.strip(b" \t\r")}
    assert sorted([*starts.tolist(), *(line.start for line in broken)]) == list(there)
    assert starts.tolist() == sorted(starts.tolist())
    assert table.num_rows == len(starts)
    for start, row in zip(starts.tolist(), table.to_pylist(), strict=True):
        value, expected = row.get("a"), json.loads(there[start]).get("a")
        assert value == expected or value == json.dumps(expected)


@pytest.mark.parametrize("fields", [["b", "a"], ["a"], ["nested"], ["b", "missing"], ["missing"]])
def test_chosen_keys_come_in_the_order_asked_for_and_missing_ones_are_null(fields: list[str]) -> None:
    rows = [{"a": i, "b": f"x{i}", "nested": {"a": i}} for i in range(FAR)]
    table = parsed(lines(*map(json.dumps, rows)), fields)
    assert table.to_pylist() == [{f: row.get(f) for f in fields} for row in rows]


def test_a_chosen_key_that_appears_late_is_read() -> None:
    table = parsed(lines(*['{"b": 1}'] * FAR, '{"b": 1, "a": "x"}'), ["a"])
    assert table["a"].to_pylist() == [None] * FAR + ["x"]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", '"', "\\"]), v, max_size=2),
    max_leaves=6,
)
KEYS = st.sampled_from(["a", "b", "é", 'q"', "\\", ""])
ROWS = st.lists(st.dictionaries(KEYS, JSON_VALUES, max_size=4), min_size=1, max_size=8)


@examples(300)
@given(rows=ROWS, ascii_only=st.booleans(), spaces=st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")]))
def test_the_fast_way_and_the_careful_way_agree(rows: list[Any], ascii_only: bool, spaces: tuple[str, str]) -> None:
    data = "".join(json.dumps(r, ensure_ascii=ascii_only, separators=spaces) + "\n" for r in rows).encode()
    starts = line_starts(data)
    fast = json_lines._parse_fast(data, None, len(starts))
    careful = json_lines._table_of(json_lines._parse_lines(data, starts)[0], None, 1000)
    if fast is not None:
        assert fast.to_pylist() == careful.to_pylist()
        assert fast.column_names == careful.column_names


@examples(400)
@given(rows=ROWS, place=st.floats(0, 1), byte=st.binary(min_size=0, max_size=2), cut=st.integers(0, 3))
def test_what_the_fast_way_accepts_is_valid(rows: list[Any], place: float, byte: bytes, cut: int) -> None:
    data = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode()
    at = int(place * len(data))
    data = data[:at] + byte + data[at + cut :]
    starts = line_starts(data)
    fast = json_lines._parse_fast(data, None, len(starts))
    if fast is not None:
        careful, _, broken = json_lines._parse_lines(data, starts)
        twice = [b for b in broken if "appears twice" not in b.reason]  # a second null changes nothing
        assert twice == []
        assert broken or fast.num_rows == len(careful)


@given(rows=ROWS)
def test_the_census_counts_what_python_counts(rows: list[Any]) -> None:
    def count(value: Any) -> Counter[str]:
        if isinstance(value, str):
            return Counter(strings=1)
        if isinstance(value, list):
            return sum(map(count, value), Counter(brackets=1))
        if isinstance(value, dict):
            nulls = sum(v is None for v in value.values())
            lists = sum(isinstance(v, list) for v in value.values())
            return sum(map(count, value.values()), Counter(keys=len(value), nulls=nulls, lists=lists))
        return Counter()

    expected = sum(map(count, rows), Counter(keys=0, nulls=0, strings=0, lists=0))
    data = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows).encode()
    names = ("keys", "nulls", "strings", "lists", "brackets")
    assert Census.of(data) == Census(*(expected[name] for name in names))


def test_a_key_in_disguise_is_not_balanced_by_a_nested_one_of_that_name() -> None:
    rows = ['{"text": "a", "n": true}', '{"\\u0074ext": [{"n": "", "q": "\\""}]}']
    assert parsed(lines(*rows), ["text", "n"]).column("text").to_pylist() == ["a", '[{"n":"","q":"\\""}]']
    assert Census.of(lines(*rows), [b"text", b"n"]) is None
