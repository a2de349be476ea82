"""What flows through a pipeline: a task is a batch of data with a stable identity."""

from __future__ import annotations

import copy
import hashlib
import itertools
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar

from tamis.tasks.memory import measured_bytes

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

    has_rows: ClassVar[bool] = False
    """Whether its items are rows of a table, each with a name (see :class:`tamis.tasks.TableTask`)."""

    data: T
    dataset_name: str = ""
    task_id: str = ""
    order: tuple[int, ...] = ()
    _metadata: dict[str, Any] = field(default_factory=dict)
    _stage_perf: list[StagePerf] = field(default_factory=list)

    # -- what every task offers: backends and storage know these and no class of task --------------------------------

    @property
    def num_items(self) -> int:
        """How many items (rows, files, clips) the task holds."""
        return 1

    @property
    def nbytes(self) -> int:
        """How much memory the payload takes, in bytes; measured."""
        return measured_bytes(self.data)

    @property
    def weight(self) -> int:
        """How much data the task stands for, in bytes: for a list of files, the size of the files."""
        return self.nbytes

    def select(self, rows: Sequence[int]) -> Self:
        """The same task with some of its items, by their numbers.

        >>> Task(["a", "b", "c"]).select([0, 2]).data
        ['a', 'c']
        """
        chosen = copy.copy(self)
        data: Any = self.data
        if isinstance(data, list | tuple):
            chosen.data = type(data)(data[int(row)] for row in rows)  # type: ignore[call-arg,assignment]  # a list of some
        elif hasattr(data, "shape") and len(data) == self.num_items:  # an array or a tensor
            chosen.data = data[list(map(int, rows))]
        elif list(rows) != list(range(self.num_items)):
            raise TypeError(
                f"{type(self).__name__} does not say how to take some of its {self.num_items} items: "
                "define select(rows)"
            )
        return chosen

    def split(self, pieces: int) -> list[Self]:
        """The task in up to ``pieces`` tasks of consecutive items, of about equal size.

        >>> [task.data for task in Task(["a", "b", "c"]).split(2)]
        [['a', 'b'], ['c']]
        """
        count = self._item_count()
        pieces = max(1, min(pieces, count))
        bounds = [-(-count * n // pieces) for n in range(pieces + 1)]
        return [self.select(range(start, stop)) for start, stop in itertools.pairwise(bounds)]

    def _item_count(self) -> int:
        data: Any = self.data
        return len(data) if isinstance(data, list | tuple) else self.num_items

    @classmethod
    def concat(cls, tasks: Sequence[Self]) -> Self:
        """The items of several tasks in one, which is otherwise like the first.

        >>> Task.concat([Task(["a"]), Task(["b", "c"])]).data
        ['a', 'b', 'c']
        """
        whole = copy.copy(tasks[0])
        payloads: list[Any] = [task.data for task in tasks]
        if all(isinstance(payload, list | tuple) for payload in payloads):
            whole.data = type(payloads[0])(itertools.chain.from_iterable(payloads))
        elif len(tasks) > 1:
            raise TypeError(f"{cls.__name__} does not say how to put several together: define concat(tasks)")
        return whole

    def to_buffers(self) -> list[Any]:
        """The task as buffers for another process: a header, then the memory of its arrays, not copied.

        >>> Task.from_buffers(Task(["a"], dataset_name="d").to_buffers()).dataset_name
        'd'
        """
        buffers: list[pickle.PickleBuffer] = []
        if type(self).__module__.startswith("tamis."):
            header = pickle.dumps(self, protocol=5, buffer_callback=buffers.append)
        else:  # the other process may not know a class of the user's script: then the class goes along
            import cloudpickle

            header = cloudpickle.dumps(self, protocol=5, buffer_callback=buffers.append)
        return [header, *(buffer.raw() for buffer in buffers)]

    @staticmethod
    def from_buffers(buffers: Sequence[Any]) -> Task[Any]:
        """The reverse of :meth:`to_buffers`."""
        task: Task[Any] = pickle.loads(buffers[0], buffers=buffers[1:])
        return task

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

    @property
    def nbytes(self) -> int:
        return 0


def digest(*parts: object) -> str:
    """A short, stable id of some printable values.

    >>> digest("a.jsonl", 0, 100) == digest("a.jsonl", 0, 100)
    True
    >>> len(digest("x"))
    16
    """
    text = "".join([f"{part!s}\x1f" for part in parts])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
