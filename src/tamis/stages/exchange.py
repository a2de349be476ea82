"""Shuffles: bring rows with the same key together, across all tasks.

The map side cuts every task into partitions by a hash of the key and writes them to the run directory; when all of
it is there, the reduce side works on one partition after the other. Rows of a partition come in the order of the
input, so the result does not depend on who ran what when. No more than ``partition_bytes`` is in memory at once: a
larger partition is worked off in several passes, by further bits of the hash.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from tamis.errors import DataError
from tamis.kernels.hashing import hash_text_128
from tamis.stages.base import CompositeStage, Emission, ProcessingStage, WorkerMetadata, emissions
from tamis.stages.emit import Publish
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, folder_for, spilled_files
from tamis.tasks import DocumentBatch, FileGroup, FileSlice
from tamis.tasks.storage import format_order, temporary_beside

__all__ = ["ShuffleStage"]

_HASH = "_shuffle_hash"
_SIZES = b"tamis.partition_bytes"


@dataclass
class ShuffleStage(CompositeStage[DocumentBatch, DocumentBatch]):
    """Group rows by key across all tasks, then work on each partition. Subclass it and write :meth:`reduce`.

    Args:
        by: The key columns.
        partitions: How many partitions; as many can be worked on at the same time.
        partition_bytes: How much of a partition may be in memory at once, in bytes.

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
        if self.partitions < 1:
            raise ValueError(f"partitions={self.partitions}: must be at least 1")
        if self.name == ShuffleStage.__name__:
            self.name = type(self).__name__

    def reduce(self, partition: DocumentBatch) -> Any:
        """Work on the rows of one partition: all rows with any key in it are here, in the order of the input."""
        raise NotImplementedError(f"{type(self).__name__} has no reduce()")

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder = folder_for(self.name)
        return [
            ShuffleWrite(folder, self.by, self.partitions).with_(name=f"{self.name} (partition)"),
            ShufflePartitions(folder, self.partitions).with_(name=f"{self.name} (partitions)"),
            ShuffleReduce(folder, self, self.partition_bytes).with_(name=self.name),
        ]


@dataclass
class ShuffleWrite(ScratchStage[DocumentBatch, FileGroup]):
    """Cut a batch into partitions by a hash of its key, all in one file."""

    by: list[str]
    partitions: int

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self.by

    def process(self, task: DocumentBatch) -> Iterator[Publish]:
        hashes = hash_rows(task.data, self.by)
        table = task.data.append_column(_HASH, pa.array(hashes))
        yield write_partitions(table, hashes % np.uint64(self.partitions), self.partitions, self._directory, task.order)


def hash_rows(table: pa.Table, by: list[str]) -> np.ndarray[Any, np.dtype[np.uint64]]:
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


def write_partitions(
    table: pa.Table, partition: np.ndarray[Any, Any], count: int, directory: str, order: tuple[int, ...]
) -> Publish:
    """Write the rows as one Arrow file with one record batch per partition."""
    by_partition = np.argsort(partition, kind="stable")
    bounds = np.searchsorted(partition[by_partition], np.arange(count + 1))
    grouped = table.unify_dictionaries().take(pa.array(by_partition)).combine_chunks()
    pieces = [grouped.slice(lo, hi - lo) for lo, hi in itertools.pairwise(bounds)]
    sizes = json.dumps([piece.nbytes for piece in pieces]).encode()
    schema = grouped.schema.with_metadata({**(grouped.schema.metadata or {}), _SIZES: sizes})
    final = os.path.join(directory, format_order(order) + SUFFIX)
    with temporary_beside(final) as temporary:
        options = pa.ipc.IpcWriteOptions(compression="lz4" if pa.Codec.is_available("lz4") else None)
        with pa.OSFile(temporary, "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
            for piece in pieces:
                writer.write_batch(_one_batch(piece, schema))
        nbytes = os.path.getsize(temporary)
    return Publish(temporary, final, table.num_rows, nbytes)


def _one_batch(piece: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """A table as exactly one record batch, also when it has no rows; with the dictionaries the others have."""
    batches = piece.to_batches()
    if batches:
        return batches[0]
    columns = [c.chunk(0).slice(0, 0) if c.num_chunks else pa.array([], c.type) for c in piece.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@dataclass
class ShufflePartitions(ScratchSource[FileGroup]):
    """One task per partition, once the whole map side is there."""

    partitions: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = os.path.join(scratch, self.folder)
        total = sum(os.path.getsize(path) for path, _ in spilled_files(directory))
        if not total:
            return
        for number in range(self.partitions):
            yield partition_task(number, total // self.partitions)


def partition_task(number: int, nbytes: int) -> FileGroup:
    """A task that stands for one partition of a shuffle."""
    path = f"partition-{number}"
    return FileGroup([path], slices=(FileSlice(path, size=nbytes),), reader_config={"partition": number})


@dataclass
class ShuffleReduce(ScratchStage[FileGroup, DocumentBatch]):
    """Read one partition from all files of the map side and reduce it."""

    owner: ShuffleStage
    partition_bytes: int
    internal: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.releases_gil = self.owner.releases_gil  # type: ignore[misc]  # it is the owner's code that runs

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        super().setup(worker_metadata)
        self.owner.setup(worker_metadata)

    def teardown(self) -> None:
        self.owner.teardown()

    def take_metrics(self) -> dict[str, float]:
        return self.owner.take_metrics()

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return None

    def process(self, task: FileGroup) -> Iterable[Emission]:
        number = int(task.reader_config["partition"])
        files = [path for path, _ in spilled_files(self._directory)]
        passes = max(1, -(-sum(partition_nbytes(f, number) for f in files) // self.partition_bytes))
        for turn in range(passes):
            rows = [r for f in files if (r := _some_rows(f, number, turn, passes)).num_rows]
            if rows:
                table = put_together(rows).drop_columns([_HASH])
                yield from emissions(self.owner.reduce(DocumentBatch(table, task.dataset_name)))


def put_together(tables: list[pa.Table]) -> pa.Table:
    """Rows of several batches as one table; an error if a column is of kinds that do not go together."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as e:
        raise DataError(
            f"batches with different types cannot be put together: {e}",
            hint="Give the column one type, as with types={...} of a reader, or leave it out before.",
        ) from e


def partition_nbytes(path: str, number: int) -> int:
    """The size in memory of one partition of one file."""
    with pa.memory_map(path, "rb") as source, pa.ipc.open_file(source) as reader:
        return int(json.loads(reader.schema.metadata[_SIZES])[number])


def read_partition(path: str, number: int) -> pa.Table:
    """One partition of one file of the map side."""
    with pa.memory_map(path, "rb") as source, pa.ipc.open_file(source) as reader:
        return pa.Table.from_batches([reader.get_batch(number)]).replace_schema_metadata(None)


def _some_rows(path: str, number: int, turn: int, passes: int) -> pa.Table:
    table = read_partition(path, number)
    if passes == 1:
        return table
    # The low bits chose the partition; use the high ones here.
    high = table.column(_HASH).to_numpy() >> np.uint64(32)
    return table.filter(pa.array(high % np.uint64(passes) == turn))
