"""A batch of documents as an Arrow table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

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

    def __post_init__(self) -> None:
        self.data = as_table(self.data)

    @property
    def num_items(self) -> int:
        return int(self.data.num_rows)

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)

    def validate(self) -> bool:
        return bool(self.data.num_rows and self.data.num_columns)

    def get_columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.data.column_names)

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
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, dict):
        return pa.table(data)
    if isinstance(data, list) and all(isinstance(row, dict) for row in data):
        names = dict.fromkeys(name for row in data for name in row)
        return pa.table({name: [row.get(name) for row in data] for name in names})
    module = type(data).__module__.partition(".")[0]
    if module == "pandas" and hasattr(data, "columns"):
        return pa.Table.from_pandas(data, preserve_index=False).replace_schema_metadata(None)
    if module == "polars" and hasattr(data, "to_arrow"):
        return data.to_arrow()
    raise TypeError(
        f"a DocumentBatch holds an Arrow table, a pandas or Polars frame, a dict of columns or a list of rows, "
        f"not {type(data).__name__}"
    )
