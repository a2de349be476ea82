"""Text hashes depend on the text alone; normalised text is what Python's ``str`` methods make of it."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tamis.kernels.hashing import hash_text_128, normalize_text

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


@given(TEXTS)
def test_hash_is_xxh3_of_the_utf8_bytes(texts: list[str | None]) -> None:
    hashes = hash_text_128(pa.array(texts, pa.string()))
    expected = [xxhash.xxh3_128_intdigest(b"\xff" if t is None else t.encode()) for t in texts]
    assert [(high << 64) | low for high, low in hashes.tolist()] == expected


@given(TEXTS, st.integers(0, 6))
def test_hash_does_not_depend_on_chunks_slices_or_type(texts: list[str | None], cut: int) -> None:
    expected = hash_text_128(pa.array(texts, pa.string()))
    padded = pa.array(["x", *texts, "y"], pa.large_string()).slice(1, len(texts))
    chunked = pa.chunked_array([padded.slice(0, cut), padded.slice(cut)])
    assert np.array_equal(hash_text_128(padded), expected)
    assert np.array_equal(hash_text_128(chunked), expected)


def test_null_and_empty_text_differ() -> None:
    null, empty = hash_text_128(pa.array([None, ""])).tolist()
    assert null != empty


def test_no_texts_have_no_hashes() -> None:
    assert hash_text_128(pa.chunked_array([], pa.string())).shape == (0, 2)


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
