"""A batch of rows as an Arrow table: what text, images, audio and video have in common."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, one_array
from tamis.errors import MissingExtraError
from tamis.tasks.base import Task
from tamis.tasks.conversion import as_table, row_numbers, truth_values
from tamis.tasks.drop import NO_REASON, Drop
from tamis.tasks.row_names import RowNames
from tamis.tasks.row_trace import parents_of
from tamis.tasks.scored import Scored, numbers_of

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = ["TableTask", "as_table"]


@dataclass
class TableTask(Task[pa.Table]):
    """Rows in an Arrow table, each with a name that says where it comes from.

    ``data`` may be given as an Arrow table, a pandas or Polars frame, a dict of columns or a list of rows; it is an
    Arrow table from then on. Columns hold text, numbers or media (bytes, or a reference to a file).

    >>> batch = TableTask([{"text": "a b"}, {"text": "c"}])
    >>> batch.num_items, batch.get_columns(), batch["text"].to_pylist()
    (2, ['text'], ['a b', 'c'])
    >>> TableTask([{"a": 1}, {"b": 2}]).data.to_pylist()
    [{'a': 1, 'b': None}, {'a': None, 'b': 2}]
    """

    has_rows: ClassVar[bool] = True

    # A batch may be a selection of the rows of a table. The rows are copied together when ``data`` is first asked for:
    # a chain of filters just makes the selection smaller, and the remaining rows are copied once.
    _table: pa.Table = field(init=False, repr=False, compare=False)
    _table_bytes: int | None = field(default=None, init=False, repr=False, compare=False)  # counting takes a while
    _selection: NDArray[np.int64] | None = field(default=None, init=False, repr=False, compare=False)
    _names: RowNames | None = field(default=None, init=False, repr=False, compare=False)  # of the rows of the table
    _origin: TableTask | None = field(default=None, init=False, repr=False, compare=False)
    _hint: NDArray[np.int64] | None = field(default=None, init=False, repr=False, compare=False)
    _parents: NDArray[np.int64] | None = field(default=None, init=False, repr=False, compare=False)
    dropped: list[Drop] = field(default_factory=list, init=False, repr=False, compare=False)
    """Rows that :meth:`keep` left out on the way to this batch."""
    scored: list[Scored] = field(default_factory=list, init=False, repr=False, compare=False)
    """The scores that rows were given on the way to this batch, for the histograms of the run."""

    @property  # type: ignore[misc]  # it is set like the field it stands for
    def data(self) -> pa.Table:
        """The rows, as an Arrow table."""
        if self._selection is not None:
            names = None if self._names is None else self._names.take(self._selection)
            self._set_table(self._selected(self._table), names)
        return self._table

    @data.setter
    def data(self, data: Any) -> None:
        earlier = copy.copy(self) if "_table" in self.__dict__ else None
        self._set_table(as_table(data), None)
        self._origin, self._hint = earlier, row_numbers(data)

    def _set_table(self, table: pa.Table, names: RowNames | None) -> None:
        self._table, self._table_bytes, self._selection, self._names = table, None, None, names
        self._origin = self._hint = self._parents = None

    def __copy__(self) -> Self:
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __getstate__(self) -> dict[str, Any]:
        names = self.names
        _ = self.data  # rows that are only selected are copied together: the others stay here
        state = {**self.__dict__, "_origin": None, "_hint": None, "_parents": None, "_names": names}
        state["dropped"], state["scored"] = [], []  # booked where the rows were dropped and scored
        return state

    # -- rows --------------------------------------------------------------------------------------------------------

    @property
    def num_items(self) -> int:
        return int(self._table.num_rows) if self._selection is None else len(self._selection)

    @property
    def nbytes(self) -> int:
        """How much memory the rows take, in bytes; a fair share of the table's while they are only selected."""
        if self._table_bytes is None:
            self._table_bytes = int(self._table.nbytes)
        whole: int = self._table_bytes
        if self._selection is None:
            return whole
        return whole * len(self._selection) // max(int(self._table.num_rows), 1)

    def validate(self) -> bool:
        return bool(self.num_items and self._table.num_columns)

    def __len__(self) -> int:
        return self.num_items

    def __bool__(self) -> bool:
        return True

    def select(self, rows: Sequence[int] | NDArray[np.int64]) -> Self:
        """The same batch with some of its rows, by their numbers, ascending. Nothing is copied.

        >>> TableTask({"text": ["a", "b", "c"]}).select([0, 2])["text"].to_pylist()
        ['a', 'c']
        """
        chosen = np.asarray(rows, np.int64)
        if len(chosen) and (chosen[0] < 0 or chosen[-1] >= self.num_items or not (chosen[1:] > chosen[:-1]).all()):
            raise ValueError(
                f"select(): row numbers must be ascending, each at most once, from 0 to {self.num_items - 1}; "
                "for another order or for copies: derived(table.take(rows), rows)"
            )
        if self._selection is not None:
            chosen = self._selection[chosen]
        elif len(chosen) == self._table.num_rows:
            return self
        return self.narrowed(chosen, {})

    def keep(self, mask: Any, reason: str = "", score: Any = None) -> Self:
        """The batch without the rows whose mask is false or null; it carries what was dropped, and why.

        Args:
            mask: Whether to keep each row: an Arrow or NumPy array, a pandas or Polars series, or a list.
            reason: Why the others are dropped, short, such as ``"fewer than 50 words"``: it is counted and reported.
            score: The score of each row, if the decision follows from one.

        >>> batch = TableTask({"text": ["a", "b c"]}).keep([False, True], reason="too short", score=[1, 2])
        >>> batch["text"].to_pylist(), batch.dropped[0].reason, batch.dropped[0].scores.to_pylist()
        (['b c'], 'too short', [1])
        """
        kept = truth_values(mask)
        if len(kept) != self.num_items:
            raise ValueError(f"keep(): the mask has {len(kept)} values for {self.num_items} rows")
        scores = None if score is None else one_array(score)
        numbers = None if scores is None else numbers_of(scores)
        if kept.all() and numbers is None:
            return self
        result = copy.copy(self)
        if not kept.all():
            rows = np.flatnonzero(~kept)
            of_rows = None if scores is None else scores.take(arrow_array(rows))
            result = self.select(np.flatnonzero(kept))
            result.dropped = [*self.dropped, Drop(self, rows, reason or NO_REASON, of_rows)]
        if numbers is not None:
            result.scored = [*self.scored, Scored(reason or NO_REASON, numbers, kept)]
        return result

    @classmethod
    def concat(cls, tasks: Sequence[Self]) -> Self:
        if len(tasks) == 1:
            return tasks[0]
        names = [task.names for task in tasks]
        table = pa.concat_tables([task.data for task in tasks], promote_options="permissive")
        whole = tasks[0]._like(table, None)
        if all(name is not None for name in names):
            whole._names = RowNames.concat([name for name in names if name is not None])
        return whole

    # -- columns -----------------------------------------------------------------------------------------------------

    def get_columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._table.column_names)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        """One column of the rows. Where rows are only selected, this column alone is copied together."""
        if name not in self._table.column_names:
            raise KeyError(f"there is no column {name!r}, only {', '.join(self._table.column_names)}")
        return self.columns([name]).column(0)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """The rows with some of the columns. Where rows are only selected, these columns alone are copied together.

        >>> TableTask({"id": [1, 2], "text": ["a", "b"]}).select([1]).columns(["id"]).to_pydict()
        {'id': [2]}
        """
        return self._selected(self._table.select(names)) if names else self.data.select([])

    def with_column(self, name: str, values: Any) -> Self:
        """The same rows with one more column, or with another one in the place of the one of that name.

        >>> TableTask({"text": ["a"]}).with_column("words", [1]).data.to_pydict()
        {'text': ['a'], 'words': [1]}
        """
        return self.with_columns({name: values})

    def with_columns(self, columns: Mapping[str, Any]) -> Self:
        """The same rows with some columns added or replaced; each value has one entry per row."""
        table = self.data
        for name, values in columns.items():
            column = values if isinstance(values, pa.Array | pa.ChunkedArray) else one_array(values)
            if len(column) != table.num_rows:
                raise ValueError(f"with_columns(): {name!r} has {len(column)} values for {table.num_rows} rows")
            at = table.column_names.index(name) if name in table.column_names else None
            table = table.append_column(name, column) if at is None else table.set_column(at, name, column)
        return self.with_same_rows(table)

    def with_same_rows(self, table: pa.Table) -> Self:
        """The same rows, in the same order, with other values or columns."""
        if table.num_rows != self.num_items:
            raise ValueError(f"with_same_rows(): {table.num_rows} rows for {self.num_items}; see derived()")
        names = None if self._names is None else self.names
        made = self._like(table, names)
        if names is None and self._origin is not None:
            made._origin, made._parents = self, np.arange(table.num_rows)
        made.dropped, made.scored = list(self.dropped), list(self.scored)
        return made

    def with_table(self, table: pa.Table) -> Self:
        """The batch with another table; which of the rows are in it is found out when it matters.

        Dataset name, metadata and statistics are carried over. :meth:`keep`, :meth:`select`, :meth:`with_column` and
        :meth:`derived` say which rows are meant and cost nothing: prefer them.

        >>> batch = TableTask({"text": ["a", "b"]}, dataset_name="d")
        >>> batch.with_table(batch.data.slice(0, 1)).dataset_name
        'd'
        """
        made = self._like(as_table(table), None)
        made._origin, made._hint = self, row_numbers(table)
        made.dropped, made.scored = list(self.dropped), list(self.scored)
        return made

    def derived(self, table: pa.Table, parents: Sequence[int] | NDArray[np.int64]) -> Self:
        """A batch of rows made of this one's: row ``i`` of ``table`` is, or is a piece of, row ``parents[i]``.

        >>> pieces = TableTask({"text": ["a b"]}).named("x").derived(pa.table({"text": ["a", "b"]}), [0, 0])
        >>> pieces.names.to_texts()
        ['x:0/0', 'x:0/1']
        """
        numbers, table = np.asarray(parents, np.int64), as_table(table)
        if len(numbers) != table.num_rows or (
            len(numbers) and not 0 <= numbers.min() <= numbers.max() < self.num_items
        ):
            raise ValueError(
                f"derived(): {len(numbers)} parents for {table.num_rows} rows; "
                f"each must be the number of a row, from 0 to {self.num_items - 1}"
            )
        names = self.names
        made = self._like(table, None if names is None else names.divided(numbers))
        made._parents = numbers
        made.dropped, made.scored = list(self.dropped), list(self.scored)
        return made

    def _like(self, table: pa.Table, names: RowNames | None) -> Self:
        made = copy.copy(self)
        made._metadata, made._stage_perf = dict(self._metadata), list(self._stage_perf)
        made.dropped, made.scored = [], []
        made._set_table(table, names)
        return made

    def _selected(self, table: pa.Table) -> pa.Table:
        """Of a table with as many rows as the batch's, the rows that the batch consists of."""
        if self._selection is None:
            return table
        mask = np.zeros(table.num_rows, np.bool_)
        mask[self._selection] = True
        return table.filter(arrow_array(mask))

    # -- for chains of filters: work on the table and the numbers of the rows that are left --------------------------

    @property
    def selection(self) -> tuple[pa.Table, NDArray[np.int64]]:
        """A table, and which of its rows the batch consists of, ascending. Nothing is copied.

        >>> table, rows = TableTask({"text": ["a", "b", "c"]}).select([0, 2]).selection
        >>> table.num_rows, rows.tolist()
        (3, [0, 2])
        """
        return self._table, np.arange(self._table.num_rows) if self._selection is None else self._selection

    def narrowed(self, rows: NDArray[np.int64], more: Mapping[str, pa.Array]) -> Self:
        """The batch with some of the rows of the table of :attr:`selection`, ascending, and perhaps more columns.

        Args:
            rows: Numbers of rows of that table.
            more: Columns to add to that table, or to put in the place of those of that name.

        >>> TableTask({"text": ["a", "b", "c"]}).narrowed([0, 2], {"n": pa.array([1, 2, 3])}).data.to_pydict()
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
        narrowed = self._like(table, self._names)
        narrowed._table_bytes, narrowed._origin, narrowed._hint = nbytes, self._origin, self._hint
        narrowed._parents, narrowed.dropped, narrowed.scored = self._parents, list(self.dropped), list(self.scored)
        if len(rows) < table.num_rows:
            narrowed._selection = np.asarray(rows, np.int64)
        return narrowed

    # -- names of rows -----------------------------------------------------------------------------------------------

    @property
    def names(self) -> RowNames | None:
        """The names of the rows; ``None`` for a batch that was made by hand and has none."""
        if self._names is None:
            self._resolve()
        if self._names is None or self._selection is None:
            return self._names
        return self._names.take(self._selection)

    @property
    def has_names(self) -> bool:
        """Whether its rows have names."""
        if self._names is None:
            self._resolve()
        return self._names is not None

    def named(self, names: RowNames | str) -> Self:
        """The batch with names for its rows: given ones, or those of a source whose rows are counted from 0."""
        if isinstance(names, str):
            names = RowNames.numbered(names, self.num_items)
        if len(names) != self.num_items:
            raise ValueError(f"named(): {len(names)} names for {self.num_items} rows")
        made = copy.copy(self)
        made._set_table(self.data, names)
        return made

    def made_of(self, origin: TableTask) -> None:
        """Note that the rows were made of those of another batch, by code that did not say how."""
        if self._names is None and self._origin is None:
            self._origin = origin

    def _resolve(self) -> None:
        """Find out which rows of the batch it was made of are here."""
        origin = self._origin
        if origin is None:
            return
        if self._parents is None:
            self._parents = parents_of(origin.data, self._table, self._hint)
        names = origin.names
        if names is not None and self._names is None:
            is_known = bool((self._parents >= 0).all())
            self._names = names.divided(self._parents) if is_known else _with_new_rows(names, self._parents)
            self._origin = self._hint = None

    # -- other libraries ---------------------------------------------------------------------------------------------

    def to_pyarrow(self) -> pa.Table:
        """The Arrow table itself, not a copy."""
        return self.data

    def to_pandas(self) -> pd.DataFrame:
        """A pandas frame. Needs pandas installed."""
        try:
            import pandas  # noqa: F401 - only to say which package is missing
        except ImportError as e:
            raise MissingExtraError(f"{type(self).__name__}.to_pandas()", package="pandas", extra="pandas") from e
        frame: pd.DataFrame = self.data.to_pandas()
        return frame

    def to_polars(self) -> pl.DataFrame:
        """A Polars frame that shares the batch's memory where it can."""
        import polars as pl

        frame = pl.from_arrow(self.data)
        assert isinstance(frame, pl.DataFrame)
        return frame


def _with_new_rows(names: RowNames, parents: NDArray[np.int64]) -> RowNames:
    """Names for rows of which some are made of no known row: those are numbered under the sources of the others."""
    fresh = np.flatnonzero(parents < 0)
    known = np.flatnonzero(parents >= 0)
    new = RowNames.numbered(f"made of {names.sources[0]}", len(fresh))
    pieces = RowNames.concat([names.divided(parents[known]), new])
    back = np.empty(len(parents), np.int64)
    back[np.concatenate([known, fresh])] = np.arange(len(parents))
    return pieces.take(back)
