"""Checks before a run: whether the stages fit together, and whether the input exists and has the needed columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tamis.errors import ColumnError, PlanError, TypeMismatchError, did_you_mean
from tamis.plan.graph import Vertex
from tamis.stages.base import CompositeStage, ProcessingStage, SourceStage
from tamis.stages.column_values import holds_order, holds_text
from tamis.stages.emit import DROPPED
from tamis.stages.flow import BranchStage
from tamis.stages.task_types import task_types
from tamis.tasks import EmptyTask, TableTask, Task
from tamis.tasks.views import can_be_taken

DROP_COLUMNS = ("dropped_by", "dropped_because")
"""The columns that are added to rows in the branch of :class:`tamis.stages.flow.Dropped`."""

Columns = Mapping[str, pa.DataType | None]
"""Names of columns, and their types if known."""


def check_graph(vertices: list[Vertex], start: type[Task[Any]] | None) -> list[frozenset[str] | None]:
    """Refuse a graph that cannot work; return the columns after each vertex, if known.

    Args:
        vertices: The graph.
        start: The kind of task that the first stage is given; ``None`` if not known.
    """
    for vertex in vertices:
        _check_complete(vertex)
        workers = vertex.stage.num_workers()
        if workers is not None and workers < 1:
            raise PlanError(f"stage {vertex.name!r}: num_workers is {workers}, it must be at least 1")
    _check_types(vertices, start)
    columns = _check_columns(vertices)
    for vertex in vertices:
        if isinstance(vertex.stage, SourceStage):
            vertex.stage.check_input()
    return columns


@dataclass(frozen=True)
class AddedColumns:
    """The columns that a stage adds. Existing ones are refused, unless it may replace them.

    Args:
        stage: The stage's name in the plan.
        kind: Its class.
        columns: The columns.
        may_replace: Whether it may replace columns.
    """

    stage: str
    kind: str
    columns: tuple[str, ...]
    may_replace: bool = False

    @classmethod
    def of(cls, vertex: Vertex) -> AddedColumns:
        """What the stage of a vertex adds."""
        stage = vertex.stage
        return cls(vertex.name, type(stage).__name__, tuple(stage.adds_columns()), stage.overwrite_columns)

    def check(self, available: Collection[str]) -> None:
        """Refuse a stage that would replace a column of its input, unless it may."""
        for column in () if self.may_replace else self.columns:
            if self.columns.count(column) > 1:
                raise ColumnError(
                    f"stage {self.stage!r} writes the column {column!r} twice: only the last would be left"
                )
            if column in available:
                raise ColumnError(
                    f"stage {self.stage!r} would replace the column {column!r}, which is already there. Choose another "
                    f"name, drop or rename that column first, or allow it: {self.kind}(...)"
                    ".with_(overwrite_columns=True), in a recipe 'with: {overwrite_columns: true}'"
                )


def _check_complete(vertex: Vertex) -> None:
    stage = vertex.stage
    base: Any = SourceStage if isinstance(stage, SourceStage) else ProcessingStage
    work = ("splits",) if base is SourceStage else ("process", "process_batch")
    if isinstance(stage, CompositeStage) or any(getattr(type(stage), m) is not getattr(base, m) for m in work):
        return
    raise PlanError(f"stage {vertex.name!r} does nothing: {type(stage).__name__} must define {' or '.join(work)}()")


def _check_types(vertices: list[Vertex], start: type[Task[Any]] | None) -> None:
    gives: list[Any] = []
    for vertex in vertices:
        takes, given = task_types(vertex.stage)
        arriving = [(vertices[i].name, _kind_between(vertices[i], gives[i], vertex.index)) for i in vertex.inputs]
        if not vertex.inputs and start is not None and not vertex.is_source:
            arriving = [("the start of the pipeline", start)]
        for origin, kind in arriving:
            if not vertex.is_source and not _fits(kind, takes):
                raise TypeMismatchError(_type_message(vertex.name, takes, origin, kind))
        # A branch passes on the tasks it is given.
        gives.append(arriving[0][1] if isinstance(vertex.stage, BranchStage) and arriving else given)


def _kind_between(before: Vertex, given: Any, target: int) -> Any:
    """The kind of task that goes from one vertex to another; dropped rows have the kind of the stage's input."""
    ports = {port for port, index in before.edges.items() if index == target}
    if ports != {DROPPED}:
        return given
    taken, _ = task_types(before.stage)
    return next((kind for kind in (*_several(taken), *_several(given)) if kind.has_rows), TableTask)


def _type_message(name: str, takes: Any, origin: str, kind: Any) -> str:
    message = f"stage {name!r} takes {_words(takes)}, but {origin} gives {_words(kind)}"
    if kind is EmptyTask:
        message += ". Begin with a reader (JsonlReader, ParquetReader, ...) or give run(initial_tasks=[...])"
    return message


def _fits(given: Any, taken: Any) -> bool:
    """Whether a task of the given kind may be given to a stage that takes the other kind."""
    return any(can_be_taken(g, t) for g in _several(given) for t in _several(taken))


def _several(kind: Any) -> tuple[Any, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def _words(kind: Any) -> str:
    return " or ".join(k.__name__ for k in _several(kind))


def _check_columns(vertices: list[Vertex]) -> list[frozenset[str] | None]:
    after: list[Columns | None] = []
    for vertex in vertices:
        available = _arriving_columns(vertex, vertices, after)
        if available is not None:
            _check_stage(vertex, available)
        after.append(_columns_after(vertex, available))
    return [None if columns is None else frozenset(columns) for columns in after]


def _check_stage(vertex: Vertex, available: Columns) -> None:
    """Refuse a stage whose columns are missing, are of the wrong type, or would be replaced."""
    for column in vertex.stage.inputs()[1]:
        if column not in available:
            raise ColumnError(
                f"stage {vertex.name!r} needs the column {column!r}, which is not there. "
                f"Available: {', '.join(sorted(available)) or 'none'}.{did_you_mean(column, available)}"
            )
    for column in vertex.stage.text_columns():
        kind = available.get(column)
        if kind is not None and not holds_text(kind):
            texts = sorted(name for name, other in available.items() if other is not None and holds_text(other))
            raise ColumnError(
                f"stage {vertex.name!r} works on text, but the column {column!r} holds {kind}. "
                f"Columns with text: {', '.join(texts) or 'none'}"
            )
    for column in vertex.stage.ordered_columns():
        kind = available.get(column)
        if kind is not None and not holds_order(kind):
            raise ColumnError(
                f"stage {vertex.name!r} compares the values of the column {column!r}, which holds {kind}. Only "
                "numbers, truth values, dates and timestamps can be compared"
            )
    AddedColumns.of(vertex).check(available)
    if DROPPED in vertex.edges:
        for column in DROP_COLUMNS:
            if column in available:
                raise ColumnError(
                    f"rows that stage {vertex.name!r} drops get the column {column!r}, which is already there: drop or "
                    "rename it first"
                )


def _columns_after(vertex: Vertex, available: Columns | None) -> Columns | None:
    if vertex.schema is not None:
        types = zip(vertex.schema.names, vertex.schema.types, strict=True)
        return {name: None if pa.types.is_null(kind) else kind for name, kind in types}
    names = vertex.stage.columns_after(None if available is None else frozenset(available))
    if names is None:
        return None
    changed = set(vertex.stage.outputs()[1])
    return {name: None if name in changed else (available or {}).get(name) for name in names}


def _arriving_columns(vertex: Vertex, vertices: list[Vertex], after: list[Columns | None]) -> Columns | None:
    """The columns that all predecessors have."""
    known: Columns | None = None
    for origin in vertex.inputs:
        columns = after[origin]
        if columns is None:
            return None
        if vertices[origin].edges.get(DROPPED) == vertex.index:
            columns = {**columns, **dict.fromkeys(DROP_COLUMNS)}
        if known is None:
            known = columns
        else:
            known = {n: kind if kind == columns[n] else None for n, kind in known.items() if n in columns}
    return known
