"""The map side of an exchange: rows are written by partition, one file for each task, and many files are merged."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array
from tamis.kernels.hashing import hash_text_128
from tamis.stages.base import WorkerMetadata
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Ints, Rows, merge_indexes, read_cells, read_indexes, write_cells
from tamis.stages.exchange.ranges import cut_sorted
from tamis.stages.io.paths import join
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, spilled_files
from tamis.tasks import FileGroup, FileSlice, TableTask
from tamis.tasks.storage import format_order

if TYPE_CHECKING:
    from tamis.stages.exchange.exchange import Exchange

__all__ = [
    "FilesToMerge",
    "Hashes",
    "MergeFiles",
    "PartitionRows",
    "hash_rows",
    "partition_order",
    "write_by",
    "write_partitions",
]

Hashes = NDArray[np.uint64]

MERGE_ABOVE = 2**20
"""Files times partitions beyond which neighbouring files are merged before anything is read from them."""

MERGE_BYTES = 256 * 2**20
"""The size of the files that are merged into one, in bytes on disk."""


@dataclass
class PartitionRows(ScratchStage[TableTask, FileGroup]):
    """Cut a batch into partitions, all in one file."""

    owner: Exchange[Any, Any]

    def __post_init__(self) -> None:
        if self.owner.maps_rows:
            self.releases_gil = self.owner.releases_gil  # type: ignore[misc]  # code of the owner runs here

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        super().setup(worker_metadata)
        self.owner.setup(worker_metadata)

    def teardown(self) -> None:
        self.owner.teardown()

    def inputs(self) -> tuple[list[str], list[str]]:
        return self.owner.inputs()

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available if not self.owner.maps_rows else None

    def process(self, task: TableTask) -> Iterator[Publish]:
        batch = self.owner.map(task)
        if not isinstance(batch, TableTask):
            raise TypeError(
                f"{type(self.owner).__name__}.map() must return a batch of rows, not {type(batch).__name__}"
            )
        if batch is not task:
            batch.made_of(task)
        if batch.num_items:
            final = join(self._directory, "map", format_order(task.order) + SUFFIX)
            yield write_partitions(self.owner, final, Rows.of(batch))


def write_partitions(owner: Exchange[Any, Any], final: str, rows: Rows, count: int = 0) -> Publish:
    """Write rows by partition, and a number that is kept with the file."""
    if owner.partitioning == "range":
        return cut_sorted(rows, owner.key_columns[0], owner.partitions, final, count)
    if not owner.key_columns:
        return write_cells(final, rows, np.zeros(1, np.int64), np.array([0, rows.table.num_rows]), count=count)
    hashes = hash_rows(rows.table, owner.key_columns)
    return write_by(final, rows, (hashes % np.uint64(owner.partitions)).astype(np.int64), count)


def write_by(
    final: str, rows: Rows, partition: Ints | NDArray[np.uint16], count: int = 0, compress: bool = True
) -> Publish:
    """Write rows by the number of their partition; those of a partition stay in their order.

    Numbers of 16 bits are sorted several times as fast.
    """
    order, numbers, edges = partition_order(partition)
    sorted_rows = rows.with_table(rows.table.unify_dictionaries().take(arrow_array(order)))
    return write_cells(final, sorted_rows, numbers, edges, count=count, compress=compress)


def partition_order(partition: Ints | NDArray[np.uint16]) -> tuple[Ints, Ints, Ints]:
    """Rows in the order of their partitions; the numbers of these; where each begins, and where the last one ends.

    >>> order, numbers, edges = partition_order(np.array([3, 1, 3]))
    >>> order.tolist(), numbers.tolist(), edges.tolist()
    ([1, 0, 2], [1, 3], [0, 1, 3])
    """
    order: Ints = np.argsort(partition, kind="stable").astype(np.int64, copy=False)
    in_order = partition[order]
    starts = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1])[: len(in_order)])
    return order, in_order[starts].astype(np.int64), np.append(starts, len(partition))


def hash_rows(table: pa.Table, by: Sequence[str]) -> Hashes:
    """A 64-bit hash of the key columns, the same on every machine."""
    mixed = np.zeros(table.num_rows, dtype=np.uint64)
    for column in by:
        values = table.column(column)
        text = values if pa.types.is_string(values.type) or pa.types.is_large_string(values.type) else _as_text(values)
        mixed = (mixed * np.uint64(0x9E3779B97F4A7C15)) ^ hash_text_128(text)[:, 0]
    return mixed


def _as_text(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_nested(values.type):
        return pa.chunked_array([pa.array([json.dumps(v, sort_keys=True, default=str) for v in values.to_pylist()])])
    return values.cast(pa.large_string())


@dataclass
class FilesToMerge(ScratchSource[FileGroup]):
    """Groups of neighbouring files, where there are so many that each partition would be read in too many pieces."""

    owner: Exchange[Any, Any]

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        files = spilled_files(join(scratch, self.folder, "map"))
        if len(files) * self.owner.partitions <= MERGE_ABOVE:
            return
        group: list[FileSlice] = []
        total = 0
        for path, size, _ in files:
            if group and total + size > MERGE_BYTES:
                yield FileGroup([s.path for s in group], slices=tuple(group))
                group, total = [], 0
            group.append(FileSlice(path, size=size))
            total += size
        yield FileGroup([s.path for s in group], slices=tuple(group))


@dataclass
class MergeFiles(ScratchStage[FileGroup, FileGroup]):
    """Write the rows of several files of the map side to one."""

    owner: Exchange[Any, Any]

    def process(self, task: FileGroup) -> Iterator[Publish]:
        indexes = read_indexes([(s.path, s.size) for s in task.slices])
        with tempfile.TemporaryDirectory(prefix="tamis-merge-") as folder:
            parts = merge_indexes(indexes, os.path.join(folder, "index"), lambda cells: _all_of(cells.num_rows))
            pieces = list(read_cells(parts[0].read()))
        final = join(self._directory, "merged", format_order(task.order) + SUFFIX)
        yield write_partitions(self.owner, final, Rows.concat(pieces))


def _all_of(count: int) -> tuple[Ints, Ints]:
    return np.arange(count), np.zeros(count, np.int64)
