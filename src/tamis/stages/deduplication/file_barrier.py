"""A barrier between stages that pass each other files: the files are there when the next stage begins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tamis.errors import DataError
from tamis.stages.base import ProcessingStage, SourceStage
from tamis.stages.io.partitioning import FilePartitioningStage
from tamis.stages.io.paths import absolute, filesystem, join
from tamis.stages.scratch import load_task
from tamis.stages.spill import ScratchSource, Spill, folder_for, spilled_tasks
from tamis.tasks import EmptyTask, FileGroup, FileSlice

__all__ = ["WrittenFiles", "all_files", "each_group", "waiting_groups"]


def each_group(name: str) -> list[ProcessingStage[Any, Any]]:
    """Stages that pass on groups of files, in their order, when all stages before are done.

    Args:
        name: The stage that they are part of.
    """
    folder = folder_for(f"{name} (files)")
    return [Spill(folder).with_(name=f"{name} (written)"), WaitingGroups(folder).with_(name=f"{name} (files)")]


def all_files(name: str) -> list[ProcessingStage[Any, Any]]:
    """Stages that put all files into one group, when all stages before are done."""
    folder = folder_for(f"{name} (files)")
    return [Spill(folder).with_(name=f"{name} (written)"), OneGroup(folder).with_(name=f"{name} (files)")]


@dataclass
class WrittenFiles(SourceStage[EmptyTask, FileGroup]):
    """Groups of the Parquet files that an earlier step wrote to a directory; none if it wrote none.

    Args:
        file_paths: The directory.
        storage_options: For the fsspec file system.
        group_bytes: About how large a group is.
    """

    file_paths: str
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    group_bytes: int = 256 * 2**20

    internal: ClassVar[bool] = True

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        files = FilePartitioningStage(
            self.file_paths,
            blocksize=self.group_bytes,
            file_extensions=[".parquet"],
            storage_options=self.storage_options,
        )
        groups = files.splits(scratch)
        try:
            found = list(itertools.islice(groups, 1))
        except DataError:
            fs, inner = filesystem(absolute(self.file_paths), self.storage_options)
            if not fs.isdir(inner):
                raise
            found = []
        yield from self.noting_input(itertools.chain(found, groups) if found else ())


class WaitingGroups(ScratchSource[FileGroup]):
    """The groups of files, in their order."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        yield from waiting_groups(join(scratch, self.folder))


class OneGroup(ScratchSource[FileGroup]):
    """One group of all files, sorted by path."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        slices = [file for group in waiting_groups(join(scratch, self.folder)) for file in group.slices]
        if slices:
            files = tuple(sorted(slices, key=_path))
            yield FileGroup([file.path for file in files], slices=files)


def _path(file: FileSlice) -> str:
    return file.path


def waiting_groups(directory: str) -> Iterator[FileGroup]:
    """The tasks that were written to a directory, each in its old place."""
    for place in spilled_tasks(directory):
        task = load_task(place.data[0])
        assert isinstance(task, FileGroup)
        task.order = place.order
        yield task
