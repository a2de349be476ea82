"""Hashes of texts that are equal on every machine, and the form of a text that exact deduplication compares."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from numpy.typing import NDArray

from tamis.kernels.pieces import sum_of_pieces, words_inside
from tamis.kernels.utf8 import Utf8, spaces

__all__ = ["NULL_HASH", "hash_text_128", "normalize_text"]

NULL_HASH: tuple[int, int] = (0x7E5DC90380F0640B, 0xD6BCEC3C6B29D72E)
"""What a null hashes to: the hash of the byte 0xFF, which no UTF-8 text contains."""


def hash_text_128(column: pa.Array | pa.ChunkedArray) -> NDArray[np.uint64]:
    """The XXH3 hash of each text's UTF-8 bytes: 128 bits as two numbers, the upper half first.

    The result depends on the text alone: not on the machine, the chunks of the column or its type. A null has a
    value of its own, which differs from that of an empty text.

    Args:
        column: Texts: ``string``, ``large_string`` or ``string_view``.

    >>> hashes = hash_text_128(pa.array(["a", "b", "a", None]))
    >>> hashes.shape, bool((hashes[0] == hashes[2]).all()), bool((hashes[0] == hashes[1]).any())
    ((4, 2), True, False)
    """
    texts = Utf8.from_arrow(column)
    data, digest = texts.data.data, xxhash.xxh3_128_digest
    joined = b"".join([digest(data[start:end]) for start, end in pairwise(texts.offsets.tolist())])
    hashes = np.frombuffer(joined, ">u8").astype(np.uint64).reshape(-1, 2)
    if column.null_count:
        hashes[np.asarray(pc.is_null(column))] = NULL_HASH
    return hashes


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
    collapsed = [_collapse(block).to_arrow() for block in Utf8.from_arrow(column).blocks()]
    lowered = pl.Series(pl.from_arrow(pa.chunked_array(collapsed, pa.large_string()))).str.to_lowercase().to_arrow()
    result = lowered.cast(column.type)
    return pc.if_else(pc.is_valid(column), result, pa.scalar(None, column.type)) if column.null_count else result


def _collapse(block: Utf8) -> Utf8:
    """``" ".join(text.split())``."""
    kept, data = ~spaces(block), block.data.copy()
    found = words_inside(block, kept)
    is_last = np.zeros(len(found.ends), np.bool_)
    is_last[np.cumsum(found.counts)[found.counts > 0] - 1] = True
    gaps = found.ends[~is_last]  # the first byte behind each word that another one follows
    data[gaps], kept[gaps] = 0x20, True
    offsets = np.zeros(len(block) + 1, np.int64)
    np.cumsum(sum_of_pieces(found.ends - found.starts, found.counts) + np.maximum(found.counts - 1, 0), out=offsets[1:])
    return Utf8(data[kept], offsets)
