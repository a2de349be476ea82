"""From a list of stages to a graph: composites unfolded, branches laid out, every way joined up."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tamis.errors import PlanError
from tamis.stages.base import CompositeStage, ProcessingStage, SourceStage
from tamis.stages.emit import DROPPED, MAIN
from tamis.stages.flow import BranchStage, Dropped, Tee
from tamis.stages.spill import LoadSpilled, Spill, Spilled, folder_for

Stage = ProcessingStage[Any, Any]

END = -1
"""Where a way out of the graph leads: the outputs of the run."""


@dataclass
class Vertex:
    """One stage in the graph.

    Args:
        index: Its number; predecessors have lower ones.
        stage: The stage.
        name: Its name, unique in the plan; in a branch with the way to it: ``"Route[de] / JsonlWriter"``.
        edges: Where each port leads: a vertex or :data:`END`. A port that is not here leads nowhere.
        inputs: The vertices that lead here.
        schema: The columns after it and their types (``null`` where not known), from a look at the input.
    """

    index: int
    stage: Stage
    name: str
    edges: dict[str, int] = field(default_factory=dict)
    inputs: list[int] = field(default_factory=list)
    schema: pa.Schema | None = None

    @property
    def is_source(self) -> bool:
        """Whether its tasks are made by the driver."""
        return isinstance(self.stage, SourceStage)


Way = tuple[int, str]
"""An open way: a vertex and a port of it."""


def build_graph(stages: Sequence[Stage], *, batch: bool = False) -> list[Vertex]:
    """Lay out the graph of a list of stages; with ``batch`` each stage waits until the one before it is done.

    >>> from tamis.stages.function_decorators import processing_stage
    >>> @processing_stage(name="same")
    ... def same(task): return task
    >>> [v.name for v in build_graph([same, same])]
    ['same', 'same #2']
    """
    builder = _Builder(batch)
    for vertex, port in builder.chain(stages, []):
        builder.vertices[vertex].edges[port] = END
    return builder.vertices


class _Builder:
    def __init__(self, batch: bool) -> None:
        self.vertices: list[Vertex] = []
        self._batch = batch
        self._names: dict[str, int] = {}
        self._composites: dict[str, int] = {}
        self._branch_path = ""  # where the stages being added are: "Route[de] / ", say
        self._inside: list[tuple[str, str]] = []  # composites being unfolded: their unique names and their own

    def chain(self, stages: Sequence[Stage], ways: list[Way]) -> list[Way]:
        """Add stages one after another, after the given open ways; return the ways that are open after the last."""
        for number, stage in enumerate(stages):
            if number and not ways:
                raise PlanError(f"nothing reaches stage {stage.name!r}: all ways before it end in writers")
            if isinstance(stage, CompositeStage):
                ways = self._composite(stage, ways)
            elif isinstance(stage, Dropped):
                ways = self._dropped(stage, ways)
            elif isinstance(stage, BranchStage):
                ways = self._branch(stage, ways)
            else:
                ways = [(self._vertex(stage, ways), MAIN)]
        return ways

    def _composite(self, composite: CompositeStage[Any, Any], ways: list[Way]) -> list[Way]:
        named = self._uniquely_named(composite)
        inner = named.unfold()
        if not inner:
            raise PlanError(f"{composite.name} unfolds into no stage at all")
        self._inside.append((named.name, composite.name))
        ways = self.chain(inner, ways)
        self._inside.pop()
        look = getattr(composite, "schema", None)
        if callable(look) and len(ways) == 1:
            self.vertices[ways[0][0]].schema = look()
        return ways

    def _dropped(self, wrapper: Dropped, ways: list[Way]) -> list[Way]:
        first = len(self.vertices)
        ways = self.chain([wrapper.stage], ways)
        if len(ways) != 1 or self.vertices[ways[0][0]].is_source:
            raise PlanError(f"Dropped({wrapper.stage.name}): it takes a stage with one way out, such as a filter")
        inside = [v.index for v in self.vertices[first:] if not v.stage.internal]
        origin = f"{self._branch_path}{wrapper.stage.name}"
        return ways + self._side(f"{origin}[{DROPPED}]", wrapper.to, [(index, DROPPED) for index in inside])

    def _branch(self, stage: BranchStage, ways: list[Way]) -> list[Way]:
        vertex = self._vertex(stage, ways)
        behind: list[Way] = []
        for port, inner in stage.branches_by_port().items():
            open_ways = self._side(f"{self.vertices[vertex].name}[{port}]", inner, [(vertex, port)])
            if isinstance(stage, Tee) and port != MAIN and open_ways:
                last = inner[-1].name if inner else "nothing"
                raise PlanError(f"{stage.name}: its side branch must end in a writer, it ends in {last}")
            behind += open_ways
        return behind

    def _side(self, name: str, stages: list[Stage], into: list[Way]) -> list[Way]:
        """A branch: open after its last stage unless that is a writer."""
        outside, self._branch_path = self._branch_path, f"{name} / "
        ways = self.chain(stages, into)
        self._branch_path = outside
        if stages and all(self.vertices[v].stage.is_sink_stage for v, _ in ways):
            for vertex, port in ways:
                self.vertices[vertex].edges[port] = END
            return []
        return ways

    def _set_down(self, stage: Stage, ways: list[Way]) -> list[Way]:
        """Put a barrier before a stage: tasks are spilled to disk until all of them have arrived."""
        if all(self.vertices[v].is_source or isinstance(self.vertices[v].stage, LoadSpilled) for v, _ in ways):
            return ways
        folder = folder_for(f"before {len(self.vertices)} {stage.name}")
        stops: list[Stage] = [Spill(folder), Spilled(folder), LoadSpilled(folder)]
        self._batch = False
        ways = self.chain(stops, ways)
        self._batch = True
        return ways

    def _uniquely_named(self, composite: CompositeStage[Any, Any]) -> CompositeStage[Any, Any]:
        """Composites name the folders of the run directory they use after themselves, so names must differ."""
        name = _unique(composite.name, self._composites)
        if name == composite.name:
            return composite
        renamed = copy.copy(composite)
        object.__setattr__(renamed, "name", name)
        return renamed

    def _vertex(self, stage: Stage, ways: list[Way]) -> int:
        if not isinstance(stage, ProcessingStage):
            raise PlanError(f"{stage!r} is not a stage: a pipeline is made of ProcessingStage objects")
        if self._batch and ways and not isinstance(stage, SourceStage | BranchStage):
            ways = self._set_down(stage, ways)
        vertex = Vertex(len(self.vertices), stage, self._name_of(stage))
        for origin, port in ways:
            self.vertices[origin].edges[port] = vertex.index
            if origin not in vertex.inputs:
                vertex.inputs.append(origin)
        self.vertices.append(vertex)
        return vertex.index

    def _name_of(self, stage: Stage) -> str:
        name = stage.name or type(stage).__name__
        for unique, own in self._inside:
            if name.startswith(unique):
                name = own + name.removeprefix(unique)
        return _unique(f"{self._branch_path}{name}", self._names)


def _unique(name: str, used: dict[str, int]) -> str:
    """The name, with a number if it was used before."""
    unique, count = name, used.get(name, 0)
    while unique in used:
        count += 1
        unique = f"{name} #{count}"
    used[name] = max(count, 1)
    used.setdefault(unique, 1)
    return unique
