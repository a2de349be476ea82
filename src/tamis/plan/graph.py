"""Builds the graph of a list of stages: unfolds composites, adds branches, connects every port."""

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
"""The target of edges that leave the graph: the outputs of the run."""


@dataclass
class Vertex:
    """One stage in the graph.

    Args:
        index: Its number; predecessors have lower ones.
        stage: The stage.
        name: Its name, unique in the plan; in a branch with the path to it: ``"Route[de] / JsonlWriter"``.
        edges: The target of each port: a vertex or :data:`END`. Outputs of other ports are discarded.
        inputs: The vertices with edges to this one.
        schema: The columns after it and their types (``null`` if not known), read from the input.
    """

    index: int
    stage: Stage
    name: str
    edges: dict[str, int] = field(default_factory=dict)
    inputs: list[int] = field(default_factory=list)
    schema: pa.Schema | None = None

    @property
    def is_source(self) -> bool:
        """Whether the driver lists its tasks."""
        return isinstance(self.stage, SourceStage)


OpenPort = tuple[int, str]
"""A port that the next stage will be connected to: a vertex and the name of its port."""


def build_graph(stages: Sequence[Stage], *, batch: bool = False) -> list[Vertex]:
    """Build the graph of a list of stages; with ``batch``, each stage waits until the one before it is done.

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

    def chain(self, stages: Sequence[Stage], open_ports: list[OpenPort]) -> list[OpenPort]:
        """Add a chain of stages after the open ports; return the ports that are open after the last stage."""
        for number, stage in enumerate(stages):
            if number and not open_ports:
                raise PlanError(f"nothing reaches stage {stage.name!r}: all branches before it end in writers")
            if isinstance(stage, CompositeStage):
                open_ports = self._composite(stage, open_ports)
            elif isinstance(stage, Dropped):
                open_ports = self._dropped(stage, open_ports)
            elif isinstance(stage, BranchStage):
                open_ports = self._branch(stage, open_ports)
            else:
                open_ports = [(self._vertex(stage, open_ports), MAIN)]
        return open_ports

    def _composite(self, composite: CompositeStage[Any, Any], open_ports: list[OpenPort]) -> list[OpenPort]:
        named = self._uniquely_named(composite)
        inner = named.unfold()
        if not inner:
            raise PlanError(f"{composite.name} unfolds into no stages")
        self._inside.append((named.name, composite.name))
        open_ports = self.chain(inner, open_ports)
        self._inside.pop()
        schema = getattr(composite, "schema", None)
        if callable(schema) and len(open_ports) == 1:
            self.vertices[open_ports[0][0]].schema = schema()
        return open_ports

    def _dropped(self, wrapper: Dropped, open_ports: list[OpenPort]) -> list[OpenPort]:
        first = len(self.vertices)
        open_ports = self.chain([wrapper.stage], open_ports)
        if len(open_ports) != 1 or self.vertices[open_ports[0][0]].is_source:
            raise PlanError(f"Dropped({wrapper.stage.name}): it takes a stage with one output, such as a filter")
        inside = [v.index for v in self.vertices[first:] if not v.stage.internal]
        origin = f"{self._branch_path}{wrapper.stage.name}"
        return open_ports + self._side(f"{origin}[{DROPPED}]", wrapper.to, [(index, DROPPED) for index in inside])

    def _branch(self, stage: BranchStage, open_ports: list[OpenPort]) -> list[OpenPort]:
        vertex = self._vertex(stage, open_ports)
        after: list[OpenPort] = []
        for port, inner in stage.branches_by_port().items():
            branch_ports = self._side(f"{self.vertices[vertex].name}[{port}]", inner, [(vertex, port)])
            if isinstance(stage, Tee) and port != MAIN and branch_ports:
                last = inner[-1].name if inner else "nothing"
                raise PlanError(f"{stage.name}: its side branch must end in a writer, it ends in {last}")
            after += branch_ports
        return after

    def _side(self, name: str, stages: list[Stage], into: list[OpenPort]) -> list[OpenPort]:
        """A branch: open after its last stage unless that is a writer."""
        outside, self._branch_path = self._branch_path, f"{name} / "
        open_ports = self.chain(stages, into)
        self._branch_path = outside
        if stages and all(self.vertices[v].stage.is_sink_stage for v, _ in open_ports):
            for vertex, port in open_ports:
                self.vertices[vertex].edges[port] = END
            return []
        return open_ports

    def _add_barrier(self, stage: Stage, open_ports: list[OpenPort]) -> list[OpenPort]:
        """Add a barrier before a stage: tasks are spilled to disk until all have arrived."""
        if all(self.vertices[v].is_source or isinstance(self.vertices[v].stage, LoadSpilled) for v, _ in open_ports):
            return open_ports
        folder = folder_for(f"before {len(self.vertices)} {stage.name}")
        barrier: list[Stage] = [Spill(folder), Spilled(folder), LoadSpilled(folder)]
        self._batch = False
        open_ports = self.chain(barrier, open_ports)
        self._batch = True
        return open_ports

    def _uniquely_named(self, composite: CompositeStage[Any, Any]) -> CompositeStage[Any, Any]:
        """The composite with a unique name: composites name their folders in the run directory after themselves."""
        name = _unique(composite.name, self._composites)
        if name == composite.name:
            return composite
        renamed = copy.copy(composite)
        object.__setattr__(renamed, "name", name)
        return renamed

    def _vertex(self, stage: Stage, open_ports: list[OpenPort]) -> int:
        if not isinstance(stage, ProcessingStage):
            raise PlanError(f"{stage!r} is not a stage: a pipeline is made of ProcessingStage objects")
        if self._batch and open_ports and not isinstance(stage, SourceStage | BranchStage):
            open_ports = self._add_barrier(stage, open_ports)
        vertex = Vertex(len(self.vertices), stage, self._name_of(stage))
        for origin, port in open_ports:
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
