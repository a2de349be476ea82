"""The tasks that a stage makes of one task, and their order."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tamis.stages.emit import DROPPED
from tamis.tasks import TableTask, Task


class Children:
    """The tasks a stage makes of one task. They are numbered; an only child keeps its parent's place in the order."""

    def __init__(self, parent: Task[Any]) -> None:
        self.parent = parent
        self.dropped: list[TableTask] = []
        self._first: tuple[str, Task[Any]] | None = None
        self._count = 0

    def add(self, port: str, task: Task[Any]) -> Iterator[tuple[str, Task[Any], int | None]]:
        """Add a child. The first is held back until it is known whether there are more."""
        self._count += 1
        if self._count == 1:
            self._first = (port, copy.copy(task))  # a stage may go on to change the task it yielded
            return
        if self._first is not None:
            yield *self._first, 0
            self._first = None
        yield port, task, self._count - 1

    def end(self) -> Iterator[tuple[str, Task[Any], int | None]]:
        """There are no more children. Dropped rows go together, as the last child."""
        if self.dropped:
            yield from self.add(DROPPED, type(self.dropped[0]).concat(self.dropped))
        if self._first is not None:
            yield *self._first, None
