"""Small stages that choose, rename and add columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import ColumnError
from tamis.stages.base import ProcessingStage
from tamis.stages.column_values import read_column
from tamis.tasks import DocumentBatch

__all__ = ["AddId", "DropColumns", "RenameColumns", "SelectColumns"]

Columns = frozenset[str] | None


class _ColumnStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    releases_gil: ClassVar[bool] = True


@dataclass(repr=False)
class _SomeColumns(_ColumnStage):
    """Works on some columns.

    Args:
        columns: Their names. Each must be there.
    """

    columns: list[str]

    def __post_init__(self) -> None:
        _check_names(self.columns, type(self).__name__)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.columns)


@dataclass(repr=False)
class SelectColumns(_SomeColumns):
    """Keep only some columns, in the order given.

    >>> SelectColumns(["url"]).process(DocumentBatch({"text": ["a"], "url": ["b"]})).get_columns()
    ['url']
    """

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.columns)

    def columns_after(self, available: Columns) -> Columns:
        return frozenset(self.columns)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        _require(task.data, self.columns, self.name)
        return task.with_same_rows(task.data.select(self.columns))


@dataclass(repr=False)
class DropColumns(_SomeColumns):
    """Leave some columns out.

    >>> DropColumns(["url"]).process(DocumentBatch({"text": ["a"], "url": ["b"]})).get_columns()
    ['text']
    """

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def columns_after(self, available: Columns) -> Columns:
        return None if available is None else available - frozenset(self.columns)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        _require(task.data, self.columns, self.name)
        return task.with_same_rows(task.data.drop_columns(self.columns))


@dataclass(repr=False)
class RenameColumns(_ColumnStage):
    """Give columns other names. Their order stays.

    Args:
        mapping: The new name of each column that gets one.

    >>> RenameColumns({"content": "text"}).process(DocumentBatch({"content": ["a"]})).get_columns()
    ['text']
    """

    mapping: dict[str, str]

    def __post_init__(self) -> None:
        _check_names(list(self.mapping.values()), "RenameColumns")

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.mapping)

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.mapping.values())

    def columns_after(self, available: Columns) -> Columns:
        if available is None:
            return None
        kept = available - frozenset(self.mapping)
        self._refuse_collisions(kept)
        return kept | frozenset(self.mapping.values())

    def process(self, task: DocumentBatch) -> DocumentBatch:
        _require(task.data, list(self.mapping), self.name)
        names = task.get_columns()
        self._refuse_collisions(frozenset(names) - frozenset(self.mapping))
        return task.with_same_rows(task.data.rename_columns([self.mapping.get(name, name) for name in names]))

    def _refuse_collisions(self, kept: frozenset[str]) -> None:
        taken = sorted(kept & frozenset(self.mapping.values()))
        if taken:
            raise ColumnError(f"{self.name}: there is already a column {taken[0]!r}; drop or rename it first")


@dataclass(repr=False)
class AddId(_ColumnStage):
    """Add a column with an id for each document.

    An id is made of the place of the task in the input and the number of the row: ``000012-0003_17``. So it is the
    same on every executor and in every run over the same input.

    Args:
        id_field: The column.
        id_prefix: What each id begins with, followed by ``_``.
        overwrite: Replace the column if it is already there; otherwise that is an error.

    >>> batch = DocumentBatch({"text": ["a", "b"]}, order=(12, 3))
    >>> AddId("id", id_prefix="web").process(batch).data["id"].to_pylist()
    ['web_000012-0003_0', 'web_000012-0003_1']
    """

    id_field: str
    id_prefix: str | None = None
    overwrite: bool = False

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.id_field]

    def adds_columns(self) -> list[str]:
        return [] if self.overwrite else [self.id_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if self.id_field in task.get_columns() and not self.overwrite and not self.overwrite_columns:
            raise ColumnError(
                f"{self.name}: there is already a column {self.id_field!r}; choose another, or say overwrite=True"
            )
        beginning = [part for part in (self.id_prefix, _place(task), "") if part is not None]
        rows = pc.cast(pa.array(np.arange(task.num_items)), pa.string())
        ids = pc.binary_join_element_wise("_".join(beginning), rows, "")
        return task.with_column(self.id_field, ids)


def _place(task: DocumentBatch) -> str:
    """The place of a task in the input; for a task that has none, its id."""
    if not task.order:
        return task.task_id or "000000"
    first, *others = task.order
    return "-".join([f"{first:06d}", *(f"{ordinal:04d}" for ordinal in others)])


def _require(table: pa.Table, columns: list[str], stage: str) -> None:
    for column in columns:
        read_column(table, column, stage)


def _check_names(names: list[str], stage: str) -> None:
    if isinstance(names, str):
        raise TypeError(f"{stage}: give a list of columns, not the text {names!r}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{stage}: {twice[0]!r} is named twice")
