"""A batch of documents as an Arrow table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array
from tamis.errors import MissingExtraError
from tamis.tasks.base import Task

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


@dataclass
class DocumentBatch(Task[pa.Table]):
    """A batch of documents: one row each, in an Arrow table.

    ``data`` may be given as an Arrow table, a pandas or Polars frame, a dict of columns or a list of rows; it is an
    Arrow table from then on.

    >>> batch = DocumentBatch([{"text": "a b"}, {"text": "c"}])
    >>> batch.num_items, batch.get_columns()
    (2, ['text'])
    >>> DocumentBatch([{"a": 1}, {"b": 2}]).data.to_pylist()
    [{'a': 1, 'b': None}, {'a': None, 'b': 2}]
    """

    # A batch may be a selection of the rows of a table. The rows are copied together when ``data`` is first asked for:
    # a chain of filters just makes the selection smaller, and what they leave is copied once.
    _table: pa.Table = field(init=False, repr=False, compare=False)
    _table_bytes: int | None = field(default=None, init=False, repr=False, compare=False)  # counting takes a while
    _selection: NDArray[np.int64] | None = field(default=None, init=False, repr=False, compare=False)
    foreseen: Any = field(default=None, init=False, repr=False, compare=False)
    """What a stage found out for those that follow it at once; gone as soon as the table changes."""

    @property  # type: ignore[misc]  # it is set like the field it stands for
    def data(self) -> pa.Table:
        """The rows, as an Arrow table."""
        if self._selection is not None:
            self.data = self._selected(self._table)
        return self._table

    @data.setter
    def data(self, data: Any) -> None:
        self._table, self._table_bytes, self._selection, self.foreseen = as_table(data), None, None, None

    @property
    def num_items(self) -> int:
        return int(self._table.num_rows) if self._selection is None else len(self._selection)

    @property
    def nbytes(self) -> int:
        """How much memory the rows take, in bytes; a fair share of the table's as long as they are only selected."""
        if self._table_bytes is None:
            self._table_bytes = int(self._table.nbytes)
        whole: int = self._table_bytes
        if self._selection is None:
            return whole
        return whole * len(self._selection) // max(int(self._table.num_rows), 1)

    def validate(self) -> bool:
        return bool(self.num_items and self._table.num_columns)

    def get_columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._table.column_names)

    @property
    def selection(self) -> tuple[pa.Table, NDArray[np.int64]]:
        """A table, and which of its rows the batch consists of, ascending. Nothing is copied.

        >>> table, rows = DocumentBatch({"text": ["a", "b", "c"]}).select([0, 2]).selection
        >>> table.num_rows, rows.tolist()
        (3, [0, 2])
        """
        return self._table, np.arange(self._table.num_rows) if self._selection is None else self._selection

    def columns(self, names: Sequence[str]) -> pa.Table:
        """The rows with some of the columns. Where rows are only selected, these columns alone are copied together.

        >>> DocumentBatch({"id": [1, 2], "text": ["a", "b"]}).select([1]).columns(["id"]).to_pydict()
        {'id': [2]}
        """
        return self._selected(self._table.select(names)) if names else self.data.select([])

    def _selected(self, table: pa.Table) -> pa.Table:
        """The rows of a table with as many rows as the batch's that the batch consists of."""
        if self._selection is None:
            return table
        mask = np.zeros(table.num_rows, np.bool_)
        mask[self._selection] = True
        return table.filter(arrow_array(mask))

    def select(self, rows: Sequence[int] | NDArray[np.int64], more: dict[str, pa.Array] | None = None) -> DocumentBatch:
        """The same batch with some of the rows of its table, ascending, and perhaps with more columns.

        Args:
            rows: Numbers of rows of the table of :attr:`selection`.
            more: Columns to add to that table, or to put in the place of those of that name.

        >>> DocumentBatch({"text": ["a", "b", "c"]}).select([0, 2], {"n": pa.array([1, 2, 3])}).data.to_pydict()
        {'text': ['a', 'c'], 'n': [1, 3]}
        """
        table, nbytes = self._table, self._table_bytes
        if more:
            names, columns, fields = table.column_names, table.columns, list(table.schema)
            is_new = [name not in names for name in more]
            nbytes = nbytes + sum(c.nbytes for c in more.values()) if nbytes is not None and all(is_new) else None
            for (name, column), appended in zip(more.items(), is_new, strict=True):
                at = slice(len(columns), None) if appended else slice(names.index(name), names.index(name) + 1)
                columns[at], fields[at] = [column], [pa.field(name, column.type)]
            table = pa.table(columns, schema=pa.schema(fields, table.schema.metadata))
        selected = self.with_table(table)
        selected._table_bytes = nbytes
        if len(rows) < table.num_rows:
            selected._selection = np.asarray(rows, np.int64)
        return selected

    def with_table(self, table: pa.Table) -> DocumentBatch:
        """The same batch with other rows or columns: dataset name, metadata and statistics are carried over.

        >>> batch = DocumentBatch({"text": ["a", "b"]}, dataset_name="d")
        >>> batch.with_table(batch.data.slice(0, 1)).dataset_name
        'd'
        """
        return DocumentBatch(
            table, self.dataset_name, self.task_id, self.order, dict(self._metadata), list(self._stage_perf)
        )

    def to_pyarrow(self) -> pa.Table:
        """The Arrow table itself, not a copy."""
        return self.data

    def to_pandas(self) -> pd.DataFrame:
        """A pandas frame. Needs pandas installed."""
        try:
            import pandas  # noqa: F401 - only to say which package is missing
        except ImportError as e:
            raise MissingExtraError("DocumentBatch.to_pandas()", package="pandas", extra="pandas") from e
        frame: pd.DataFrame = self.data.to_pandas()
        return frame

    def to_polars(self) -> pl.DataFrame:
        """A Polars frame that shares the batch's memory where it can."""
        import polars as pl

        frame = pl.from_arrow(self.data)
        assert isinstance(frame, pl.DataFrame)
        return frame


def as_table(data: Any) -> pa.Table:
    """Turn what users hand in as a batch into an Arrow table."""
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return _without_views(data)
    if isinstance(data, list) and all(isinstance(row, dict) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        data = {name: [row.get(name) for row in data] for name in names}
    if isinstance(data, dict):
        try:
            return pa.table(data)
        except UnicodeEncodeError as e:
            raise ValueError(_half_character(data)) from e
    module = type(data).__module__.partition(".")[0]
    if module == "pandas" and hasattr(data, "columns"):
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    if module == "polars" and hasattr(data, "to_arrow"):
        return data.to_arrow()
    raise TypeError(
        f"a DocumentBatch holds an Arrow table, a pandas or Polars frame, a dict of columns or a list of rows, "
        f"not {type(data).__name__}"
    )


def _without_views(table: pa.Table) -> pa.Table:
    """A table without columns of type ``string_view`` or ``binary_view``, of which Arrow can take no rows."""
    for number, kind in enumerate(table.schema.types):
        plain = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(kind)
        if plain is not None:
            table = table.set_column(number, table.schema.field(number).with_type(plain), table[number].cast(plain))
    return table


def _half_character(columns: dict[str, Any]) -> str:
    """Says where the text is that is no Unicode text."""
    for name, values in columns.items():
        for row, value in enumerate(values):
            try:
                str(value).encode()
            except UnicodeEncodeError as e:
                half = f"\\u{ord(e.object[e.start]):04x}"
                return (
                    f"row {row} of the column {name!r}: {half} at character {e.start} is one half of a surrogate pair "
                    "without the other, which no UTF-8 text can hold. Remove it, or repair the text: "
                    'text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")'
                )
    return "the data holds one half of a surrogate pair without the other, which no UTF-8 text can hold"
