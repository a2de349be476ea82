"""Branches: send rows down different ways, copy them to a side writer, keep what a filter leaves out.

A branch is a list of stages. One that ends in a writer ends there; any other flows on, together with the rest, into
the stage after the branch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tamis.errors import PlanError
from tamis.stages.base import ProcessingStage
from tamis.stages.emit import DROPPED, MAIN, Emit
from tamis.tasks import TableTask, Task

__all__ = ["BranchStage", "Dropped", "Route", "Tee"]

Stages = list[ProcessingStage[Any, Any]]

COPY = "copy"
"""The port of the side branch of :class:`Tee`."""

_FUNCTIONS = {"==": "equal", "!=": "not_equal", "<=": "less_equal", ">=": "greater_equal", "<": "less", ">": "greater"}
_COMPARISON = re.compile(r"^\s*(?P<column>[^<>=!]+?)\s*(?P<op>==|!=|<=|>=|<|>)\s*(?P<literal>.+?)\s*$")


class BranchStage(ProcessingStage[Any, Any]):
    """A stage with more than one way out."""

    releases_gil: ClassVar[bool] = True
    side_ports: ClassVar[frozenset[str]] = frozenset()

    def branches_by_port(self) -> dict[str, Stages]:
        """The stages after each port; an empty list leads straight on."""
        raise NotImplementedError

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available


@dataclass
class Route(BranchStage):
    """Send each row to one of several branches, by the value of a column or a condition.

    Args:
        by: A column, whose value names the branch; or a condition such as ``"score >= 0.5"``, with the branches
            ``"true"`` and ``"false"`` (a null is false); or a function from an Arrow table to an array of names.
        branches: The stages for each name. An empty list passes the rows on unchanged.
        otherwise: The stages for rows whose value names no branch. By default they are passed on unchanged.

    >>> from tamis.stages.io import JsonlWriter
    >>> Route("lang", {"en": [], "de": [JsonlWriter("out/de")]}).name
    'Route'
    """

    by: str | Callable[[Any], Any]
    branches: dict[str, Stages]
    otherwise: Stages = field(default_factory=list)
    name: str = "Route"

    def __post_init__(self) -> None:
        self.branches = {_label(k): v for k, v in self.branches.items()}
        condition = self.condition
        unknown = sorted(set(self.branches) - {"true", "false"}) if condition else []
        if unknown:
            raise PlanError(f"Route({self.by!r}): a condition has the branches 'true' and 'false', not {unknown}")
        if "otherwise" in self.branches:
            raise PlanError(
                "Route: give the rows that match no branch in otherwise=[...], not as a branch of that name"
            )

    @property
    def condition(self) -> tuple[str, str, Any] | None:
        """Column, operator and literal when ``by`` is a condition."""
        match = _COMPARISON.match(self.by) if isinstance(self.by, str) else None
        return (match["column"], match["op"], _literal(match["literal"])) if match else None

    def inputs(self) -> tuple[list[str], list[str]]:
        if not isinstance(self.by, str):
            return ["data"], []
        return ["data"], [self.condition[0] if self.condition else self.by]

    def branches_by_port(self) -> dict[str, Stages]:
        return {**self.branches, "otherwise": self.otherwise}

    def process(self, task: TableTask) -> Iterator[Emit]:
        import numpy as np
        import pyarrow.compute as pc

        labels = self.labels(task.to_pyarrow())
        remaining = np.ones(task.num_items, dtype=bool)
        for branch in self.branches:
            chosen = np.asarray(pc.fill_null(pc.equal(labels, branch), False))
            remaining &= ~chosen
            if chosen.any():
                yield Emit(branch, task.select(np.flatnonzero(chosen)))
        if remaining.any():
            yield Emit("otherwise", task.select(np.flatnonzero(remaining)))

    def labels(self, table: Any) -> Any:
        """The name of the branch of each row of an Arrow table."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not isinstance(self.by, str):
            labels = self.by(table)
            return pc.cast(labels if isinstance(labels, pa.Array | pa.ChunkedArray) else pa.array(labels), pa.string())
        if self.condition is None:
            return pc.cast(table.column(self.by), pa.string())
        column, op, literal = self.condition
        holds = pc.call_function(_FUNCTIONS[op], [table.column(column), pa.scalar(literal)])
        return pc.cast(pc.fill_null(holds, False), pa.string())


@dataclass
class Tee(BranchStage):
    """Send a copy of every task to a side branch, which must end in a writer; the main way goes on unchanged.

    Nothing is copied in memory: both ways share the same Arrow buffers.

    Args:
        stages: The side branch.
    """

    stages: Stages
    name: str = "Tee"
    side_ports: ClassVar[frozenset[str]] = frozenset({COPY})

    def branches_by_port(self) -> dict[str, Stages]:
        return {COPY: self.stages, MAIN: []}

    def process(self, task: Task[Any]) -> Iterator[Emit]:
        yield Emit(COPY, task)
        yield Emit(MAIN, task)


@dataclass
class Dropped(BranchStage):
    """Run a filter and send what it leaves out to a side branch instead of losing it.

    The rows arrive there with two more columns: ``dropped_by`` (the stage), ``dropped_because`` (the reason).

    Args:
        stage: The stage whose dropped rows are kept.
        to: The side branch; an empty list lets the dropped rows flow on with the others, marked by those columns.
    """

    stage: ProcessingStage[Any, Any]
    to: Stages
    name: str = "Dropped"

    def branches_by_port(self) -> dict[str, Stages]:
        return {DROPPED: self.to, MAIN: []}

    def process(self, task: Task[Any]) -> Any:
        return self.stage.process(task)


def _label(key: object) -> str:
    """Branch names as users write them: ``True`` and ``"true"`` are the same."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def _literal(text: str) -> Any:
    """A number, true/false, or text (with or without quotes)."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text.strip("'\"")
