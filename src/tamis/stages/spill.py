"""Set tasks down on disk and take them up again once everything before is done."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from tamis.stages.base import ProcessingStage, SourceStage, WorkerMetadata
from tamis.stages.emit import Publish
from tamis.tasks import FileGroup, FileSlice, Task
from tamis.tasks.base import digest
from tamis.tasks.storage import format_order, parse_order, read_task, temporary_beside, write_task

SUFFIX = ".task"

X = TypeVar("X", bound=Task[Any])
Y = TypeVar("Y", bound=Task[Any])


@dataclass
class ScratchStage(ProcessingStage[X, Y]):
    """A stage that keeps data between stages in a folder of the run directory. Columns pass it unchanged.

    Args:
        folder: The folder's name.
    """

    folder: str
    releases_gil: ClassVar[bool] = True
    internal: ClassVar[bool] = True

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        if worker_metadata is None or not worker_metadata.scratch:
            raise RuntimeError(f"{self.name} keeps data in the run directory: run it in a pipeline")
        self._directory = os.path.join(worker_metadata.scratch, self.folder)

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available


@dataclass
class ScratchSource(SourceStage[X, FileGroup]):
    """A barrier: what was put into a folder of the run directory, once all of it is there.

    Args:
        folder: The folder's name.
    """

    folder: str
    internal: ClassVar[bool] = True

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available


@dataclass
class Spill(ScratchStage[Task[Any], FileGroup]):
    """Write each task to the run directory."""

    def process(self, task: Task[Any]) -> Iterator[Publish]:
        yield spill(task, self._directory)


def spill(task: Task[Any], directory: str) -> Publish:
    """Write one task under a name that says its place."""
    final = os.path.join(directory, format_order(task.order) + SUFFIX)
    with temporary_beside(final) as temporary:
        nbytes = write_task(task, temporary)
    return Publish(temporary, final, task.num_items, nbytes)


@dataclass
class Spilled(ScratchSource[Task[Any]]):
    """What :class:`Spill` wrote, in the order of the input: one task per file, under its old place."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        yield from spilled_tasks(os.path.join(scratch, self.folder))


@dataclass
class LoadSpilled(ScratchStage[FileGroup, Any]):
    """Read a task that :class:`Spill` wrote."""

    def process(self, task: FileGroup) -> Task[Any]:
        return read_task(task.data[0])


def folder_for(stage: str) -> str:
    """A folder name for a stage's data: readable, and another one for every name.

    >>> folder_for("a/b").startswith("a_b-"), folder_for("a/b") == folder_for("a_b")
    (True, False)
    """
    clean = "".join(c if c.isalnum() or c in "-_" else "_" for c in stage)
    return f"{clean}-{digest(stage)}"


def spilled_tasks(directory: str) -> Iterator[FileGroup]:
    """A task for each published spill file, in the order of the input, under its old place."""
    for path, order in spilled_files(directory):
        yield FileGroup([path], order=order, slices=(FileSlice(path, size=os.path.getsize(path)),))


def spilled_files(directory: str) -> list[tuple[str, tuple[int, ...]]]:
    """Published spill files of a directory and their places, sorted by place."""
    if not os.path.isdir(directory):
        return []
    names = [n for n in os.listdir(directory) if n.endswith(SUFFIX) and not n.startswith(".")]
    found = [(os.path.join(directory, n), parse_order(n.removesuffix(SUFFIX))) for n in names]
    return sorted(found, key=lambda item: item[1])
