"""Proposed thresholds keep what they are to keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.analysis.thresholds import bound_fields, chosen, kept_by, propose, propose_together
from tamis.errors import PlanError
from tamis.stages.text.filters import NumbersFilter, RepeatedLinesFilter, UrlsFilter, WordCountFilter
from tamis.stages.text.statistics.measures import default_filters

SHARES = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
ROWS = st.lists(st.tuples(st.integers(0, 5000), SHARES, SHARES, SHARES), min_size=1, max_size=60)
FILTERS = [WordCountFilter(), UrlsFilter(), NumbersFilter(), RepeatedLinesFilter()]


def scores_of(rows: list[tuple[int, float, float, float]]) -> dict[str, np.ndarray]:
    columns = [np.array(column, np.float64) for column in zip(*rows, strict=True)]
    return {"words": columns[0], **{one.name: column for one, column in zip(FILTERS, columns, strict=True)}}


@examples(150)
@given(ROWS, st.floats(0.05, 1.0))
def test_together_they_keep_the_share_or_all_that_has_words(
    rows: list[tuple[int, float, float, float]], keep_rate: float
) -> None:
    scores = scores_of(rows)
    together = [proposal.filter for proposal in propose_together(FILTERS, scores, keep_rate)]
    kept, with_words = kept_by(together, scores), scores["words"] > 0
    assert kept.mean() >= keep_rate - 1e-9 or not with_words.any() or kept[with_words].all()


def test_not_much_more_is_kept_than_asked_for() -> None:
    rng = np.random.default_rng(3)
    rows = list(zip(rng.integers(1, 5000, 4000), *rng.random((3, 4000)), strict=True))
    scores = scores_of(rows)
    for keep_rate in (0.5, 0.9, 0.99):
        together = [proposal.filter for proposal in propose_together(FILTERS, scores, keep_rate)]
        assert keep_rate <= kept_by(together, scores).mean() < keep_rate + 0.005
        for one in FILTERS:
            assert keep_rate <= propose(one, scores, keep_rate).kept < keep_rate + 0.005


def test_every_threshold_has_a_parameter() -> None:
    for one in default_filters():
        if one.name == "PornographicUrlsFilter":
            assert bound_fields(one) == (None, None)
            continue
        low, high = bound_fields(one)
        assert (low is not None, high is not None) == tuple(bound is not None for bound in one.bounds())


def test_counts_stay_whole_numbers() -> None:
    scores = scores_of([(number, 0.1234567 * number / 60, 0.0, 1.0) for number in range(1, 61)])
    words, urls, *_ = (proposal.filter for proposal in propose_together(FILTERS, scores, 0.8))
    assert all(isinstance(bound, int) for bound in words.bounds())
    assert len(str(urls.bounds()[1])) <= len("0.1234")


def test_filters_by_name() -> None:
    assert [one.name for one in chosen(FILTERS, ["urls_ratio", "WordCountFilter"])] == ["urls_ratio", "word_count"]
    with pytest.raises(PlanError, match=r"no filter 'url_ratio', only .* Did you mean 'urls_ratio'"):
        chosen(FILTERS, ["url_ratio"])
