"""Read Arrow files: streams, as data sets of Hugging Face are saved, and files with an index (Feather)."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from tamis.errors import DataError, did_you_mean, redacted
from tamis.stages.emit import BadRows
from tamis.stages.io.blocks import QUARANTINE_HINT
from tamis.stages.io.bytes_read import count_bytes
from tamis.stages.io.paths import cannot_read, is_local, open_read, reading
from tamis.stages.io.readers import Reader, TableReaderStage
from tamis.tasks import FileSlice, RowNames

__all__ = ["ArrowReader", "ArrowReaderStage", "opened_arrow"]

_MAGIC = b"ARROW1"
_BROKEN = (pa.ArrowException, OSError)


@contextlib.contextmanager
def opened_arrow(path: str, storage_options: dict[str, Any]) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """The schema of an Arrow file and its batches, which are read one by one.

    >>> import fsspec
    >>> sink = pa.BufferOutputStream()
    >>> with pa.ipc.new_stream(sink, pa.schema({"n": pa.int64()})) as writer:
    ...     writer.write_batch(pa.record_batch({"n": [1, 2]}))
    >>> fsspec.filesystem("memory").pipe_file("/arrow/n.arrow", sink.getvalue().to_pybytes())
    >>> with opened_arrow("memory://arrow/n.arrow", {}) as (schema, batches):
    ...     schema.names, [batch.num_rows for batch in batches]
    (['n'], [2])
    """
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(open_read(path, storage_options))
        try:
            with reading(path):
                has_index = handle.read(len(_MAGIC)) == _MAGIC
                handle.seek(0)
            source = stack.enter_context(pa.OSFile(path) if is_local(path) else pa.PythonFile(handle, "r"))
            opened = stack.enter_context((pa.ipc.open_file if has_index else pa.ipc.open_stream)(source))
        except _BROKEN as e:
            if not is_local(path) and not isinstance(e, pa.ArrowInvalid):
                raise cannot_read(path, e) from e
            raise DataError(f"this is not an Arrow file, or it is cut off: {e}", path=path) from e
        if has_index:
            yield opened.schema, map(opened.get_batch, range(opened.num_record_batches))
        else:
            yield opened.schema, iter(opened)


@dataclass
class ArrowReaderStage(TableReaderStage):
    """Read the Arrow files of a task."""

    def read_file(self, file: FileSlice) -> Iterator[pa.Table | BadRows]:
        with opened_arrow(file.path, self.storage_options) as (schema, batches):
            names = schema.names
            for wanted in self.fields or ():
                if wanted not in names:
                    raise DataError(
                        f"there is no column {wanted!r}, only {', '.join(names)}.{did_you_mean(wanted, names)}",
                        path=file.path,
                    )
            row, passed = 0, 0
            for number in itertools.count():
                try:
                    batch = next(batches, None)
                    if batch is None:
                        count_bytes(file.nbytes - passed)
                        return
                    table = self._plain(pa.Table.from_batches([batch]))
                except _BROKEN as e:
                    problem = f"rows from {row} on (batch {number}) cannot be read: {e}"
                    yield self.set_aside(DataError(problem, path=file.path, hint=QUARANTINE_HINT))
                    return
                read = min(batch.nbytes, file.nbytes - passed)
                count_bytes(read)
                passed += read
                for first, piece in self._pieces(table):
                    yield RowNames((redacted(file.path),), row + first + np.arange(piece.num_rows)).added_to(piece)
                row += table.num_rows

    def _plain(self, table: pa.Table) -> pa.Table:
        """The columns that are read, in the types that other readers give them, checked."""
        table = (table if self.fields is None else table.select(self.fields)).replace_schema_metadata(None)
        table.validate(full=True)
        for place, column in enumerate(table.columns):
            kind = plain_type(column.type)
            if not kind.equals(column.type):
                table = table.set_column(place, table.column_names[place], column.cast(kind))
        return table

    def _pieces(self, table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Parts of about a block, each with the number of its first row."""
        rows = max(1, table.num_rows * self.block_bytes // max(table.nbytes, 1))
        for first in range(0, table.num_rows, rows):
            yield first, table.slice(first, rows)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of a column as other readers give it: no dictionaries, no views, no types of extensions.

    >>> plain_type(pa.dictionary(pa.int8(), pa.string())), plain_type(pa.string_view()), plain_type(pa.int8())
    (DataType(string), DataType(string), DataType(int8))
    """
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if kind in (pa.string_view(), pa.binary_view()):
        return pa.string() if kind == pa.string_view() else pa.binary()
    return kind


@dataclass
class ArrowReader(Reader):
    """Read Arrow files, as ``save_to_disk`` of the package ``datasets`` and ``pyarrow.feather`` write them.

    A file is read from start to end by one worker, in batches of about a block. Columns of dictionaries become columns
    of their values.

    The other arguments are those of every :class:`~tamis.stages.io.readers.Reader`.

    Args:
        file_extensions: Endings to look for in directories; ``.arrow`` and ``.feather`` by default.

    >>> ArrowReader("data", fields=["text"]).columns()
    ['text']
    """

    extensions: ClassVar[tuple[str, ...]] = (".arrow", ".feather")

    def splittable(self) -> bool:
        return False

    def reader_stage(self) -> ArrowReaderStage:
        return ArrowReaderStage(**self._stage_settings())

    def peek(self, file: FileSlice) -> pa.Schema | None:
        with opened_arrow(file.path, self._options()) as (schema, _):
            return pa.schema([(column.name, plain_type(column.type)) for column in schema])
