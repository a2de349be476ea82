"""Exchanges: bring rows with the same key together, across all tasks.

The map side cuts every task into partitions and writes them to one file with an index; when all tasks are done, each
partition is read from the files that have rows for it, and reduced. The rows of a partition come in the order of the
input, with their names, so the result does not depend on which worker did what when. See ``docs/branches-and-shuffles``
for what holds for memory, order and repeatability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.exchange.map_side import FilesToMerge, MergeFiles, PartitionRows
from tamis.stages.exchange.reduce_side import Partitions, ReadPartition, Reduce
from tamis.stages.spill import folder_for
from tamis.tasks import DocumentBatch, Task

__all__ = ["Exchange", "ShuffleStage"]

X = TypeVar("X", bound=Task[Any])
Y = TypeVar("Y", bound=Task[Any])


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
    def maps_rows(self) -> bool:
        """Whether there is a :meth:`map` of its own."""
        return type(self).map is not Exchange.map

    @property
    def reduces_rows(self) -> bool:
        """Whether there is a :meth:`reduce` of its own."""
        return type(self).reduce is not Exchange.reduce

    @property
    def key_columns(self) -> list[str]:
        """The key columns, as a list."""
        return [self.key] if isinstance(self.key, str) else list(self.key or ())

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [] if self.maps_rows else self.key_columns

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
