"""A shuffle is a permutation, and the same one for everybody."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.errors import DataError, PlanError
from tamis.stages.mixing import GlobalShuffle
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage


def batches(count: int, size: int) -> list[DocumentBatch]:
    return [DocumentBatch({"n": list(range(i, min(i + size, count)))}) for i in range(0, count, size)]


def order(stage: GlobalShuffle, tasks: list[DocumentBatch]) -> list[int]:
    return [row["n"] for row in run_stage(stage, tasks)]


@examples(12)
@given(
    count=st.integers(1, 120),
    sizes=st.tuples(st.integers(5, 100), st.integers(5, 100)),
    partitions=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    partition_bytes=st.sampled_from([64, 500, 2**20]),
)
def test_with_ids_neither_batches_nor_partitions_nor_passes_matter(
    count: int, sizes: tuple[int, int], partitions: tuple[int, int], partition_bytes: int
) -> None:
    one = order(GlobalShuffle(id_fields=["n"], partitions=partitions[0]), batches(count, sizes[0]))
    small = GlobalShuffle(id_fields=["n"], partitions=partitions[1], partition_bytes=partition_bytes)
    assert sorted(one) == list(range(count))
    assert order(small, batches(count, sizes[1])) == one


def test_places_give_the_same_order_for_any_partitions() -> None:
    tasks = batches(500, 60)
    assert order(GlobalShuffle(partitions=1), tasks) == order(GlobalShuffle(partitions=7, partition_bytes=300), tasks)


def test_the_order_looks_random() -> None:
    """Of the rows next to each other about half must ascend, and the rows of a batch must be spread over the whole."""
    shuffled = np.array(order(GlobalShuffle(seed=5), batches(4000, 500)))
    assert 0.46 < (np.diff(shuffled) > 0).mean() < 0.54
    places = np.argsort(shuffled)
    for start in range(0, 4000, 500):
        assert 1750 < places[start : start + 500].mean() < 2250
    assert abs(np.corrcoef(np.arange(4000), places)[0, 1]) < 0.06


def test_another_seed_gives_another_order() -> None:
    assert order(GlobalShuffle(seed=1), batches(50, 50)) != order(GlobalShuffle(seed=2), batches(50, 50))


def test_batches_of_different_columns_meet() -> None:
    tasks = [DocumentBatch({"n": [1, 2]}), DocumentBatch({"n": [3], "text": ["a"]})]
    assert sorted(run_stage(GlobalShuffle(partitions=1), tasks), key=lambda row: row["n"]) == [
        {"n": 1, "text": None},
        {"n": 2, "text": None},
        {"n": 3, "text": "a"},
    ]


def test_batches_whose_types_do_not_go_together_are_an_error_that_names_the_column() -> None:
    tasks = [DocumentBatch({"n": [1, 2], "meta": ["a", "b"]}), DocumentBatch({"n": [3], "meta": [{"a": 1}]})]
    with pytest.raises(DataError, match=r"Field meta has incompatible types[^\n]*\n.*types=\{\.\.\.\}"):
        run_stage(GlobalShuffle(partitions=1), tasks)


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="partitions=0"):
        GlobalShuffle(partitions=0)
    with pytest.raises(PlanError, match="list of column names"):
        GlobalShuffle(id_fields="id")  # type: ignore[arg-type]  # the error is the point
