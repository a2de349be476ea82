"""Which rows a stage was given and which it returned: rows that are neither output nor dropped have vanished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tamis.tasks import Drop, RowNames, TableTask, Task
from tamis.tasks.row_names import missing_rows

__all__ = ["RowAccount"]


class RowAccount:
    """The rows of the tasks that a stage is given at once.

    Args:
        tasks: The tasks it is given.
        makes_rows: How its rows come from those, see :class:`tamis.stages.base.ProcessingStage`.
    """

    def __init__(self, tasks: Sequence[Task[Any]], makes_rows: str) -> None:
        self.quarantined = 0
        self.failed_by: dict[int, int] = {}  # rows that the stage fails on, which are not among the tasks, likewise
        self.makes_files = False  # whether its rows went into files or other things
        self.written = 0  # rows in the files of a writer
        self.dropped_by: dict[int, int] = {}  # rows by the position of the stage, where several run as one
        self._tasks, self._makes_rows = tasks, makes_rows
        self._are_rows = all(task.has_rows for task in tasks)
        self._items = sum(task.num_items for task in tasks)
        self._made = 0
        self._names: list[Callable[[], RowNames]] = []
        self._traced = False
        self._batches = 0

    def add(self, made: Task[Any]) -> None:
        """Add a task that the stage made."""
        self._made += made.num_items
        self._batches += 1
        if not isinstance(made, TableTask):
            self.makes_files = True
        elif self._are_rows and made.has_names:
            self._traced = self._traced or made._parents is not None
            # Called only if rows are missing. The rows themselves must not be kept in memory.
            names, rows = made._names, made._selection
            assert names is not None
            self._names.append(lambda: names if rows is None else names.take(rows))

    def drop(self, drop: Drop) -> None:
        """Add rows that the stage reported as dropped."""
        self.dropped_by[drop.stage] = self.dropped_by.get(drop.stage, 0) + len(drop.rows)
        if self._are_rows and drop.batch.has_names:
            names, rows = drop.batch._names, drop.batch._selection
            assert names is not None
            self._names.append(lambda: names.take(drop.rows if rows is None else rows[drop.rows]))

    def rows_in(self, *, known_as_files: bool) -> int:
        """How many rows the stage was given. For files this is known only once they are read."""
        if self.written and not self._are_rows:
            return self.written
        if self._are_rows or known_as_files or self._makes_rows in ("joined", "new"):
            return self._items + sum(self.failed_by.values())
        return self._made + sum(self.dropped_by.values()) + self.quarantined + sum(self.failed_by.values())

    def vanished(self, stage: str) -> Iterator[Drop]:
        """The rows that the stage was given and that are neither output nor dropped, as drops."""
        if not self._are_rows or self.makes_files or self._makes_rows not in ("same", "split"):
            return
        accounted = self._made + sum(self.dropped_by.values())
        if (
            accounted == self._items
            and self._makes_rows == "same"
            and not self._traced
            and self._batches <= len(self._tasks)  # the same row may be in several
        ):
            return
        made = [names() for names in self._names]
        for task in self._tasks:
            if isinstance(task, TableTask) and task.names is not None:
                rows = missing_rows(task.names, made)
                if len(rows):
                    yield Drop(task, rows, f"dropped by {stage}")
