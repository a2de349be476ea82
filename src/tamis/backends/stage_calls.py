"""The calls of a stage: which tasks, or rows of a task, each call is given."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.stages.base import Emission, ProcessingStage, emissions
from tamis.stages.batch_limit import BatchLimit
from tamis.stages.task_types import task_types
from tamis.tasks import TableTask, Task
from tamis.tasks.base import digest
from tamis.tasks.views import as_taken

__all__ = ["StageCall", "calls_of", "results_of"]

Stage = ProcessingStage[Any, Any]


@dataclass(eq=False)
class StageCall:
    """One call of a stage.

    Args:
        tasks: The tasks it is given, several only if the stage takes batches.
        part: Some rows of the only task, if it is too large for one call.
    """

    tasks: list[Task[Any]]
    part: Task[Any] | None = None

    def begin(self, stage: Stage) -> Any:
        """Call the stage: what it returns, which is a coroutine or an asynchronous generator if it is ``async``."""
        # A stage may change the task it is given; the task itself is needed to find its rows again.
        taken, _ = task_types(stage)
        tasks = [self.part] if self.part is not None else self.tasks
        given = [as_taken(copy.copy(task), taken) for task in tasks]
        if stage.supports_batch_processing():
            return stage.process_batch(given)
        return stage.process(given[0] if len(given) == 1 else as_taken(copy.copy(self.parent), taken))

    @property
    def parent(self) -> Task[Any]:
        """The task that the results are made of: several tasks count as one."""
        if len(self.tasks) == 1:
            return self.tasks[0]
        if "_parent" not in self.__dict__:
            self._parent = copy.copy(_together(self.tasks))
            self._parent.task_id = digest(*(t.task_id for t in self.tasks))
        return self._parent


def calls_of(stage: Stage, tasks: list[Task[Any]]) -> Iterator[StageCall]:
    """The calls for some tasks, in their order."""
    limit = BatchLimit.of(stage)
    if limit is not None and limit.unit != "tasks":
        yield from _limited(stage, tasks, limit)
    elif stage.supports_batch_processing():
        yield StageCall(tasks)
    else:
        yield from (StageCall([task]) for task in tasks)


def _limited(stage: Stage, tasks: list[Task[Any]], limit: BatchLimit) -> Iterator[StageCall]:
    """Tasks that fit into one call go together; a task that is larger than a call is cut into parts."""
    together: list[Task[Any]] = []
    room = float(limit.most)
    for task in tasks:
        size = float(_sizes(stage, task, limit).sum())
        if together and (size > room or not _can_join(stage, together[-1], task)):
            yield StageCall(together)
            together, room = [], float(limit.most)
        if size <= limit.most or task.num_items <= 1:
            together.append(task)
            room -= size
            continue
        yield from (StageCall([task], part) for part in _parts(task, _sizes(stage, task, limit), limit.most))
    if together:
        yield StageCall(together)


def _can_join(stage: Stage, task: Task[Any], following: Task[Any]) -> bool:
    """Whether one call can be given both: as a list, or as one task with the rows of both."""
    return stage.supports_batch_processing() or _alike(task, following)


def _parts(task: Task[Any], sizes: NDArray[np.float64], most: int) -> Iterator[Task[Any]]:
    """Consecutive rows, as many as fit each time, at least one. Each part has an identity: files are named by it."""
    ends = np.cumsum(sizes)
    start = 0
    for number in itertools.count():
        if start == len(ends):
            return
        before = ends[start - 1] if start else 0.0
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        part = task.select(range(start, stop))
        part.order, part.task_id = (*task.order, number), digest(task.task_id, str(number))
        yield part
        start = stop


def _sizes(stage: Stage, task: Task[Any], limit: BatchLimit) -> NDArray[np.float64]:
    """The size of each row, in the unit of the limit."""
    count = task.num_items
    if limit.unit == "rows":
        return np.ones(count)
    if limit.unit == "tokens":
        counts = np.asarray(stage.count_tokens(task), np.float64)
        if len(counts) != count:
            raise ValueError(f"count_tokens() returned {len(counts)} numbers for {count} rows")
        return counts
    if isinstance(task, TableTask):
        return _row_bytes(task)
    return np.full(count, task.weight / max(count, 1))


def _row_bytes(task: TableTask) -> NDArray[np.float64]:
    """The bytes of each row: exact for text and binary columns, an average for the others."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = task.data
    sizes = np.zeros(table.num_rows)
    for column in table.columns:
        kind = column.type
        if (
            pa.types.is_binary(kind)
            or pa.types.is_string(kind)
            or pa.types.is_large_binary(kind)
            or (pa.types.is_large_string(kind))
        ):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        else:
            sizes += column.nbytes / max(table.num_rows, 1)
    return sizes


def results_of(
    calls: Iterable[StageCall], results: Iterable[Any], *, as_lists: bool
) -> Iterator[tuple[Task[Any], Emission]]:
    """The outputs of a stage, one at a time, each with the task it is made of.

    The parts of a task that was cut are joined again if the stage makes one batch of each.

    Args:
        calls: The calls.
        results: What the stage returned for each of them.
        as_lists: Whether the stage was given lists of tasks.
    """
    made: list[Task[Any]] = []  # of the parts of one task
    parts: list[StageCall] = []
    for call, result in zip(calls, results, strict=False):
        if parts and (call.part is None or call.tasks[0] is not parts[0].tasks[0]):
            yield from _joined(parts, made)
            made, parts = [], []
        if call.part is not None:
            parts.append(call)
            for item in emissions(result):
                if isinstance(item, Task):
                    made.append(_made_of(item, call.part))
                else:
                    yield call.parent, item
        elif as_lists:
            yield from _of_list(call, list(emissions(result)))
        else:
            for item in emissions(result):
                yield call.parent, item
    yield from _joined(parts, made)


def _of_list(call: StageCall, items: list[Emission]) -> Iterator[tuple[Task[Any], Emission]]:
    if len(items) == len(call.tasks) and all(isinstance(i, Task) for i in items):
        yield from zip(call.tasks, items, strict=True)  # as many out as in: each is made of the one in its place
        return
    for item in items:
        yield call.parent, item


def _joined(parts: Sequence[StageCall], made: list[Task[Any]]) -> Iterator[tuple[Task[Any], Emission]]:
    tables = [task for task in made if isinstance(task, TableTask)]
    if len(tables) == len(made) == len(parts) > 1 and all(type(t) is type(tables[0]) for t in tables):
        whole = copy.copy(type(tables[0]).concat(tables))
        whole.dropped = [drop for table in tables for drop in table.dropped]
        whole.scored = [scored for table in tables for scored in table.scored]
        made = [whole]
    for task in made:
        yield parts[0].parent, task


def _made_of(made: Task[Any], part: Task[Any]) -> Task[Any]:
    if isinstance(made, TableTask) and isinstance(part, TableTask):
        own = copy.copy(made)
        own.made_of(part)
        return own
    return made


def _together(tasks: list[Task[Any]]) -> Task[Any]:
    """Tasks that a stage is given at once, as one task, if they can be: otherwise the first of them."""
    if all(_alike(tasks[0], task) for task in tasks[1:]):
        return type(tasks[0]).concat(tasks)
    return tasks[0]


def _alike(task: Task[Any], other: Task[Any]) -> bool:
    """Whether the rows of two tasks can be put into one."""
    if type(task) is not type(other):
        return False
    if isinstance(task, TableTask) and isinstance(other, TableTask):
        return bool(task._table.schema == other._table.schema)
    return isinstance(task.data, list) and isinstance(other.data, list)
