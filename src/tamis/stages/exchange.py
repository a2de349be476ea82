"""Exchanges: bring rows with the same key together, across all tasks.

The map side cuts every task into partitions and writes them to one file with an index; when all tasks are done, each
partition is read from the files that have rows for it, and reduced. The rows of a partition come in the order of the
input, with their names, so the result does not depend on which worker did what when. See ``docs/branches-and-shuffles``
for what holds for memory, order and repeatability.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import DataError
from tamis.kernels.hashing import hash_text_128
from tamis.stages.base import CompositeStage, ProcessingStage, WorkerMetadata
from tamis.stages.emit import Publish
from tamis.stages.exchange_files import Cells, Ints, Parts, Rows, merge_indexes, read_cells, read_indexes, write_cells
from tamis.stages.exchange_ranges import cut_sorted, partition_bounds, range_chooser, read_range
from tamis.stages.io.paths import is_local, join
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, folder_for, spilled_files
from tamis.stages.task_types import task_types
from tamis.tasks import DocumentBatch, FileGroup, FileSlice, TableTask, Task
from tamis.tasks.storage import format_order

__all__ = ["Exchange", "ShuffleStage", "hash_rows"]

X = TypeVar("X", bound=Task[Any])
Y = TypeVar("Y", bound=Task[Any])

Hashes = NDArray[np.uint64]

MERGE_ABOVE = 2**20
"""Files times partitions beyond which neighbouring files are merged before anything is read from them."""

MERGE_BYTES = 256 * 2**20
"""The size of the files that are merged into one, in bytes on disk."""

_MOST_BUCKETS = 64


class Exchange(CompositeStage[X, Y]):
    """Bring rows with the same key together, across all tasks, then work on them. Subclass it and write :meth:`reduce`.

    >>> import polars as pl
    >>> class PagesPerSite(Exchange[DocumentBatch, DocumentBatch]):
    ...     key = "site"
    ...     def reduce(self, rows):
    ...         return DocumentBatch(rows.to_polars().group_by("site").agg(pl.len()))
    >>> from tamis.testing import run_stage
    >>> run_stage(PagesPerSite(), [{"site": "a.org"}, {"site": "a.org"}])
    [{'site': 'a.org', 'len': 2}]

    Attributes:
        key: The key column, or several of them; without one, all rows come together in one partition.
        partitioning: ``"hash"``: a partition has all rows of some keys, in the order of the input. ``"range"``: a
            partition has the rows of a range of keys, sorted by the key, and the partitions follow each other, so
            that the output as a whole is sorted. Nulls come last, rows with equal keys in the order of the input.
        partitions: How many partitions; as many can be worked on at the same time.
        partition_bytes: How much memory the rows of one call of :meth:`reduce` may take, in bytes. A larger partition
            is reduced in several calls, each with all rows of some of its keys.
        bounds: For ranges, the first key of each partition but the first, ascending. When not given, bounds are
            chosen from the data so that the partitions are about equally large.
    """

    key: str | Sequence[str] | None = None
    partitioning: Literal["hash", "range"] = "hash"
    partitions: int = 16
    partition_bytes: int = 256 * 2**20
    bounds: Sequence[Any] | None = None
    makes_rows: ClassVar[Literal["same", "split", "joined", "new"]] = "new"

    def map(self, batch: Any) -> Any:
        """Change the rows before they are exchanged: add a key column, leave out columns, count beforehand.

        By default the batch as it is. Must return one batch.
        """
        return batch

    def reduce(self, rows: Any) -> Any:
        """Work on rows that belong together: all rows of one or several keys. By default the rows as they are."""
        return rows

    # A subclass may also have
    #     def reduce_stream(self, batches: Iterator[TableTask]) -> Any
    # for a key whose rows are more than partition_bytes: it is given the rows of that key in several batches.

    @property
    def key_columns(self) -> list[str]:
        """The key columns, as a list."""
        return [self.key] if isinstance(self.key, str) else list(self.key or ())

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self.key_columns if type(self).map is Exchange.map else []

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        self._check()
        folder = folder_for(self.name)
        return [
            PartitionRows(folder, self).with_(name=f"{self.name} (partition)"),
            FilesToMerge(folder, self).with_(name=f"{self.name} (files)"),
            MergeFiles(folder, self).with_(name=f"{self.name} (merge)"),
            Partitions(folder, self).with_(name=f"{self.name} (partitions)"),
            ReadPartition(folder, self).with_(name=f"{self.name} (read)"),
            Reduce(self).with_(name=self.name),
        ]

    def _check(self) -> None:
        kind = type(self).__name__
        for parameter in ("partitions", "partition_bytes"):
            if getattr(self, parameter) < 1:
                raise ValueError(f"{kind}: {parameter}={getattr(self, parameter)}: must be at least 1")
        if self.partitioning not in ("hash", "range"):
            raise ValueError(f"{kind}: partitioning={self.partitioning!r}: must be 'hash' or 'range'")
        if self.partitioning == "range" and len(self.key_columns) != 1:
            raise ValueError(f"{kind}: partitioning='range' needs one key column, not {self.key!r}")
        if self.bounds is not None and self.partitioning != "range":
            raise ValueError(f"{kind}: bounds are for partitioning='range'")


@dataclass
class ShuffleStage(Exchange[DocumentBatch, DocumentBatch]):
    """Group documents by key across all tasks, then work on each partition. Subclass it and write :meth:`reduce`.

    Args:
        by: The key columns.
        partitions: How many partitions; as many can be worked on at the same time.
        partition_bytes: How much memory the rows of one call of :meth:`reduce` may take, in bytes.

    >>> class LongestPerSite(ShuffleStage):
    ...     def reduce(self, partition):
    ...         frame = partition.to_polars().sort("length", descending=True).unique("site", keep="first")
    ...         return DocumentBatch(frame)
    >>> LongestPerSite(by=["site"]).partitions
    16
    """

    by: list[str]
    partitions: int = 16
    partition_bytes: int = 256 * 2**20
    name: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.by, str):
            raise TypeError(f"{type(self).__name__}(by={self.by!r}): give a list of columns, by=[{self.by!r}]")
        self.key = self.by
        self._check()
        if self.name == ShuffleStage.__name__:
            self.name = type(self).__name__

    def reduce(self, partition: Any) -> Any:
        """Work on the rows of one partition: all rows with any key in it are here, in the order of the input."""
        raise NotImplementedError(f"{type(self).__name__} has no reduce()")


# -- the map side ------------------------------------------------------------------------------------------------------


@dataclass
class PartitionRows(ScratchStage[TableTask, FileGroup]):
    """Cut a batch into partitions, all in one file."""

    owner: Exchange[Any, Any]

    def __post_init__(self) -> None:
        if type(self.owner).map is not Exchange.map:
            self.releases_gil = self.owner.releases_gil  # type: ignore[misc]  # code of the owner runs here

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        super().setup(worker_metadata)
        self.owner.setup(worker_metadata)

    def teardown(self) -> None:
        self.owner.teardown()

    def inputs(self) -> tuple[list[str], list[str]]:
        return self.owner.inputs()

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available if type(self.owner).map is Exchange.map else None

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


def write_by(final: str, rows: Rows, partition: Ints, count: int = 0) -> Publish:
    """Write rows by the number of their partition; those of a partition stay in their order."""
    by_partition = np.argsort(partition, kind="stable")
    numbers, starts = np.unique(partition[by_partition], return_index=True)
    table = rows.table.unify_dictionaries().take(arrow_array(by_partition.astype(np.int64)))
    return write_cells(final, rows.with_table(table), numbers, np.append(starts, len(partition)), count=count)


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


# -- between: few files, one index -------------------------------------------------------------------------------------


@dataclass
class FilesToMerge(ScratchSource[FileGroup]):
    """Groups of neighbouring files, where there are so many that each partition would be read in too many pieces."""

    owner: Exchange[Any, Any]

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        files = spilled_files(join(scratch, self.folder, "map"))
        if len(files) * self.owner.partitions <= MERGE_ABOVE:
            return
        group: list[FileSlice] = []
        for path, size, _ in files:
            if group and sum(s.size for s in group) + size > MERGE_BYTES:
                yield FileGroup([s.path for s in group], slices=tuple(group))
                group = []
            group.append(FileSlice(path, size=size))
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


@dataclass
class Partitions(ScratchSource[FileGroup]):
    """One task for each partition that has rows, once the whole map side is there."""

    owner: Exchange[Any, Any]

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        yield from partition_tasks(self.owner, map_files(directory), join(directory, "index"))


def map_files(directory: str) -> list[Cells]:
    """The indexes of the files of the map side, merged or as they were written, in the order of the input."""
    merged, mapped = (spilled_files(join(directory, name)) for name in ("merged", "map"))
    return read_indexes([(path, size) for path, size, _ in merged or mapped])


def partition_tasks(owner: Exchange[Any, Any], files: list[Cells], final: str) -> Iterator[FileGroup]:
    """A task for each partition of the rows in some files, with what it takes to read it."""
    choose, bounds = None, None
    if owner.partitioning == "range" and files:
        bounds = partition_bounds(files, owner.partitions, owner.bounds)
        choose = range_chooser(bounds)
    for number, parts in merge_indexes(files, final, choose).items():
        path = f"partition-{number}"
        config: dict[str, Any] = {"parts": parts}
        if bounds is not None:
            config["range"] = (*(bounds[i] if 0 <= i < len(bounds) else None for i in (number - 1, number)),)
        yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config=config)


# -- the reduce side ---------------------------------------------------------------------------------------------------


@dataclass
class LargeKey(Task[pa.Table]):
    """The rows of one key that are too many to be in memory at once: where they are, and how to pick them out."""

    by: Sequence[str] = ()
    hash: int = 0
    batch_bytes: int = 2**20
    rows: int = 0

    @property
    def num_items(self) -> int:
        return self.rows

    def batches(self) -> Iterator[TableTask]:
        """The rows in the order of the input, in several batches."""
        held: list[Rows] = []
        for piece in self._pieces():
            if held and sum(p.nbytes for p in held) + piece.nbytes > self.batch_bytes:
                yield Rows.concat(held).batch()
                held = []
            held.append(piece)
        if held:
            yield Rows.concat(held).batch()

    def _pieces(self) -> Iterator[Rows]:
        for rows in read_cells(self.data):
            table = rows.table
            if self.by:
                table = table.filter(arrow_array(hash_rows(table, self.by) == np.uint64(self.hash)))
            if table.num_rows:
                size = rows.with_table(table).nbytes
                step = max(1, table.num_rows * self.batch_bytes // max(size, 1))
                yield from (rows.with_table(table.slice(at, step)) for at in range(0, table.num_rows, step))


@dataclass
class ReadPartition(ScratchStage[FileGroup, Task[Any]]):
    """Read the rows of a partition: at once where they fit, else in parts by further bits of the hash."""

    owner: Exchange[Any, Any]

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        super().setup(worker_metadata)
        # Parts of a partition that is too large are written to this machine's own disk.
        self._parts = self._directory if is_local(self._directory) else tempfile.gettempdir()

    def process(self, task: FileGroup) -> Iterator[Task[Any]]:
        parts: Parts = task.reader_config["parts"]
        cells = parts.read()
        if "range" in task.reader_config:
            key, (low, high) = self.owner.key_columns[0], task.reader_config["range"]
            for rows in read_range(cells, key, low, high, self.owner.partition_bytes):
                yield rows.batch()
        elif parts.nbytes <= self.owner.partition_bytes:
            yield Rows.concat(list(read_cells(cells))).batch()
        else:
            os.makedirs(self._parts, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self._parts, prefix=".parts-") as folder:
                yield from self._in_parts(cells, cells, folder, 1)

    def _in_parts(self, whole: pa.Table, cells: pa.Table, folder: str, level: int) -> Iterator[Task[Any]]:
        """The rows of some cells, too many for one call of ``reduce``: write them by further bits, then read those."""
        by, limit = self.owner.key_columns, self.owner.partition_bytes
        nbytes, rows = (int(numpy_array(cells.column(name)).sum()) for name in ("nbytes", "rows"))
        if not by:
            yield self._large_key(whole, 0, nbytes, rows, next(read_cells(cells)))
            return
        buckets = min(_MOST_BUCKETS, 2 * -(-nbytes // limit))
        files, hashes, sample = self._written(cells, os.path.join(folder, str(level)), buckets, level)
        if len(hashes) == 1:
            if rows == 1:
                yield sample.batch()
            else:
                yield self._large_key(whole, hashes.pop(), nbytes, rows, sample)
            return
        found = merge_indexes(read_indexes(files), os.path.join(folder, f"{level}.index"))
        for number, parts in found.items():
            inner = parts.read()
            if parts.nbytes <= limit:
                yield Rows.concat(list(read_cells(inner))).batch()
            else:
                below = os.path.join(folder, f"{level}-{number}")
                yield from self._in_parts(whole, inner, below, level + 1)

    def _written(
        self, cells: pa.Table, folder: str, buckets: int, level: int
    ) -> tuple[list[tuple[str, int]], set[int], Rows]:
        """Write rows by bucket; return the files, up to two hashes that occur, and some of the rows."""
        files: list[tuple[str, int]] = []
        held: list[tuple[Rows, Ints]] = []
        hashes: set[int] = set()
        sample: Rows | None = None

        def write() -> None:
            rows = Rows.concat([piece for piece, _ in held])
            bucket = np.concatenate([number for _, number in held])
            finished = write_by(os.path.join(folder, f"{len(files):06d}"), rows, bucket)
            os.replace(finished.temporary, finished.final)
            files.append((finished.final, finished.nbytes))
            held.clear()

        for piece in read_cells(cells):
            sample = sample or piece.with_table(piece.table.slice(0, 1))
            own = hash_rows(piece.table, self.owner.key_columns)
            hashes |= set(np.unique(own)[:2].tolist()) if len(hashes) < 2 else set()
            if held and sum(p.nbytes for p, _ in held) + piece.nbytes > self.owner.partition_bytes // 2:
                write()
            held.append((piece, (_further_bits(own, level) % np.uint64(buckets)).astype(np.int64)))
        write()
        assert sample is not None
        return files, hashes, sample

    def _large_key(self, cells: pa.Table, key_hash: int, nbytes: int, rows: int, sample: Rows) -> LargeKey:
        owner, by = self.owner, self.owner.key_columns
        if hasattr(owner, "reduce_stream"):
            return LargeKey(
                cells,
                sample.dataset_name,
                by=by,
                hash=key_hash,
                batch_bytes=max(1, owner.partition_bytes // 4),
                rows=rows,
            )
        first = sample.table.slice(0, 1).select(by).to_pylist()[0]
        which = f"the rows with {', '.join(f'{k}={v!r}' for k, v in first.items())}" if by else "the rows"
        raise DataError(
            f"{owner.name}: {which} ({rows:,} of them) take {nbytes:,} bytes of memory, more than "
            f"partition_bytes={owner.partition_bytes:,}, and {type(owner).__name__}.reduce() needs them at once",
            hint="Give a larger partition_bytes where the memory is there, or write reduce_stream(batches), which is "
            "given the rows of such a key in several batches.",
        )


def _further_bits(hashes: Hashes, level: int) -> Hashes:
    """Other numbers for other levels, from the same hashes: the last step of SplitMix64."""
    mixed = hashes + np.uint64(level * 0x9E3779B97F4A7C15 % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@dataclass
class Reduce(ProcessingStage[Task[Any], Any]):
    """Call ``reduce`` of the exchange on the rows of a partition, or of a part of it."""

    owner: Exchange[Any, Any]

    def __post_init__(self) -> None:
        owner = self.owner
        self.releases_gil = owner.releases_gil or type(owner).reduce is Exchange.reduce  # type: ignore[misc]  # the owner's code runs here
        self.makes_rows = owner.makes_rows  # type: ignore[misc]
        self.task_types = (Task, task_types(owner)[1])

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self.owner.setup(worker_metadata)

    def teardown(self) -> None:
        self.owner.teardown()

    def take_metrics(self) -> dict[str, float]:
        return self.owner.take_metrics()

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available if type(self.owner).reduce is Exchange.reduce else None

    def process(self, task: Task[Any]) -> Any:
        if isinstance(task, LargeKey):
            return self.owner.reduce_stream(task.batches())  # type: ignore[attr-defined]  # checked when it was made
        return self.owner.reduce(task)
