"""Checks that need no data: do the stages fit together, are the columns there, is every stage complete?"""

from __future__ import annotations

from typing import Any

from tamis.errors import ColumnError, PlanError, TypeMismatchError, did_you_mean
from tamis.plan.graph import Vertex
from tamis.stages.base import CompositeStage, ProcessingStage, SourceStage, task_types
from tamis.stages.emit import DROPPED
from tamis.stages.flow import BranchStage
from tamis.tasks import EmptyTask, TableTask, Task
from tamis.tasks.views import can_be_taken


def check_graph(vertices: list[Vertex], start: type[Task[Any]] | None) -> list[frozenset[str] | None]:
    """Refuse what cannot work; return the columns known behind each vertex.

    Args:
        vertices: The graph.
        start: What the first stage is given; ``None`` when that is not known.
    """
    for vertex in vertices:
        _check_complete(vertex)
        workers = vertex.stage.num_workers()
        if workers is not None and workers < 1:
            raise PlanError(f"stage {vertex.name!r}: num_workers is {workers}, it must be at least 1")
    _check_types(vertices, start)
    return _check_columns(vertices)


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
        # A branch hands on what it is given.
        gives.append(arriving[0][1] if isinstance(vertex.stage, BranchStage) and arriving else given)


def _kind_between(before: Vertex, given: Any, target: int) -> Any:
    """What goes from one vertex to another: what the first gives, or, of what it drops, the rows it was given."""
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
    """Whether some task of the given kind can be one that is taken."""
    return any(can_be_taken(g, t) for g in _several(given) for t in _several(taken))


def _several(kind: Any) -> tuple[Any, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def _words(kind: Any) -> str:
    return " or ".join(k.__name__ for k in _several(kind))


def _check_columns(vertices: list[Vertex]) -> list[frozenset[str] | None]:
    behind: list[frozenset[str] | None] = []
    for vertex in vertices:
        available = _arriving_columns(vertex, vertices, behind)
        needed = vertex.stage.inputs()[1]
        if available is not None:
            for column in needed:
                if column not in available:
                    raise ColumnError(
                        f"stage {vertex.name!r} needs the column {column!r}, which is not there. "
                        f"Available: {', '.join(sorted(available)) or 'none'}.{did_you_mean(column, available)}"
                    )
        after = vertex.stage.columns_after(available)
        behind.append(vertex.given_columns if vertex.given_columns is not None else after)
    return behind


def _arriving_columns(
    vertex: Vertex, vertices: list[Vertex], behind: list[frozenset[str] | None]
) -> frozenset[str] | None:
    """The columns that every way into the vertex brings."""
    known: frozenset[str] | None = None
    for origin in vertex.inputs:
        columns = behind[origin]
        if columns is None:
            return None
        if DROPPED in vertices[origin].edges and vertices[origin].edges[DROPPED] == vertex.index:
            columns = columns | {"dropped_by", "dropped_because"}
        known = columns if known is None else known & columns
    return known
