"""What every reader has in common: a composite that users name, and the stage that reads the files of one task."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from tamis.arrays import text_scalar
from tamis.errors import ColumnError, DataError, PlanError, did_you_mean, redacted
from tamis.sizes import byte_size
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.emit import BadRows
from tamis.stages.io.arguments import check_arguments, check_choice, check_names, path_list
from tamis.stages.io.blocks import MAX_ROW_BYTES, refused
from tamis.stages.io.partitioning import DEFAULT_BLOCK_BYTES, FilePartitioningStage
from tamis.tasks import DocumentBatch, EmptyTask, FileGroup, FileSlice, RowNames

__all__ = ["Reader", "ReaderStage", "TableReaderStage"]

ON_ERROR = ("raise", "quarantine")

_ALWAYS_SO = frozenset({"lines", "engine", "dtype_backend"})
"""Arguments of pandas' readers that scripts written for NeMo Curator pass: what they ask for is always done here."""


@dataclass
class ReaderStage(ProcessingStage[FileGroup, DocumentBatch]):
    """Read the files of a task. Subclasses say how in :meth:`tables`.

    Args:
        fields: Columns to read; all of them when not given.
        include_path: Name of a column that gets the path of each row's file; none when not given.
        on_error: ``"raise"`` stops at what cannot be read, ``"quarantine"`` sets it aside.
        block_bytes: Largest amount of (decompressed) input per batch.
        storage_options: For the fsspec file system.
        max_row_bytes: Largest line or row that is read, in bytes.
    """

    fields: list[str] | None = None
    include_path: str | None = None
    on_error: str = "raise"
    block_bytes: int = DEFAULT_BLOCK_BYTES
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    max_row_bytes: int = MAX_ROW_BYTES

    releases_gil: ClassVar[bool] = True

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self.known_columns() or []

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        known = self.known_columns()
        return None if known is None else frozenset(known)

    def known_columns(self) -> list[str] | None:
        """The columns, where they are known without reading."""
        if self.fields is None:
            return None
        return [*self.fields, *([self.include_path] if self.include_path else [])]

    def process(self, task: FileGroup) -> Iterator[DocumentBatch | BadRows]:
        """Read the task's files; one batch for small ones together, several for large ones."""
        count = 0
        for found in self.tables(task.slices):
            if isinstance(found, BadRows):
                yield found
            elif isinstance(found, tuple) or found.num_rows:
                table, names = found if isinstance(found, tuple) else RowNames.taken_from(found)
                if not len(table):
                    continue
                if names is None:  # a reader that does not say where its rows are: they are numbered
                    source, start = redacted(task.slices[0].path), task.slices[0].start
                    names = RowNames((source if not start else f"{source}@{start}",), count + np.arange(len(table)))
                count += len(table)
                metadata = {**task._metadata, "source_files": task.data}
                yield DocumentBatch(table, dataset_name=task.dataset_name, _metadata=metadata).named(names)

    def tables(self, slices: Sequence[FileSlice]) -> Iterator[pa.Table | tuple[pa.Table, RowNames] | BadRows]:
        """The rows of some files, in blocks, and what could not be read.

        Each table comes with the names of its rows, or has them in columns of their own
        (:meth:`tamis.tasks.RowNames.added_to`).
        """
        raise NotImplementedError

    def set_aside(self, error: DataError, raw: bytes = b"") -> BadRows:
        """Raise an error, or turn it into an entry for the quarantine, as ``on_error`` says."""
        return refused(error, self.on_error, raw)

    def with_path(self, table: pa.Table, paths: Sequence[tuple[str, int]]) -> pa.Table:
        """Add the column of paths; ``paths`` has each file and its number of rows."""
        if self.include_path is None:
            return table
        if self.include_path in table.column_names:
            raise DataError(
                f"include_path={self.include_path!r}: the file has a column of that name",
                path=paths[0][0] if paths else "",
                hint="Choose another name.",
            )
        chunks = [pa.repeat(text_scalar(path), rows) for path, rows in paths]
        return table.append_column(self.include_path, pa.chunked_array(chunks, pa.large_string()))


@dataclass
class TableReaderStage(ReaderStage):
    """A reader that makes a table of each file; the tables of small files are then put together."""

    def read_file(self, file: FileSlice) -> Iterator[pa.Table | BadRows]:
        """The rows of one file or range, in tables of about a block."""
        raise NotImplementedError

    def tables(self, slices: Sequence[FileSlice]) -> Iterator[pa.Table | BadRows]:
        held: list[tuple[str, pa.Table]] = []
        held_bytes, schema = 0, None
        for file in slices:
            try:
                for found in self.read_file(file):
                    if isinstance(found, BadRows):
                        yield found
                        continue
                    wider = found.schema if schema is None else _widened(schema, found.schema)
                    if held and (wider is None or held_bytes + found.nbytes > self.block_bytes):
                        yield self._together(held)
                        held, held_bytes, wider = [], 0, found.schema
                    schema = wider
                    held.append((file.path, found))
                    held_bytes += found.nbytes
            except DataError as e:
                yield self.set_aside(e)
        if held:
            yield self._together(held)

    def _together(self, pieces: list[tuple[str, pa.Table]]) -> pa.Table:
        tables = [table for _, table in pieces]
        same = all(t.schema.equals(tables[0].schema) for t in tables)
        table = pa.concat_tables(tables, promote_options="none" if same else "permissive")
        return self.with_path(table, [(path, t.num_rows) for path, t in pieces])


def _widened(one: pa.Schema, other: pa.Schema) -> pa.Schema | None:
    """A schema that can hold the values of both unchanged; ``None`` when there is none."""
    if one.equals(other):
        return one
    try:
        wider = pa.unify_schemas([one, other], promote_options="permissive")
        pa.concat_tables([one.empty_table(), other.empty_table()], promote_options="permissive")
    except pa.ArrowException:
        return None
    keeps = all(_keeps_values(column.type, wider.field(column.name).type) for column in [*one, *other])
    return wider if keeps else None


def _keeps_values(kind: pa.DataType, wider: pa.DataType) -> bool:
    """Whether every value of one type is the same in the other."""
    types = pa.types
    if kind.equals(wider) or types.is_null(kind):
        return True
    if types.is_integer(kind) and types.is_integer(wider):
        same_sign = types.is_signed_integer(kind) == types.is_signed_integer(wider)
        return bool(kind.bit_width < wider.bit_width and (same_sign or types.is_signed_integer(wider)))
    if types.is_integer(kind) and types.is_floating(wider):
        return bool(2 * kind.bit_width <= wider.bit_width)  # at least half of a float's bits are digits
    if types.is_floating(kind) and types.is_floating(wider):
        return bool(kind.bit_width < wider.bit_width)
    if types.is_decimal(kind) and types.is_decimal(wider):
        return bool(kind.scale <= wider.scale and kind.precision - kind.scale <= wider.precision - wider.scale)
    if types.is_string(kind) or types.is_binary(kind):
        return bool(types.is_large_string(wider) if types.is_string(kind) else types.is_large_binary(wider))
    if types.is_list(kind) or types.is_large_list(kind):
        is_list = types.is_large_list(wider) or (types.is_list(kind) and types.is_list(wider))
        return is_list and _keeps_values(kind.value_type, wider.value_type)
    if types.is_struct(kind) and types.is_struct(wider):
        return all(_keeps_values(part.type, wider.field(part.name).type) for part in kind)
    return False


@dataclass
class Reader(CompositeStage[EmptyTask, DocumentBatch]):
    """Cut files into tasks and read them. The base of every reader; all readers take these arguments.

    Args:
        file_paths: A file, a directory (with all below it), a pattern such as ``"data/**/*.jsonl"``, or any fsspec
            address (``s3://``, ``gs://``, ``https://``, ...); or a list of those.
        files_per_partition: Whole files per task, instead of ``blocksize``.
        blocksize: Bytes of input per task, as a number or as ``"64MiB"``; 32 MiB by default.
        fields: Columns to read; all of them when not given.
        read_kwargs: Further arguments for the parser.
        file_extensions: Endings to look for in directories.
        storage_options: For the fsspec file system.
        on_error: ``"raise"`` stops at what cannot be read, ``"quarantine"`` sets it aside and goes on.
        include_path: Name of a column that gets the path of each row's file; none when not given.
        max_row_bytes: Largest line or row that is read, as a number or as ``"1GiB"``; a larger one counts as broken.
        _generate_ids: Whether to add a column ``_curator_dedup_id``. Call
            :func:`~tamis.stages.deduplication.id_generator.create_id_generator_actor` first.
        _assign_ids: The same for files that have ids already; others are an error.
    """

    file_paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
    files_per_partition: int | None = None
    blocksize: int | str | None = None
    fields: list[str] | None = None
    read_kwargs: dict[str, Any] | None = None
    file_extensions: list[str] | None = None
    storage_options: dict[str, Any] | None = field(default=None, repr=False)
    on_error: str = "raise"
    include_path: str | None = None
    max_row_bytes: int | str = MAX_ROW_BYTES
    _generate_ids: bool = False
    _assign_ids: bool = False

    extensions: ClassVar[tuple[str, ...]] = ()
    parser_arguments: ClassVar[tuple[str, ...]] = ()
    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        owner = type(self).__name__
        self.file_paths = path_list(owner, "file_paths", self.file_paths)
        check_choice(owner, "on_error", self.on_error, ON_ERROR)
        check_names(owner, "fields", self.fields)
        known = {*self.parser_arguments, *_ALWAYS_SO, "storage_options"}
        check_arguments(owner, "read_kwargs", self.read_kwargs, sorted(known))
        if self.fields and self.include_path in self.fields:
            raise PlanError(f"{owner}: include_path={self.include_path!r} is also in fields; choose another name")
        byte_size(self.max_row_bytes)
        self._partitioning()
        if self._generate_ids and self._assign_ids:
            raise PlanError(f"{owner}: _generate_ids and _assign_ids: set only one of them")

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return self._stages(self.reader_stage())

    def _stages(self, reading: ReaderStage) -> list[ProcessingStage[Any, Any]]:
        """Listing and reading, and what gives the rows ids where that is asked for."""
        named = reading.with_(name=self.name)
        if not (self._generate_ids or self._assign_ids):
            return [self._partitioning(), named]
        from tamis.stages.deduplication.document_ids import AssignIds, NumberFiles

        numbers = NumberFiles(register=self._generate_ids, name=f"{self.name} (files)")
        return [self._partitioning(), numbers, named, AssignIds(name=f"{self.name} (ids)")]

    def reader_stage(self) -> ReaderStage:
        """The stage that reads."""
        raise NotImplementedError

    def splittable(self) -> bool:
        """Whether a large file may be cut into ranges of bytes."""
        return True

    def peek(self, file: FileSlice) -> pa.Schema | None:
        """The columns of one file, from its first bytes; of type ``null`` where the type is not known."""
        raise NotImplementedError

    def columns(self) -> list[str] | None:
        """The columns that will be read, as far as the first file shows; ``None`` when they cannot be known."""
        schema = self.schema()
        return None if schema is None else list(schema.names)

    def schema(self) -> pa.Schema | None:
        """The columns that will be read, with their types: ``null`` where the type is not known.

        A field that the first file does not have is refused: a typo would otherwise be a column of nulls.
        """
        known = self.reader_stage().known_columns()
        path, found = self._first_file()
        if found is None:
            return None if known is None else pa.schema([(name, pa.null()) for name in known])
        for wanted in self.fields or ():
            if wanted not in found.names:
                raise ColumnError(
                    f"{self.name}(fields=...): the rows of {redacted(path)} have no {wanted!r}, only "
                    f"{', '.join(found.names)}.{did_you_mean(wanted, found.names)}"
                )
        types = {**dict(zip(found.names, found.types, strict=True)), self.include_path: pa.large_string()}
        names = known or [*found.names, *([self.include_path] if self.include_path else [])]
        return pa.schema([(name, types.get(name, pa.null())) for name in names])

    def _first_file(self) -> tuple[str, pa.Schema | None]:
        """The first file and its columns, where its first bytes show them."""
        try:
            file = next(self._partitioning().files())
            return file.path, self.peek(file)
        except Exception:  # noqa: BLE001 - only a look ahead: the run reports what is wrong with the file
            return "", None

    def _partitioning(self) -> FilePartitioningStage:
        return FilePartitioningStage(
            self.file_paths,
            self.files_per_partition,
            self.blocksize,
            list(self.file_extensions or self.extensions),
            self._options(),
            splittable=self.splittable(),
        )

    def _options(self) -> dict[str, Any]:
        return self.storage_options or (self.read_kwargs or {}).get("storage_options") or {}

    def _stage_settings(self) -> dict[str, Any]:
        """The arguments that every reading stage takes."""
        return {
            "fields": self.fields,
            "include_path": self.include_path,
            "on_error": self.on_error,
            "block_bytes": byte_size(self.blocksize) if self.blocksize is not None else DEFAULT_BLOCK_BYTES,
            "storage_options": self._options(),
            "max_row_bytes": byte_size(self.max_row_bytes),
        }

    def _parser_settings(self) -> dict[str, Any]:
        return {k: v for k, v in (self.read_kwargs or {}).items() if k in self.parser_arguments}
