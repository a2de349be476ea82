"""Arrays from NumPy to Arrow and back: the same as pyarrow makes them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_st

from tamis.arrays import arrow_array, numpy_array, text_array, text_scalar

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]
ARRAYS = st.sampled_from(DTYPES).flatmap(lambda dtype: numpy_st.arrays(dtype, st.integers(0, 20)))


def same(a: pa.Array, b: pa.Array) -> bool:
    return bool(a.type == b.type and repr(a.to_pylist()) == repr(b.to_pylist()))  # by repr: NaN equals NaN


@given(ARRAYS, st.data())
def test_an_arrow_array_is_as_pyarrow_makes_it(values: np.ndarray, data: st.DataObject) -> None:
    missing = data.draw(numpy_st.arrays("?", len(values)))
    made = arrow_array(values, missing)
    made.validate(full=True)
    assert same(arrow_array(values), pa.array(values))
    assert same(made, pa.array(values, mask=missing))
    assert same(arrow_array(values[::2]), pa.array(values[::2]))


@given(ARRAYS, st.integers(0, 20), st.integers(0, 20))
def test_a_numpy_array_is_as_pyarrow_makes_it(values: np.ndarray, start: int, length: int) -> None:
    part = pa.array(values).slice(start, length)
    for column in (part, pa.chunked_array([part, part]), pa.chunked_array([], part.type)):
        found, expected = numpy_array(column), np.asarray(column)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("values", [[1, None, 3], [True, None], ["a", "b"], [[1], [2, 3]], []])
def test_what_numpy_has_no_type_for_is_left_to_pyarrow(values: list[object]) -> None:
    array = pa.array(values)
    assert numpy_array(array).dtype == np.asarray(array).dtype
    assert repr(numpy_array(array).tolist()) == repr(np.asarray(array).tolist())


def test_other_numpy_arrays_are_left_to_pyarrow() -> None:
    texts = np.array(["a", "b"])
    assert arrow_array(texts).to_pylist() == ["a", "b"]
    assert numpy_array(texts) is texts


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts(texts: list[str]) -> None:
    made = text_array(texts)
    made.validate(full=True)
    assert made.type == pa.string()
    assert made.to_pylist() == texts
    assert [text_scalar(text).as_py() for text in texts] == texts


def test_numbers_are_not_copied() -> None:
    values = np.arange(3)
    array = arrow_array(values)
    values[0] = 7
    assert array.to_pylist() == [7, 1, 2]
    assert np.shares_memory(numpy_array(array), values)
