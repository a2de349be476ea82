"""What the files of an output hold, for its data card: columns with types, and counts of languages and licences.

Reading is bounded. Of Parquet files only these columns are read. Of other formats, the beginnings of some files that
are spread over the output are read; the card says how many rows were counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from tamis.stages.emit import BadRows
from tamis.stages.io.encoders import CsvEncoder, JsonlEncoder, ParquetEncoder
from tamis.stages.io.one_schema import SchemaLog
from tamis.stages.io.paths import join, open_read
from tamis.stages.io.sink import FileSink
from tamis.tasks import FileSlice

__all__ = ["LANGUAGE_COLUMNS", "LICENCE_COLUMNS", "ColumnCounts", "Contents", "contents_of"]

LANGUAGE_COLUMNS: Final = ("language", "lang")
LICENCE_COLUMNS: Final = ("license", "licence")

MAX_FILES: Final = 64
"""Files that are opened, spread over the output."""

MAX_BLOCK_BYTES: Final = 1 << 20
"""Bytes that are read of each file that is not Parquet."""

MAX_ROWS: Final = 5_000_000
"""Rows of Parquet files that are counted."""

MAX_VALUES: Final = 1000
"""Different values that are counted; all others count as one."""

OTHER: Final = "(other values)"


@dataclass
class ColumnCounts:
    """How often each value of a column occurs.

    Args:
        column: The column.
        rows: Rows that were counted.
        values: The number of rows with each value; rows without a value are not in it.
    """

    column: str
    rows: int = 0
    values: Counter[str] = field(default_factory=Counter)

    def add(self, column: pa.ChunkedArray) -> None:
        """Count some rows. Values that are not text are counted as their text; lists by their elements."""
        import pyarrow.compute as pc

        self.rows += len(column)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
            column = pc.list_flatten(column)
        if pa.types.is_nested(column.type):
            return
        for entry in pc.value_counts(column.combine_chunks()):
            value = entry["values"].as_py()
            if value is None:
                continue
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            room = len(self.values) < MAX_VALUES
            self.values[text if room or text in self.values else OTHER] += entry["counts"].as_py()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; the most frequent first."""
        ordered = sorted(self.values.items(), key=lambda item: (-item[1], item[0]))
        return {"column": self.column, "rows_counted": self.rows, "rows_by_value": dict(ordered)}


@dataclass
class Contents:
    """What is known about the files of an output.

    Args:
        schema: The columns and their types, where they are certain.
        languages, licences: Counts, where there is a column for them.
    """

    schema: pa.Schema | None = None
    languages: ColumnCounts | None = None
    licences: ColumnCounts | None = None


def contents_of(sink: FileSink[Any], names: Sequence[str]) -> Contents:
    """Look into the files of one writer.

    Args:
        sink: The writer.
        names: Its files, below its directory.
    """
    found, log = Contents(), SchemaLog()
    certain = isinstance(sink.encoder, ParquetEncoder) and bool(names)  # their files have one schema
    step = max(1, -(-len(names) // MAX_FILES))
    for name in names[::step]:
        path = join(sink.destination.path, *name.split("/"))
        for table in _tables(sink, path):
            log.add(table.schema, path)
            _count(table, found)
        if any(counts is not None and counts.rows >= MAX_ROWS for counts in (found.languages, found.licences)):
            break
    found.schema = log.unified() if certain else None
    return found


def _count(table: pa.Table, found: Contents) -> None:
    there: Mapping[str, str] = {name.lower(): name for name in reversed(table.column_names)}
    for wanted, attribute in ((LANGUAGE_COLUMNS, "languages"), (LICENCE_COLUMNS, "licences")):
        name = next((there[w] for w in wanted if w in there), None)
        if name is None:
            continue
        counts = getattr(found, attribute) or ColumnCounts(name)
        setattr(found, attribute, counts)
        counts.add(table.column(name))


def _tables(sink: FileSink[Any], path: str) -> Iterator[pa.Table]:
    """Some rows of a file. Of a Parquet file: all rows, but only the columns that are counted have values."""
    options = sink.destination.storage_options
    if isinstance(sink.encoder, ParquetEncoder):
        yield from _parquet(path, options)
        return
    stage: Any
    if isinstance(sink.encoder, JsonlEncoder):
        from tamis.stages.io import JsonlReader

        stage = JsonlReader(path, blocksize=MAX_BLOCK_BYTES, storage_options=options).reader_stage()
    elif isinstance(sink.encoder, CsvEncoder):
        from tamis.stages.io import CsvReader

        settings = {"delimiter": sink.encoder.delimiter}
        stage = CsvReader(path, blocksize=MAX_BLOCK_BYTES, storage_options=options, read_kwargs=settings).reader_stage()
    else:
        return
    for piece in stage.tables((FileSlice(path),)):
        if not isinstance(piece, BadRows):
            yield piece[0] if isinstance(piece, tuple) else piece
            return


def _parquet(path: str, options: dict[str, Any]) -> Iterator[pa.Table]:
    import pyarrow.parquet as pq

    with open_read(path, options) as file:
        parquet = pq.ParquetFile(file)
        schema = parquet.schema_arrow.remove_metadata()
        yield pa.Table.from_batches([], schema)
        wanted = [n for n in schema.names if n.lower() in (*LANGUAGE_COLUMNS, *LICENCE_COLUMNS)]
        if wanted:
            for batch in parquet.iter_batches(1 << 18, columns=wanted):
                yield pa.Table.from_batches([batch])
