"""Modifiers: change the text of a document."""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from tamis.stages.text.forms import TextOperation

__all__ = ["DocumentModifier", "modify_rows", "replace_rows", "to_polars"]


class DocumentModifier(TextOperation):
    """Changes the text of documents.

    A modifier of your own needs :meth:`modify_document`. It may have a column form beside it, :meth:`modify_column`,
    which is used instead and must give the same results. A null is left alone: the row form never sees one.

    >>> class Shout(DocumentModifier):
    ...     def modify_document(self, text: str) -> str:
    ...         return text.upper()
    >>> Shout().modify_document("stop"), Shout().vectorised
    ('STOP', False)
    """

    def modify_document(self, *args: Any, **kwargs: Any) -> Any:
        """The new text of one document. With several input columns, they are given by name."""
        raise NotImplementedError(f"{type(self).__name__} has no modify_document()")

    def modify_column(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """The new texts of a column of documents; the column itself if nothing changes."""
        raise NotImplementedError(f"{type(self).__name__} has no modify_column()")

    @property
    def modifies_columns(self) -> bool:
        """Whether :meth:`modify_column` can be used."""
        return self._has_column_form("modify_document", "modify_column", DocumentModifier)

    @property
    def vectorised(self) -> bool:
        """Whether the column form is there and runs outside Python's lock."""
        return self.modifies_columns


def to_polars(column: pa.ChunkedArray) -> pl.Series:
    """A column of text as a Polars series that shares its memory.

    >>> to_polars(pa.chunked_array([["a", None]])).to_list()
    ['a', None]
    """
    return pl.Series(pl.from_arrow(column))


def modify_rows(column: pa.ChunkedArray, chosen: pl.Series, modifier: DocumentModifier) -> pa.ChunkedArray:
    """Apply the row form to some rows, given by a mask (a null in it counts as false); the others are left alone.

    >>> class Shout(DocumentModifier):
    ...     def modify_document(self, text: str) -> str:
    ...         return text.upper()
    >>> modify_rows(pa.chunked_array([["a", "b"]]), pl.Series([False, True]), Shout()).to_pylist()
    ['a', 'B']
    """
    chosen = chosen.fill_null(False)
    texts = column.filter(chosen.to_arrow()).to_pylist()
    return replace_rows(column, chosen, pl.Series([modifier.modify_document(text) for text in texts], dtype=pl.String))


def replace_rows(column: pa.ChunkedArray, chosen: pl.Series, texts: pl.Series) -> pa.ChunkedArray:
    """A column with other texts in some rows, given by a mask; the column itself if there are none.

    >>> replace_rows(pa.chunked_array([["a", "b"]]), pl.Series([False, True]), pl.Series(["c"])).to_pylist()
    ['a', 'c']
    """
    if not len(texts):
        return column
    whole = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    return pa.chunked_array([pc.replace_with_mask(whole, chosen.to_arrow(), texts.to_arrow().cast(column.type))])
