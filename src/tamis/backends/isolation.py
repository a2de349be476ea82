"""Finds the rows that make a stage raise, hang or crash, so that only these are set aside and the others go on.

The rows of a batch that failed are tried in a few pieces, each piece that fails in smaller ones, down to single rows.
Where the worker died, or took too long, the pieces are tried in a process that may die: ``trial.py``.
"""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle

import tamis
from tamis.backends.outcome import Failure
from tamis.backends.pipes import receive, send
from tamis.stages.base import ProcessingStage, WorkerMetadata
from tamis.tasks import FileGroup, Task
from tamis.tasks.storage import write_task

__all__ = ["FailedItem", "Isolation", "ItemSearch", "Items", "Trials"]

PIECES = 8
"""In how many pieces some items are tried."""

MOST_ALONE = 100
"""If more single items of one batch fail than this, the batch is given up: the stage is at fault, not the items."""


@dataclass(frozen=True)
class Isolation:
    """Asks a worker to find the items of a batch that fail.

    Args:
        died: The stages that were running when a worker died or was killed: their items are tried in another process.
    """

    died: tuple[str, ...] = ()


@dataclass(frozen=True)
class FailedItem:
    """An item that fails by itself: a task with nothing else in it, and why."""

    task: Task[Any]
    failure: Failure

    @property
    def words(self) -> tuple[str, str, str]:
        """The type of the exception, its message, and the traceback."""
        kind = "WorkerDied" if self.failure.died else self.failure.kind
        return kind, self.failure.error.removeprefix(f"{kind}: "), self.failure.frames


class ItemSearch:
    """The order in which items are tried. Ask for :meth:`piece`, try it, then :meth:`tell` what came of it.

    Args:
        count: How many items there are. All of them together have failed.

    >>> search = ItemSearch(100)
    >>> while (piece := search.piece()) is not None:
    ...     search.tell("it is odd" if 17 in piece else None)
    >>> search.failed, search.is_hopeless
    ({17: 'it is odd'}, False)
    """

    def __init__(self, count: int) -> None:
        self._waiting: deque[range] = deque(_pieces(range(count)))
        self.failed: dict[int, Any] = {}
        """What went wrong with each single item that failed."""

    @property
    def is_hopeless(self) -> bool:
        """Whether so many items fail that it is not worth while to find them all."""
        return len(self.failed) > MOST_ALONE

    def piece(self) -> range | None:
        """The next items to try together; ``None`` if all were tried, or if it is hopeless."""
        return self._waiting[0] if self._waiting and not self.is_hopeless else None

    def tell(self, problem: Any) -> None:
        """What went wrong with the piece; ``None`` if nothing did."""
        tried = self._waiting.popleft()
        if problem is None:
            return
        if len(tried) == 1:
            self.failed[tried.start] = problem
        else:
            self._waiting.extendleft(reversed(_pieces(tried)))


def _pieces(items: range) -> list[range]:
    count = min(PIECES, len(items))
    bounds = [items.start + len(items) * n // count for n in range(count + 1)] if count else []
    return [range(start, stop) for start, stop in itertools.pairwise(bounds)]


@dataclass
class Items:
    """The items of some tasks, numbered across all of them.

    Args:
        tasks: The tasks.
    """

    tasks: Sequence[Task[Any]]
    _starts: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._starts = [0]
        for task in self.tasks:
            self._starts.append(self._starts[-1] + (max(1, task.num_items) if _is_divisible(task) else 1))

    def __len__(self) -> int:
        return self._starts[-1]

    def select(self, numbers: Sequence[int]) -> list[Task[Any]]:
        """The tasks with only these items, in their order; tasks that have none of them are left out."""
        chosen = []
        for task, (start, stop) in zip(self.tasks, itertools.pairwise(self._starts), strict=True):
            own = [n - start for n in numbers if start <= n < stop]
            if len(own) == stop - start:
                chosen.append(task)
            elif own:
                chosen.append(task.select(own))
        return chosen


def _is_divisible(task: Task[Any]) -> bool:
    """Whether a task says how to take some of its items."""
    if task.has_rows or isinstance(task, FileGroup) or type(task).select is not Task.select:
        return True
    return isinstance(task.data, list | tuple) or hasattr(task.data, "shape")


class Trials:
    """Tries items in a process of its own, which is started again whenever it dies.

    Args:
        stage: The stage, not set up.
        worker: What its ``setup`` is given.
        tasks: The tasks whose items are tried.
        timeout_s: Seconds that one piece may take.
    """

    def __init__(
        self,
        stage: ProcessingStage[Any, Any],
        worker: WorkerMetadata,
        tasks: Sequence[Task[Any]],
        timeout_s: float | None,
    ) -> None:
        self._stage, self._worker, self._timeout_s = stage, worker, timeout_s
        self._folder = tempfile.TemporaryDirectory(prefix="tamis-trial-")
        self._paths = [os.path.join(self._folder.name, str(number)) for number in range(len(tasks))]
        for task, path in zip(tasks, self._paths, strict=True):
            write_task(task, path)
        self._process: subprocess.Popen[bytes] | None = None

    def problem(self, piece: range) -> Failure | None:
        """What goes wrong with some items; ``None`` if nothing does."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        killed = threading.Event()

        def kill() -> None:
            killed.set()
            process.kill()

        timer = threading.Timer(self._timeout_s, kill) if self._timeout_s is not None else None
        try:
            send(process.stdin, pickle.dumps((piece.start, piece.stop)))
            if timer is not None:
                timer.start()
            answer = receive(process.stdout)
        except OSError:
            answer = None
        finally:
            if timer is not None:
                timer.cancel()
        if answer is not None:
            failure: Failure | None = pickle.loads(answer)
            return failure
        self._process = None
        code = process.wait()
        if killed.is_set():
            words = f"it took longer than the {self._timeout_s:g} s of timeout_s"
        elif code == -9:
            words = "the worker process was killed (signal 9): often the machine was out of memory"
        else:
            words = f"the worker process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
        return Failure("", words, died=True)

    def close(self) -> None:
        """End the process and remove the files."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def _started(self) -> subprocess.Popen[bytes]:
        """The process, with the stage set up: that does not count for the time limit."""
        if self._process is not None:
            return self._process
        environment = dict(os.environ)
        home = str(Path(tamis.__file__).parents[1])
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [home, environment.get("PYTHONPATH")]))
        process = subprocess.Popen(
            [sys.executable, "-m", "tamis.backends.trial"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        send(process.stdin, pickle.dumps((sys.path, sys.argv)))
        send(process.stdin, cloudpickle.dumps((self._stage, self._worker, self._paths)))
        if receive(process.stdout) is None:
            process.kill()
            raise RuntimeError(f"stage {self._stage.name!r} cannot be set up in a process of its own to find the rows")
        self._process = process
        return process
