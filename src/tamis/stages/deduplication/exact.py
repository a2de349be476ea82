"""Exact deduplication: of documents with equal text, the first stays.

Only hashes and names are exchanged. The rows are written to the run's scratch location once; they are read again in
their old order and their old tasks, without the duplicates, so the result is the same for any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.arrays import arrow_array, numpy_array
from tamis.kernels.hashing import hash_text_128, normalize_text
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.marks import name_texts
from tamis.stages.emit import Drop, Publish
from tamis.stages.exchange.files import Rows, file_codes, merge_indexes, read_cells, read_indexes
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import join
from tamis.stages.scratch import load_task
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, folder_for, spill, spilled_files, spilled_tasks
from tamis.tasks import FileGroup, FileSlice, RowNames, TableTask
from tamis.tasks.storage import format_order

__all__ = ["ExactDeduplication"]

REASON = "exact duplicate"


@dataclass
class ExactDeduplication(CompositeStage[TableTask, TableTask]):
    """Keep one of each set of documents with the same text: the first in the order of the input.

    Texts are compared by a 128-bit hash. A document without text (null) is not a duplicate of anything. The drop ledger
    says of each duplicate which row it is a duplicate of (``score_text``).

    Args:
        text_field: The column compared.
        normalize_text: Whether texts that differ in case and white space only count as equal.
        partitions: How many parts the hashes are sorted in; as many can be worked on at the same time.

    >>> from tamis.testing import run_stage
    >>> run = run_stage(ExactDeduplication(), [{"text": "a"}, {"text": "b"}, {"text": "a"}])
    >>> run, run.dropped[0].reason
    ([{'text': 'a'}, {'text': 'b'}], 'exact duplicate')
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
        hashing = HashRows(folder, self.partitions, self.text_field, self.normalize_text)
        return [
            hashing.with_(name=f"{self.name} (hash)"),
            HashPartitions(folder).with_(name=f"{self.name} (partitions)"),
            FindDuplicates(folder).with_(name=f"{self.name} (find)"),
            HashedRows(folder).with_(name=f"{self.name} (rows)"),
            RemoveDuplicates(folder).with_(name=self.name),
        ]


@dataclass
class HashRows(ScratchStage[TableTask, FileGroup]):
    """Write the rows to a file, and by partition the hashes of their texts, with the names of the rows."""

    partitions: int
    text_field: str
    normalize_text: bool

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def process(self, task: TableTask) -> Iterator[Publish]:
        yield spill(task, join(self._directory, "rows"))
        column = task[self.text_field]
        if pa.types.is_null(column.type):
            return
        if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
            column = column.cast(pa.large_string(), safe=False)  # only hashed: the bytes of images and the like
        present = np.flatnonzero(numpy_array(pc.is_valid(column)))
        if not len(present):
            return
        hashes = hash_text_128(normalize_text(column) if self.normalize_text else column)[present]
        keys = pa.table(
            {
                "low": arrow_array(hashes[:, 0].copy()),
                "high": arrow_array(hashes[:, 1].copy()),
                "row": arrow_array(present.astype(np.uint32)),
            }
        )
        names = task.names
        rows = Rows(keys if names is None else names.take(present).added_to(keys))
        final = join(self._directory, "hashes", format_order(task.order) + SUFFIX)
        yield write_by(final, rows, (hashes[:, 0] % np.uint64(self.partitions)).astype(np.int64))


class HashPartitions(ScratchSource[FileGroup]):
    """One task per partition of the hashes."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = spilled_files(join(directory, "hashes"))
        indexes = read_indexes([(path, size) for path, size, _ in files])
        for number, parts in merge_indexes(indexes, join(directory, "hashes.index")).items():
            path = f"partition-{number}"
            yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config={"parts": parts})


class FindDuplicates(ScratchStage[FileGroup, FileGroup]):
    """Find the repeated hashes of one partition; write for each file which of its rows are duplicates, and of what."""

    def process(self, task: FileGroup) -> Iterator[Publish]:
        cells = task.reader_config["parts"].read()
        file = np.repeat(file_codes(cells), numpy_array(cells.column("rows")))
        table, names = RowNames.taken_from(Rows.concat(list(read_cells(cells))).table)
        low, high, row = (numpy_array(table.column(name)) for name in ("low", "high", "row"))
        # A stable sort keeps equal hashes in the order of the input, so all but the first of a run are duplicates.
        by_hash = np.lexsort((high, low))
        low, high = low[by_hash], high[by_hash]
        is_first = np.ones(len(by_hash), np.bool_)
        is_first[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
        firsts = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
        repeats = np.flatnonzero(~is_first)
        if not len(repeats):
            return
        places, originals = by_hash[repeats], by_hash[firsts[repeats]]
        in_order = np.argsort(places)
        places, originals = places[in_order], originals[in_order]
        of_what = pa.nulls(len(places), pa.string()) if names is None else name_texts(names.take(originals))
        found = pa.table({"row": arrow_array(row[places]), "original": of_what})
        final = join(self._directory, "duplicates", format_order(task.order) + SUFFIX)
        yield write_by(final, Rows(found), file[places].astype(np.int64))


class HashedRows(ScratchSource[FileGroup]):
    """The files of rows, in the order of the input, each with the place of the list of its duplicates."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        hashed = spilled_files(join(directory, "hashes"))
        numbers = {order: number for number, (_, _, order) in enumerate(hashed)}
        files = spilled_files(join(directory, "duplicates"))
        indexes = read_indexes([(path, size) for path, size, _ in files])
        parts = merge_indexes(indexes, join(directory, "duplicates.index"))
        for task in spilled_tasks(join(directory, "rows")):
            task.reader_config = {"parts": parts.get(numbers.get(task.order, -1))}
            yield task


class RemoveDuplicates(ScratchStage[FileGroup, TableTask]):
    """Read the rows again and leave the duplicates out."""

    internal: ClassVar[bool] = False

    def process(self, task: FileGroup) -> Iterator[Drop | TableTask]:
        batch = load_task(task.data[0])
        assert isinstance(batch, TableTask)
        parts = task.reader_config["parts"]
        if parts is None:
            yield batch
            return
        found = Rows.concat(list(read_cells(parts.read()))).table.sort_by("row")
        rows = numpy_array(found.column("row")).astype(np.int64)
        yield Drop(batch, rows, REASON, pa.concat_arrays(found.column("original").chunks))
        kept = np.ones(batch.num_items, np.bool_)
        kept[rows] = False
        yield batch.select(np.flatnonzero(kept))
