"""Repeat some rows and thin out others, by the value of a column."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array
from tamis.errors import DataError, PlanError
from tamis.stages.base import ProcessingStage
from tamis.stages.column_values import read_column
from tamis.stages.emit import Drop
from tamis.stages.mixing.row_keys import as_shares, check_identity, row_keys
from tamis.tasks import DocumentBatch

__all__ = ["Resample"]


@dataclass(repr=False)
class Resample(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Pass each row on as often as the value of a column says: more than once to upsample, less to downsample.

    A number such as 2.25 means twice, and a third time for a quarter of the rows. Which rows these are follows from the
    seed and from what identifies the rows: it is the same for any number of workers, and no row is held up. Copies of
    a batch come after it; put a :class:`~tamis.stages.mixing.GlobalShuffle` after this stage to mix them.

    Args:
        by: The column, such as the bucket of a score or the group of buckets.
        times: How often to pass on the rows with each value of it, written as text: ``{"high": 2.5, "low": 0.1}``.
        otherwise: How often to pass on all other rows, also those without a value.
        seed: Another seed chooses other rows.
        id_fields: Columns that identify rows, such as ``["id"]``. When not given, the name of a row identifies it: its
            file, without the directory, and its position there.
        repeat_field: A column that gets the number of each copy of a row, from 0; none when not given.

    >>> stage = Resample("quality", {"high": 2, "low": 0})
    >>> batch = DocumentBatch({"text": ["a", "b"], "quality": ["high", "low"]})
    >>> stage.process(batch)["text"].to_pylist()
    ['a', 'a']
    """

    by: str
    times: dict[str, float]
    otherwise: float = 1.0
    seed: int = 0
    id_fields: list[str] | None = None
    repeat_field: str | None = None
    name: str = "Resample"

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_identity("Resample", self.id_fields, self.seed)
        self.times = {str(value): number for value, number in self.times.items()}
        for value, number in (*self.times.items(), ("otherwise", self.otherwise)):
            if not isinstance(number, int | float) or not 0 <= number <= 1000:
                raise PlanError(f"Resample: {value}: {number!r} must be a number from 0 to 1000")

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.by, *(self.id_fields or ())]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self.adds_columns()

    def adds_columns(self) -> list[str]:
        return [] if self.repeat_field is None else [self.repeat_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """All copies in one batch, when it is called directly; a run has a batch for each, which takes no memory."""
        made = list(self._copies(task))
        copies = [each for each in made if isinstance(each, DocumentBatch)] or [self._copy(task, [], 0)]
        whole = copy.copy(type(task).concat(copies))
        whole.dropped = [*task.dropped, *(each for each in made if isinstance(each, Drop))]
        return whole

    def process_batch(self, tasks: list[DocumentBatch]) -> Iterator[DocumentBatch | Drop]:
        for task in tasks:
            yield from self._copies(task)

    def _copies(self, task: DocumentBatch) -> Iterator[DocumentBatch | Drop]:
        wanted = self._wanted(task)
        whole = np.floor(wanted)
        keys = row_keys(task, self.id_fields, self.seed, "Resample")
        copies = whole.astype(np.int64) + (as_shares(keys) < wanted - whole)
        left_out = np.flatnonzero(copies == 0)
        for number in np.unique(wanted[left_out]).tolist():
            rows = left_out[wanted[left_out] == number]
            yield Drop(task, rows, f"passed on {number:g} times" if number else "not wanted")
        for number in range(int(copies.max(initial=0))):
            yield self._copy(task, np.flatnonzero(copies > number), number)

    def _wanted(self, task: DocumentBatch) -> NDArray[np.float64]:
        """How often to pass on each row."""
        column: Any = read_column(task.columns([self.by]), self.by, self.name)
        try:
            values = column.cast(pa.large_string()).combine_chunks().dictionary_encode()
        except pa.ArrowException:
            raise DataError(f"{self.name}: the column {self.by!r} holds {column.type}, which is no group") from None
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        of_each = [self.times.get(value, self.otherwise) for value in values.dictionary.to_pylist()]
        numbers = np.append(np.array(of_each, np.float64), self.otherwise)
        wanted: NDArray[np.float64] = numbers[np.asarray(values.indices.fill_null(len(of_each)))]
        return wanted

    def _copy(self, task: DocumentBatch, rows: Sequence[int] | NDArray[np.int64], number: int) -> DocumentBatch:
        batch = task.select(rows)
        if self.repeat_field is None:
            return batch
        return batch.with_column(self.repeat_field, arrow_array(np.full(batch.num_items, number, np.int32)))
