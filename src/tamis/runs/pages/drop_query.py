"""Finds dropped rows in the drop ledger of a run, page by page: no more than one file of it is in memory at a time."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.runs.drops import SCHEMA
from tamis.runs.histograms import ScoreHistogram

_EXAMPLE_FILES: Final = 48
_EXAMPLE_ROWS: Final = 400_000


class Cursor(NamedTuple):
    """A place in the ledger: the number of a file, and of a row in it.

    >>> Cursor.parse("3.120"), Cursor.parse("../x"), str(Cursor(3, 120))
    (Cursor(file=3, row=120), None, '3.120')
    """

    file: int
    row: int

    @classmethod
    def parse(cls, text: str) -> Cursor | None:
        """A cursor from its text; ``None`` if it is not one."""
        file, dot, row = text.partition(".")
        is_valid = dot and len(text) < 24 and all(part.isascii() and part.isdecimal() for part in (file, row))
        return cls(int(file), int(row)) if is_valid else None

    def __str__(self) -> str:
        return f"{self.file}.{self.row}"


@dataclass(frozen=True)
class DroppedRow:
    """A row of the ledger, and its place there."""

    place: Cursor
    stage: str
    reason: str
    source: str
    position: int | None
    part: str
    score: float | str | None

    @property
    def name(self) -> str:
        """The name of the row."""
        return f"{self.source}:{self.position}{self.part}" if self.position is not None else self.source


@dataclass(frozen=True)
class DropFilter:
    """Which rows to find: those of a stage, of a reason, with a text in the name of their source; all when empty."""

    stage: str = ""
    reason: str = ""
    source: str = ""


class DropLedgerReader:
    """Reads the drop ledger of a run.

    Args:
        run_dir: The run's directory.
    """

    def __init__(self, run_dir: str) -> None:
        self._folder = os.path.join(run_dir, "drops")
        try:
            names = sorted(n for n in os.listdir(self._folder) if n.endswith(".parquet") and not n.startswith("."))
        except OSError:
            names = []
        self._names = names

    def __bool__(self) -> bool:
        return bool(self._names)

    @property
    def rows(self) -> int:
        """How many rows were dropped, from the footers of the files."""
        import pyarrow.parquet as pq

        count = 0
        for name in self._names:
            try:
                count += pq.read_metadata(os.path.join(self._folder, name)).num_rows
            except (OSError, pa.ArrowException):
                continue
        return count

    def after(self, wanted: DropFilter, place: Cursor | None = None) -> Iterator[DroppedRow]:
        """The rows from a place on, in the order of the ledger."""
        start = place or Cursor(0, 0)
        for number in range(start.file, len(self._names)):
            table, rows = self._found(number, wanted)
            chosen = rows[rows >= start.row] if number == start.file else rows
            yield from self._described(number, table, chosen)

    def before(self, wanted: DropFilter, place: Cursor) -> Iterator[DroppedRow]:
        """The rows before a place, the last one first."""
        for number in range(min(place.file, len(self._names) - 1), -1, -1):
            table, rows = self._found(number, wanted)
            chosen = rows[rows < place.row] if number == place.file else rows
            yield from self._described(number, table, chosen[::-1])

    def examples(self, pairs: Sequence[tuple[str, str]], each: int) -> dict[tuple[str, str], list[DroppedRow]]:
        """The first rows for each pair of stage and reason. Of a large ledger only some files are looked at."""
        found: dict[tuple[str, str], list[DroppedRow]] = {pair: [] for pair in pairs}
        for number, table in self._some_tables():
            missing = [pair for pair, rows in found.items() if len(rows) < each]
            if not missing:
                break
            stages, reasons = _codes(table, "stage"), _codes(table, "reason")
            for stage, reason in missing:
                rows = np.flatnonzero(_is(stages, stage) & _is(reasons, reason))
                found[stage, reason] += self._described(number, table, rows[: each - len(found[stage, reason])])
        return found

    def scores(self) -> dict[tuple[str, str], ScoreHistogram]:
        """Histograms of the scores of dropped rows, by stage and reason. Of a large ledger some files are counted."""
        found: dict[tuple[str, str], ScoreHistogram] = {}
        for _, table in self._some_tables():
            if "score" not in table.column_names:
                continue
            stages, reasons = _codes(table, "stage"), _codes(table, "reason")
            scores = numpy_array(_filled(_one_array(table.column("score")), math.nan))
            pairs = stages[0] * len(reasons[1]) + reasons[0]
            for pair in np.unique(pairs[~np.isnan(scores)]).tolist():
                chosen = scores[(pairs == pair) & ~np.isnan(scores)]
                name = stages[1][pair // len(reasons[1])], reasons[1][pair % len(reasons[1])]
                found.setdefault(name, ScoreHistogram()).count(chosen, np.zeros(len(chosen), np.bool_))
        return found

    def _some_tables(self) -> Iterator[tuple[int, pa.Table]]:
        """Files spread over the ledger, up to a number of rows."""
        seen = 0
        for number in range(0, len(self._names), max(1, len(self._names) // _EXAMPLE_FILES)):
            table = self._table(number)
            yield number, table
            seen += table.num_rows
            if seen > _EXAMPLE_ROWS:
                return

    def _found(self, number: int, wanted: DropFilter) -> tuple[pa.Table, NDArray[np.int64]]:
        """A file of the ledger, and the numbers of the rows that are wanted."""
        table = self._table(number)
        mask = np.ones(table.num_rows, np.bool_)
        if wanted.stage:
            mask &= _is(_codes(table, "stage"), wanted.stage)
        if wanted.reason:
            mask &= _is(_codes(table, "reason"), wanted.reason)
        if wanted.source:
            codes, values = _codes(table, "source")
            inside = [i for i, value in enumerate(values) if wanted.source.casefold() in value.casefold()]
            mask &= np.isin(codes, inside)
        return table, np.flatnonzero(mask)

    def _table(self, number: int) -> pa.Table:
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(os.path.join(self._folder, self._names[number])) as file:
                return file.read([name for name in SCHEMA.names if name in file.schema_arrow.names])
        except (OSError, pa.ArrowException):  # it was removed just now, or is damaged
            return SCHEMA.empty_table()

    def _described(self, number: int, table: pa.Table, rows: NDArray[np.int64]) -> Iterator[DroppedRow]:
        for begin in range(0, len(rows), 256):
            some = rows[begin : begin + 256]
            for place, row in zip(some.tolist(), table.take(arrow_array(some)).to_pylist(), strict=True):
                yield _dropped_row(Cursor(number, place), row)


def _dropped_row(place: Cursor, row: Mapping[str, Any]) -> DroppedRow:
    score = row.get("score")
    return DroppedRow(
        place,
        str(row.get("stage") or ""),
        str(row.get("reason") or ""),
        str(row.get("source") or ""),
        row.get("position"),
        str(row.get("part") or ""),
        score if score is not None else row.get("score_text"),
    )


def _codes(table: pa.Table, name: str) -> tuple[NDArray[np.int64], list[str]]:
    """A column of few values: for each row the number of its value, and the values."""
    if name not in table.column_names or not table.num_rows:
        return np.zeros(table.num_rows, np.int64), [""]
    column = table.column(name)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    encoded = _one_array(column.unify_dictionaries())
    codes = numpy_array(_filled(encoded.indices.cast(pa.int64()), -1))
    return codes, [str(value) for value in encoded.dictionary.to_pylist()]


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)


def _filled(column: pa.Array, value: float) -> pa.Array:
    return column.fill_null(value) if column.null_count else column  # this imports pandas, if it is installed


def _is(column: tuple[NDArray[np.int64], list[str]], value: str) -> NDArray[np.bool_]:
    codes, values = column
    mask: NDArray[np.bool_] = codes == (values.index(value) if value in values else -2)
    return mask
