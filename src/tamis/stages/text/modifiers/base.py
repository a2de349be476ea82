"""Modifiers: change the text of a document."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array
from tamis.kernels.cleaning import Cleaning, clean, rows_replaced
from tamis.kernels.needles import Needles, rows_with
from tamis.stages.text.forms import TextOperation

__all__ = ["CountingModifier", "DocumentModifier", "clean_column", "modify_rows", "modify_rows_with", "replace_texts"]


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


class CountingModifier(DocumentModifier):
    """A modifier that says how many changes of each kind it made: the stage reports them, as metrics of the run.

    Attributes:
        counts_field: The column that the counts of each document go into, if they are wanted.
    """

    counts_field: str | None = None

    def modify_and_count(self, column: pa.ChunkedArray) -> tuple[pa.ChunkedArray, dict[str, NDArray[np.int64]]]:
        """As :meth:`modify_column`, and the number of changes of each kind in each document."""
        raise NotImplementedError(f"{type(self).__name__} has no modify_and_count()")


def clean_column(column: pa.ChunkedArray, cleaning: Cleaning, modifier: DocumentModifier) -> pa.ChunkedArray:
    """Apply a native cleaning, or, as long as that is not compiled, the row form of the modifier that it stands for."""
    cleaned = clean(column, cleaning)
    return modify_rows(column, lambda chunk: range(len(chunk)), modifier) if cleaned is None else cleaned


def modify_rows_with(column: pa.ChunkedArray, modifier: DocumentModifier, *needles: Needles) -> pa.ChunkedArray:
    """Apply the row form to the texts that contain one of the needles, without which it changes nothing.

    Several sets of needles are looked for one after the other, each in the texts that those before it left.

    >>> class Joined(DocumentModifier):
    ...     def modify_document(self, text: str) -> str:
    ...         return text.replace("-", "")
    >>> from tamis.kernels.needles import exactly
    >>> modify_rows_with(pa.chunked_array([["a", "b-c"]]), Joined(), Needles.of(exactly("-"))).to_pylist()
    ['a', 'bc']
    """

    def chosen(chunk: pa.Array) -> Iterable[int]:
        rows = np.arange(len(chunk))
        for some in needles:
            found = rows_with(chunk if len(rows) == len(chunk) else chunk.take(arrow_array(rows)), some)
            if found is None:
                return range(len(chunk))
            rows = rows[found]
        return rows.tolist()

    return modify_rows(column, chosen, modifier)


def modify_rows(
    column: pa.ChunkedArray, choose: Callable[[pa.Array], Iterable[int]], modifier: DocumentModifier
) -> pa.ChunkedArray:
    """Apply the row form to some rows of each chunk; the others, and nulls, are left alone."""

    def changed(chunk: pa.Array) -> dict[int, str]:
        texts = {row: chunk[row].as_py() for row in choose(chunk)}
        new = {row: modifier.modify_document(text) for row, text in texts.items() if text is not None}
        return {row: text for row, text in new.items() if text is not None and text != texts[row]}

    return replace_texts(column, changed)


def replace_texts(column: pa.ChunkedArray, changed: Callable[[pa.Array], dict[int, str]]) -> pa.ChunkedArray:
    """A column with other texts in some rows of each chunk, by their numbers; the column itself if there are none."""
    given = column.chunks  # each access makes new objects
    chunks = [rows_replaced(chunk, changed(chunk)) for chunk in given]
    if all(new is old for new, old in zip(chunks, given, strict=True)):
        return column
    return pa.chunked_array(chunks, column.type)
