"""Give documents their ids: the driver numbers the files, a stage after the reader numbers the rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from tamis.arrays import arrow_array
from tamis.errors import DataError, PlanError, redacted
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.id_generator import (
    CURATOR_DEDUP_ID_STR,
    IDS_PER_FILE,
    IdGenerator,
    get_id_generator_actor,
)
from tamis.stages.io.paths import filesystem, join
from tamis.stages.scratch import load_task
from tamis.stages.spill import ScratchSource, Spill, folder_for, spilled_tasks
from tamis.tasks import FileGroup, RowNames, TableTask

__all__ = ["AssignIds", "NumberFiles", "ids_of"]

FIRST_IDS: Final = "tamis.first_ids"
"""Where a task's metadata has the first id of each of its files."""


@dataclass
class NumberFiles(CompositeStage[FileGroup, FileGroup]):
    """Give every file a range of ids. The tasks pass unchanged; :class:`AssignIds` finds the ranges in them.

    Args:
        ids_path: The JSON file that keeps the ranges: read if it is there, and written before the tasks go on. If it is
            not given, the ids of this process are used, see
            :func:`~tamis.stages.deduplication.id_generator.create_id_generator_actor`.
        register: Whether files without a range get one; otherwise they are an error.
        storage_options: For the fsspec file system of ``ids_path``.

    >>> [stage.name for stage in NumberFiles("ids.json").decompose()]
    ['NumberFiles (tasks)', 'NumberFiles']
    """

    ids_path: str = ""
    register: bool = True
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    name: str = "NumberFiles"

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder = folder_for(self.name)
        numbered = NumberedFiles(folder, self.ids_path, self.register, self.storage_options)
        return [Spill(folder).with_(name=f"{self.name} (tasks)"), numbered.with_(name=self.name)]


@dataclass
class NumberedFiles(ScratchSource[FileGroup]):
    """The tasks again, once all are known, with the first id of each file."""

    ids_path: str
    register: bool
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)

    def parameters(self) -> dict[str, Any]:
        # As a file it would count as changed when the run is started again, because the run itself writes it.
        return {**super().parameters(), "ids_path": f"ids in {self.ids_path}"}

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        generator = self._generator()
        directory = join(scratch, self.folder)
        if self.register:
            for task in _groups(directory):
                for file in task.slices:
                    if " again " in file.version:
                        raise PlanError(
                            f"{redacted(file.path)} is in the input twice: its rows would have the same ids, and "
                            "removing one of them would remove both. Name every file once"
                        )
                    generator.register_file(file.path, file.size)
            if self.ids_path:
                generator.to_disk(self.ids_path, self.storage_options)
        for task in _groups(directory):
            firsts = {redacted(f.path): generator.first_of_file(f.path, f.size) for f in task.slices}
            numbered = copy.copy(task)
            numbered._metadata = {**task._metadata, FIRST_IDS: firsts}
            yield numbered

    def _generator(self) -> IdGenerator:
        if not self.ids_path:
            return get_id_generator_actor()
        fs, inner = filesystem(self.ids_path, self.storage_options)
        if self.register and not fs.exists(inner):
            return IdGenerator()
        return IdGenerator.from_disk(self.ids_path, self.storage_options)


def _groups(directory: str) -> Iterator[FileGroup]:
    for place in spilled_tasks(directory):
        task = load_task(place.data[0])
        assert isinstance(task, FileGroup)
        task.order = place.order
        yield task


@dataclass
class AssignIds(ProcessingStage[TableTask, TableTask]):
    """Add a column with the id of each document. It follows a reader, whose files :class:`NumberFiles` has numbered.

    Args:
        id_field: The new column.

    >>> batch = TableTask({"text": ["a", "b"]}, _metadata={FIRST_IDS: {"x.parquet": 100}}).named("x.parquet")
    >>> AssignIds().process(batch)["_curator_dedup_id"].to_pylist()
    [100, 101]
    """

    id_field: str = CURATOR_DEDUP_ID_STR
    name: str = "AssignIds"

    releases_gil: ClassVar[bool] = True
    internal: ClassVar[bool] = True

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.id_field]

    def adds_columns(self) -> list[str]:
        return [self.id_field]

    def process(self, task: TableTask) -> TableTask:
        firsts = task._metadata.get(FIRST_IDS)
        if firsts is None or task.names is None:
            raise DataError(
                "these documents are not of numbered files",
                hint="Let a reader give the ids (_generate_ids=True), or add NumberFiles() before the reader.",
            )
        return task.with_column(self.id_field, arrow_array(ids_of(task.names, firsts)))


def ids_of(names: RowNames, firsts: dict[str, int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The ids of rows: the first id of their file, plus their position in it.

    >>> ids_of(RowNames.numbered("b", 2), {"a": 0, "b": 1000}).tolist()
    [1000, 1001]
    """
    if names.parts is not None:
        raise DataError("rows that were split or joined have no ids: give ids right after the reader")
    if len(names) and int(names.positions.max()) >= IDS_PER_FILE:
        raise DataError(
            f"a row starts at {int(names.positions.max()):,}, and a file has only {IDS_PER_FILE:,} ids",
            path=names.sources[0],
            hint="Divide the file.",
        )
    of_source = np.array([firsts[source] for source in names.sources], np.int64)
    return names.positions + (of_source[0] if names.codes is None else of_source[names.codes])
