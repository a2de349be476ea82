"""From files of edges to files that say which group a document is in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from tamis.arrays import arrow_array
from tamis.kernels.components import Components
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.file_barrier import all_files
from tamis.stages.deduplication.fuzzy.columns import CURATOR_FUZZY_DUPLICATE_GROUP_FIELD
from tamis.stages.deduplication.fuzzy.keyed_ids import integer_ids, parquet_pieces
from tamis.stages.deduplication.id_generator import CURATOR_DEDUP_ID_STR
from tamis.stages.deduplication.memory import memory_bytes
from tamis.stages.deduplication.part_files import write_parts
from tamis.stages.deduplication.splitting import temporary_folder
from tamis.stages.io.paths import join
from tamis.stages.spill import ScratchStage, folder_for
from tamis.tasks import DocumentBatch, FileGroup

__all__ = ["ConnectedComponentsStage"]


@dataclass
class ConnectedComponentsStage(CompositeStage[FileGroup, FileGroup]):
    """Find the documents that edges connect, directly or through others, and write the group of each.

    The ids and the groups are in ``<output_path>/ConnectedComponentsStage/part.<k>.parquet``. A group has the number of
    its smallest id. Documents without an edge are in no group and are left out.

    Args:
        output_path: The directory above that of the groups.
        source_field, destination_field: The columns with the ends of edges: ``_curator_dedup_id_x`` and ``_y`` when not
            given.
        read_kwargs: ``storage_options`` for the edges; nothing else in it is used.
        write_kwargs: Further arguments of ``pyarrow.parquet.ParquetWriter``.
        memory_budget: How much memory the documents in groups may take, 64 bytes each, as a number of bytes or as
            ``"8GB"``. If they take more, they are kept on disk.

    >>> [stage.name for stage in ConnectedComponentsStage("cache").decompose()][-1]
    'ConnectedComponentsStage'
    """

    output_path: str
    source_field: str | None = None
    destination_field: str | None = None
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    memory_budget: int | str = "2GiB"
    name: str = "ConnectedComponentsStage"

    def __post_init__(self) -> None:
        memory_bytes(type(self).__name__, self.memory_budget)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        ends = [
            self.source_field or f"{CURATOR_DEDUP_ID_STR}_x",
            self.destination_field or f"{CURATOR_DEDUP_ID_STR}_y",
        ]
        folder = folder_for(self.name)
        joining = ConnectEdges(folder, ends, memory_bytes(self.name, self.memory_budget), self.read_kwargs)
        columns = [CURATOR_DEDUP_ID_STR, CURATOR_FUZZY_DUPLICATE_GROUP_FIELD]
        return [
            *all_files(self.name),
            joining.with_(name=f"{self.name} (join)"),
            write_parts(join(self.output_path, type(self).__name__), columns, self.write_kwargs).with_(name=self.name),
        ]


@dataclass
class ConnectEdges(ScratchStage[FileGroup, DocumentBatch]):
    """The groups of all documents that edges connect, in the order of the ids."""

    ends: list[str]
    memory_bytes: int
    read_kwargs: dict[str, Any] | None = None
    makes_rows: ClassVar[Literal["same", "split", "joined", "new"]] = "new"

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return frozenset({CURATOR_DEDUP_ID_STR, CURATOR_FUZZY_DUPLICATE_GROUP_FIELD})

    def process(self, task: FileGroup) -> Iterator[DocumentBatch]:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(temporary_folder(self._directory, "components"))
            components = stack.enter_context(Components(self.memory_bytes, folder))
            for path in task.data:
                for table in parquet_pieces(path, self.ends, self.read_kwargs):
                    components.add(*(integer_ids(table.column(end), end, path) for end in self.ends))
            for ids, groups in components.members():
                columns = {
                    CURATOR_DEDUP_ID_STR: arrow_array(ids.view("int64")),
                    CURATOR_FUZZY_DUPLICATE_GROUP_FIELD: arrow_array(groups.view("int64")),
                }
                yield DocumentBatch(pa.table(columns))
