"""Put all rows into a random order, across all tasks.

Each row gets a random key; the rows are cut into ranges of keys, written to the run directory, and each range is
sorted. So the order of the whole is the order of the keys, whatever the number of partitions, passes and workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.emit import Publish
from tamis.stages.exchange import (
    ShufflePartitions,
    partition_nbytes,
    put_together,
    read_partition,
    write_partitions,
)
from tamis.stages.mixing.row_keys import Keys, check_identity, row_keys
from tamis.stages.spill import ScratchStage, folder_for, spilled_files
from tamis.tasks import DocumentBatch, FileGroup

__all__ = ["GlobalShuffle"]

_KEY = "_shuffle_key"


@dataclass(repr=False)
class GlobalShuffle(CompositeStage[DocumentBatch, DocumentBatch]):
    """Put the rows of the whole input into a random order.

    The order follows from the seed and from what the rows are: it is the same for any number of workers and of
    partitions. Without ``id_fields`` it depends on how the input is cut into batches; with them it does not, and rows
    with equal values come one behind the other.

    Args:
        seed: Another seed gives another order.
        id_fields: Columns that tell rows apart, such as ``["id"]``. When not given, a row is its place in the input.
        partitions: How many parts the rows are sorted in; as many can be worked on at the same time. Each is read as
            often as it is larger than ``partition_bytes``: for large data, give about one for each such amount.
        partition_bytes: How much of a partition may be in memory at once, in bytes; as much goes on as one batch. Rows
            with equal ``id_fields`` are held together, however many they are.

    >>> GlobalShuffle(seed=7).partitions
    16
    """

    seed: int = 0
    id_fields: list[str] | None = None
    partitions: int = 16
    partition_bytes: int = 256 * 2**20
    name: str = "GlobalShuffle"

    def __post_init__(self) -> None:
        check_identity("GlobalShuffle", self.id_fields, self.seed)
        for parameter in ("partitions", "partition_bytes"):
            if getattr(self, parameter) < 1:
                raise ValueError(f"GlobalShuffle({parameter}={getattr(self, parameter)}): must be at least 1")

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder = folder_for(self.name)
        return [
            WriteByKey(folder, self.seed, self.id_fields, self.partitions).with_(name=f"{self.name} (partition)"),
            ShufflePartitions(folder, self.partitions).with_(name=f"{self.name} (partitions)"),
            SortByKey(folder, self.partitions, self.partition_bytes).with_(name=self.name),
        ]


@dataclass(repr=False)
class WriteByKey(ScratchStage[DocumentBatch, FileGroup]):
    """Give each row a random key and cut the batch into ranges of keys, all in one file."""

    seed: int
    id_fields: list[str] | None
    partitions: int

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.id_fields or ())

    def process(self, task: DocumentBatch) -> Iterator[Publish]:
        keys = row_keys(task, self.id_fields, self.seed, "shuffle")
        table = task.data.append_column(_KEY, pa.array(keys))
        partition = np.searchsorted(_edges(0, self.partitions, self.partitions), keys, side="right")
        yield write_partitions(table, partition, self.partitions, self._directory, task.order)


@dataclass(repr=False)
class SortByKey(ScratchStage[FileGroup, DocumentBatch]):
    """Read one range of keys from all files and sort it; a range that is too large, in parts."""

    partitions: int
    partition_bytes: int
    internal: ClassVar[bool] = False

    def process(self, task: FileGroup) -> Iterator[DocumentBatch]:
        number = int(task.reader_config["partition"])
        files = [path for path, _ in spilled_files(self._directory)]
        passes = max(1, -(-sum(partition_nbytes(f, number) for f in files) // self.partition_bytes))
        edges = _edges(number * passes, passes, self.partitions * passes)
        for turn in range(passes):
            rows = [r for f in files if (r := _some_rows(f, number, turn, edges)).num_rows]
            if rows:
                table = put_together(rows)
                # A stable sort: equal keys stay in the order of the input.
                order = np.argsort(table.column(_KEY).to_numpy(), kind="stable")
                yield DocumentBatch(table.drop_columns([_KEY]).take(pa.array(order)), task.dataset_name)


def _edges(begin: int, count: int, parts: int) -> Keys:
    """The first keys of all but the first of ``count`` neighbouring ranges, of ``parts`` that all keys are cut into."""
    return np.array([number * 2**64 // parts for number in range(begin + 1, begin + count)], dtype=np.uint64)


def _some_rows(path: str, number: int, turn: int, edges: Keys) -> pa.Table:
    table = read_partition(path, number)
    if not len(edges):
        return table
    part = np.searchsorted(edges, table.column(_KEY).to_numpy(), side="right")
    return table.filter(pa.array(part == turn))
