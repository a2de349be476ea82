"""Which document of a group stays: ranks follow the order of the values, for every type and across batches."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.errors import ColumnError, PlanError
from tamis.stages.deduplication.keep import LAST, Keep
from tamis.tasks import TableTask


def ranks(rule: str, values: Any, kind: pa.DataType | None = None) -> np.ndarray[Any, Any]:
    column = values if isinstance(values, pa.Array) else pa.array(values, kind)
    found = Keep.parse(rule).ranks(TableTask(pa.table({"v": column})), "v")
    assert found is not None
    assert found.dtype == np.uint64
    return found


numbers = st.one_of(st.integers(-(2**53), 2**53), st.floats(allow_nan=False))


@given(st.lists(numbers, min_size=1), st.lists(numbers, min_size=1))
def test_ranks_of_numbers_follow_their_order_across_batches_of_different_types(
    some: list[float], more: list[float]
) -> None:
    for rule, sign in (("lowest:v", 1), ("highest:v", -1)):
        found = [*ranks(rule, some_type(some)), *ranks(rule, some_type(more))]
        order = [math.inf if math.isnan(n) else sign * n for n in [*some, *more]]
        for i in range(len(order)):
            for j in range(len(order)):
                assert (order[i] < order[j]) == (found[i] < found[j]) or order[i] == order[j]
                assert order[i] != order[j] or found[i] == found[j]


def some_type(values: list[float]) -> pa.Array:
    return pa.array(values, pa.int64() if all(isinstance(v, int) for v in values) else pa.float64())


@pytest.mark.parametrize(
    ("kind", "rising"),
    [
        (pa.int8(), [-128, -1, 0, 127]),
        (pa.uint64(), [0, 1, 2**63, 2**64 - 2**20]),
        (pa.float32(), [-math.inf, -0.5, 0.0, math.inf]),
        (pa.bool_(), [False, True]),
        (pa.decimal128(5, 2), [decimal.Decimal("-1.50"), decimal.Decimal("0.25")]),
        (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2026, 1, 1)]),
        (pa.date64(), [dt.date(1, 1, 1), dt.date(2026, 1, 1)]),
        (pa.timestamp("s"), [dt.datetime(1, 1, 1), dt.datetime(2026, 1, 1)]),
        (pa.timestamp("ms"), [dt.datetime(1969, 12, 31), dt.datetime(2026, 1, 1)]),
        (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 1), dt.datetime(2026, 1, 1, 0, 0, 0, 1)]),
        (pa.timestamp("ns"), [dt.datetime(1969, 12, 31), dt.datetime(2026, 1, 1)]),
    ],
    ids=str,
)
def test_every_type_and_its_nulls(kind: pa.DataType, rising: list[Any]) -> None:
    column = pa.array([None, *rising, None], kind)
    for values in (column, column.dictionary_encode()) if not pa.types.is_boolean(kind) else (column,):
        low, high = ranks("lowest:v", values), ranks("highest:v", values)
        assert low[0] == low[-1] == high[0] == high[-1] == LAST
        assert np.argsort(low[1:-1]).tolist() == list(range(len(rising)))
        assert np.argsort(high[1:-1]).tolist() == list(range(len(rising)))[::-1]
        assert max(low[1:-1].max(), high[1:-1].max()) < LAST


def test_times_of_different_units_compare() -> None:
    noon, later = dt.datetime(2026, 1, 1, 12), dt.datetime(2026, 1, 1, 12, 0, 0, 1)
    found = [
        ranks("lowest:v", [dt.date(2026, 1, 1)], pa.date32()),
        ranks("lowest:v", [noon], pa.timestamp("s")),
        ranks("lowest:v", [noon], pa.timestamp("ns", "UTC")),
        ranks("lowest:v", [later], pa.timestamp("us")),
    ]
    day, second, nano, micro = (int(r[0]) for r in found)
    assert day < second == nano < micro


def test_nan_and_columns_without_a_value_lose() -> None:
    assert ranks("highest:v", [math.nan, -math.inf]).tolist()[0] == LAST
    assert ranks("lowest:v", [None, None], pa.null()).tolist() == [LAST, LAST]


def test_the_longest_is_measured_in_bytes() -> None:
    for kind in (pa.string(), pa.large_string(), pa.binary()):
        found = ranks("longest", ["éé", "abc", None, ""], kind)
        assert np.argsort(found).tolist() == [0, 1, 3, 2]


def test_the_first_needs_no_ranks() -> None:
    assert Keep.parse("first").ranks(TableTask({"text": ["a"]}), "text") is None


@pytest.mark.parametrize("wrong", ["", "longest:", "first:a", "highest", "highest:", "lowset:a"])
def test_wrong_rules(wrong: str) -> None:
    with pytest.raises(PlanError, match="keep="):
        Keep.parse(wrong)


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.int64()), pa.duration("s")], ids=str)
def test_values_without_an_order(kind: pa.DataType) -> None:
    with pytest.raises(ColumnError, match="can be compared"):
        ranks("highest:v", [None], kind)


def test_text_is_how_a_rule_is_written() -> None:
    for text in ("first", "longest", "highest:a:b", "lowest:x"):
        assert str(Keep.parse(text)) == text
    assert Keep.parse("highest:a:b").columns == ["a:b"]
