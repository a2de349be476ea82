"""Keys of the groups of a plan: equal as long as a group would make the same of the same task."""

from __future__ import annotations

import tamis
from tamis.plan.describe import describe, named_files
from tamis.plan.graph import Vertex
from tamis.plan.plan import Group, Plan
from tamis.tasks.base import digest

__all__ = ["group_keys", "stage_keys"]


def stage_keys(plan: Plan) -> list[str]:
    """The key of each stage: a digest of its parameters and code, and of the stages before it."""
    keys: list[str] = []
    for vertex in plan.vertices:
        before = [(keys[i], _port(plan.vertices[i], vertex.index)) for i in vertex.inputs]
        keys.append(digest(vertex.name, _description(vertex), before, tamis.__version__))
    return keys


def group_keys(plan: Plan) -> list[str]:
    """The key of each group: a digest of the keys of its stages, and of what it is given at once."""
    keys = stage_keys(plan)

    def key(group: Group) -> str:
        batches = (group.batch_size, group.batch_bytes, group.batch_rows, group.ordered)
        return digest(*(keys[v] for v in group.vertices), *batches)

    return [key(group) for group in plan.groups]


def _description(vertex: Vertex) -> str:
    """A stage without what its tasks say for themselves: those of the input are known by their files."""
    stage = vertex.stage
    if vertex.is_source and not vertex.inputs:
        return type(stage).__qualname__
    return digest(describe(stage), *named_files(stage))


def _port(before: Vertex, target: int) -> str:
    return ",".join(sorted(port for port, to in before.edges.items() if to == target))
