"""What flows through a pipeline: a task is a batch of data with a stable identity."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass
class StagePerf:
    """What one stage did to one task: seconds, rows in and out."""

    stage_name: str
    process_time: float = 0.0
    num_items_processed: int = 0
    custom_metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class Task(Generic[T]):
    """A batch of data with a stable identity.

    Users fill ``data`` and, if they like, ``dataset_name``; the framework assigns ``task_id`` and ``order``, and
    carries ``_metadata`` from a task to what is made of it.

    Args:
        data: The payload.
        dataset_name: A label that travels with the data.
        task_id: Assigned by the framework: a function of the input and the stages, equal on every executor.
        order: Assigned by the framework: the task's place in the input, as a path of ordinals. Sorting tasks by it
            restores the order of the input whatever order they finished in.
    """

    data: T
    dataset_name: str = ""
    task_id: str = ""
    order: tuple[int, ...] = ()
    _metadata: dict[str, Any] = field(default_factory=dict)
    _stage_perf: list[StagePerf] = field(default_factory=list)

    @property
    def num_items(self) -> int:
        """How many items (rows, files, clips) the task holds."""
        return 1

    @property
    def nbytes(self) -> int:
        """How much memory the payload takes, in bytes."""
        return 0

    @property
    def weight(self) -> int:
        """How much data the task stands for, in bytes: for a list of files, the size of the files."""
        return self.nbytes

    def validate(self) -> bool:
        """Whether the payload is usable."""
        return True

    def get_deterministic_id(self) -> str | None:
        """An id that follows from the content alone, or ``None`` when there is none (source tasks have one)."""
        return None

    def add_stage_perf(self, perf: StagePerf) -> None:
        """Append what a stage did to this task."""
        self._stage_perf.append(perf)


@dataclass
class EmptyTask(Task[None]):
    """What the first stage of a pipeline is given when it makes its own data.

    >>> EmptyTask().num_items
    0
    """

    data: None = None

    @property
    def num_items(self) -> int:
        return 0


def digest(*parts: object) -> str:
    """A short, stable id of some printable values.

    >>> digest("a.jsonl", 0, 100) == digest("a.jsonl", 0, 100)
    True
    >>> len(digest("x"))
    16
    """
    h = hashlib.blake2b(digest_size=8)
    for part in parts:
        h.update(str(part).encode("utf-8", "surrogatepass"))
        h.update(b"\x1f")
    return h.hexdigest()
