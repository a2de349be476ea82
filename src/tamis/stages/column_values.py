"""Columns of a batch, for stages: find one by its name, and have it as text; and stages that work on one."""

from __future__ import annotations

import pyarrow as pa

from tamis.errors import ColumnError, did_you_mean
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch

__all__ = ["TextStage", "holds_order", "holds_text", "read_column", "text_values", "texts_like"]


def read_column(table: pa.Table, column: str, stage: str) -> pa.ChunkedArray:
    """A column of a batch, or an error that names the stage and the column that may have been meant.

    >>> read_column(pa.table({"text": ["a"]}), "txt", "word_count")
    Traceback (most recent call last):
    tamis.errors.ColumnError: word_count: there is no column 'txt', only text. Did you mean 'text'?
    """
    if column not in table.column_names:
        known = ", ".join(table.column_names) or "none at all"
        raise ColumnError(
            f"{stage}: there is no column {column!r}, only {known}.{did_you_mean(column, table.column_names)}"
        )
    return table.column(column)


def text_values(column: pa.ChunkedArray, column_name: str, stage: str) -> pa.ChunkedArray:
    """A column as ``string`` or ``large_string``; an error if it holds no text.

    >>> text_values(pa.chunked_array([["a"]]).dictionary_encode(), "text", "word_count").type
    DataType(string)
    """
    values = _value_type(column.type)
    if pa.types.is_string(values) or pa.types.is_large_string(values):
        return column if values == column.type else column.cast(values)
    if holds_text(values):
        return column.cast(pa.large_string())
    if pa.types.is_null(values):
        return column.cast(pa.string())
    raise TypeError(f"{stage}: works on text, but the column {column_name!r} holds {column.type}")


def holds_text(column_type: pa.DataType) -> bool:
    """Whether a column of this type holds text.

    >>> holds_text(pa.large_string()), holds_text(pa.int64())
    (True, False)
    """
    values = _value_type(column_type)
    return any(is_it(values) for is_it in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def holds_order(column_type: pa.DataType) -> bool:
    """Whether the values of a type can be compared: numbers, truth values, dates and timestamps.

    >>> holds_order(pa.float32()), holds_order(pa.string())
    (True, False)
    """
    types, values = pa.types, _value_type(column_type)
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_date, types.is_timestamp)
    return types.is_null(values) or any(is_it(values) for is_it in tests)


def texts_like(before: pa.ChunkedArray, after: pa.ChunkedArray) -> pa.ChunkedArray:
    """Changed texts in the type of the column that they come from, with its nulls.

    >>> texts_like(pa.chunked_array([["a", None]]).dictionary_encode(), pa.chunked_array([["b", ""]])).to_pylist()
    ['b', None]
    """
    if before.null_count:
        import pyarrow.compute as pc

        is_valid = before.is_valid().combine_chunks()
        after = pa.chunked_array([pc.if_else(is_valid, after.combine_chunks(), pa.scalar(None, after.type))])
    if pa.types.is_dictionary(before.type):
        return after.cast(before.type.value_type).dictionary_encode().cast(before.type)
    return after.cast(before.type)


def _value_type(column_type: pa.DataType) -> pa.DataType:
    return column_type.value_type if pa.types.is_dictionary(column_type) else column_type


class TextStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage that reads a column of text.

    Attributes:
        text_field: The column with the text.
    """

    text_field: str

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def text_columns(self) -> list[str]:
        return [self.text_field]

    def texts(self, batch: DocumentBatch) -> pa.ChunkedArray:
        """The texts of a batch."""
        return text_values(read_column(batch.data, self.text_field, self.name), self.text_field, self.name)
