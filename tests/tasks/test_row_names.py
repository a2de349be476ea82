"""The names of rows: made, chosen, divided, put together, and found missing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.tasks import RowNames
from tamis.tasks.row_names import missing_rows

POSITIONS = st.lists(st.integers(0, 50), min_size=1, max_size=10, unique=True)


@given(st.lists(POSITIONS, min_size=1, max_size=4))
def test_columns_and_back_change_nothing(sources: list[list[int]]) -> None:
    pieces = [RowNames((f"f{i}",), np.array(p)) for i, p in enumerate(sources)]
    names = RowNames.concat(pieces)
    table, back = RowNames.taken_from(names.added_to(pa.table({"x": list(range(len(names)))})))
    assert back is not None
    assert table.column_names == ["x"]
    assert back.to_texts() == names.to_texts() == [f"f{i}:{p}" for i, ps in enumerate(sources) for p in ps]


@given(st.lists(POSITIONS, min_size=1, max_size=3), st.data())
def test_what_is_missing_is_what_was_left_out(sources: list[list[int]], data: st.DataObject) -> None:
    names = RowNames.concat([RowNames((f"f{i}",), np.array(p)) for i, p in enumerate(sources)])
    left = sorted(data.draw(st.sets(st.integers(0, len(names) - 1))))
    kept = [row for row in range(len(names)) if row not in left]
    assert missing_rows(names, [names.take(kept[::2]), names.take(kept[1::2])]).tolist() == left


@pytest.mark.parametrize("position", [2**62, -1])
def test_rows_at_any_position_are_missed(position: int) -> None:
    names = RowNames(("a", "b", "c"), np.array([position, position, 0]), np.array([0, 1, 2], np.int32))
    assert missing_rows(names, [names.take([0])]).tolist() == [1, 2]


def test_a_row_is_there_if_a_piece_of_it_is() -> None:
    names = RowNames.numbered("a", 3)
    assert missing_rows(names, [names.divided(np.array([0, 0, 2]))]).tolist() == [1]


def test_pieces_of_pieces_have_the_whole_way_back() -> None:
    pieces = RowNames.numbered("a", 1).divided(np.array([0, 0])).divided(np.array([1, 1]))
    assert pieces.to_texts() == ["a:0/1/0", "a:0/1/1"]
