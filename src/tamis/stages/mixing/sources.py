"""Read several sources into one stream of rows that say where they are from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from tamis.errors import PlanError
from tamis.stages.base import CompositeStage, Emission, ProcessingStage, SourceStage, WorkerMetadata, emissions
from tamis.stages.io.readers import Reader
from tamis.tasks import DocumentBatch, EmptyTask, FileGroup
from tamis.tasks.base import digest

__all__ = ["ReadSources"]

_SOURCE = "source"


@dataclass(repr=False)
class ReadSources(CompositeStage[EmptyTask, DocumentBatch]):
    """Read with several readers, one after the other, and write into a column which of them each row is from.

    Args:
        readers: A reader for each source, by its name.
        source_field: The column that gets the name.

    >>> from tamis.stages.io import JsonlReader, ParquetReader
    >>> ReadSources({"wiki": JsonlReader("wiki"), "web": ParquetReader("web")}).source_field
    'source'
    """

    readers: dict[str, Reader]
    source_field: str = "source"
    name: str = "ReadSources"

    def __post_init__(self) -> None:
        if not self.readers:
            raise PlanError("ReadSources(readers={}): give at least one reader")
        for source, reader in self.readers.items():
            if not isinstance(reader, Reader):
                raise PlanError(f"ReadSources: {source!r} must be a reader such as JsonlReader(...), not {reader!r}")

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        pairs = {source: reader.decompose() for source, reader in self.readers.items()}
        listings = {source: stages[0] for source, stages in pairs.items()}
        reading = {source: stages[1] for source, stages in pairs.items()}
        return [SourceSplits(listings), ReadSource(reading, self.source_field).with_(name=self.name)]  # type: ignore[arg-type]  # a reader is a listing and a reading stage

    def schema(self) -> pa.Schema | None:
        """The columns that every source has, as far as their first files show."""
        known: dict[str, pa.DataType] | None = None
        for reader in self.readers.values():
            schema = reader.schema()
            if schema is None:
                return None
            found = dict(zip(schema.names, schema.types, strict=True))
            if self.source_field in found:
                raise PlanError(
                    f"{self.name}: the rows of {reader.file_paths} have a column {self.source_field!r} of their own; "
                    "give another source_field"
                )
            known = (
                found
                if known is None
                else {n: t if t == found[n] else pa.null() for n, t in known.items() if n in found}
            )
        return pa.schema([*(known or {}).items(), (self.source_field, pa.large_string())])


@dataclass
class SourceFiles(FileGroup):
    """Files of one source. Another source may have the same files: then they are other tasks."""

    def get_deterministic_id(self) -> str:
        return digest(self.reader_config[_SOURCE], super().get_deterministic_id())


@dataclass(repr=False)
class SourceSplits(SourceStage[EmptyTask, FileGroup]):
    """The tasks of several listings, one listing after the other."""

    listings: dict[str, SourceStage[EmptyTask, FileGroup]]

    releases_gil: ClassVar[bool] = True
    internal: ClassVar[bool] = True

    def check_input(self) -> None:
        for listing in self.listings.values():
            listing.check_input()

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        yield from self.noting_input(self._tasks(scratch))

    def notes(self) -> list[str]:
        return [note for listing in self.listings.values() for note in listing.notes()]

    def _tasks(self, scratch: str) -> Iterator[FileGroup]:
        for source, listing in self.listings.items():
            for group in listing.splits(scratch):
                config = {**group.reader_config, _SOURCE: source}
                yield SourceFiles(group.data, group.dataset_name, slices=group.slices, reader_config=config)


@dataclass(repr=False)
class ReadSource(ProcessingStage[FileGroup, DocumentBatch]):
    """Read the files of a task with the reader of their source."""

    stages: dict[str, ProcessingStage[FileGroup, DocumentBatch]]
    source_field: str

    releases_gil: ClassVar[bool] = True

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.source_field]

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        for stage in self.stages.values():
            stage.setup(worker_metadata)

    def teardown(self) -> None:
        for stage in self.stages.values():
            stage.teardown()

    def process(self, task: FileGroup) -> Iterator[Emission]:
        source = str(task.reader_config[_SOURCE])
        for made in emissions(self.stages[source].process(task)):
            yield self._marked(made, source) if isinstance(made, DocumentBatch) else made

    def _marked(self, batch: DocumentBatch, source: str) -> DocumentBatch:
        if self.source_field in batch.data.column_names:
            raise PlanError(
                f"{self.name}: the rows of {source!r} have a column {self.source_field!r} of their own; "
                "give another source_field"
            )
        column = pa.repeat(pa.scalar(source, pa.large_string()), batch.num_items)
        return batch.with_column(self.source_field, column)
