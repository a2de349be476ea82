"""The task types that a stage takes and gives, read from its declaration."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

from tamis.stages.base import ProcessingStage
from tamis.tasks import Task

__all__ = ["annotated_types", "task_types"]


def task_types(stage: ProcessingStage[Any, Any]) -> tuple[Any, Any]:
    """The task types a stage takes and gives: ``X`` and ``Y`` of ``ProcessingStage[X, Y]``; ``Task`` when not said."""
    declared = getattr(stage, "task_types", None)
    if declared is not None:
        return typing.cast("tuple[Any, Any]", declared)
    return _declared(type(stage))  # type: ignore[arg-type]  # hashable


@functools.lru_cache(maxsize=256)
def _declared(stage: type[ProcessingStage[Any, Any]]) -> tuple[Any, Any]:
    for cls in stage.__mro__:
        for base in getattr(cls, "__orig_bases__", ()):
            origin, args = typing.get_origin(base), typing.get_args(base)
            if inspect.isclass(origin) and issubclass(origin, ProcessingStage) and len(args) == 2:
                return _task_class(args[0]), _task_class(args[1])
    return Task, Task


def _task_class(annotation: Any) -> Any:
    """A class, or a tuple of classes for a union; ``Task`` for anything that says nothing."""
    origin = typing.get_origin(annotation)
    if origin is typing.Union or type(annotation).__name__ == "UnionType":
        members = tuple(_task_class(a) for a in typing.get_args(annotation) if a is not type(None))
        return members if len(members) != 1 else members[0]
    if inspect.isclass(origin) and issubclass(origin, Task):
        return origin
    return annotation if inspect.isclass(annotation) and issubclass(annotation, Task) else Task


def annotated_types(function: Callable[[Any], Any]) -> tuple[Any, Any]:
    """The task types in the function's annotations; ``Task`` where there is none."""
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        hints = {}
    result = hints.pop("return", None)
    inner = typing.get_args(result)
    if inner and typing.get_origin(result) in (list, tuple, typing.get_origin(typing.Iterator[Any])):
        result = inner[0]
    return _task_class(next(iter(hints.values()), None)), _task_class(result)
