"""From files of groups to files with the ids of duplicates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from tamis.arrays import arrow_array
from tamis.errors import PlanError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.file_barrier import each_group
from tamis.stages.deduplication.fuzzy.columns import CURATOR_FUZZY_DUPLICATE_GROUP_FIELD, FUZZY_IDS
from tamis.stages.deduplication.fuzzy.groups import spread
from tamis.stages.deduplication.fuzzy.keyed_ids import KeyCells, integer_ids, parquet_pieces, read_keyed, write_keyed
from tamis.stages.deduplication.id_generator import CURATOR_DEDUP_ID_STR
from tamis.stages.deduplication.memory import memory_bytes
from tamis.stages.deduplication.part_files import write_parts
from tamis.stages.emit import Publish
from tamis.stages.io.paths import join
from tamis.stages.spill import SUFFIX, ScratchStage, folder_for
from tamis.tasks import DocumentBatch, FileGroup
from tamis.tasks.storage import format_order

__all__ = ["IdentifyDuplicatesStage"]


@dataclass
class IdentifyDuplicatesStage(CompositeStage[FileGroup, FileGroup]):
    """Write the ids of all documents of a group but the smallest to ``<output_path>/FuzzyDuplicateIds/``.

    Args:
        duplicate_group_field: The column with the groups.
        document_id_field: The column with the ids.
        total_nparts: How many files there are at most; 16 by default.
        output_path: The directory above that of the ids.
        read_kwargs: ``storage_options`` for the groups; nothing else in it is used.
        write_kwargs: Further arguments of ``pyarrow.parquet.ParquetWriter``.
        rmm_pool_size, spill_memory_limit, enable_statistics: For NeMo Curator's GPU code; not used.
        memory_budget: How much memory of a machine the groups may take, as a number of bytes or as ``"8GB"``.

    >>> [stage.name for stage in IdentifyDuplicatesStage(output_path="out").decompose()][-1]
    'IdentifyDuplicatesStage'
    """

    duplicate_group_field: str = CURATOR_FUZZY_DUPLICATE_GROUP_FIELD
    document_id_field: str = CURATOR_DEDUP_ID_STR
    total_nparts: int | None = None
    output_path: str = "./"
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    rmm_pool_size: int | str | None = "auto"
    spill_memory_limit: int | str | None = "auto"
    enable_statistics: bool = False
    memory_budget: int | str = "2GiB"
    name: str = "IdentifyDuplicatesStage"

    def __post_init__(self) -> None:
        if self.total_nparts is not None and self.total_nparts < 1:
            raise PlanError(f"{type(self).__name__}(total_nparts={self.total_nparts}): must be at least 1")
        memory_bytes(type(self).__name__, self.memory_budget)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder, parts, ids = folder_for(self.name), self.total_nparts or 16, self.document_id_field
        sending = SendGroups(folder, parts, self.duplicate_group_field, ids, self.read_kwargs)
        output = join(self.output_path, FUZZY_IDS)
        return [
            *each_group(self.name),
            sending.with_(name=f"{self.name} (groups)"),
            KeyCells(folder, memory_bytes(self.name, self.memory_budget)).with_(name=f"{self.name} (cells)"),
            LeaveFirsts(folder, ids).with_(name=f"{self.name} (ids)"),
            write_parts(output, [ids], self.write_kwargs, by_ids=True).with_(name=self.name),
        ]


@dataclass
class SendGroups(ScratchStage[FileGroup, FileGroup]):
    """Write groups and ids by a hash of the group."""

    parts: int
    group_field: str
    id_field: str
    read_kwargs: dict[str, Any] | None = None

    def process(self, task: FileGroup) -> Iterator[Publish]:
        number = 0
        for path in task.data:
            for table in parquet_pieces(path, [self.group_field, self.id_field], self.read_kwargs):
                groups = integer_ids(table.column(self.group_field), self.group_field, path).view(np.uint64)
                ids = integer_ids(table.column(self.id_field), self.id_field, path)
                cells = (spread(groups) % np.uint64(self.parts)).astype(np.int64)
                final = join(self._directory, "keys", format_order((*task.order, number)) + SUFFIX)
                yield write_keyed(final, groups, ids, cells)
                number += 1


@dataclass
class LeaveFirsts(ScratchStage[FileGroup, DocumentBatch]):
    """The ids of some groups without the first of each, sorted."""

    id_field: str
    makes_rows: ClassVar[Literal["same", "split", "joined", "new"]] = "new"

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return frozenset({self.id_field})

    def process(self, task: FileGroup) -> Iterator[DocumentBatch]:
        for rows in read_keyed(task.reader_config, self._directory):
            ids = np.sort(rows.ids[rows.ids != rows.firsts])
            if len(ids):
                yield DocumentBatch(pa.table({self.id_field: arrow_array(ids)}))
