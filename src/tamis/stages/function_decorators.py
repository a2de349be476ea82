"""Stages that are made of a function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tamis.stages.base import ProcessingStage, is_async_function
from tamis.stages.resources import Resources
from tamis.stages.task_types import annotated_types

__all__ = ["FunctionStage", "processing_stage"]


class FunctionStage(ProcessingStage[Any, Any]):
    """A stage whose work is one function of one task. Made by :func:`processing_stage`."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        name: str,
        resources: Resources,
        batch_size: int,
        fans_out: bool = False,
        max_in_flight: int = ProcessingStage.max_in_flight,
    ) -> None:
        self.function, self.name, self.resources, self.batch_size = function, name, resources, batch_size
        self.max_in_flight = max_in_flight
        self.task_types = annotated_types(function)
        self.fans_out = fans_out  # type: ignore[misc]  # of this function
        functools.update_wrapper(self, function, updated=())

    def __call__(self, task: Any) -> Any:
        """Call the function itself."""
        return self.function(task)

    def process(self, task: Any) -> Any:
        return self.function(task)

    @property
    def is_async(self) -> bool:
        return is_async_function(self.function)

    def parameters(self) -> dict[str, Any]:
        return {"function": self.function}

    def __repr__(self) -> str:
        return f"processing_stage({self.function.__qualname__}, name={self.name!r})"


def processing_stage(
    *,
    name: str | None = None,
    resources: Resources | dict[str, float] | None = None,
    batch_size: int | None = None,
    fans_out: bool = False,
    max_in_flight: int | None = None,
) -> Callable[[Callable[[Any], Any]], FunctionStage]:
    """Make a stage of a function that takes one task and returns a task, several, or ``None``.

    What comes back is a stage that can still be called like the function.

    Args:
        name: The stage's name; the function's when not given.
        resources: What one worker needs.
        batch_size: How many tasks it is given at once.
        fans_out: Whether it makes many tasks of one, which should spread over the workers.
        max_in_flight: For an ``async`` function: how many calls one worker keeps in flight.

    >>> from tamis.tasks import DocumentBatch
    >>> @processing_stage(name="first_row")
    ... def first_row(task: DocumentBatch) -> DocumentBatch:
    ...     return task.with_table(task.data.slice(0, 1))
    >>> first_row.name, first_row(DocumentBatch({"text": ["a", "b"]})).num_items
    ('first_row', 1)
    """
    if isinstance(resources, dict):
        resources = Resources(**resources)

    def wrap(function: Callable[[Any], Any]) -> FunctionStage:
        parameters = [
            p
            for p in inspect.signature(function).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        required = [p for p in parameters if p.default is p.empty]
        if not parameters or len(required) > 1:
            raise TypeError(
                f"@processing_stage: {function.__qualname__} must take exactly one task, "
                f"it takes ({', '.join(p.name for p in parameters)})"
            )
        return FunctionStage(
            function,
            name or function.__name__,
            resources or Resources(),
            batch_size or 1,
            fans_out,
            max_in_flight or ProcessingStage.max_in_flight,
        )

    return wrap
