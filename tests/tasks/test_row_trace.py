"""Which rows a table was made of, where only the data and a pandas index can tell."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tamis.tasks import DocumentBatch
from tamis.tasks.row_trace import parents_of


def names(batch: DocumentBatch) -> list[str]:
    assert batch.names is not None
    return batch.names.to_texts()


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
