"""Rows of a table that other code made of a batch are found again by their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.tasks import DocumentBatch
from tamis.tasks.row_trace import UNKNOWN, parents_of

BEFORE = pa.table({"id": [7, 8, 9, 10], "lang": ["en", "de", "en", "de"], "text": ["a", "b", "a", "c"]})


def test_rows_that_a_filter_left_are_found() -> None:
    assert parents_of(BEFORE, BEFORE.filter(pa.array([False, True, False, True]))).tolist() == [1, 3]


def test_sorted_rows_are_found() -> None:
    assert parents_of(BEFORE, BEFORE.sort_by([("id", "descending")])).tolist() == [3, 2, 1, 0]


def test_a_changed_column_does_not_mislead() -> None:
    after = BEFORE.take([3, 1]).set_column(2, "text", pa.array(["a", "b"]))
    assert parents_of(BEFORE, after).tolist() == [3, 1]


def test_numbers_that_were_given_anew_do_not_mislead() -> None:
    before = pa.table({"rank": [0, 1, 2], "text": ["x", "y", "z"]})
    after = pa.table({"rank": [0, 1], "text": ["y", "z"]})
    assert parents_of(before, after).tolist() == [1, 2]


def test_equal_rows_are_matched_in_their_order() -> None:
    before = pa.table({"text": ["a", "b", "a", "a"]})
    assert parents_of(before, pa.table({"text": ["a", "a", "b"]})).tolist() == [0, 2, 1]


def test_copies_of_a_row_have_the_same_parent() -> None:
    before = pa.table({"id": [1, 2]})
    assert parents_of(before, pa.table({"id": [1, 2, 2, 2]})).tolist() == [0, 1, 1, 1]


def test_rows_that_were_changed_altogether_are_the_same_rows_if_none_is_missing() -> None:
    assert parents_of(pa.table({"text": ["a", "b"]}), pa.table({"text": ["A", "B"]})).tolist() == [0, 1]


def test_rows_that_were_changed_altogether_are_unknown_if_some_are_missing() -> None:
    assert parents_of(pa.table({"text": ["a", "b"]}), pa.table({"text": ["A"]})).tolist() == [UNKNOWN]


def test_types_that_pandas_changed_are_compared_by_value() -> None:
    before = pa.table({"n": pa.array([1, None, 3]), "text": pa.array(["x", "y", None], pa.large_string())})
    after = pa.Table.from_pandas(before.to_pandas().iloc[[2, 0]], preserve_index=False)
    assert parents_of(before, after).tolist() == [2, 0]


@given(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=2)), max_size=12), st.randoms())
def test_any_selection_is_found_up_to_equal_rows(rows: list[tuple[int, str]], random: Any) -> None:
    before = pa.table(
        {"n": pa.array([n for n, _ in rows], pa.int64()), "text": pa.array([t for _, t in rows], pa.string())}
    )
    chosen = [i for i in range(len(rows)) if random.random() < 0.5]
    random.shuffle(chosen)
    found = parents_of(before, before.take(pa.array(chosen, pa.int64())))
    assert [rows[i] for i in found] == [rows[i] for i in chosen]
    assert len(set(found.tolist())) == len(found)


# -- through a batch -------------------------------------------------------------------------------------------------


@pytest.fixture
def batch() -> DocumentBatch:
    return DocumentBatch(BEFORE).named("in.jsonl")


def names(batch: DocumentBatch) -> list[str]:
    assert batch.names is not None
    return batch.names.to_texts()


def test_names_follow_a_filtered_frame(batch: DocumentBatch) -> None:
    frame = batch.to_pandas()
    batch.data = frame[frame["lang"] == "de"]
    assert names(batch) == ["in.jsonl:1", "in.jsonl:3"]


def test_names_follow_the_index_where_the_values_tell_nothing(batch: DocumentBatch) -> None:
    frame = batch.columns(["text"]).to_pandas()
    frame["text"] = frame["text"] + "!"
    assert names(batch.with_table(frame[[False, True, False, True]])) == ["in.jsonl:1", "in.jsonl:3"]


def test_names_follow_a_chain_of_operations(batch: DocumentBatch) -> None:
    kept = batch.keep([True, False, True, True], reason="no")
    longer = kept.with_column("n", [1, 2, 3]).select([0, 2])
    assert names(longer) == ["in.jsonl:0", "in.jsonl:3"]
    assert [drop.rows.tolist() for drop in longer.dropped] == [[1]]


def test_pieces_are_numbered_and_join_again(batch: DocumentBatch) -> None:
    pieces = batch.derived(pa.table({"text": list("abc")}), [0, 0, 1])
    assert names(pieces) == ["in.jsonl:0/0", "in.jsonl:0/1", "in.jsonl:1"]
    assert pieces.names is not None
    assert pieces.names.joined(np.array([0, 2]), np.array([2, 1])).to_texts() == ["in.jsonl:0", "in.jsonl:1"]


@pytest.mark.parametrize("kept", [[1, 2], [0, 2], [2], [1, 3]])
def test_of_equal_rows_the_index_of_a_frame_tells_which_are_left(kept: list[int]) -> None:
    batch = DocumentBatch({"text": ["a", "a", "b", "b"]}).named("x")
    frame = batch.to_pandas()
    made = DocumentBatch(frame.iloc[kept])
    made.made_of(batch)
    assert names(made) == [f"x:{row}" for row in kept]


def test_values_overrule_an_index_that_was_renumbered() -> None:
    before = pa.table({"text": ["a", "b", "c"]})
    after = pa.table({"text": ["c", "a"]})
    assert parents_of(before, after, np.array([1, 2])).tolist() == [2, 0]


def test_a_new_frame_has_an_index_that_says_nothing() -> None:
    batch = DocumentBatch({"text": ["a", "b", "c"]}).named("x")
    made = DocumentBatch(pd.DataFrame({"other": [1, 2]}))
    made.made_of(batch)
    assert names(made) == ["made of x:0", "made of x:1"]


def test_columns_with_dictionaries_are_compared() -> None:
    before = pa.table({"lang": pa.array(["en", "de", "fr"]).dictionary_encode()})
    after = pa.table({"lang": pa.array(["fr", "en"]).dictionary_encode()})
    assert parents_of(before, after).tolist() == [2, 0]


@pytest.mark.parametrize("rows", [[2, 0], [0, 0], [-1], [4], [3, 4]])
def test_a_selection_that_would_mix_up_the_names_is_refused(batch: DocumentBatch, rows: list[int]) -> None:
    with pytest.raises(ValueError, match="ascending, each at most once, from 0 to 3"):
        batch.select(rows)


def test_a_table_of_other_rows_is_not_taken_for_the_same_ones(batch: DocumentBatch) -> None:
    with pytest.raises(ValueError, match="1 rows for 4"):
        batch.with_same_rows(batch.data.slice(0, 1))


@pytest.mark.parametrize("parents", [[0], [0, 4], [-1, 0]])
def test_parents_that_are_not_there_are_refused(batch: DocumentBatch, parents: list[int]) -> None:
    with pytest.raises(ValueError, match="parents for 2 rows"):
        batch.derived(pa.table({"text": ["a", "b"]}), parents)


@pytest.mark.parametrize("kind", ["boolean", "bool[pyarrow]", object])
def test_a_missing_value_in_a_mask_of_pandas_is_false(batch: DocumentBatch, kind: Any) -> None:
    assert names(batch.keep(pd.Series([True, None, False, True], dtype=kind))) == ["in.jsonl:0", "in.jsonl:3"]
