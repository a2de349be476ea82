"""The reduce side of an exchange: each partition is read from the files that have rows for it, and reduced."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import DataError
from tamis.stages.base import ProcessingStage, WorkerMetadata
from tamis.stages.exchange.files import Cells, Ints, Parts, Rows, merge_indexes, read_cells, read_indexes
from tamis.stages.exchange.map_side import Hashes, hash_rows, write_by
from tamis.stages.exchange.ranges import partition_bounds, range_chooser, read_range
from tamis.stages.io.paths import is_local, join
from tamis.stages.spill import ScratchSource, ScratchStage, spilled_files
from tamis.stages.task_types import task_types
from tamis.tasks import FileGroup, FileSlice, TableTask, Task

if TYPE_CHECKING:
    from tamis.stages.exchange.exchange import Exchange

__all__ = ["Partitions", "ReadPartition", "Reduce", "map_files", "partition_tasks"]

_MOST_BUCKETS = 64


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
        for rows in Rows.lots(self._pieces(), self.batch_bytes):
            yield rows.batch()

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

        held_bytes = 0
        for piece in read_cells(cells):
            sample = sample or piece.with_table(piece.table.slice(0, 1))
            own = hash_rows(piece.table, self.owner.key_columns)
            hashes |= set(np.unique(own)[:2].tolist()) if len(hashes) < 2 else set()
            nbytes = piece.nbytes
            if held and held_bytes + nbytes > self.owner.partition_bytes // 2:
                write()
                held_bytes = 0
            held_bytes += nbytes
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
        self.releases_gil = owner.releases_gil or not owner.reduces_rows  # type: ignore[misc]  # the owner's code runs here
        self.makes_rows = owner.makes_rows  # type: ignore[misc]
        self.task_types = (Task, task_types(owner)[1])

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self.owner.setup(worker_metadata)

    def teardown(self) -> None:
        self.owner.teardown()

    def take_metrics(self) -> dict[str, float]:
        return self.owner.take_metrics()

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available if not self.owner.reduces_rows else None

    def process(self, task: Task[Any]) -> Any:
        if isinstance(task, LargeKey):
            return self.owner.reduce_stream(task.batches())  # type: ignore[attr-defined]  # checked when it was made
        return self.owner.reduce(task)
