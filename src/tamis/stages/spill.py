"""Write tasks to the run's scratch location and read them back once everything before is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from tamis.stages.base import ProcessingStage, SourceStage, WorkerMetadata
from tamis.stages.emit import Publish
from tamis.stages.io.paths import base_name, join
from tamis.stages.scratch import list_files, load_task, save_task
from tamis.tasks import FileGroup, FileSlice, Task
from tamis.tasks.base import digest
from tamis.tasks.storage import format_order, parse_order

SUFFIX = ".task"

X = TypeVar("X", bound=Task[Any])
Y = TypeVar("Y", bound=Task[Any])


@dataclass
class ScratchStage(ProcessingStage[X, Y]):
    """A stage that keeps data between stages in a folder of the run's scratch location. Columns pass it unchanged."""

    folder: str
    releases_gil: ClassVar[bool] = True
    internal: ClassVar[bool] = True

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        if worker_metadata is None or not worker_metadata.scratch:
            raise RuntimeError(f"{self.name} keeps data between stages in the run directory: run it in a pipeline")
        self._directory = join(worker_metadata.scratch, self.folder)

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available


@dataclass
class ScratchSource(SourceStage[X, FileGroup]):
    """A barrier: what was written to a folder of the run's scratch location, once all of it is there."""

    folder: str
    internal: ClassVar[bool] = True

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available


@dataclass
class Spill(ScratchStage[Task[Any], FileGroup]):
    """Write each task to a file."""

    def process(self, task: Task[Any]) -> Iterator[Publish]:
        yield spill(task, self._directory)


def spill(task: Task[Any], directory: str, staging: str = "") -> Publish:
    """Write one task under a name that says its place in the input."""
    return save_task(task, join(directory, format_order(task.order) + SUFFIX), staging)


@dataclass
class Spilled(ScratchSource[Task[Any]]):
    """What :class:`Spill` wrote, in the order of the input: one task per file, each in its old place."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        yield from spilled_tasks(join(scratch, self.folder))


@dataclass
class LoadSpilled(ScratchStage[FileGroup, Any]):
    """Read a task that :class:`Spill` wrote."""

    def process(self, task: FileGroup) -> Task[Any]:
        return load_task(task.data[0])


def folder_for(stage: str) -> str:
    """A folder name for the data of a stage: readable, and different for different names.

    >>> folder_for("a/b").startswith("a_b-"), folder_for("a/b") == folder_for("a_b")
    (True, False)
    """
    clean = "".join(c if c.isalnum() or c in "-_" else "_" for c in stage)
    return f"{clean}-{digest(stage)}"


def spilled_tasks(directory: str) -> Iterator[FileGroup]:
    """A task for each published file, in the order of the input, each in its old place."""
    for number, (path, size, order) in enumerate(spilled_files(directory)):
        slices = (FileSlice(path, size=size),)
        yield FileGroup([path], order=order, slices=slices, reader_config={"file": number})


def spilled_files(directory: str) -> list[tuple[str, int, tuple[int, ...]]]:
    """The published files of a directory: path, size in bytes and place in the input, sorted by place."""
    names = [(path, size, base_name(path)) for path, size in list_files(directory)]
    found = [(path, size, parse_order(name.removesuffix(SUFFIX))) for path, size, name in names if _is_task(name)]
    return sorted(found, key=lambda item: item[2])


def _is_task(name: str) -> bool:
    return name.endswith(SUFFIX)
