"""N-grams of any length are counted as the filters' plain definitions count them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.stages.text.filters import RepeatingDuplicateNGramsFilter, RepeatingTopNGramsFilter
from tamis.stages.text.filters.measured import Criterion, MeasuredFilter, measure

SPACES = st.sampled_from([" ", "  ", "\n", "\u3000"])
WORDS = st.lists(st.tuples(st.sampled_from(["a", "b", "ab", "é", "a\0", "much-longer-words"]), SPACES), max_size=90)
TEXTS = st.lists(WORDS.map(lambda words: "".join(word + space for word, space in words)), min_size=1, max_size=3)
FILTERS = st.sampled_from([RepeatingTopNGramsFilter, RepeatingDuplicateNGramsFilter])
SIZES = st.one_of(st.integers(1, 40), st.sampled_from([64, 90, 200]))


def assert_as_defined(texts: list[str], filters: list[MeasuredFilter]) -> None:
    measured = measure(pa.chunked_array([pa.array(texts)]), [Criterion(each, decides=False) for each in filters])
    for number, each in enumerate(filters):
        assert measured.scores_of(number).tolist() == [each.score_document(text) for text in texts], each


@examples(300)
@given(texts=TEXTS, wanted=st.lists(st.tuples(FILTERS, SIZES), min_size=1, max_size=5))
def test_ngrams_of_any_length_in_any_order(texts: list[str], wanted: list[tuple[type[MeasuredFilter], int]]) -> None:
    assert_as_defined(texts, [make(n=n) for make, n in wanted])  # type: ignore[call-arg]  # both have an n


@pytest.mark.parametrize("n", [1024, 2000])
def test_ngrams_that_collide_where_hashes_overflow_are_told_apart(n: int) -> None:
    # Sequences of Thue and Morse: polynomials of them are equal modulo any power of two.
    signs = [bin(i).count("1") % 2 for i in range(2 * n)]
    text = " ".join("ab"[sign] for sign in signs[:n]) + " end " + " ".join("ba"[sign] for sign in signs[:n])
    assert_as_defined([text], [RepeatingDuplicateNGramsFilter(n=n), RepeatingTopNGramsFilter(n=n)])


def test_no_text_has_ngrams_of_a_length_beyond_all_bounds() -> None:
    filters = [RepeatingDuplicateNGramsFilter(n=10**30), RepeatingTopNGramsFilter(n=2**63)]
    measured = measure(pa.chunked_array([["a b c"]]), [Criterion(each, decides=False) for each in filters])
    assert [measured.scores_of(number).tolist() for number in range(2)] == [[1.0], [1.0]]
