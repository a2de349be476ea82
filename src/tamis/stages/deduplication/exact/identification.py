"""Write the ids of exact duplicates to files, from which another run can remove them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.arrays import arrow_array
from tamis.errors import DataError, PlanError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.document_ids import AssignIds, NumberFiles
from tamis.stages.deduplication.exact.repeats import HashPartitions, find_repeats, hashes_of
from tamis.stages.deduplication.file_reading import reader_for, reading_stage
from tamis.stages.deduplication.id_generator import CURATOR_DEDUP_ID_STR
from tamis.stages.deduplication.keep import Keep
from tamis.stages.deduplication.memory import DEFAULT_MEMORY, memory_bytes
from tamis.stages.deduplication.part_files import write_parts
from tamis.stages.emit import Publish
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import join
from tamis.stages.spill import SUFFIX, ScratchStage, folder_for
from tamis.tasks import DocumentBatch, FileGroup, TableTask
from tamis.tasks.storage import format_order

__all__ = ["EXACT_IDS", "ExactDuplicateIdentification"]

EXACT_IDS = "ExactDuplicateIds"
"""The directory, below the output, with the ids of duplicates."""


@dataclass
class ExactDuplicateIdentification(CompositeStage[FileGroup, FileGroup]):
    """Read files, find documents with equal text, and write the ids of all but one of each set.

    The ids are in ``<output_path>/ExactDuplicateIds/part.<k>.parquet``, sorted in each file.

    Args:
        text_field: The column compared.
        output_path: The directory above that of the ids.
        input_filetype: ``"parquet"`` or ``"jsonl"``.
        read_kwargs: Further arguments of the reader.
        write_kwargs: Further arguments of ``pyarrow.parquet.ParquetWriter``.
        assign_id: Whether documents are given ids; otherwise ``id_field`` has them.
        id_field: The column with the ids.
        normalize_text: Whether texts that differ in case and white space only count as equal.
        total_nparts: How many parts the hashes are sorted in; 16 by default.
        rmm_pool_size, spill_memory_limit, enable_statistics, use_async_memory: For NeMo Curator's GPU code; not used.
        keep: Which document of a set stays, see :class:`~tamis.stages.deduplication.keep.Keep`.
        memory_budget: How much memory of a machine the hashes may take.
        ids_path: The JSON file that keeps which ids a file has; see
            :class:`~tamis.stages.deduplication.document_ids.NumberFiles`.

    >>> stage = ExactDuplicateIdentification("text", "out", assign_id=False, id_field="id")
    >>> [inner.name for inner in stage.decompose()][-1]
    'ExactDuplicateIdentification'
    """

    text_field: str
    output_path: str
    input_filetype: str = "parquet"
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    assign_id: bool = True
    id_field: str | None = None
    normalize_text: bool = False
    total_nparts: int | None = None
    rmm_pool_size: int | str | None = "auto"
    spill_memory_limit: int | str | None = "auto"
    enable_statistics: bool = False
    use_async_memory: bool = True
    keep: str = "first"
    memory_budget: int | str = DEFAULT_MEMORY
    ids_path: str = ""
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    name: str = "ExactDuplicateIdentification"

    def __post_init__(self) -> None:
        owner = type(self).__name__
        if not self.assign_id and not self.id_field:
            raise PlanError(f"{owner}(assign_id=False): name the column with the ids, id_field=...")
        if self.total_nparts is not None and self.total_nparts < 1:
            raise PlanError(f"{owner}(total_nparts={self.total_nparts}): must be at least 1")
        self.keep = str(Keep.parse(self.keep))
        memory_bytes(owner, self.memory_budget)
        reader_for(owner, self.input_filetype)

    @property
    def id_column(self) -> str:
        """The column with the ids."""
        return self.id_field or CURATOR_DEDUP_ID_STR

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        owner, folder = type(self).__name__, folder_for(self.name)
        budget = memory_bytes(owner, self.memory_budget)
        columns = [self.text_field, *Keep.parse(self.keep).columns, *([] if self.assign_id else [self.id_column])]
        reader = reading_stage(owner, self.input_filetype, list(dict.fromkeys(columns)), self.read_kwargs)
        stages: list[ProcessingStage[Any, Any]] = []
        if self.assign_id:
            stages.append(NumberFiles(self.ids_path, True, self.storage_options, name=f"{self.name} (files)"))
        stages.append(reader.with_(name=f"{self.name} (read)"))
        if self.assign_id:
            stages.append(AssignIds(self.id_column, name=f"{self.name} (ids)"))
        keep = Keep.parse(self.keep)
        hashing = HashIds(folder, self.total_nparts or 16, self.text_field, self.normalize_text, keep, self.id_column)
        output = join(self.output_path, EXACT_IDS)
        return [
            *stages,
            hashing.with_(name=f"{self.name} (hash)"),
            HashPartitions(folder, budget).with_(name=f"{self.name} (partitions)"),
            FindDuplicateIds(folder, self.id_column).with_(name=f"{self.name} (find)"),
            write_parts(output, [self.id_column], self.write_kwargs, by_ids=True).with_(name=self.name),
        ]


@dataclass
class HashIds(ScratchStage[TableTask, FileGroup]):
    """Write the hashes of texts by partition, with the ids of the rows."""

    partitions: int
    text_field: str
    normalize_text: bool
    keep: Keep
    id_field: str

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field, self.id_field, *self.keep.columns]

    def ordered_columns(self) -> list[str]:
        return self.keep.columns

    def process(self, task: TableTask) -> Iterator[Publish]:
        if missing := task[self.id_field].null_count:
            raise DataError(
                f"{missing:,} rows have no {self.id_field!r} (null): a duplicate without an id cannot be removed",
                hint="Give every document an id, or let assign_id=True do it.",
            )
        rows, low = hashes_of(task, self.text_field, self.normalize_text, self.keep, self.id_field)
        final = join(self._directory, "hashes", format_order(task.order) + SUFFIX)
        yield write_by(final, rows, (low % np.uint64(self.partitions)).astype(np.int64))


@dataclass
class FindDuplicateIds(ScratchStage[FileGroup, DocumentBatch]):
    """Find the repeated hashes of one partition, and make a batch of the ids of the duplicates, sorted."""

    id_field: str
    makes_rows: ClassVar[Literal["same", "split", "joined", "new"]] = "new"

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return frozenset({self.id_field})

    def process(self, task: FileGroup) -> Iterator[DocumentBatch]:
        for found in find_repeats(task.reader_config, self._directory):
            ids = found.rows.column("id")
            self._check_different(ids, found.stays.column("id").take(arrow_array(found.of)))
            table = pa.table({self.id_field: ids.take(pc.sort_indices(ids))})
            groups = len(np.unique(found.of))
            yield DocumentBatch(table, _metadata={"num_groups": groups})

    def _check_different(self, ids: pa.ChunkedArray, kept: pa.ChunkedArray) -> None:
        """Refuse ids that occur twice: removing a duplicate by its id would remove the document that stays, too."""
        same = pc.equal(ids, kept)
        if pc.any(same).as_py():
            raise DataError(
                f"two documents with the same text have the same {self.id_field!r}, {ids.filter(same)[0].as_py()!r}: "
                "removing one by its id would remove both",
                hint="Give every document an id of its own, or let assign_id=True do it.",
            )
