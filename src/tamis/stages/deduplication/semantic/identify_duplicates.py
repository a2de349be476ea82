"""From the similarities of rows to the ids of duplicates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import PlanError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.file_barrier import each_group
from tamis.stages.deduplication.fuzzy.keyed_ids import parquet_pieces
from tamis.stages.deduplication.part_files import write_parts
from tamis.stages.exchange import Exchange
from tamis.tasks import DocumentBatch, FileGroup

__all__ = ["IdentifyDuplicatesStage"]


@dataclass
class IdentifyDuplicatesStage(CompositeStage[FileGroup, FileGroup]):
    """Write the ids of rows that have a similar one before them: column ``id``, sorted in each file, each id once.

    It takes the files that :class:`~tamis.stages.deduplication.semantic.pairwise.PairwiseStage` writes. A row counts
    if its ``cosine_sim_score`` is at least ``1 - eps``, also where the row before it counts itself.

    Args:
        output_path: The directory for the ids.
        eps: How far from 1 the cosine of similar vectors may be.
        verbose: Not used: the report has the figures.
        read_kwargs: ``storage_options`` for the similarities; nothing else in it is used.
        write_kwargs: Further arguments of ``pyarrow.parquet.ParquetWriter``, and ``storage_options``.

    >>> [stage.name for stage in IdentifyDuplicatesStage("out", 0.01).decompose()][-1]
    'IdentifyDuplicatesStage'
    """

    output_path: str
    eps: float
    _num_row_groups_hint: int | None = None
    verbose: bool = False
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    name: str = "IdentifyDuplicatesStage"

    def __post_init__(self) -> None:
        if not 0 <= self.eps < 1:
            raise PlanError(f"eps={self.eps}: must be at least 0 and less than 1")

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [
            *each_group(self.name),
            SimilarIds(self.eps, self.read_kwargs).with_(name=f"{self.name} (similar)"),
            EachIdOnce(name=f"{self.name} (ids)"),
            write_parts(self.output_path, ["id"], self.write_kwargs, by_ids=True).with_(name=self.name),
        ]


@dataclass
class SimilarIds(ProcessingStage[FileGroup, DocumentBatch]):
    """The ids in files of similarities whose score is large enough."""

    eps: float
    read_kwargs: dict[str, Any] | None = None
    releases_gil: ClassVar[bool] = True
    internal: ClassVar[bool] = True
    makes_rows: ClassVar[Literal["same", "split", "joined", "new"]] = "new"

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return frozenset({"id"})

    def process(self, task: FileGroup) -> Iterator[DocumentBatch]:
        least = pa.array(np.array([1 - self.eps], np.float32))[0]
        for path in task.data:
            for table in parquet_pieces(path, ["id", "cosine_sim_score"], self.read_kwargs):
                similar = table.filter(pc.greater_equal(table.column("cosine_sim_score"), least)).select(["id"])
                if similar.num_rows:
                    yield DocumentBatch(similar)


@dataclass
class EachIdOnce(Exchange[DocumentBatch, DocumentBatch]):
    """Each id once, sorted in each partition: a row near to a border is in several clusters."""

    partitions: int = 4
    releases_gil: ClassVar[bool] = True
    name: str = "EachIdOnce"

    def __post_init__(self) -> None:
        self.key = "id"

    def reduce(self, rows: Any) -> DocumentBatch:
        ids = pc.unique(rows["id"])
        return DocumentBatch(pa.table({"id": ids.take(pc.sort_indices(ids))}))
