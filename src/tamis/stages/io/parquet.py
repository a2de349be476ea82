"""Read Parquet: whole files, or the row groups that belong to a range of bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from tamis.errors import DataError, PlanError, did_you_mean, redacted
from tamis.sizes import size_text
from tamis.stages.base import ProcessingStage
from tamis.stages.emit import BadRows
from tamis.stages.io.blocks import QUARANTINE_HINT, too_long
from tamis.stages.io.bytes_read import count_bytes
from tamis.stages.io.one_schema import with_empty_structs
from tamis.stages.io.parquet_sizes import RowGroupSizes
from tamis.stages.io.paths import cannot_read, is_local, open_read
from tamis.stages.io.readers import Reader, TableReaderStage
from tamis.tasks import FileSlice, RowNames

__all__ = ["ParquetReader", "ParquetReaderStage"]

_PARSER_ARGUMENTS = (
    "arrow_extensions_enabled",
    "binary_type",
    "buffer_size",
    "coerce_int96_timestamp_unit",
    "decryption_properties",
    "list_type",
    "memory_map",
    "page_checksum_verification",
    "pre_buffer",
    "read_dictionary",
    "thrift_container_size_limit",
    "thrift_string_size_limit",
)


@dataclass
class ParquetReaderStage(TableReaderStage):
    """Read the Parquet files, or row groups, of a task.

    Args:
        read_kwargs: Further arguments of ``pyarrow.parquet.ParquetFile``.
        first_file: The first file of the input; the schemas of the others are compared with its schema.
        first_schema: Its schema; ``None`` when it could not be read.

    >>> import io, fsspec, pyarrow as pa, pyarrow.parquet as pq
    >>> from tamis.tasks import FileGroup
    >>> buffer = io.BytesIO()
    >>> pq.write_table(pa.table({"text": ["a", "b"], "n": [1, 2]}), buffer)
    >>> fsspec.filesystem("memory").pipe_file("/parquet/a.parquet", buffer.getvalue())
    >>> [batch] = ParquetReaderStage(fields=["text"]).process(FileGroup(["memory://parquet/a.parquet"]))
    >>> batch.data.to_pylist()
    [{'text': 'a'}, {'text': 'b'}]
    """

    read_kwargs: dict[str, Any] = field(default_factory=dict)
    first_file: str = ""
    first_schema: pa.Schema | None = None
    remarks: tuple[str, ...] = field(default=(), init=False, repr=False)

    def notes(self) -> list[str]:
        return list(self.remarks)

    def read_file(self, file: FileSlice) -> Iterator[pa.Table | BadRows]:
        with _opened(file, self.storage_options, self.read_kwargs) as (parquet, source):
            names = parquet.schema_arrow.names
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise DataError(f"there are two columns {twice!r}", path=file.path)
            for wanted in self.fields or ():
                if wanted not in names:
                    raise DataError(
                        f"there is no column {wanted!r}, only {', '.join(names)}.{did_you_mean(wanted, names)}",
                        path=file.path,
                    )
            self._hold_to_first(file.path, parquet.schema_arrow)
            sizes = RowGroupSizes(parquet, source, self.fields)
            owned = _owned(parquet.metadata, file)
            rows = sum(sizes.rows(group) for group in owned)
            for groups in self._portions(sizes, owned):
                for found in self._rows(parquet, sizes, groups, file.path):
                    count_bytes(0 if isinstance(found, BadRows) else file.nbytes * found.num_rows // max(rows, 1))
                    yield found

    def _hold_to_first(self, path: str, schema: pa.Schema) -> None:
        """Refuse a file whose schema does not fit that of the first: other columns, or types that cannot be unified."""
        first = self.first_schema
        if first is None or path == self.first_file:
            return
        shared = [name for name in self.fields or schema.names if name in first.names]
        if not shared:
            raise DataError(
                f"another schema: its columns are {', '.join(schema.names)}, those of {redacted(self.first_file)} are "
                f"{', '.join(first.names)}",
                path=path,
                hint='Read it separately, or on_error="quarantine" sets it aside and goes on.',
            )
        for name in shared:
            here, there = schema.field(name), first.field(name)
            try:
                pa.unify_schemas([pa.schema([there]), pa.schema([here])], promote_options="permissive")
            except pa.ArrowException:
                raise DataError(
                    f"another schema: column {name!r} is {here.type}, but {there.type} in {redacted(self.first_file)}",
                    path=path,
                    hint='Convert it, or on_error="quarantine" sets the file aside and goes on.',
                ) from None

    def _portions(self, sizes: RowGroupSizes, owned: list[int]) -> Iterator[list[int]]:
        """Row groups, put together up to the size of a block."""
        portion: list[int] = []
        held = 0
        for group in owned:
            size = sizes.bound(group, self.block_bytes)
            if portion and held + size > self.block_bytes:
                yield portion
                portion, held = [], 0
            portion.append(group)
            held += size
        if portion:
            yield portion

    def _rows(self, parquet: Any, sizes: RowGroupSizes, groups: list[int], path: str) -> Iterator[pa.Table | BadRows]:
        """The rows of a portion; of one that cannot be read, those of each row group that can."""
        rows = sum(sizes.rows(group) for group in groups)
        size = sum(sizes.bound(group, self.block_bytes) for group in groups)
        if len(groups) == 1 and rows and sizes.stored(groups[0]) > rows * self.max_row_bytes:
            yield self.set_aside(too_long(f"average row of row group {groups[0]}", self.max_row_bytes, path))
            return
        try:
            if size <= 2 * self.block_bytes:
                table = _sound(parquet.read_row_groups(groups, columns=self.fields))
                yield _names(parquet.metadata, groups, path).added_to(table)
                return
            at_once = max(1, rows * self.block_bytes // size)
            first = _first_row(parquet.metadata, groups[0])
            for batch in parquet.iter_batches(at_once, row_groups=groups, columns=self.fields):
                names = RowNames((redacted(path),), np.arange(first, first + batch.num_rows))
                first += batch.num_rows
                yield self._small_rows(names.added_to(_sound(pa.Table.from_batches([batch]))), groups[0], path)
            return
        except (pa.ArrowException, OSError) as e:
            if len(groups) == 1:
                problem = f"row group {groups[0]} of {rows} rows cannot be read: {e}"
                yield self.set_aside(DataError(problem, path=path, hint=QUARANTINE_HINT))
                return
        # Only a portion of one row group is read in several batches: nothing was handed out yet.
        for group in groups:
            yield from self._rows(parquet, sizes, [group], path)

    def _small_rows(self, table: pa.Table, group: int, path: str) -> pa.Table | BadRows:
        """The table, if none of its texts is too long."""
        import pyarrow.compute as pc

        for column in table.columns if table.nbytes > self.max_row_bytes else ():
            is_bytes = any(f(column.type) for f in _BYTES)
            if is_bytes and (pc.max(pc.binary_length(column)).as_py() or 0) > self.max_row_bytes:
                return self.set_aside(too_long(f"longest row of row group {group}", self.max_row_bytes, path))
        return table


_BYTES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)


def _names(metadata: Any, groups: list[int], path: str) -> RowNames:
    """The names of the rows of some row groups: their numbers in the file."""
    counts = [metadata.row_group(group).num_rows for group in range(max(groups) + 1)]
    firsts = np.concatenate([[0], np.cumsum(counts)])
    return RowNames((redacted(path),), np.concatenate([np.arange(firsts[g], firsts[g + 1]) for g in groups]))


def _first_row(metadata: Any, group: int) -> int:
    """The number of the first row of a row group in the file."""
    return sum(metadata.row_group(earlier).num_rows for earlier in range(group))


def _sound(table: pa.Table) -> pa.Table:
    """The table, if its texts are UTF-8: Arrow does not check the bytes that a file calls text."""
    table.validate(full=True)
    return with_empty_structs(table).replace_schema_metadata(None)


@contextlib.contextmanager
def _opened(
    file: FileSlice, storage_options: dict[str, Any], arguments: dict[str, Any]
) -> Iterator[tuple[Any, str | BinaryIO]]:
    """The Parquet file and what it was opened from; :class:`DataError` when it is not a Parquet file."""
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as stack:
        local = is_local(file.path)
        handle = stack.enter_context(open_read(file.path, storage_options))
        source = file.path if local else handle
        try:
            parquet = stack.enter_context(pq.ParquetFile(source, **arguments))
        except (pa.ArrowInvalid, OSError) as e:
            if not local and not isinstance(e, pa.ArrowInvalid):
                raise cannot_read(file.path, e) from e
            raise DataError(f"this is not a Parquet file, or it is cut off: {e}", path=file.path) from e
        yield parquet, source


def _owned(metadata: Any, file: FileSlice) -> list[int]:
    """The row groups whose middle is in the range: each belongs to exactly one range, however the file is cut."""
    groups = range(metadata.num_row_groups)
    if file.is_whole:
        return list(groups)
    stop = file.size if file.stop is None else file.stop
    owned = []
    for group in groups:
        columns = [metadata.row_group(group).column(c) for c in range(metadata.row_group(group).num_columns)]
        starts = [min(c.data_page_offset, c.dictionary_page_offset or c.data_page_offset) for c in columns]
        middle = min(starts, default=0) + sum(c.total_compressed_size for c in columns) // 2
        if file.start <= min(max(middle, 0), file.size - 1) < stop:
            owned.append(group)
    return owned


@dataclass
class ParquetReader(Reader):
    """Read Parquet files. Large ones are read in ranges by several workers, small ones are read into one batch.

    The other arguments are those of every :class:`~tamis.stages.io.readers.Reader`.

    Args:
        blocksize: Bytes of input per task, as a number or as ``"64MiB"``; 32 MiB by default. A row group is never
            cut, so row groups larger than this make larger tasks.
        fields: Columns to read; all of them when not given. Only these are read from the disk.
        read_kwargs: Further arguments of ``pyarrow.parquet.ParquetFile``.
        file_extensions: Endings to look for in directories; ``.parquet`` and ``.pq`` by default.
        on_error: ``"raise"`` stops at a file or row group that cannot be read, ``"quarantine"`` sets it aside and goes
            on.

    >>> ParquetReader("data", fields=["text"]).columns()
    ['text']
    """

    extensions: ClassVar[tuple[str, ...]] = (".parquet", ".pq")
    parser_arguments: ClassVar[tuple[str, ...]] = _PARSER_ARGUMENTS

    def reader_stage(self) -> ParquetReaderStage:
        return ParquetReaderStage(**self._stage_settings(), read_kwargs=self._parser_settings())

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        stage = self.reader_stage()
        with contextlib.suppress(DataError, PlanError, OSError, StopIteration):  # the run reports it
            file = next(self._partitioning().files())
            with _opened(file, self._options(), self._parser_settings()) as (parquet, _):
                stage.first_file, stage.first_schema = file.path, parquet.schema_arrow
                stage.remarks = tuple(_remarks(file, parquet.metadata, stage.block_bytes))
        return self._stages(stage)

    def peek(self, file: FileSlice) -> pa.Schema | None:
        with _opened(file, self._options(), self._parser_settings()) as (parquet, _):
            return parquet.schema_arrow


def _remarks(file: FileSlice, metadata: Any, block_bytes: int) -> Iterator[str]:
    """A remark on a file whose row groups are so large that few workers can read it."""
    groups = metadata.num_row_groups
    if groups and file.size > _LARGE_BLOCKS * block_bytes * groups:
        count = "1 row group" if groups == 1 else f"{groups} row groups"
        yield (
            f"{redacted(file.path)} is {size_text(file.size)} large and has only {count}. A row group is read by one "
            f"worker, so at most {groups} of them read this file at a time. Row groups of about 128 MiB "
            "(pyarrow.parquet.write_table(..., row_group_size=rows)) keep all workers busy"
        )


_LARGE_BLOCKS = 4
"""How many blocks large a row group must be for a remark."""
