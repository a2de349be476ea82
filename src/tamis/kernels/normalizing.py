"""Forms of texts that differ less: in lower case, without punctuation, with single spaces."""

from __future__ import annotations

import functools
import string
import sys
import unicodedata
from collections.abc import Collection
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.kernels.hashing import collapse_spaces
from tamis.kernels.utf8 import CharacterSet, Utf8

__all__ = ["STEPS", "is_punctuation", "normalized"]

STEPS: Final = ("lower", "punctuation", "whitespace")
"""What can be done to a text, in the order in which it is done."""


def is_punctuation(character: str) -> bool:
    """Whether a character is removed as punctuation: one of the Unicode categories P, or of ``string.punctuation``.

    Args:
        character: One character.

    >>> [is_punctuation(character) for character in ".«$€a"]
    [True, True, True, False, False]
    """
    return unicodedata.category(character).startswith("P") or character in string.punctuation


def normalized(texts: pa.Array | pa.ChunkedArray, steps: Collection[str]) -> pa.Array | pa.ChunkedArray:
    """Texts in another form.

    ``"lower"`` is ``str.lower()``; characters younger than the Unicode tables of Python or of Polars may keep their
    case. ``"punctuation"`` removes each character for which :func:`is_punctuation` is true. ``"whitespace"`` is
    ``" ".join(text.split())``. They are done in this order, whatever the order of ``steps``. A null stays a null.

    Args:
        texts: ``string``, ``large_string`` or ``string_view``.
        steps: Any of :data:`STEPS`.

    >>> normalized(pa.array([" Ça  va, oui?", None]), ["whitespace", "punctuation", "lower"]).to_pylist()
    ['ça va oui', None]
    """
    if not steps:
        return texts
    if isinstance(texts, pa.ChunkedArray):
        return pa.chunked_array([normalized(chunk, steps) for chunk in texts.chunks], texts.type)
    made: pa.Array = texts
    if "lower" in steps:
        import polars as pl

        lowered = pl.Series(pl.from_arrow(made.cast(pa.large_string()))).str.to_lowercase().to_arrow()
        made = lowered.cast(pa.large_string())
    for step, change in (("punctuation", _without_punctuation), ("whitespace", collapse_spaces)):
        if step in steps:
            blocks = [change(block).to_arrow() for block in Utf8.from_arrow(made).blocks()]
            made = pa.chunked_array(blocks, pa.large_string()).combine_chunks()
    made = made.cast(texts.type)
    return pc.if_else(pc.is_valid(texts), made, pa.scalar(None, texts.type)) if texts.null_count else made


def _without_punctuation(block: Utf8) -> Utf8:
    removed = _punctuation().bytes_of(block)
    if not removed.any():
        return block
    kept = ~removed
    before = np.zeros(len(block.data) + 1, np.int64)
    np.cumsum(kept, out=before[1:])
    return Utf8(block.data[kept], before[block.offsets])


@functools.cache
def _punctuation() -> CharacterSet:
    return CharacterSet(filter(is_punctuation, map(chr, range(sys.maxunicode + 1))))
