"""Units of texts, and sparse vectors of n-grams: kernels give what their definitions give."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.kernels import native
from tamis.kernels.ngram_features import SparseRows, descend, ngram_vectors
from tamis.kernels.text_units import LINE_END, UNITS, hash_units, unit_hash

PIECES = st.sampled_from(
    ["a", "B", "é", "É", "日本", "…", "Word", "_1", "\n", "\n\n", "\t", " ", "\x1c", "\xa0", "😀", "."]
)
TEXTS = st.lists(st.one_of(st.text(max_size=20), st.lists(PIECES, max_size=20).map("".join)), max_size=5)
BYTES = st.lists(
    st.lists(st.sampled_from([0x20, 0x41, 0x80, 0xC2, 0xC3, 0xDF, 0xE2, 0xF0, 0xFF, 10]), max_size=9), max_size=4
)


def defined(column: pa.Array, unit: str, marks: bool) -> tuple[list[int], list[int]]:
    """What the plain definition gives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "load", lambda name: None)
        hashes, counts = hash_units(column, unit, marks)
    return hashes.tolist(), counts.tolist()


@examples(200)
@given(texts=TEXTS, raw=BYTES)
def test_units_are_those_of_the_definition(texts: list[str], raw: list[list[int]]) -> None:
    columns = [pa.array(texts, pa.string()), pa.array([bytes(each) for each in raw], pa.binary())]
    for column in columns:
        for unit in UNITS:
            for marks in (False, True):
                hashes, counts = hash_units(column, unit, marks)
                assert (hashes.tolist(), counts.tolist()) == defined(column, unit, marks)


@pytest.mark.parametrize(
    ("unit", "text", "units"),
    [
        ("token", "Don't STOP, über_2 日本\t…", ["don", "'", "t", "stop", ",", "über_2", "日", "本", "…"]),
        ("word", "Don't STOP,\u00a0x\nÜber", ["Don't", "STOP,\u00a0x", "Über"]),
        ("character", "a É\n", ["a", " ", "É"]),
    ],
)
def test_what_the_units_are(unit: str, text: str, units: list[str]) -> None:
    assert hash_units(pa.array([text]), unit)[0].tolist() == [unit_hash(each.encode()) for each in units]


def test_the_end_of_each_line_that_is_not_blank_is_marked() -> None:
    hashes, counts = hash_units(pa.array(["a\n\n \nb", "", None, "c\n"]), "token", line_marks=True)
    assert [each == LINE_END for each in hashes.tolist()] == [False, True, False, True, False, True]
    assert counts.tolist() == [4, 0, 0, 2]


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(ValueError, match="unit = 'sentence' is not one of 'token', 'word', 'character'"):
        hash_units(pa.array(["a"]), "sentence")


@examples(100)
@given(texts=TEXTS, longest=st.integers(1, 4), bits=st.sampled_from([3, 10, 20]))
def test_vectors_products_and_steps_are_those_of_the_definition(texts: list[str], longest: int, bits: int) -> None:
    column = pa.array(texts, pa.string())

    def computed() -> list[list[float]]:
        vectors = ngram_vectors(column, "token", longest, bits)
        weights = np.linspace(-1, 1, 3 << bits, dtype=np.float32).reshape(-1, 3)
        squares = np.zeros_like(weights)
        rows = np.arange(len(texts))[::-1].copy()
        descend(vectors, rows, vectors.times(weights, rows) + 0.25, weights, squares, 0.5, 0.01)
        parts = (vectors.slots, vectors.values, vectors.ends, vectors.times(weights), weights, squares)
        return [part.ravel().tolist() for part in parts]

    found = computed()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "load", lambda name: None)
        assert computed() == found


def test_every_vector_has_the_length_one_and_depends_on_its_text_alone() -> None:
    texts = ["one two three two", "日本 the é", "x"]
    vectors = ngram_vectors(pa.array(texts), "token", 2, 20)
    for row, text in enumerate(texts):
        inside = slice(vectors.ends[row], vectors.ends[row + 1])
        assert (vectors.values[inside].astype(float) ** 2).sum() == pytest.approx(1)
        alone = ngram_vectors(pa.array([text]), "token", 2, 20)
        assert alone.slots.tolist() == vectors.slots[inside].tolist()


def test_rows_one_after_another() -> None:
    column = pa.array(["a b", "", "c a"])
    parts = [ngram_vectors(column.slice(begin, 2), "token", 2, 20) for begin in (0, 2)]
    whole, expected = SparseRows.concat(parts), ngram_vectors(column, "token", 2, 20)
    assert (whole.slots.tolist(), whole.ends.tolist()) == (expected.slots.tolist(), expected.ends.tolist())
