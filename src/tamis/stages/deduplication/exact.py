"""Exact deduplication: of documents with equal text, the first stays.

Only hashes are shuffled. The rows are set down on disk meanwhile and go on afterwards in their old order and their
old tasks, without the duplicates, so the result is the same whatever the number of workers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.kernels.hashing import hash_text_128, normalize_text
from tamis.stages.base import CompositeStage, ProcessingStage, WorkerMetadata
from tamis.stages.emit import Drop, Publish
from tamis.stages.exchange import partition_task, read_partition, write_partitions
from tamis.stages.spill import ScratchSource, ScratchStage, folder_for, spill, spilled_files, spilled_tasks
from tamis.tasks import DocumentBatch, FileGroup, TableTask
from tamis.tasks.storage import read_task, temporary_beside

__all__ = ["ExactDeduplication"]


@dataclass
class ExactDeduplication(CompositeStage[DocumentBatch, DocumentBatch]):
    """Keep one of each set of documents with the same text: the first in the order of the input.

    Texts are compared by a 128-bit hash. A document without text (null) is no duplicate of anything.

    Args:
        text_field: The column compared.
        normalize_text: Whether texts that differ in case and white space only count as equal.
        partitions: How many parts the hashes are sorted in; as many can be worked on at the same time.

    >>> ExactDeduplication(text_field="body").text_field
    'body'
    """

    text_field: str = "text"
    normalize_text: bool = False
    partitions: int = 16
    name: str = "ExactDeduplication"

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise ValueError(f"partitions={self.partitions}: must be at least 1")

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder = folder_for(self.name)
        hashing = HashDocuments(folder, self.partitions, self.text_field, self.normalize_text)
        return [
            hashing.with_(name=f"{self.name} (hash)"),
            HashPartitions(folder, self.partitions).with_(name=f"{self.name} (partitions)"),
            FindDuplicates(folder).with_(name=f"{self.name} (find)"),
            HashedDocuments(folder).with_(name=f"{self.name} (documents)"),
            RemoveDuplicates(folder).with_(name=self.name),
        ]


@dataclass
class HashDocuments(ScratchStage[DocumentBatch, FileGroup]):
    """Set the rows down and write the hashes of their text by partition."""

    partitions: int
    text_field: str
    normalize_text: bool

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def process(self, task: DocumentBatch) -> Iterator[Publish]:
        yield spill(task, os.path.join(self._directory, "rows"))
        column = task.data.column(self.text_field)
        if pa.types.is_null(column.type):
            column = column.cast(pa.string())
        elif pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            column = column.cast(pa.large_string(), safe=False)  # only hashed: the bytes of images and the like
        present = np.asarray(pc.is_valid(column))
        hashes = hash_text_128(normalize_text(column) if self.normalize_text else column)
        rows = np.arange(task.num_items, dtype=np.uint32)
        keys = pa.table({"low": hashes[:, 0], "high": hashes[:, 1], "row": rows}).filter(pa.array(present))
        part = keys.column("low").to_numpy() % np.uint64(self.partitions)
        yield write_partitions(keys, part, self.partitions, os.path.join(self._directory, "hashes"), task.order)


@dataclass
class HashPartitions(ScratchSource[FileGroup]):
    """One task per partition of the hashes."""

    partitions: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        if spilled_files(os.path.join(scratch, self.folder, "hashes")):
            for number in range(self.partitions):
                yield partition_task(number, 0)


class FindDuplicates(ScratchStage[FileGroup, FileGroup]):
    """Find the repeated hashes of one partition and write which row of which file each duplicate is."""

    def process(self, task: FileGroup) -> Iterator[Publish]:
        number = int(task.reader_config["partition"])
        keys = [read_partition(path, number) for path, _ in spilled_files(os.path.join(self._directory, "hashes"))]
        table = pa.concat_tables(keys)
        low, high = table.column("low").to_numpy(), table.column("high").to_numpy()
        files = np.repeat(np.arange(len(keys), dtype=np.uint32), [k.num_rows for k in keys])
        # A stable sort keeps equal hashes in the order of the input, so all but the first of a run are duplicates.
        by_hash = np.lexsort((high, low))
        low, high = low[by_hash], high[by_hash]
        repeats = np.zeros(len(by_hash), dtype=bool)
        repeats[1:] = (low[1:] == low[:-1]) & (high[1:] == high[:-1])
        places = np.sort(by_hash[repeats])
        found = pa.table({"file": files[places], "row": table.column("row").to_numpy()[places]})
        final = os.path.join(self._directory, "duplicates", f"{number:06d}.arrow")
        with temporary_beside(final) as temporary, pa.ipc.new_file(temporary, found.schema) as writer:
            writer.write_table(found)
        yield Publish(temporary, final, found.num_rows, os.path.getsize(temporary))


class HashedDocuments(ScratchSource[FileGroup]):
    """The rows that were set down, in the order of the input."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        for number, task in enumerate(spilled_tasks(os.path.join(scratch, self.folder, "rows"))):
            task.reader_config = {"file": number}
            yield task


class RemoveDuplicates(ScratchStage[FileGroup, DocumentBatch]):
    """Take the rows up again and leave the duplicates out."""

    internal: ClassVar[bool] = False

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        super().setup(worker_metadata)
        self._found: list[pa.Table] | None = None

    def process(self, task: FileGroup) -> Iterator[Drop | TableTask]:
        batch = read_task(task.data[0])
        assert isinstance(batch, TableTask)
        rows = self._duplicates_in(int(task.reader_config["file"]))
        if not len(rows):
            yield batch
            return
        yield Drop(batch, rows, "exact duplicate")
        keep = np.ones(batch.num_items, dtype=bool)
        keep[rows] = False
        yield batch.with_table(batch.data.filter(pa.array(keep)))

    def _duplicates_in(self, file: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The rows of one file to leave out. The lists are sorted by file and stay on disk (memory-mapped)."""
        if self._found is None:
            folder = os.path.join(self._directory, "duplicates")
            names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
            self._found = [_mapped(os.path.join(folder, name)) for name in names]
        rows = []
        for table in self._found:
            files = table.column("file").to_numpy()
            lo, hi = np.searchsorted(files, [file, file + 1])
            rows.append(table.column("row").to_numpy()[lo:hi])
        return np.sort(np.concatenate(rows)).astype(np.int64)


def _mapped(path: str) -> pa.Table:
    with pa.memory_map(path, "rb") as source, pa.ipc.open_file(source) as reader:
        return reader.read_all().combine_chunks()
