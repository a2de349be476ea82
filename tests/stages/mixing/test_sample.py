"""Samples: as large as asked for, and the same for everybody who takes them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.errors import PlanError
from tamis.stages.mixing import Sample
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage

ROWS = [{"id": f"doc {i}", "lang": "en" if i % 3 else "de", "n": i} for i in range(600)]


def batches(rows: list[dict[str, Any]], size: int) -> list[DocumentBatch]:
    return [DocumentBatch(rows[i : i + size]) for i in range(0, len(rows), size)]


def test_a_share_is_kept_about() -> None:
    run = run_stage(Sample(fraction=0.25), batches(ROWS * 10, 500))
    assert 1350 < len(run) < 1650
    assert len(run) + len(run.dropped) == 6000
    assert {dropped.reason for dropped in run.dropped} == {"not sampled"}


@pytest.mark.parametrize(("fraction", "kept"), [(0.0, 0), (1.0, 600)])
def test_nothing_and_everything(fraction: float, kept: int) -> None:
    assert len(run_stage(Sample(fraction=fraction), ROWS)) == kept
    assert len(run_stage(Sample(fraction=fraction, by="lang"), ROWS)) == kept


def test_another_seed_chooses_other_rows() -> None:
    one, other = (run_stage(Sample(fraction=0.5, seed=seed), ROWS) for seed in (1, 2))
    assert one != other


@pytest.mark.parametrize("rows", [0, 1, 100, 600, 1000])
def test_a_number_of_rows_is_exact_and_they_stay_in_order(rows: int) -> None:
    run = run_stage(Sample(rows=rows), batches(ROWS, 70))
    kept = [row["n"] for row in run]
    assert len(kept) == min(rows, 600)
    assert kept == sorted(set(kept))
    assert len(run.dropped) == 600 - len(kept)


def test_of_each_value_as_many() -> None:
    run = run_stage(Sample(rows=30, by="lang"), batches(ROWS, 70))
    assert Counter(row["lang"] for row in run) == {"en": 30, "de": 30}


def test_of_each_value_the_same_share_exactly() -> None:
    run = run_stage(Sample(fraction=0.1, by="lang"), batches(ROWS, 70))
    assert Counter(row["lang"] for row in run) == {"en": 40, "de": 20}


def test_nulls_are_a_value_too() -> None:
    rows = [{"lang": None, "n": n} for n in range(10)] + [{"lang": "en", "n": n} for n in range(10)]
    assert Counter(row["lang"] for row in run_stage(Sample(rows=3, by="lang"), rows)) == {None: 3, "en": 3}


@examples(20)
@given(
    sizes=st.tuples(st.integers(1, 200), st.integers(1, 200)),
    keys=st.lists(st.integers(0, 30), min_size=1, max_size=120),
    how=st.sampled_from([{"fraction": 0.3}, {"rows": 7}, {"rows": 3, "by": "group"}, {"fraction": 0.5, "by": "group"}]),
)
def test_with_ids_the_cut_into_batches_does_not_matter(
    sizes: tuple[int, int], keys: list[int], how: dict[str, Any]
) -> None:
    rows = [{"id": key, "group": key % 2, "n": n} for n, key in enumerate(keys)]
    one, other = (list(run_stage(Sample(id_fields=["id"], **how), batches(rows, size))) for size in sizes)
    assert one == other


@pytest.mark.parametrize(
    "wrong",
    [{}, {"fraction": 0.1, "rows": 3}, {"fraction": 1.5}, {"rows": -1}, {"fraction": 0.1, "id_fields": "id"}],
)
def test_wrong_parameters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        Sample(**wrong)


def test_a_column_that_is_not_there_is_refused_with_a_hint() -> None:
    with pytest.raises(Exception, match="'lang'"):
        run_stage(Sample(rows=1, by="langs"), ROWS[:3])
