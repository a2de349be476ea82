"""Arrays from NumPy to Arrow and back, without importing pandas.

``pa.array``, ``pa.scalar`` and ``Array.to_numpy`` do the same and more, but the first call of any of them imports
pandas if it is installed, which takes longer than everything else in a small run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["arrow_array", "numpy_array", "one_array", "text_array", "text_scalar"]

_NUMBERS = {
    np.dtype(kind.to_pandas_dtype()): kind
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64()),
    )
}
_LONGEST = np.iinfo(np.int32).max
_DTYPES = {kind: dtype for dtype, kind in _NUMBERS.items()}


def arrow_array(values: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """A NumPy array of numbers or truth values as an Arrow array, which shares the memory of numbers.

    Args:
        values: The values.
        missing: Which of them are null.

    >>> arrow_array(np.array([1.5, 2.5]), missing=np.array([False, True])).to_pylist()
    [1.5, None]
    """
    is_truth = values.dtype == np.bool_
    kind = pa.bool_() if is_truth else _NUMBERS.get(values.dtype)
    if kind is None or values.ndim != 1:
        return pa.array(values, mask=missing)
    held = np.packbits(values, bitorder="little") if is_truth else np.ascontiguousarray(values)
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(held)])


def numpy_array(values: pa.Array | pa.ChunkedArray | NDArray[Any]) -> NDArray[Any]:
    """An Arrow array of numbers or truth values as a NumPy array, which shares the memory of numbers in one chunk.

    Anything else, such as an array with nulls, is converted by ``np.asarray``.

    >>> from pyarrow import chunked_array
    >>> numpy_array(chunked_array([[True, False], [True]])).tolist()
    [True, False, True]
    """
    if not isinstance(values, pa.Array | pa.ChunkedArray) or values.null_count:
        return np.asarray(values)
    is_truth = pa.types.is_boolean(values.type)
    if not is_truth and values.type not in _DTYPES:
        return np.asarray(values)
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    arrays = [_truth_values(chunk) if is_truth else _numbers(chunk) for chunk in chunks]
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.zeros(0, np.bool_ if is_truth else _DTYPES[values.type])


def one_array(values: Any) -> pa.Array:
    """Values in any of the usual forms as one Arrow array.

    >>> one_array(pa.chunked_array([[1, 2], [3]])).to_pylist(), one_array(n for n in (1, 2)).to_pylist()
    ([1, 2, 3], [1, 2])
    """
    if isinstance(values, pa.ChunkedArray):
        return pa.concat_arrays(values.chunks) if values.num_chunks else pa.nulls(0, values.type)
    if isinstance(values, np.ndarray):
        return arrow_array(values)
    if hasattr(values, "to_arrow"):
        return one_array(values.to_arrow())
    if isinstance(values, pa.Array):
        return values
    return pa.array(values if isinstance(values, Sequence) or not isinstance(values, Iterable) else list(values))


def text_array(texts: Sequence[str]) -> pa.Array:
    """Texts as an Arrow array of type ``string``.

    >>> text_array(["a", "été"]).to_pylist()
    ['a', 'été']
    """
    encoded = [text.encode() for text in texts]
    ends = list(itertools.accumulate(map(len, encoded), initial=0))
    if ends[-1] > _LONGEST:
        return pa.array(texts, pa.string())  # says that they are too long
    offsets = pa.py_buffer(np.array(ends, np.int32))
    return pa.StringArray.from_buffers(len(encoded), offsets, pa.py_buffer(b"".join(encoded)))


def text_scalar(text: str) -> pa.Scalar:
    """A text as an Arrow scalar of type ``large_string``.

    >>> text_scalar("a").as_py()
    'a'
    """
    return text_array([text]).cast(pa.large_string())[0]


def _numbers(chunk: pa.Array) -> NDArray[Any]:
    dtype = _DTYPES[chunk.type]
    if not len(chunk):
        return np.zeros(0, dtype)
    return np.frombuffer(chunk.buffers()[1], dtype, len(chunk), chunk.offset * dtype.itemsize)


def _truth_values(chunk: pa.Array) -> NDArray[np.bool_]:
    if not len(chunk):
        return np.zeros(0, np.bool_)
    bits = np.frombuffer(chunk.buffers()[1], np.uint8)
    return np.unpackbits(bits, count=chunk.offset + len(chunk), bitorder="little")[chunk.offset :].view(np.bool_)
