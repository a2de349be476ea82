"""Hashes are those of the xxhash package and depend on values alone; normalised text is what ``str`` makes of it."""

from __future__ import annotations

import contextlib

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.kernels import native
from tamis.kernels.hashing import NULL_HASH_64, hash_columns, hash_text_64, hash_text_128, normalize_text

TEXTS = st.lists(st.one_of(st.none(), st.text(), st.text(alphabet=" \x1cAÉΣ\u03c3İK\u3000\n")), max_size=6)


def test_known_values_stay_the_same_forever() -> None:
    # Spilled data and runs that are continued rely on these numbers.
    hashes = hash_text_128(pa.array(["", "tamis", "日本", None]))
    assert [f"{high:016x}{low:016x}" for high, low in hashes.tolist()] == [
        "99aa06d3014798d86001c324468d497f",
        "173241142b20864846b6469182873dd5",
        "dff42e25f2262bc42b62f62efc6320d2",
        "7e5dc90380f0640bd6bcec3c6b29d72e",
    ]


@pytest.mark.parametrize("kernels", ["", "off"])
def test_bytes_of_every_size_have_the_hash_of_the_xxhash_package(kernels: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernels == "off":  # the plain definition, which serves until the kernel is compiled
        monkeypatch.setattr(native, "_LOADED", {})
        monkeypatch.setenv("TAMIS_KERNELS", "off")
    chance = np.random.default_rng(3)
    values = [chance.bytes(size) for size in (*range(600), *range(1000, 1100), 2048, 2049, 100_003)]
    column = pa.array(values, pa.binary())
    assert hash_text_64(column).tolist() == [xxhash.xxh3_64_intdigest(value) for value in values]
    wide = [(high << 64) | low for high, low in hash_text_128(column).tolist()]
    assert wide == [xxhash.xxh3_128_intdigest(value) for value in values]


@settings(deadline=None)
@given(TEXTS)
def test_hash_is_xxh3_of_the_utf8_bytes(texts: list[str | None]) -> None:
    column = pa.array(texts, pa.string())
    expected = [xxhash.xxh3_128_intdigest(b"\xff" if t is None else t.encode()) for t in texts]
    assert [(high << 64) | low for high, low in hash_text_128(column).tolist()] == expected
    expected = [NULL_HASH_64 if t is None else xxhash.xxh3_64_intdigest(t.encode()) for t in texts]
    assert hash_text_64(column).tolist() == expected


@settings(deadline=None)
@given(TEXTS, st.integers(0, 6))
def test_hash_does_not_depend_on_chunks_slices_or_type(texts: list[str | None], cut: int) -> None:
    expected = hash_text_128(pa.array(texts, pa.string()))
    padded = pa.array(["x", *texts, "y"], pa.large_string()).slice(1, len(texts))
    chunked = pa.chunked_array([padded.slice(0, cut), padded.slice(cut)])
    assert np.array_equal(hash_text_128(padded), expected)
    assert np.array_equal(hash_text_128(chunked), expected)
    assert np.array_equal(hash_text_128(padded.cast(pa.string_view())), expected)
    assert np.array_equal(hash_text_128(padded.cast(pa.large_binary())), expected)


def test_null_and_empty_text_differ() -> None:
    null, empty = hash_text_128(pa.array([None, ""])).tolist()
    assert null != empty


def test_no_texts_have_no_hashes() -> None:
    assert hash_text_128(pa.chunked_array([], pa.string())).shape == (0, 2)
    assert hash_text_64(pa.chunked_array([], pa.string())).shape == (0,)


def test_known_row_hashes_stay_the_same_forever() -> None:
    rows = pa.table({"text": ["tamis", "", None], "n": pa.array([1, -1, None], pa.int32()), "x": [0.5, 2.0, None]})
    assert [f"{value:016x}" for value in hash_columns(rows, ["text", "n", "x"]).tolist()] == [
        "d304dfc8a419d7ba",
        "7c6e01e68f3f8dc2",
        "55482a80a4410cd7",
    ]
    by_definition = xxhash.xxh3_64_intdigest(
        b"".join(
            xxhash.xxh3_64_intdigest(value).to_bytes(8, "little") for value in (b"tamis", (1).to_bytes(8, "little"))
        )
    )
    assert hash_columns(rows, ["text", "n"])[0] == by_definition


VALUES = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.sampled_from([0, 1, -1, 0.0, -0.0, 1.0, 2.0**53, 2.0**63, -(2.0**63), 2**63, 2**53 + 1]),
)


@settings(deadline=None)
@given(VALUES, VALUES)
def test_numbers_hash_by_value_whatever_their_type(one: float, other: float) -> None:
    def hashes(number: float) -> set[int]:
        kinds = [pa.float64()] if isinstance(number, float) else [pa.int8(), pa.int32(), pa.int64(), pa.uint64()]
        found = set()
        for kind in kinds:
            with contextlib.suppress(pa.ArrowInvalid, OverflowError):  # it does not fit
                found.add(int(hash_columns(pa.table({"n": pa.array([number], kind)}), ["n"])[0]))
        return found

    assert len(hashes(one)) == 1
    is_beyond = max(abs(one), abs(other)) >= 2**63 and type(one) is not type(other)
    if not is_beyond:  # floats so large are told from integers
        assert (hashes(one) == hashes(other)) == (one == other)


def test_values_of_each_kind_are_told_apart_and_equal_ones_are_not() -> None:
    nan, other_nan = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    for column in (
        pa.array([True, False, None, True]),
        pa.array([nan, 1.5, None, other_nan]),
        pa.array([1.5, float("inf"), None, 1.5], pa.float16()),
        pa.array(["a", "", None, "a"]).dictionary_encode(),
        pa.array([b"ab", b"cd", None, b"ab"], pa.binary(2)),
        pa.array([1, 2, None, 1], pa.timestamp("us")),
        pa.array([1, 2, None, 1], pa.date32()),
        pa.array([1, 2, None, 1]).cast(pa.decimal128(21, 2)),
        pa.array([[1, 2], [], None, [1, 2]]),
        pa.array([["a"], [None], None, ["a"]], pa.large_list(pa.string())),
        pa.array([{"a": 1, "b": "x"}, {"a": None, "b": "x"}, None, {"a": 1, "b": "x"}]),
        pa.array([[{"a": 1}], [{}], None, [{"a": 1}]]),
    ):
        padded = pa.concat_arrays([column.slice(1, 1), column, column.slice(0, 1)]).slice(1, 4)
        for form in (column, padded, pa.chunked_array([column.slice(0, 1), column.slice(1)])):
            first, second, null, last = hash_columns(pa.table({"x": form}), ["x"]).tolist()
            assert first == last, column.type
            assert len({first, second, null}) == 3, column.type
        assert np.array_equal(
            hash_columns(pa.table({"x": padded}), ["x"]), hash_columns(pa.table({"x": column}), ["x"])
        )


def test_the_columns_of_a_row_are_told_apart() -> None:
    table = pa.table({"a": ["x", "y", None, ""], "b": ["y", "x", "", None], "none": pa.nulls(4)})
    assert len(set(hash_columns(table, ["a", "b"]).tolist())) == 4
    assert hash_columns(table, ["a", "b"])[0] != hash_columns(table, ["b", "a"])[0]
    assert len(set(hash_columns(table, ["none"]).tolist())) == 1
    assert hash_columns(table.slice(0, 0), ["a", "b"]).shape == (0,)
    with pytest.raises(TypeError, match=r"column 'm' is map<.*>, which cannot be hashed"):
        hash_columns(pa.table({"m": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}), ["m"])


def test_hashing_lets_other_threads_run() -> None:
    column = pa.array(["x" * 1000] * 100)
    kernel = native.load("xxh3")
    assert kernel is not None
    assert not type(kernel._function)._flags_ & 0x4  # FUNCFLAG_PYTHONAPI, with which ctypes would keep the lock
    assert hash_text_64(column)[0] == xxhash.xxh3_64_intdigest(b"x" * 1000)


@settings(deadline=None)
@given(TEXTS)
def test_normalised_text_is_lower_case_with_single_spaces(texts: list[str | None]) -> None:
    texts = [None if t is None else "".join(c for c in t if _has_known_case(c)) for t in texts]
    expected = [None if t is None else " ".join(t.lower().split()) for t in texts]
    assert normalize_text(pa.array(texts, pa.string())).to_pylist() == expected


def _has_known_case(character: str) -> bool:
    """Python and Polars may know different versions of Unicode."""
    return bool(pl.Series([character]).str.to_lowercase()[0] == character.lower())


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_normalising_keeps_type_and_chunks(kind: pa.DataType) -> None:
    column = pa.chunked_array([pa.array(["A"], kind), pa.array([" b ", None], kind)])
    assert normalize_text(column).equals(pa.chunked_array([pa.array(["a", "b", None], kind)]))
