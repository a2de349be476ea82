"""``nemo_curator.tasks.DocumentBatch`` for scripts: a batch whose ``data`` is a pandas frame."""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.tasks import DocumentBatch as TamisBatch
from tamis.tasks import RowNames, TableTask
from tamis.tasks.row_trace import parents_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DocumentBatch"]

_FRAME, _SNAPSHOT, _AS_ARROW = "_frame", "_snapshot", "_as_arrow"


def _up_to_date(name: str) -> Any:
    """A field of the batch that applies the script's changes to the frame before it is read."""

    def read(batch: DocumentBatch) -> Any:
        batch._apply_changes()
        return batch.__dict__.get(name)

    def write(batch: DocumentBatch, value: Any) -> None:
        batch.__dict__[name] = value

    return property(read, write)


class DocumentBatch(TamisBatch):
    """A batch of documents that scripts see as a pandas frame.

    In the script, ``data`` is a frame: it can be read, changed in place, filtered and replaced. In tamis it is the
    Arrow table that every batch has; changes to the frame are applied when tamis next reads the batch. If a script
    makes a batch of an Arrow table, it stays one for the script, too.

    >>> import pandas as pd
    >>> batch = DocumentBatch(data=pd.DataFrame({"text": ["a b", "c"]}), dataset_name="d")
    >>> frame = batch.to_pandas()  # what `batch.data` is in a script
    >>> frame["words"] = frame["text"].str.split().str.len()
    >>> batch.to_pyarrow().to_pydict()
    {'text': ['a b', 'c'], 'words': [2, 1]}
    """

    @property  # type: ignore[misc]  # a property in place of a field
    def data(self) -> Any:
        """The rows: a pandas frame for the script, an Arrow table for tamis's own code."""
        if asked_by_tamis(self) or self.__dict__.get(_AS_ARROW):
            return TamisBatch.data.fget(self)  # type: ignore[attr-defined]  # a property
        return self.to_pandas()

    @data.setter
    def data(self, data: Any) -> None:
        TamisBatch.data.fset(self, data)  # type: ignore[attr-defined]  # a property
        self.__dict__[_AS_ARROW] = isinstance(data, pa.Table) and not asked_by_tamis(self)
        if hasattr(data, "iloc"):  # a pandas frame, which the script may change later
            self._show(data)

    def to_pandas(self) -> pd.DataFrame:
        """The frame in ``data``: changes to it are changes to the batch."""
        if _FRAME not in self.__dict__:
            self._show(super().to_pandas())
        frame: pd.DataFrame = self.__dict__[_FRAME]
        return frame

    _table = _up_to_date("_table")  # type: ignore[assignment]  # properties in place of fields
    _table_bytes = _up_to_date("_table_bytes")  # type: ignore[assignment]
    _names = _up_to_date("_names")  # type: ignore[assignment]
    _origin = _up_to_date("_origin")  # type: ignore[assignment]
    _hint = _up_to_date("_hint")  # type: ignore[assignment]
    _parents = _up_to_date("_parents")  # type: ignore[assignment]

    def __copy__(self) -> Self:
        self._apply_changes()
        made = super().__copy__()
        made._hide()
        return made

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in (_FRAME, _SNAPSHOT)}

    def _set_table(self, table: pa.Table, names: RowNames | None) -> None:
        self._hide()
        super()._set_table(table, names)

    def _show(self, frame: pd.DataFrame) -> None:
        import pandas

        is_eager = int(pandas.__version__.partition(".")[0]) < 3  # later versions copy on write
        self.__dict__[_FRAME], self.__dict__[_SNAPSHOT] = frame, frame.copy(deep=is_eager)

    def _hide(self) -> None:
        self.__dict__.pop(_FRAME, None)
        self.__dict__.pop(_SNAPSHOT, None)

    def _apply_changes(self) -> None:
        """Apply the script's changes to the frame to the table."""
        frame, snapshot = self.__dict__.pop(_FRAME, None), self.__dict__.get(_SNAPSHOT)
        if frame is None or snapshot is None:
            return
        same_rows = frame.index.equals(snapshot.index)
        unchanged = [
            c for c in frame.columns if same_rows and c in snapshot.columns and _is_same(frame[c], snapshot[c])
        ]
        if same_rows and len(unchanged) == len(frame.columns) == len(snapshot.columns):
            self.__dict__[_FRAME] = frame
            return
        table, before = self._table, super().__copy__()
        if same_rows and _tell_rows_apart(unchanged, snapshot):
            # Columns that were only read keep their types: pandas has no integers with nulls, for instance.
            new = {c: table[c] if c in unchanged and c in table.column_names else _column(frame, c) for c in frame}
            self._table, self._table_bytes = pa.table(new), None
        else:
            new_table = _as_table(frame)
            rows = _order_of_rows(table, new_table) if same_rows else None
            self._set_table(new_table, None)
            self._origin, self._parents, self._hint = before, rows, _rows_by_index(snapshot, frame)
        self._show(frame)


def asked_by_tamis(batch: TableTask) -> bool:
    """Whether the code that gets or sets ``data`` belongs to tamis, which works on Arrow tables.

    Scripts and built-in stages share one attribute, so only the caller tells which of the two types is expected.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is batch:
        frame = frame.f_back  # the code that makes the batch
    return frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "tamis"


def _rows_by_index(before: pd.DataFrame, after: pd.DataFrame) -> NDArray[np.int64] | None:
    """Which rows of a frame are left, according to its index; ``None`` if the index does not show it."""
    if not before.index.is_unique:
        return None
    rows = before.index.get_indexer(after.index).astype(np.int64)
    return rows if len(np.unique(rows)) == len(rows) and not (rows < 0).any() else None


def _order_of_rows(before: pa.Table, after: pa.Table) -> NDArray[np.int64]:
    """The origins of the rows of a frame with an unchanged index: equal places, unless sorted and renumbered."""
    rows, places = parents_of(before, after), np.arange(after.num_rows)
    shared = [name for name in after.column_names if name in before.column_names]
    is_reordered = np.array_equal(np.sort(rows), places) and shared == before.column_names
    return rows if is_reordered and before.take(pa.array(rows)).equals(after.select(shared)) else places


def _is_same(one: Any, other: Any) -> bool:
    """Whether a column has not changed. The contents of objects (lists, dicts) cannot be compared with certainty."""
    return one.dtype == other.dtype and one.dtype != object and bool(one.equals(other))


def _tell_rows_apart(unchanged: list[Any], snapshot: pd.DataFrame) -> bool:
    """Whether the unchanged columns prove that the rows are the same, in the same order."""
    return len(unchanged) == len(snapshot.columns) or any(snapshot[c].is_unique for c in unchanged)


def _column(frame: pd.DataFrame, name: Any) -> pa.ChunkedArray | pa.Array:
    return _as_table(frame[[name]]).column(0)


def _as_table(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
