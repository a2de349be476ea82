"""``nemo_curator.tasks.DocumentBatch`` for scripts: a batch whose ``data`` is a pandas frame."""

from __future__ import annotations

import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.tasks import DocumentBatch as TamisBatch
from tamis.tasks import RowNames
from tamis.tasks.row_trace import parents_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DocumentBatch"]

_FRAME, _SNAPSHOT, _AS_ARROW = "_frame", "_snapshot", "_as_arrow"


def _up_to_date(name: str) -> Any:
    """A field of the batch that is read only after what the script did to the frame has been taken over."""

    def read(batch: DocumentBatch) -> Any:
        batch._take_over()
        return batch.__dict__.get(name)

    def write(batch: DocumentBatch, value: Any) -> None:
        batch.__dict__[name] = value

    return property(read, write)


class DocumentBatch(TamisBatch):
    """A batch of documents that shows itself to scripts as a pandas frame.

    To the script, ``data`` is a frame: it can be read, changed in place, filtered and replaced. To tamis it is the
    Arrow table that every batch has; what the script changed in the frame is taken over when tamis next looks. A batch
    that was made of an Arrow table stays one for the script, too.

    >>> import pandas as pd
    >>> batch = DocumentBatch(data=pd.DataFrame({"text": ["a b", "c"]}), dataset_name="d")
    >>> frame = batch.to_pandas()  # what `batch.data` is in a script
    >>> frame["words"] = frame["text"].str.split().str.len()
    >>> batch.to_pyarrow().to_pydict()
    {'text': ['a b', 'c'], 'words': [2, 1]}
    """

    @property  # type: ignore[misc]  # it is set like the field that it stands for
    def data(self) -> Any:
        """The rows: a pandas frame for the script, an Arrow table for tamis's own code."""
        if _asked_by_tamis(self) or self.__dict__.get(_AS_ARROW):
            return TamisBatch.data.fget(self)  # type: ignore[attr-defined]  # a property
        return self.to_pandas()

    @data.setter
    def data(self, data: Any) -> None:
        TamisBatch.data.fset(self, data)  # type: ignore[attr-defined]  # a property
        self.__dict__[_AS_ARROW] = isinstance(data, pa.Table) and not _asked_by_tamis(self)
        if hasattr(data, "iloc"):  # a pandas frame: it stays the one that the script may go on to change
            self._show(data)

    def to_pandas(self) -> pd.DataFrame:
        """The frame that ``data`` is: changes to it are changes to the batch."""
        if _FRAME not in self.__dict__:
            self._show(super().to_pandas())
        frame: pd.DataFrame = self.__dict__[_FRAME]
        return frame

    _table = _up_to_date("_table")  # type: ignore[assignment]  # set like the fields that they stand for
    _table_bytes = _up_to_date("_table_bytes")  # type: ignore[assignment]
    _names = _up_to_date("_names")  # type: ignore[assignment]
    _origin = _up_to_date("_origin")  # type: ignore[assignment]
    _hint = _up_to_date("_hint")  # type: ignore[assignment]
    _parents = _up_to_date("_parents")  # type: ignore[assignment]

    def __copy__(self) -> Self:
        self._take_over()
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

        is_eager = int(pandas.__version__.partition(".")[0]) < 3  # later versions copy what is written to, when it is
        self.__dict__[_FRAME], self.__dict__[_SNAPSHOT] = frame, frame.copy(deep=is_eager)

    def _hide(self) -> None:
        self.__dict__.pop(_FRAME, None)
        self.__dict__.pop(_SNAPSHOT, None)

    def _take_over(self) -> None:
        """Make the table what the script has made of the frame since it was shown or last taken over."""
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


def _asked_by_tamis(batch: DocumentBatch) -> bool:
    """Whether the code that gets or sets ``data`` is tamis's own, which works on Arrow tables.

    Scripts and stages share one attribute. Who asks is the only thing that tells the two uses apart, so that built-in
    stages take these batches as they are and a script never sees Arrow that it did not put there.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is batch:
        frame = frame.f_back  # the code that makes the batch
    return frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "tamis"


def _rows_by_index(before: pd.DataFrame, after: pd.DataFrame) -> NDArray[np.int64] | None:
    """Which rows are left of a frame, as its index has it; ``None`` if that does not tell."""
    if not before.index.is_unique:
        return None
    rows = before.index.get_indexer(after.index).astype(np.int64)
    return rows if len(np.unique(rows)) == len(rows) and not (rows < 0).any() else None


def _order_of_rows(before: pa.Table, after: pa.Table) -> NDArray[np.int64]:
    """Where the rows of a frame with the index it had are from: their places, unless it was sorted and renumbered."""
    rows, places = parents_of(before, after), np.arange(after.num_rows)
    shared = [name for name in after.column_names if name in before.column_names]
    is_reordered = np.array_equal(np.sort(rows), places) and shared == before.column_names
    return rows if is_reordered and before.take(pa.array(rows)).equals(after.select(shared)) else places


def _is_same(one: Any, other: Any) -> bool:
    """Whether a column has not changed. What is inside objects (lists, dicts) cannot be compared with certainty."""
    return one.dtype == other.dtype and one.dtype != object and bool(one.equals(other))


def _tell_rows_apart(unchanged: list[Any], snapshot: pd.DataFrame) -> bool:
    """Whether the rows are certainly the same, in the same order, given the columns that are as they were."""
    return len(unchanged) == len(snapshot.columns) or any(snapshot[c].is_unique for c in unchanged)


def _column(frame: pd.DataFrame, name: Any) -> pa.ChunkedArray | pa.Array:
    return _as_table(frame[[name]]).column(0)


def _as_table(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
