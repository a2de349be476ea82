"""Workflows: several pipelines that run one after the other, and what they made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tamis.tasks import Task

__all__ = ["WorkflowBase", "WorkflowRunResult"]


@dataclass
class WorkflowRunResult:
    """What the pipelines of a workflow made.

    Args:
        workflow_name: The workflow's name.
        pipeline_tasks: The output tasks of each pipeline, by its name.
        metadata: Anything else, such as times and counts.

    >>> result = WorkflowRunResult("dedup")
    >>> result.add_metadata("removed", 3)
    >>> result.get_metadata("removed"), result.get_metadata("kept")
    (3, None)
    """

    workflow_name: str
    pipeline_tasks: dict[str, list[Task[Any]]] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    def add_pipeline_tasks(self, pipeline_name: str, tasks: Iterable[Task[Any]] | None) -> None:
        """Add the output tasks of a pipeline."""
        self.pipeline_tasks[pipeline_name] = list(tasks or [])

    def extend_metadata(self, updates: Mapping[str, Any] | None = None) -> None:
        """Add several entries to the metadata."""
        self.metadata.update(updates or {})

    def add_metadata(self, key: str, value: Any) -> None:
        """Add one entry to the metadata."""
        self.metadata[key] = value

    def get_metadata(self, key: str) -> Any:
        """One entry of the metadata; ``None`` if there is none."""
        return self.metadata.get(key)


class WorkflowBase(ABC):
    """Several pipelines that are run one after the other."""

    @abstractmethod
    def run(self, *arguments: Any, **settings: Any) -> WorkflowRunResult:
        """Run them."""
