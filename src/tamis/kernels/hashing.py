"""Hashes of values that are equal on every machine, and the form of a text that exact deduplication compares."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.kernels import native
from tamis.kernels.buffers import TextBuffers, null_rows
from tamis.kernels.pieces import sum_of_pieces, words_inside
from tamis.kernels.utf8 import Utf8, spaces

__all__ = [
    "NULL_HASH",
    "NULL_HASH_64",
    "SECRET",
    "collapse_spaces",
    "hash_columns",
    "hash_text_64",
    "hash_text_128",
    "normalize_text",
]

NULL_HASH: Final = (0x7E5DC90380F0640B, 0xD6BCEC3C6B29D72E)
"""What a null hashes to with 128 bits: the hash of the byte 0xFF, which no UTF-8 text contains."""

NULL_HASH_64: Final = 0x7E5DC90380F0640B
"""What a null hashes to with 64 bits."""

SECRET: Final = np.frombuffer(
    bytes.fromhex(
        "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
        "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d"
        "8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
        "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
    ),
    np.uint8,
)
"""The default secret of XXH3."""

_BEYOND_INT64: Final = np.uint64(0x9E3779B97F4A7C15)


def hash_text_128(column: pa.Array | pa.ChunkedArray) -> NDArray[np.uint64]:
    """The XXH3 hash of each text's UTF-8 bytes: 128 bits as two numbers, the upper half first.

    The result depends on the text alone: not on the machine, the chunks of the column or its type. A null has the hash
    :data:`NULL_HASH`, which differs from that of an empty text.

    Args:
        column: Texts or byte strings of any Arrow type for them.

    >>> hashes = hash_text_128(pa.array(["a", "b", "a", None]))
    >>> hashes.shape, bool((hashes[0] == hashes[2]).all()), bool((hashes[0] == hashes[1]).any())
    ((4, 2), True, False)
    """
    hashes = np.empty((len(column), 2), np.uint64)
    done = 0
    for chunk in _chunks(column):
        part = hashes[done : done + len(chunk)]
        _hash_bytes(TextBuffers.of(chunk), part)
        if chunk.null_count:
            part[null_rows(chunk)] = NULL_HASH
        done += len(chunk)
    return hashes


def hash_text_64(column: pa.Array | pa.ChunkedArray) -> NDArray[np.uint64]:
    """The XXH3 hash of each text's UTF-8 bytes with 64 bits. A null is :data:`NULL_HASH_64`.

    Args:
        column: Texts or byte strings of any Arrow type for them.

    >>> hash_text_64(pa.array(["", None])).tolist()
    [3244421341483603138, 9105655038498333707]
    """
    return _value_hashes("the column", column) if len(column) else np.empty(0, np.uint64)


def hash_columns(table: pa.Table, names: Sequence[str]) -> NDArray[np.uint64]:
    """A hash of 64 bits for each row, over some of its columns: equal on every machine and for any chunks.

    It is the XXH3 hash of the hashes of the row's values. Numbers are hashed by their value: 1 in a column of ``int32``
    and 1.0 in one of ``float64`` are equal, as are 0.0 and -0.0, and all NaN. Texts and byte strings are hashed by
    their bytes. Dates, times and decimals are hashed by the number that stands for them, so equal values have equal
    hashes only in columns of the same unit or scale. Lists and structs are hashed by their values. The hash of a null
    differs from that of any value.

    Args:
        table: The rows.
        names: The columns that count, in this order.

    >>> rows = pa.table({"a": [1, 1, None], "b": ["x", "x", ""]})
    >>> first, second, third = hash_columns(rows, ["a", "b"]).tolist()
    >>> first == second, first == third
    (True, False)
    """
    if not names:
        raise ValueError("hash_columns needs at least one column")
    return _combined([_value_hashes(f"column {name!r}", table.column(name)) for name in names])


def normalize_text(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """The texts in lower case, with each run of white space as one space and none at the ends.

    This is ``" ".join(text.lower().split())``; characters younger than the Unicode tables of Python or of Polars may
    keep their case. A null stays a null. The result has the column's type and form (array or chunked array).

    Args:
        column: Texts: ``string``, ``large_string`` or ``string_view``.

    >>> normalize_text(pa.array([" Une  Été\\n", None])).to_pylist()
    ['une été', None]
    """
    import polars as pl

    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([normalize_text(chunk) for chunk in column.chunks], column.type)
    collapsed = [collapse_spaces(block).to_arrow() for block in Utf8.from_arrow(column).blocks()]
    lowered = pl.Series(pl.from_arrow(pa.chunked_array(collapsed, pa.large_string()))).str.to_lowercase().to_arrow()
    result = lowered.cast(column.type)
    return pc.if_else(pc.is_valid(column), result, pa.scalar(None, column.type)) if column.null_count else result


def collapse_spaces(block: Utf8) -> Utf8:
    """``" ".join(text.split())`` of each text.

    >>> collapse_spaces(Utf8.from_arrow(pa.array([" a  b\\n"]))).to_arrow().to_pylist()
    ['a b']
    """
    kept, data = ~spaces(block), block.data.copy()
    found = words_inside(block, kept)
    is_last = np.zeros(len(found.ends), np.bool_)
    is_last[np.cumsum(found.counts)[found.counts > 0] - 1] = True
    gaps = found.ends[~is_last]  # the first byte after each word that another one follows
    data[gaps], kept[gaps] = 0x20, True
    offsets = np.zeros(len(block) + 1, np.int64)
    np.cumsum(sum_of_pieces(found.ends - found.starts, found.counts) + np.maximum(found.counts - 1, 0), out=offsets[1:])
    return Utf8(data[kept], offsets)


def _chunks(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]


def _value_hashes(where: str, column: pa.Array | pa.ChunkedArray) -> NDArray[np.uint64]:
    """The hash of each value."""
    hashes = np.empty(len(column), np.uint64)
    done = 0
    for chunk in _chunks(column):
        part = hashes[done : done + len(chunk)]
        part[:] = _array_hashes(where, chunk)
        if chunk.null_count:
            part[null_rows(chunk)] = NULL_HASH_64
        done += len(chunk)
    return hashes


def _array_hashes(where: str, array: pa.Array) -> NDArray[np.uint64]:
    """The hash of each value; what stands in the place of a null means nothing."""
    kind, types = array.type, pa.types
    if TextBuffers.holds(kind):
        hashes = np.empty(len(array), np.uint64)
        _hash_bytes(TextBuffers.of(array), hashes)
        return hashes
    if types.is_null(kind):
        return np.full(len(array), NULL_HASH_64, np.uint64)
    if types.is_boolean(kind):
        return _array_hashes(where, array.cast(pa.int64()))
    if types.is_integer(kind):
        return _integer_hashes(_fixed_width(array))
    if types.is_floating(kind):
        return _float_hashes(_fixed_width(array).astype(np.float64))
    if types.is_dictionary(kind):
        return _value_hashes(where, array.dictionary_decode())
    if types.is_struct(kind):
        if not kind.num_fields:
            return np.zeros(len(array), np.uint64)
        return _combined([_value_hashes(where, child) for child in array.flatten()])
    if types.is_list(kind) or types.is_large_list(kind):
        return _list_hashes(where, array)
    if isinstance(array, pa.ExtensionArray):
        return _value_hashes(where, array.storage)
    if types.is_temporal(kind) or types.is_decimal(kind):
        return _row_hashes(_fixed_width(array).view(np.uint8).reshape(len(array), -1))
    raise TypeError(f"{where} is {kind}, which cannot be hashed: give it another type, or leave it out")


def _integer_hashes(values: NDArray[Any]) -> NDArray[np.uint64]:
    hashes = _row_hashes(values.astype("<i8")[:, None])
    if values.dtype == np.uint64:
        hashes[values >= np.uint64(1 << 63)] ^= _BEYOND_INT64  # which has the bits of a negative number
    return hashes


def _float_hashes(values: NDArray[np.float64]) -> NDArray[np.uint64]:
    with np.errstate(invalid="ignore"):
        is_whole = (np.floor(values) == values) & (np.abs(values) < float(1 << 63))
        numbers = np.where(is_whole, values, 0).astype("<i8")
    values = np.where(np.isnan(values), np.nan, values)
    hashes = _row_hashes(np.where(is_whole, numbers, values.astype("<f8").view("<i8"))[:, None])
    hashes[~is_whole] ^= _BEYOND_INT64  # so that it differs from the whole number with the same bits
    return hashes


def _list_hashes(where: str, array: pa.Array) -> NDArray[np.uint64]:
    items = _value_hashes(where, array.values).astype("<u8").view(np.uint8)
    hashes = np.empty(len(array), np.uint64)
    _hash_bytes(TextBuffers(items, np.asarray(array.offsets).astype(np.int64) * 8), hashes)
    return hashes


def _combined(columns: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    """One hash for each row of several columns of hashes."""
    return _row_hashes(np.stack(columns, axis=1).astype("<u8"))


def _row_hashes(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """The hash of the bytes of each row of a matrix."""
    rows = np.ascontiguousarray(rows)
    hashes = np.empty(len(rows), np.uint64)
    width = rows.strides[0] if len(rows) else 0
    _hash_bytes(TextBuffers(rows.reshape(-1).view(np.uint8), np.arange(len(rows) + 1) * width), hashes)
    return hashes


def _fixed_width(array: pa.Array) -> NDArray[Any]:
    """The values of a column of fixed width as they are in memory, 16 or 32 bytes as pairs or quadruples of words."""
    bits = array.type.bit_width
    dtype = np.dtype(array.type.to_pandas_dtype()) if pa.types.is_integer(array.type) else np.dtype(f"V{bits // 8}")
    if pa.types.is_floating(array.type):
        dtype = np.dtype(f"f{bits // 8}")
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def _hash_bytes(texts: TextBuffers, hashes: NDArray[np.uint64]) -> None:
    """Write the hash of each text into a row: 64 bits, or 128 where a row has two places."""
    width = 1 if hashes.ndim == 1 else 2
    kernel = native.load("xxh3")
    if kernel is not None:
        kernel(texts.data, texts.offsets, len(texts), SECRET, np.empty(8, np.uint64), width, hashes)
        return
    import xxhash

    digest = xxhash.xxh3_64_digest if width == 1 else xxhash.xxh3_128_digest
    data = texts.data.data
    joined = b"".join([digest(data[begin:end]) for begin, end in pairwise(texts.offsets.tolist())])
    hashes[:] = np.frombuffer(joined, ">u8").reshape(hashes.shape)
