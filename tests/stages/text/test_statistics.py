"""Summaries of documents: what they count, and that it does not matter how they are put together."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from property_tests import examples

from tamis.errors import DataError
from tamis.stages.text.filters import UrlsFilter, WordCountFilter
from tamis.stages.text.statistics import TextStatistics, TextSummary, merge_summaries
from tamis.stages.text.statistics.measures import bin_edges, bin_of, default_filters
from tamis.tasks import DocumentBatch, RowNames
from tamis.testing import run_stage

PARTS = ("totals", "columns", "histogram", "decisions", "hashes", "sample")
WORDS = st.sampled_from(["the", "and", "né", "語", "42", "http://a.org/x", "\n", "...", "# #"])
TEXTS = st.lists(st.one_of(st.none(), st.lists(WORDS, max_size=8).map(" ".join)), max_size=24)


def placed(texts: list[str | None], first: int = 0) -> DocumentBatch:
    """Documents of one file."""
    names = RowNames(("a.jsonl",), np.arange(first, first + len(texts)))
    return DocumentBatch({"text": pa.array(texts, pa.large_string())}).named(names)


def stage(max_sample: int = 100, max_hashes: int = 100) -> TextStatistics:
    return TextStatistics(languages=False, max_sample=max_sample, max_hashes=max_hashes)


def assert_same(one: TextSummary, other: TextSummary) -> None:
    for part in PARTS:
        assert_frame_equal(getattr(one, part), getattr(other, part))


def summary_of(texts: list[str | None]) -> TextSummary:
    return stage().summarize(placed(texts))


# --- what is counted ------------------------------------------------------------------------------------------------


def test_lengths_and_nulls_are_summed_up() -> None:
    texts = ["one two\n\nthree", "", None, " \n", "né"]
    summary = summary_of(texts)
    expected = {"read": 5, "documents": 5, "null": 1, "empty": 3, "bytes": 19, "characters": 18, "words": 4, "lines": 3}
    assert {name: summary.total(name) for name in expected} == expected


def test_columns_are_listed_with_types_and_nulls() -> None:
    batch = DocumentBatch({"text": ["a", "b"], "n": [1, None]})
    columns = stage().summarize(batch).columns
    assert columns.rows() == [("n", "int64", 2, 1), ("text", "string", 2, 0)]


def test_filters_count_what_they_drop_and_what_nobody_else_drops() -> None:
    filters = [WordCountFilter(min_words=3), UrlsFilter()]
    texts = ["one two three", "one two", "http://a.org/ http://b.org/ x", "http://a.org/"]
    summary = TextStatistics(filters=filters, languages=False).summarize(DocumentBatch({"text": texts}))
    assert summary.decisions.rows() == [("urls_ratio", 2, 1), ("word_count", 2, 1)]


def test_scores_are_those_of_the_filters() -> None:
    texts = ["the cat and the dog\n- a\n- a", "42 http://a.org/", ""]
    sample = summary_of(texts).sample.sort("position")
    for one in default_filters():
        assert sample[one.name].to_list() == [pytest.approx(one.score_document(text)) for text in texts]


def test_bins_hold_their_values() -> None:
    values = [0.0, 0.0014, 0.7, 0.9999, 1.0]
    for value, place in zip(values, bin_of(pl.Series(values).to_numpy(), True), strict=True):
        assert bin_edges(True)[place] <= value
        assert place == len(bin_edges(True)) - 1 or value < bin_edges(True)[place + 1]


def test_sites_of_addresses_and_links() -> None:
    batch = DocumentBatch(
        {"text": ["see https://www.B.org/x and http://a.org"], "url": ["https://WWW.example.com:80/"]}
    )
    (row,) = TextStatistics(url_field="url", languages=False).summarize(batch).sample.to_dicts()
    assert (row["site"], row["links"]) == ("example.com", ["a.org", "b.org"])


def test_language_and_script() -> None:
    batch = DocumentBatch(
        {"text": ["Die Bibliothek ist jeden Tag der Woche geöffnet.", "Библиотека открыта каждый день."]}
    )
    sample = TextStatistics().summarize(batch).sample
    assert set(sample.select("language", "script").rows()) == {("de", "Latn"), ("ru", "Cyrl")}


def test_a_column_without_text_is_refused() -> None:
    with pytest.raises(DataError, match=r"'n' holds int64, not text\n  Columns with text: text"):
        TextStatistics("n", languages=False).summarize(DocumentBatch({"text": ["a"], "n": [1]}))


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="fraction=0"):
        TextStatistics(fraction=0)
    with pytest.raises(ValueError, match="two filters have the same name"):
        TextStatistics(filters=[UrlsFilter(), UrlsFilter(0.5)])


# --- putting together -----------------------------------------------------------------------------------------------


@examples(40)
@given(TEXTS, st.lists(st.integers(0, 24), max_size=4), st.randoms(use_true_random=False), st.booleans())
def test_parts_make_the_whole_in_any_order(
    texts: list[str | None], cuts: list[int], rng: random.Random, one_worker: bool
) -> None:
    limits = {"max_sample": 6, "max_hashes": 5}
    whole = stage(**limits).summarize(placed(texts))
    edges = [0, *sorted(min(cut, len(texts)) for cut in cuts), len(texts)]
    parts = [placed(texts[a:b], a) for a, b in itertools.pairwise(edges)]
    rng.shuffle(parts)
    worker = stage(**limits)
    summaries = [(worker if one_worker else stage(**limits)).summarize(part) for part in parts]
    rng.shuffle(summaries)
    half = len(summaries) // 2
    grouped = [merged for some in (summaries[:half], summaries[half:]) if (merged := merge_summaries(some))]
    merged = merge_summaries(TextSummary.from_table(one.to_table()) for one in grouped)
    assert merged is not None
    assert_same(merged, merge_summaries([whole]) or whole)


@examples(30)
@given(TEXTS)
def test_different_texts_are_counted(texts: list[str | None]) -> None:
    distinct = summary_of(texts).distinct()
    assert (distinct.texts, distinct.error) == (len({text or "" for text in texts}), 0)


def test_different_texts_are_estimated_where_there_are_many() -> None:
    rng = random.Random(1)
    texts: list[str | None] = [str(rng.randrange(3000)) for _ in range(9000)]
    distinct = TextStatistics(languages=False, max_hashes=1000).summarize(placed(texts)).distinct()
    assert abs(distinct.texts - len(Counter(texts))) < 3 * distinct.error


def test_the_sample_is_a_fair_one() -> None:
    texts: list[str | None] = ["a" if number % 4 else "b" for number in range(8000)]
    sample = TextStatistics(languages=False, max_sample=1000).summarize(placed(texts)).sample
    assert len(sample) == 1000
    assert 0.2 < (sample["excerpt"] == "b").mean() < 0.3  # type: ignore[operator]  # a number


def test_a_fraction_is_chosen_by_what_the_documents_are() -> None:
    texts: list[str | None] = [f"text {number}" for number in range(4000)]
    whole = TextStatistics(languages=False, fraction=0.25).summarize(placed(texts))
    parts = [
        TextStatistics(languages=False, fraction=0.25).summarize(placed(texts[i : i + 500], i))
        for i in range(0, 4000, 500)
    ]
    merged = merge_summaries(parts)
    assert merged is not None
    assert 850 < whole.total("documents") < 1150
    assert whole.total("read") == 4000
    assert_same(whole, merged)


def test_the_stage_in_a_pipeline() -> None:
    (task,) = run_stage(TextStatistics(languages=False), [{"text": "a b"}, {"text": "a b"}]).tasks
    summary = TextSummary.from_table(task.data)
    assert (summary.total("documents"), summary.distinct().texts) == (2, 1)
