"""Set tasks down on disk and take them up again once everything before is done."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from tamis.stages.base import ProcessingStage, SourceStage, WorkerMetadata
from tamis.stages.emit import Publish
from tamis.tasks import FileGroup, FileSlice, Task
from tamis.tasks.storage import format_order, parse_order, read_task, temporary_beside, write_task

SUFFIX = ".task"


@dataclass
class Spill(ProcessingStage[Task[Any], FileGroup]):
    """Write each task to the run directory."""

    folder: str
    name: str = "Spill"
    releases_gil: ClassVar[bool] = True
    internal: ClassVar[bool] = True

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._directory = folder_of(worker_metadata, self.folder)

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available

    def process(self, task: Task[Any]) -> Iterator[Publish]:
        yield spill(task, self._directory)


def spill(task: Task[Any], directory: str) -> Publish:
    """Write one task under a name that says its place."""
    final = os.path.join(directory, format_order(task.order) + SUFFIX)
    with temporary_beside(final) as temporary:
        nbytes = write_task(task, temporary)
    return Publish(temporary, final, task.num_items, nbytes)


@dataclass
class Spilled(SourceStage[Task[Any], FileGroup]):
    """What :class:`Spill` wrote, in the order of the input: one task per file, under its old place."""

    folder: str
    name: str = "Spilled"
    internal: ClassVar[bool] = True

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        for path, order in spilled_files(os.path.join(scratch, self.folder)):
            size = os.path.getsize(path)
            yield FileGroup([path], order=order, slices=(FileSlice(path, size=size),))


@dataclass
class LoadSpilled(ProcessingStage[FileGroup, Any]):
    """Read a task that :class:`Spill` wrote."""

    name: str = "LoadSpilled"
    releases_gil: ClassVar[bool] = True
    internal: ClassVar[bool] = True

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available

    def process(self, task: FileGroup) -> Task[Any]:
        return read_task(task.data[0])


def spilled_files(directory: str) -> list[tuple[str, tuple[int, ...]]]:
    """Published spill files of a directory and their places, sorted by place."""
    if not os.path.isdir(directory):
        return []
    names = [n for n in os.listdir(directory) if n.endswith(SUFFIX) and not n.startswith(".")]
    found = [(os.path.join(directory, n), parse_order(n.removesuffix(SUFFIX))) for n in names]
    return sorted(found, key=lambda item: item[1])


def folder_of(worker: WorkerMetadata | None, folder: str) -> str:
    """A directory of the run's scratch space."""
    if worker is None or not worker.scratch:
        raise RuntimeError("this stage keeps data in the run directory: run it in a pipeline")
    return os.path.join(worker.scratch, folder)
