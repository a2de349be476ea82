"""What one batch of a run has set aside, ready to be given to a stage again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tamis.runs.quarantine import FailedRows
from tamis.runs.set_aside import SetAsideTask
from tamis.tasks import FileGroup, Task
from tamis.tasks.base import digest
from tamis.tasks.storage import parse_order

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RETRIED", "Aside", "identified", "renumbered", "write_record"]

RETRIED: Final = 900_000_000
"""Added to the place of a batch, after it, for what is made of its rows that failed before. No stage makes as many
tasks of one."""


@dataclass
class Aside:
    """Some rows of one stage, or a whole task, that one batch has set aside."""

    vertex: int
    tasks: list[Task[Any]]
    paths: list[str]
    rows: FailedRows | None = None
    records: list[SetAsideTask] = field(default_factory=list)

    @property
    def has_killed(self) -> bool:
        """Whether a worker died of it."""
        errors = self.rows.errors if self.rows is not None else [record.error for record in self.records]
        return "WorkerDied" in errors

    @property
    def count(self) -> int:
        """How many rows; a task that stands for files counts as one."""
        return sum(1 if isinstance(task, FileGroup) else task.num_items for task in self.tasks)


def write_record(record: SetAsideTask, sink: pa.NativeFile) -> None:
    """Write the record of a task that was given up."""
    sink.write(record.encoded())


def identified(task: Task[Any], place: str) -> Task[Any]:
    """Rows of the quarantine with the place of the batch that they were in."""
    task.order = parse_order(place) if place else (0,)
    task.task_id = digest("set aside", place)
    names = getattr(task, "names", None)
    if names is not None and len(names):
        task._metadata = {**task._metadata, "source_files": list(names.sources[:1])}
    return task


def renumbered(task: Task[Any], number: int) -> Task[Any]:
    """The task with a place and an id that nothing else in the run has."""
    task.order = (*task.order, RETRIED + number)
    task.task_id = digest("retried", number, task.task_id)
    return task
