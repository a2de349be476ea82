"""Remove documents whose ids are listed in files, as deduplication workflows write them."""

from __future__ import annotations

import contextlib
import getpass
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import pyarrow as pa

from tamis.errors import ColumnError, DataError, PlanError, did_you_mean, redacted
from tamis.stages.base import CompositeStage, NodeInfo, ProcessingStage, WorkerMetadata
from tamis.stages.deduplication.id_generator import CURATOR_DEDUP_ID_STR
from tamis.stages.deduplication.id_index import IdIndex, IdKind, id_kind
from tamis.stages.deduplication.memory import DEFAULT_MEMORY, memory_bytes
from tamis.stages.io.arguments import path_list
from tamis.stages.io.listing import Listing
from tamis.stages.io.paths import absolute, filesystem, is_local, open_read
from tamis.tasks import FileSlice, TableTask
from tamis.tasks.base import digest
from tamis.tasks.storage import check_trusted

__all__ = ["RemoveByIds"]

_PIECE: Final = 2**20
"""How many ids are read at a time."""

_BUILDING = threading.Lock()


@dataclass
class RemoveByIds(CompositeStage[TableTask, TableTask]):
    """Drop the rows whose ids are listed in Parquet files.

    The ids are sorted into a file on each machine first, within the memory budget, and looked up there: any number of
    them can be removed. Numbers are compared by their value, texts and bytes by their 128-bit hash. A row without an id
    (null) stays.

    Args:
        ids_path: A Parquet file, a directory of them, a pattern or any fsspec address; or a list of those. An empty
            directory removes nothing.
        id_field: The column of the rows that holds their ids.
        duplicate_id_field: The column of the files; when not given ``id_field``, ``"id"`` or the only column.
        drop_id_field: Whether the rows that stay lose the column ``id_field``.
        reason: What the drop ledger says of the rows.
        memory_budget: How much memory of a machine sorting the ids may take, as a number of bytes or as ``"8GB"``.
        storage_options: For the fsspec file system of ``ids_path``.

    >>> import tempfile, pyarrow.parquet as pq
    >>> from tamis.testing import run_stage
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"id": [2, 3]}), f"{folder}/ids.parquet")
    ...     run_stage(RemoveByIds(folder, id_field="id"), [{"id": 1}, {"id": 2}])
    [{'id': 1}]
    """

    ids_path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    id_field: str = CURATOR_DEDUP_ID_STR
    duplicate_id_field: str | None = None
    drop_id_field: bool = False
    reason: str = "duplicate"
    memory_budget: int | str = DEFAULT_MEMORY
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    name: str = "RemoveByIds"

    def __post_init__(self) -> None:
        self.ids_path = path_list(type(self).__name__, "ids_path", self.ids_path)
        memory_bytes(type(self).__name__, self.memory_budget)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        files = self._files()
        column, kind = self._column(files[0]) if files else (self.duplicate_id_field or self.id_field, None)
        removing = RemoveListedIds(
            tuple(files),
            column,
            kind,
            self.id_field,
            self.drop_id_field,
            self.reason,
            memory_bytes(self.name, self.memory_budget),
            self.storage_options,
        )
        return [removing.with_(name=self.name)]

    def _files(self) -> list[FileSlice]:
        """The files of ids; none for an empty directory."""
        paths = [self.ids_path] if isinstance(self.ids_path, str) else list(map(str, self.ids_path))  # type: ignore[arg-type]  # a list now
        found: list[FileSlice] = []
        for path in map(absolute, paths):
            try:
                found += Listing((path,), (".parquet", ".pq"), self.storage_options).files()
            except DataError:
                fs, inner = filesystem(path, self.storage_options)
                if not fs.isdir(inner):
                    raise
        return found

    def _column(self, file: FileSlice) -> tuple[str, IdKind]:
        """The column of the ids in the files, and how they are compared."""
        schema = _schema(file, self.storage_options)
        names, shown = schema.names, redacted(file.path)
        wanted = self.duplicate_id_field
        if wanted is None:
            wanted = next((name for name in (self.id_field, "id") if name in names), None)
            wanted = names[0] if wanted is None and len(names) == 1 else wanted
        if wanted is None or wanted not in names:
            raise ColumnError(
                f"{self.name}: {shown} has no column {wanted or self.id_field!r} of ids, only {', '.join(names)}. "
                f"Name it in duplicate_id_field.{did_you_mean(wanted or self.id_field, names)}"
            )
        kind = id_kind(schema.field(wanted).type)
        if kind is None:
            raise ColumnError(
                f"{self.name}: the column {wanted!r} of {shown} holds {schema.field(wanted).type}; ids are integers, "
                "texts or bytes"
            )
        return wanted, kind


def _schema(file: FileSlice, storage_options: dict[str, Any]) -> pa.Schema:
    import pyarrow.parquet as pq

    with open_read(file.path, storage_options) as source:
        try:
            return pq.read_schema(source)
        except pa.ArrowInvalid as e:
            raise DataError(f"this is not a Parquet file, or it is cut off: {e}", path=file.path) from e


@dataclass
class RemoveListedIds(ProcessingStage[TableTask, TableTask]):
    """Drop the rows whose ids are in some files. The files are parameters: when they change, the stage runs again."""

    files: tuple[FileSlice, ...]
    column: str
    kind: IdKind | None
    id_field: str
    drop_id_field: bool
    reason: str
    budget: int
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)

    releases_gil: ClassVar[bool] = True
    _index: ClassVar[IdIndex | None] = None

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.id_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available - {self.id_field} if available is not None and self.drop_id_field else available

    def notes(self) -> list[str]:
        return [] if self.files else [f"{self.name}: there are no files of ids, so no row is removed"]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self.setup(worker_metadata)  # then the workers find the index there

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        if self.kind is None:
            return
        scratch = worker_metadata.scratch if worker_metadata is not None else ""
        self._own_folder = not (scratch and is_local(scratch))
        folder = _own_folder() if self._own_folder else scratch
        path = os.path.join(folder, f"ids-{digest(self.column, *self.files)}")
        sources = [_ListedIds(file, self.column, self.kind, self.storage_options) for file in self.files]
        index: IdIndex | None = None
        with _BUILDING:  # the workers of one process build it once
            while index is None:
                if not os.path.exists(path):
                    IdIndex.build(path, self.kind, sources, self.budget)
                with contextlib.suppress(FileNotFoundError):  # a worker of another process has just removed it
                    index = IdIndex(path, self.kind).opened()
        self._index = index  # type: ignore[misc]  # of this worker

    def teardown(self) -> None:
        if self._index is not None and self._own_folder:
            with contextlib.suppress(OSError):  # another worker of the machine was faster
                os.unlink(self._index.path)

    def process(self, task: TableTask) -> TableTask:
        if self._index is None:
            if self.kind is not None:
                raise RuntimeError(f"{self.name} sorts the ids when it is set up: run it in a pipeline")
            return self._finished(task)
        ids = task[self.id_field]
        if pa.types.is_null(ids.type):
            return self._finished(task)
        if id_kind(ids.type) != self._index.kind:
            raise ColumnError(
                f"{self.name}: the column {self.id_field!r} holds {ids.type}, and the ids in "
                f"{redacted(self.files[0].path)} are {self._index.kind}: they can never be equal. Cast one of them"
            )
        return self._finished(task.keep(~self._index.contains(ids), self.reason))

    def _finished(self, task: TableTask) -> TableTask:
        return task.with_same_rows(task.data.drop_columns([self.id_field])) if self.drop_id_field else task


def _own_folder() -> str:
    """A folder of this user's on this machine, for runs whose data between stages is elsewhere."""
    folder = os.path.join(tempfile.gettempdir(), f"tamis-ids-{getpass.getuser()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    check_trusted(folder)
    return folder


@dataclass(frozen=True)
class _ListedIds:
    """The ids in one file, in pieces."""

    file: FileSlice
    column: str
    kind: IdKind
    storage_options: dict[str, Any]

    def __iter__(self) -> Iterator[pa.ChunkedArray]:
        import pyarrow.parquet as pq

        with open_read(self.file.path, self.storage_options) as source:
            try:
                parquet = pq.ParquetFile(source)
                if self.column not in parquet.schema_arrow.names:
                    raise PlanError(
                        f"{redacted(self.file.path)} has no column {self.column!r}, unlike other files of ids"
                    )
                for batch in parquet.iter_batches(_PIECE, columns=[self.column]):
                    ids = pa.chunked_array([batch.column(0)])
                    if id_kind(ids.type) != self.kind and not pa.types.is_null(ids.type):
                        raise DataError(f"the ids are {ids.type}, and {self.kind} in other files", path=self.file.path)
                    yield ids if not pa.types.is_null(ids.type) else pa.chunked_array([pa.array([], pa.int64())])
            except pa.ArrowInvalid as e:
                raise DataError(f"this is not a Parquet file, or it is cut off: {e}", path=self.file.path) from e
