"""How a chain of filters runs over a batch: its steps, and the rows that are left between them."""

from __future__ import annotations

import copy
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array, one_array
from tamis.stages.column_values import holds_text, read_column, text_values
from tamis.stages.emit import Drop
from tamis.stages.text.filters.base import DocumentFilter, ThresholdFilter
from tamis.stages.text.filters.batch_filter import BatchCriterion, BatchFilter, BatchScores
from tamis.stages.text.filters.measured import Criterion, Measured, MeasuredFilter, measure
from tamis.stages.text.forms import name_of
from tamis.tasks import DocumentBatch
from tamis.tasks.scored import Scored, numbers_of

__all__ = ["Chain", "FilterOrFunction", "KeepStep", "Rows", "ScoreKeepStep", "ScoreStep", "Step"]

FilterOrFunction: TypeAlias = DocumentFilter | Callable[[Any], Any]


class Rows:
    """The rows of a batch that are left, and the columns they were given on the way.

    Nothing is copied but what a step asks for: the rows that are left are a selection of the batch's table.

    Args:
        batch: The batch as it came in.
        stages: The names of the stages that run as one, for error messages.
    """

    def __init__(self, batch: DocumentBatch, stages: Sequence[str]) -> None:
        self.batch, self._stages = batch, stages
        self.table, self.left = batch.selection
        self.dropped: list[Drop] = []
        self.scored: list[Scored] = []
        self.member = 0
        """The position of the stage that works on the rows now, where several run as one."""
        self.ahead: Sequence[Step] = ()
        """The steps after the one that is run now."""
        self._written: dict[str, pa.Array] = {}
        self._found: dict[int, tuple[NDArray[np.int64], BatchScores]] = {}
        self.numbers = np.arange(len(self.left))
        """The numbers of the rows that are left, in the batch."""

    @property
    def stage(self) -> str:
        """The name of the stage that works on the rows now."""
        return self._stages[self.member]

    def column(self, name: str) -> pa.ChunkedArray:
        """A column of the rows that are left."""
        column = self._whole(name)
        return column if len(self.left) == self.table.num_rows else column.take(arrow_array(self.left))

    def texts(self, name: str) -> pa.ChunkedArray:
        """A column of text of the whole table."""
        return text_values(self._whole(name), name, self.stage)

    def batch_scores(self, step: Step) -> pa.Array:
        """The scores by a filter of rows; steps ahead that can be scored together with it are scored now as well."""
        if id(step) not in self._found:
            assert isinstance(step.operation, BatchFilter)
            others = [other for other in self.ahead if other.is_scored_with(step.operation)]
            criteria = [each.batch_criterion for each in (step, *others)]
            found = step.operation.score_batch(self.batch.narrowed(self.left, {}), criteria)
            by_step = zip((step, *others), found, strict=True)
            self._found.update({id(each): (self.left, scores) for each, scores in by_step})
        rows, of_step = self._found[id(step)]
        places = arrow_array(np.searchsorted(rows, self.left))
        for name, values in of_step.more.items():
            self.write(name, values.take(places))
        return of_step.scores.take(places)

    def write(self, name: str | None, scores: pa.Array) -> None:
        """Give the rows that are left, or all of the table, a column, if it has a name."""
        if name is None:
            return
        if len(scores) < self.table.num_rows:
            places = np.full(self.table.num_rows, -1)
            places[self.left] = np.arange(len(self.left))
            scores = scores.take(arrow_array(places, missing=places < 0))
        self._written[name] = scores

    def keep(self, kept: NDArray[np.bool_], reason: str, scores: pa.Array) -> None:
        """Leave out the rows that are not to be kept, given the scores of those."""
        if kept.all():
            return
        self.drop(~kept, reason, scores)
        self.narrow(kept)

    def drop(self, dropped: NDArray[Any], reason: str, scores: pa.Array) -> None:
        """Note that some of the rows that are left are dropped. They are left out by :meth:`narrow`."""
        self.dropped.append(Drop(self.batch, self.numbers[dropped], reason, scores, self.member))

    def narrow(self, kept: NDArray[np.bool_]) -> None:
        """Leave out the rows that are not to be kept."""
        self.left, self.numbers = self.left[kept], self.numbers[kept]

    def result(self) -> DocumentBatch:
        """The batch of the rows that are left, with what was dropped; the same rows if nothing has changed."""
        unchanged = not self._written and not self.dropped
        result = copy.copy(self.batch) if unchanged else self.batch.narrowed(self.left, self._written)
        result.dropped = [*result.dropped, *self.dropped]
        result.scored = [*result.scored, *self.scored]
        return result

    def _whole(self, name: str) -> pa.ChunkedArray:
        if name in self._written:
            return pa.chunked_array([self._written[name]])
        return read_column(self.table, name, self.stage)


@dataclass(frozen=True)
class Scores:
    """Scores of rows: as an Arrow array, and as the Python objects they were made as, if they were."""

    array: pa.Array
    objects: list[Any] | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """One filter or function of a chain: the column it is applied to, the column for the score, if it is wanted, and
    whether to keep what would be dropped, and drop the rest.
    """

    operation: FilterOrFunction
    reads: str
    writes: str | None = None
    invert: bool = False

    decides: ClassVar[bool] = True
    """Whether rows are dropped by the score."""

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return [] if self.scores_rows else [self.reads]

    @property
    def adds(self) -> list[str]:
        """The columns that are written."""
        more = self.operation.more_columns() if self.scores_rows and isinstance(self.operation, BatchFilter) else ()
        return [*more, *([] if self.writes is None else [self.writes])]

    @property
    def scores_rows(self) -> bool:
        """Whether the step scores rows, and not a column."""
        return isinstance(self.operation, BatchFilter)

    def is_scored_with(self, operation: BatchFilter) -> bool:
        """Whether a filter of rows can score for this step, too."""
        return self.scores_rows and isinstance(self.operation, BatchFilter) and operation.is_scored_with(self.operation)

    @property
    def batch_criterion(self) -> BatchCriterion:
        """The step as a criterion for rows."""
        assert isinstance(self.operation, BatchFilter)
        return BatchCriterion(self.operation, self.decides, self.invert)

    @property
    def releases_gil(self) -> bool:
        """Whether the step needs no Python code per row."""
        raise NotImplementedError

    @property
    def needs_text(self) -> bool:
        """Whether the column must hold text: a filter with a column form takes nothing else."""
        return isinstance(self.operation, DocumentFilter) and self.operation.scores_columns

    @property
    def criterion(self) -> Criterion | None:
        """The step as a criterion that the kernel can apply, together with others; ``None`` if it cannot."""
        return None

    def run(self, rows: Rows) -> None:
        """Apply it to the rows that are left."""
        raise NotImplementedError

    def reason(self) -> str:
        """Why a row is dropped here."""
        operation = self.operation
        reason = operation.reason() if isinstance(operation, DocumentFilter) else f"rejected by {name_of(operation)}"
        return f"not ({reason})" if self.invert else reason

    def note(
        self,
        rows: Rows,
        scores: NDArray[np.float64] | None,
        kept: NDArray[np.bool_] | None = None,
        numbers: NDArray[np.int64] | None = None,
    ) -> None:
        """Note the scores of the rows that are left, or of those with these numbers, before some are dropped."""
        if scores is None:
            return
        bounds = self.operation.bounds() if self.decides and isinstance(self.operation, ThresholdFilter) else None
        name = name_of(self.operation)
        scored = rows.numbers if numbers is None else numbers
        rows.scored.append(Scored(name, scores, kept, bounds or (None, None), self.invert, rows.member, scored))

    def _criterion(self, decides: bool) -> Criterion | None:
        operation = self.operation
        if not isinstance(operation, MeasuredFilter) or not operation.scores_columns or operation.ratio() is None:
            return None
        return Criterion(operation, decides, self.invert) if operation.decides_by_bounds or not decides else None

    def _score(self, rows: Rows) -> Scores:
        if self.scores_rows:
            return Scores(rows.batch_scores(self))
        column, operation = rows.column(self.reads), self.operation
        if isinstance(operation, DocumentFilter) and operation.scores_columns:
            return Scores(one_array(operation.score_column(text_values(column, self.reads, rows.stage))))
        score = operation.score_document if isinstance(operation, DocumentFilter) else operation
        if holds_text(column.type) or pa.types.is_null(column.type):  # a batch may hold nothing but nulls
            column = pc.fill_null(text_values(column, self.reads, rows.stage), "")
        objects = [score(value) for value in column.to_pylist()]
        return Scores(_array_of_objects(objects, score), objects)

    def _drop(self, rows: Rows, kept: NDArray[np.bool_], scores: pa.Array) -> None:
        if not kept.all():
            rows.keep(kept, self.reason(), scores.filter(arrow_array(~kept)))

    def _keep(self, scores: Scores, decide: Callable[[Any], Any]) -> NDArray[np.bool_]:
        """Which rows to keep. ``decide`` is the row form; a null is kept by no filter."""
        operation = self.operation
        if isinstance(operation, DocumentFilter) and operation.keeps_columns and scores.objects is None:
            kept = numpy_array(scores.array.is_valid()).copy()
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

    decides = False

    @property
    def releases_gil(self) -> bool:
        operation = self.operation
        if isinstance(operation, BatchFilter):
            return operation.releases_gil
        if not isinstance(operation, DocumentFilter) or not operation.scores_columns:
            return False
        return operation.vectorised or not operation.keeps_columns  # with both forms, it may still say that it is not

    @property
    def criterion(self) -> Criterion | None:
        return self._criterion(decides=False)

    def run(self, rows: Rows) -> None:
        scores = self._score(rows).array
        self.note(rows, numbers_of(scores))
        rows.write(self.writes, scores)


class ScoreKeepStep(Step):
    """Scores, and keeps rows by their score. What a function returns for a text is both."""

    @property
    def releases_gil(self) -> bool:
        if isinstance(self.operation, BatchFilter):
            return self.operation.releases_gil
        return isinstance(self.operation, DocumentFilter) and self.operation.vectorised

    @property
    def criterion(self) -> Criterion | None:
        return self._criterion(decides=True)

    def run(self, rows: Rows) -> None:
        scores = self._score(rows)
        rows.write(self.writes, scores.array)
        kept = self._keep(scores, bool)
        self.note(rows, numbers_of(scores.array), kept)
        self._drop(rows, kept, scores.array)


class KeepStep(Step):
    """Keeps rows by a score that they have already."""

    @property
    def scores_rows(self) -> bool:
        return False

    @property
    def needs_text(self) -> bool:
        return False

    @property
    def releases_gil(self) -> bool:
        return isinstance(self.operation, DocumentFilter) and self.operation.keeps_columns

    def run(self, rows: Rows) -> None:
        scores = one_array(rows.column(self.reads))
        decide = bool if isinstance(self.operation, DocumentFilter) else self.operation
        kept = self._keep(Scores(scores), decide)
        self.note(rows, numbers_of(scores), kept)
        self._drop(rows, kept, scores)


class Chain:
    """Steps that run one after the other. Those that the kernel knows run in one pass over the texts.

    Args:
        steps: The steps, each with the position of its stage, where several run as one.
    """

    def __init__(self, steps: Sequence[tuple[int, Step]]) -> None:
        self._steps = steps
        self._criteria = [step.criterion for _, step in steps]

    def run(self, rows: Rows) -> None:
        """Apply the steps to rows."""
        place = 0
        measured_by: dict[int, tuple[Measured, int]] = {}  # the result for each step, and its number there
        while place < len(self._steps) and len(rows.left):
            rows.member, step = self._steps[place]
            if self._criteria[place] is None:
                rows.ahead = [ahead for _, ahead in self._steps[place + 1 :]]
                step.run(rows)
                place += 1
                continue
            if place not in measured_by:
                together = self._measured_together(place)
                found = measure(rows.texts(step.reads), list(together.values()), rows.left)
                measured_by.update({other: (found, number) for number, other in enumerate(together)})
            place = self._drop_measured(rows, place, measured_by)

    def _drop_measured(self, rows: Rows, first: int, measured_by: dict[int, tuple[Measured, int]]) -> int:
        """Write scores and drop rows, as the kernel found. Goes on until a step needs the rows that are left.

        Returns:
            The place of that step.
        """
        measured, number = measured_by[first]
        step = self._steps[first][1]
        if step.writes is not None:
            # The scores of rows that were dropped before mean nothing; those rows are not in the result.
            every = len(measured.rows) == rows.table.num_rows
            rows.write(step.writes, arrow_array(measured.scores_of(number, None if every else rows.left)))
        by_number = measured.failed_by(rows.left)
        dropped = np.zeros(len(rows.left), np.bool_)
        for place in range(first, len(self._steps)):
            member, step = self._steps[place]
            measured_here, number = measured_by.get(place, (None, 0))
            if measured_here is not measured or (step.writes is not None and place > first):
                break
            failed = by_number.get(number)
            rows.member = member
            tried = slice(None) if place == first else ~dropped
            if failed is not None:
                rows.drop(failed, step.reason(), arrow_array(measured.scores_of(number, rows.left[failed])))
                dropped[failed] = True
            scores = measured.raw_scores_of(number, rows.left)[tried]
            step.note(rows, scores, ~dropped[tried], rows.numbers[tried])
        else:
            place = len(self._steps)
        rows.narrow(~dropped)
        return place

    def _measured_together(self, first: int) -> dict[int, Criterion]:
        """The criteria from ``first`` on that measure the same text, by place, up to a step that changes it."""
        column, found = self._steps[first][1].reads, {}
        for place in range(first, len(self._steps)):
            step, criterion = self._steps[place][1], self._criteria[place]
            if criterion is not None and step.reads == column:
                found[place] = criterion
            if step.writes == column:
                break
        return found


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
