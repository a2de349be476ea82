"""From files of buckets to files of edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import DataError
from tamis.kernels.components import spanning_forest
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.file_barrier import each_group
from tamis.stages.deduplication.fuzzy.keyed_ids import integer_ids, parquet_pieces
from tamis.stages.deduplication.id_generator import CURATOR_DEDUP_ID_STR
from tamis.stages.deduplication.part_files import write_parts
from tamis.stages.io.paths import join
from tamis.tasks import DocumentBatch, FileGroup

__all__ = ["BucketsToEdgesStage"]

Ids = NDArray[np.int64]

_HELD_EDGES: Final = 2**22
"""How many edges are held before those that are not needed are left out."""


@dataclass
class BucketsToEdgesStage(CompositeStage[FileGroup, FileGroup]):
    """Join the documents of each bucket: write pairs of ids to ``<output_path>/BucketsToEdgesStage/``.

    Each document is joined to the first of its bucket, so a bucket of ``n`` documents gives ``n - 1`` edges. Edges
    between documents that others connect already are left out.

    Args:
        output_path: The directory above that of the edges.
        document_id_field: The column with the ids of a bucket; the ends of an edge are this with ``_x`` and ``_y``.
        read_kwargs: ``storage_options`` for the buckets; nothing else in it is used.
        write_kwargs: Further arguments of ``pyarrow.parquet.ParquetWriter``.

    >>> [stage.name for stage in BucketsToEdgesStage("cache").decompose()][-1]
    'BucketsToEdgesStage'
    """

    output_path: str
    document_id_field: str = CURATOR_DEDUP_ID_STR
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    name: str = "BucketsToEdgesStage"

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        columns = [f"{self.document_id_field}_x", f"{self.document_id_field}_y"]
        writing = write_parts(join(self.output_path, type(self).__name__), columns, self.write_kwargs)
        return [
            *each_group(self.name),
            MakeEdges(self.document_id_field, self.read_kwargs).with_(name=f"{self.name} (edges)"),
            writing.with_(name=self.name),
        ]


@dataclass
class MakeEdges(ProcessingStage[FileGroup, DocumentBatch]):
    """The edges of the buckets in some files."""

    id_field: str
    read_kwargs: dict[str, Any] | None = None

    releases_gil: ClassVar[bool] = True
    internal: ClassVar[bool] = True
    makes_rows: ClassVar[Literal["same", "split", "joined", "new"]] = "new"

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return frozenset({f"{self.id_field}_x", f"{self.id_field}_y"})

    def process(self, task: FileGroup) -> Iterator[DocumentBatch]:
        held: list[tuple[Ids, Ids]] = []
        count = 0
        for path in task.data:
            for table in parquet_pieces(path, [self.id_field], self.read_kwargs):
                held.append(_edges(table.column(0), self.id_field, path))
                count += len(held[-1][0])
                if count > _HELD_EDGES:
                    held = [_needed(held)]
                    count = len(held[0][0])
                    if count > _HELD_EDGES // 2:
                        yield self._batch(*held.pop())
                        count = 0
        if held and len((edges := _needed(held))[0]):
            yield self._batch(*edges)

    def _batch(self, left: Ids, right: Ids) -> DocumentBatch:
        columns = {f"{self.id_field}_x": arrow_array(left), f"{self.id_field}_y": arrow_array(right)}
        return DocumentBatch(pa.table(columns))


def _needed(edges: list[tuple[Ids, Ids]]) -> tuple[Ids, Ids]:
    """The edges that connect what others do not connect already."""
    left, right = (np.concatenate(ends) for ends in zip(*edges, strict=True))
    return spanning_forest(left, right)


def _edges(column: pa.ChunkedArray, name: str, path: str) -> tuple[Ids, Ids]:
    """From each list the first id with each of the others."""
    lists = column.cast(pa.large_list(column.type.value_type)) if pa.types.is_nested(column.type) else None
    if lists is None:
        raise DataError(f"the column {name!r} must hold lists of ids; it is {column.type}", path=path)
    lengths = numpy_array(pa.chunked_array([chunk.value_lengths() for chunk in lists.chunks], pa.int64()))
    ids = integer_ids(pa.chunked_array([chunk.flatten() for chunk in lists.chunks], column.type.value_type), name, path)
    starts = np.cumsum(lengths) - lengths
    of_list = np.repeat(starts, lengths)
    is_other = np.arange(len(ids)) != of_list
    return ids[of_list[is_other]], ids[is_other]
