"""Journals for simulated runs, which keep in memory what a real one writes to disk."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any

from tamis.runs.finished_work import FinishedBatch
from tamis.stages.emit import Publish


class Finished:
    """What earlier starts of a run have finished."""

    def __init__(self) -> None:
        self.batches: dict[str, FinishedBatch] = {}
        self.used: set[str] = set()
        self.numbers: dict[str, dict[str, deque[int]]] = defaultdict(lambda: defaultdict(deque))

    def find(self, key: str, tasks: list[str]) -> FinishedBatch | None:
        found = self.peek(key, tasks)
        if found is not None:
            self.used.add(key)
        return found

    def was_retried(self, key: str) -> bool:
        return False

    def is_needed_as_it_was(self, key: str) -> bool:
        return False

    def peek(self, key: str, tasks: list[str]) -> FinishedBatch | None:
        return self.batches.get(key)


class MemoryJournal:
    """A journal that keeps nothing: a base for those that count."""

    def __init__(self) -> None:
        self.finished: Any = Finished()
        self.outputs: Any = 0
        self.file_count = 0

    def fed(self, source: str, task_id: str, number: int, files: list[dict[str, Any]]) -> None:
        pass

    def recalled(self, batch: FinishedBatch) -> None:
        pass

    def forget(self, stages: Iterable[str] | None = None) -> None:
        pass

    def flush(self) -> None:
        pass

    def discard(self, published: Iterable[Publish]) -> None:
        pass
