"""A plan as plain values, for ``plan.json`` in a run directory: what the picture of the flow is drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tamis.errors import redacted
from tamis.plan.graph import Vertex
from tamis.plan.plan import Group, Plan
from tamis.printable import shortened

PARAMETER_CHARACTERS: Final = 400
"""How much of the value of a parameter is written down."""


def outline(plan: Plan) -> dict[str, Any]:
    """The stages of a plan, where each port leads, what runs together, and what each group needs.

    Edges name the target by its number; -1 is the end of the pipeline. Values of parameters are text, without secrets.

    >>> from tamis.plan import make_plan
    >>> from tamis.stages.function_decorators import processing_stage
    >>> @processing_stage(name="same")
    ... def same(task): return task
    >>> [(v["name"], v["edges"], v["group"]) for v in outline(make_plan("p", [same, same]))["vertices"]]
    [('same', {'out': 1}, 0), ('same #2', {'out': -1}, 0)]
    """
    return {
        "version": 1,
        "name": plan.name,
        "vertices": [_vertex(vertex, plan.group_of[vertex.index]) for vertex in plan.vertices],
        "groups": [_group(plan, group) for group in plan.groups],
    }


def _vertex(vertex: Vertex, group: int) -> dict[str, Any]:
    stage = vertex.stage
    return {
        "name": vertex.name,
        "stage": type(stage).__name__,
        "module": type(stage).__module__,
        "parameters": _texts(stage.parameters()),
        "edges": dict(vertex.edges),
        "group": group,
        "source": vertex.is_source,
        "sink": bool(stage.is_sink_stage),
        "internal": bool(stage.internal),
    }


def _group(plan: Plan, group: Group) -> dict[str, Any]:
    needs = group.resources
    return {
        "stages": [plan.vertices[v].name for v in group.vertices],
        "runs": plan._heading(group),
        "cpus": needs.cpus,
        "gpus": needs.gpus,
        "gpu_memory_gb": needs.gpu_memory_gb,
    }


def _texts(parameters: Mapping[str, Any]) -> dict[str, str]:
    shown = {name: value for name, value in parameters.items() if name != "storage_options"}  # may hold passwords
    return {str(name): redacted(shortened(repr(value), PARAMETER_CHARACTERS)) for name, value in shown.items()}
