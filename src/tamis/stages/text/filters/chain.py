"""How a chain of filters runs over a batch: its steps, and the rows that are left between them."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.stages.emit import Drop
from tamis.stages.text.filters.base import DocumentFilter
from tamis.stages.text.forms import holds_text, name_of, read_column, text_values
from tamis.tasks import DocumentBatch

__all__ = ["FilterOrFunction", "KeepStep", "Rows", "ScoreKeepStep", "ScoreStep", "Step"]

FilterOrFunction: TypeAlias = DocumentFilter | Callable[[Any], Any]


class Rows:
    """The rows of a batch that are left, and the columns they were given on the way.

    Args:
        batch: The batch as it came in.
        stage: The name of the stage, for error messages.
    """

    def __init__(self, batch: DocumentBatch, stage: str) -> None:
        self.batch, self.stage = batch, stage
        self._left = np.arange(batch.num_items)
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._written: dict[str, None] = {}

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of the rows that are left."""
        if name not in self._columns:
            column = read_column(self.batch.data, name, self.stage)
            self._columns[name] = column if self._are_all_left else column.take(pa.array(self._left))
        return self._columns[name]

    def write(self, name: str | None, scores: pa.Array) -> None:
        """Give the rows a column, if it has a name."""
        if name is not None:
            self._columns[name] = pa.chunked_array([scores])
            self._written[name] = None

    def keep(self, kept: NDArray[np.bool_], reason: str, scores: pa.Array) -> Iterator[Drop]:
        """Leave out the rows that are not to be kept."""
        if kept.all():
            return
        yield Drop(self.batch, self._left[~kept], reason, scores.filter(pa.array(~kept)))
        self._left = self._left[kept]
        mask = pa.array(kept)
        self._columns = {name: column.filter(mask) for name, column in self._columns.items()}

    def result(self) -> DocumentBatch | None:
        """The batch of what is left; ``None`` if that is nothing, the batch itself if nothing has changed."""
        if not len(self._left):
            return None
        table = self.batch.data
        if not self._are_all_left:
            mask = np.zeros(table.num_rows, np.bool_)
            mask[self._left] = True
            table = table.filter(pa.array(mask))
        for name in self._written:
            if name in table.column_names:
                table = table.set_column(table.column_names.index(name), name, self._columns[name])
            else:
                table = table.append_column(name, self._columns[name])
        return self.batch if table is self.batch.data else self.batch.with_table(table)

    @property
    def _are_all_left(self) -> bool:
        return len(self._left) == self.batch.num_items


@dataclass(frozen=True)
class Scores:
    """Scores of rows: as an Arrow array, and as the Python objects they were made as, if they were."""

    array: pa.Array
    objects: list[Any] | None = None


@dataclass(frozen=True)
class Step:
    """One filter or function of a chain.

    Args:
        operation: What is applied.
        reads: The column it is applied to.
        writes: The column the score is written to, if it is wanted.
        invert: Whether to keep what would be dropped, and drop the rest.
    """

    operation: FilterOrFunction
    reads: str
    writes: str | None = None
    invert: bool = False

    @property
    def releases_gil(self) -> bool:
        """Whether the step needs no Python code per row."""
        raise NotImplementedError

    def run(self, rows: Rows) -> Iterator[Drop]:
        """Apply it to the rows that are left."""
        raise NotImplementedError

    def reason(self) -> str:
        """Why a row is dropped here."""
        operation = self.operation
        reason = operation.reason() if isinstance(operation, DocumentFilter) else f"rejected by {name_of(operation)}"
        return f"not ({reason})" if self.invert else reason

    def _score(self, rows: Rows) -> Scores:
        column, operation = rows.column(self.reads), self.operation
        if isinstance(operation, DocumentFilter) and operation.scores_columns:
            return Scores(_one_array(operation.score_column(text_values(column, self.reads, rows.stage))))
        score = operation.score_document if isinstance(operation, DocumentFilter) else operation
        if holds_text(column.type):
            column = pc.fill_null(text_values(column, self.reads, rows.stage), "")
        objects = [score(value) for value in column.to_pylist()]
        return Scores(_array_of_objects(objects, score), objects)

    def _keep(self, scores: Scores, decide: Callable[[Any], Any]) -> NDArray[np.bool_]:
        """Which rows to keep. ``decide`` is the row form; a null is kept by no filter."""
        operation = self.operation
        if isinstance(operation, DocumentFilter) and operation.keeps_columns and scores.objects is None:
            kept = np.asarray(scores.array.is_valid()).copy()
            kept[kept] = operation.keep_scores(scores.array.drop_null())
        else:
            objects = scores.array.to_pylist() if scores.objects is None else scores.objects
            if isinstance(operation, DocumentFilter):
                decisions: list[Any] = [score is not None and operation.keep_document(score) for score in objects]
            else:
                decisions = [decide(score) for score in objects]
            kept = np.fromiter(map(bool, decisions), np.bool_, len(decisions))
        return ~kept if self.invert else kept


class ScoreStep(Step):
    """Scores and drops nothing."""

    @property
    def releases_gil(self) -> bool:
        return isinstance(self.operation, DocumentFilter) and self.operation.scores_columns

    def run(self, rows: Rows) -> Iterator[Drop]:
        rows.write(self.writes, self._score(rows).array)
        yield from ()


class ScoreKeepStep(Step):
    """Scores, and keeps rows by their score. What a function returns for a text is both."""

    @property
    def releases_gil(self) -> bool:
        return isinstance(self.operation, DocumentFilter) and self.operation.vectorised

    def run(self, rows: Rows) -> Iterator[Drop]:
        scores = self._score(rows)
        rows.write(self.writes, scores.array)
        yield from rows.keep(self._keep(scores, bool), self.reason(), scores.array)


class KeepStep(Step):
    """Keeps rows by a score that they have already."""

    @property
    def releases_gil(self) -> bool:
        return isinstance(self.operation, DocumentFilter) and self.operation.keeps_columns

    def run(self, rows: Rows) -> Iterator[Drop]:
        scores = _one_array(rows.column(self.reads))
        decide = bool if isinstance(self.operation, DocumentFilter) else self.operation
        yield from rows.keep(self._keep(Scores(scores), decide), self.reason(), scores)


def _one_array(scores: pa.Array | pa.ChunkedArray | NDArray[Any]) -> pa.Array:
    if isinstance(scores, pa.ChunkedArray):
        return pa.concat_arrays(scores.chunks) if scores.num_chunks else pa.array([], scores.type)
    return scores if isinstance(scores, pa.Array) else pa.array(scores)


def _array_of_objects(scores: list[Any], made_by: Callable[..., Any]) -> pa.Array:
    """Scores as an array. What is said to be a float is one, also in a batch where all happen to be whole numbers."""
    array = pa.array(scores)
    if pa.types.is_integer(array.type) and _returned_type(made_by) is float:
        return array.cast(pa.float64())
    return array


def _returned_type(function: Callable[..., Any]) -> Any:
    try:
        return typing.get_type_hints(function).get("return")
    except (NameError, TypeError):
        return None
