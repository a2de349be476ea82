"""Formats a table can be written in: to a file, and joined with other files of the same format.

Equal rows give equal bytes: nothing written depends on the time, the machine or the order of execution.
"""

from __future__ import annotations

import inspect
import shutil
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa

from tamis.arrays import text_scalar
from tamis.errors import DataError, PlanError
from tamis.stages.io.arguments import check_arguments, check_choice
from tamis.stages.io.json_text import write_rows
from tamis.stages.io.one_schema import converted, with_empty_structs, without_empty_structs

__all__ = ["CsvEncoder", "Encoder", "JsonlEncoder", "ParquetEncoder", "TextEncoder"]

_TEXT_COMPRESSION = (None, "gz", "zst")
_LEVELS = {"gz": 4, "zst": 1}
"""Fast levels: at higher ones compression takes longer than all other stages (gzip 6: 20 MB/s per core)."""

_HIGHEST = {"gz": 9, "zst": 22}

_COPY_BYTES = 2**20

_BYTES = frozenset(kind.id for kind in (pa.binary(), pa.large_binary(), pa.binary(1), pa.binary_view()))


@dataclass(frozen=True)
class Encoder:
    """How tables become files: with a compression that the format allows, at a fast level when none is given."""

    compression: str | None = None
    level: int | None = None

    extension: ClassVar[str] = ""
    choices: ClassVar[Sequence[str | None]] = _TEXT_COMPRESSION

    def __post_init__(self) -> None:
        owner = type(self).__name__.replace("Encoder", "Writer")
        check_choice(owner, "compression", self.compression, self.choices)
        highest = _HIGHEST.get(self.compression or "")
        if self.level is not None and highest is not None and not 1 <= self.level <= highest:
            raise PlanError(
                f"{owner}(compression_level={self.level}): the levels of {self.compression} are 1 to {highest}"
            )

    def suffix(self) -> str:
        """The ending after the file extension: ``".gz"`` or nothing."""
        return f".{self.compression}" if self.compression else ""

    def write(self, table: pa.Table, sink: BinaryIO) -> int:
        """Write a table. Returns the length of the header in the file, 0 if the format has none."""
        raise NotImplementedError

    def schema(self, table: pa.Table) -> pa.Schema | None:
        """The schema of a table, where the files of an output must have one schema; else ``None``."""
        return None

    def join(self, pieces: Iterable[tuple[BinaryIO, int]], sink: BinaryIO, schema: pa.Schema | None = None) -> None:
        """Write one file out of several (each with the length of its header) in bounded memory."""
        for i, (piece, header) in enumerate(pieces):
            piece.seek(0 if i == 0 else header)
            shutil.copyfileobj(piece, sink, _COPY_BYTES)

    def shape(self, table: pa.Table) -> str:
        """A text that must be equal for files that are joined."""
        return ""

    def _compress(self, data: Any) -> Any:
        """One complete compressed stream; streams put one after the other are again a valid file."""
        if self.compression == "gz":
            # wbits 31 writes the gzip header itself, with a zero time and no name.
            stream = zlib.compressobj(self._level(), wbits=31)
            return stream.compress(data) + stream.flush()
        if self.compression == "zst":
            return pa.Codec("zstd", self._level()).compress(pa.py_buffer(data))
        return data

    def _level(self) -> int:
        return _LEVELS[self.compression or ""] if self.level is None else self.level


@dataclass(frozen=True)
class JsonlEncoder(Encoder):
    """One JSON object per line, in UTF-8.

    Floats that JSON has no word for (NaN, infinite) become null; dates and times become ISO 8601 text, decimals text.
    """

    extension: ClassVar[str] = "jsonl"

    def write(self, table: pa.Table, sink: BinaryIO) -> int:
        import io

        if not table.num_columns:
            sink.write(self._compress(b"{}\n" * table.num_rows))
            return 0
        _check_json(table)
        if self.compression is None:
            _write_json(table, sink)
        else:
            buffer = io.BytesIO()
            _write_json(table, buffer)
            sink.write(self._compress(buffer.getbuffer()))
        return 0


def _write_json(table: pa.Table, sink: BinaryIO) -> None:
    if not write_rows(table, sink, _polars_lines):
        sink.write(_polars_lines(table))


def _polars_lines(table: pa.Table) -> memoryview:
    import io

    import polars as pl

    buffer = io.BytesIO()
    try:
        _json_frame(table).write_ndjson(buffer)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as e:
        raise DataError(f"the batch cannot be written as JSON: {e}") from e
    return buffer.getbuffer()


def _check_json(table: pa.Table) -> None:
    """Refuse columns that JSON cannot hold."""
    names: set[str] = set()
    for column in table.schema:
        if column.name in names:
            raise DataError(f"there are two columns {column.name!r}; JSON objects name each key once")
        names.add(column.name)
        if _has_bytes(column.type):
            raise DataError(
                f"column {column.name!r} is {column.type}, and JSON cannot hold bytes",
                hint="Leave it out with fields=[...], or write Parquet.",
            )


def _json_frame(table: pa.Table) -> Any:
    """A Polars frame with the values JSON is to show."""
    import polars as pl

    for i, column in enumerate(table.schema):
        if pa.types.is_decimal(column.type):
            table = table.set_column(i, column.name, table.column(i).cast(pa.large_string()))
        elif pa.types.is_fixed_size_list(column.type) and table.column(i).null_count:
            # Polars cannot read a slice of such a column with nulls.
            table = table.set_column(i, column.name, table.column(i).cast(pa.large_list(column.type.value_type)))
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    frame.columns = table.column_names  # Polars has names of its own for a column without one
    plain_times = [n for n, t in frame.schema.items() if isinstance(t, pl.Datetime) and t.time_zone is None]
    return frame.with_columns(pl.col(plain_times).dt.to_string("iso:strict")) if plain_times else frame


def _has_bytes(kind: pa.DataType) -> bool:
    if kind.id in _BYTES:
        return True
    return pa.types.is_nested(kind) and any(_has_bytes(kind.field(i).type) for i in range(kind.num_fields))


@dataclass(frozen=True)
class ParquetEncoder(Encoder):
    """Parquet, one row group per table; ``write_kwargs`` are further arguments of ``pyarrow.parquet.ParquetWriter``."""

    compression: str | None = "zstd"
    write_kwargs: dict[str, Any] = field(default_factory=dict)

    extension: ClassVar[str] = "parquet"
    choices: ClassVar[Sequence[str | None]] = (None, "zstd", "snappy", "gzip", "lz4", "brotli")

    def __post_init__(self) -> None:
        import pyarrow.parquet as pq

        super().__post_init__()
        known = [p for p in inspect.signature(pq.ParquetWriter).parameters if p not in ("where", "schema", "options")]
        check_arguments("ParquetWriter", "write_kwargs", self.write_kwargs, [*known, "row_group_size"])

    def suffix(self) -> str:
        return ""

    def schema(self, table: pa.Table) -> pa.Schema | None:
        return table.schema.remove_metadata()

    def write(self, table: pa.Table, sink: BinaryIO) -> int:
        table = without_empty_structs(table)
        with self._writer(sink, table) as writer:
            writer.write_table(table, row_group_size=self.write_kwargs.get("row_group_size"))
        return 0

    def join(self, pieces: Iterable[tuple[BinaryIO, int]], sink: BinaryIO, schema: pa.Schema | None = None) -> None:
        import pyarrow.parquet as pq

        writer: Any = None
        try:
            for piece, _ in pieces:
                parquet = pq.ParquetFile(piece)
                for group in range(parquet.num_row_groups):
                    table = with_empty_structs(parquet.read_row_group(group))
                    table = without_empty_structs(table if schema is None else converted(table, schema))
                    writer = writer or self._writer(sink, table)
                    writer.write_table(table, row_group_size=table.num_rows)
        finally:
            if writer is not None:
                writer.close()

    def schema_of(self, file: BinaryIO) -> pa.Schema:
        """The schema of the tables that a file was written from."""
        import pyarrow.parquet as pq

        table = with_empty_structs(pq.read_schema(file).empty_table())
        return table.schema.remove_metadata()

    def _writer(self, sink: BinaryIO, table: pa.Table) -> Any:
        import pyarrow.parquet as pq

        settings = {
            "compression": self.compression or "none",
            "compression_level": self.level,
            "use_dictionary": _repetitive(table),
            **{k: v for k, v in self.write_kwargs.items() if k != "row_group_size"},
        }
        return pq.ParquetWriter(sink, table.schema, **settings)


def _repetitive(table: pa.Table) -> list[str]:
    """Columns that get a dictionary: long texts rarely occur twice, and trying one takes a fifth of the time."""
    chosen = []
    for column in table.schema:
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        long = table.num_rows and table.column(column.name).nbytes / table.num_rows > 64
        if not pa.types.is_nested(column.type) and not (is_text and long):
            chosen.append(column.name)
    return chosen


@dataclass(frozen=True)
class CsvEncoder(Encoder):
    """CSV with a header; text is quoted, null is empty."""

    delimiter: str = ","

    extension: ClassVar[str] = "csv"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.delimiter) != 1:
            raise PlanError(f"CsvWriter(delimiter={self.delimiter!r}): must be one character")

    def shape(self, table: pa.Table) -> str:
        return ",".join(table.column_names)

    def write(self, table: pa.Table, sink: BinaryIO) -> int:
        for column in table.schema:
            if pa.types.is_nested(column.type) or _has_bytes(column.type):
                raise DataError(
                    f"column {column.name!r} is {column.type}, which CSV cannot hold",
                    hint="Leave it out with fields=[...], or write JSON lines or Parquet.",
                )
        header = self._compress(self._rows(table.slice(0, 0), include_header=True))
        sink.write(header)
        sink.write(self._compress(self._rows(table, include_header=False)))
        return len(header)

    def _rows(self, table: pa.Table, include_header: bool) -> Any:
        import pyarrow.csv as pa_csv

        buffer = pa.BufferOutputStream()
        options = pa_csv.WriteOptions(include_header=include_header, delimiter=self.delimiter)
        pa_csv.write_csv(table, buffer, options)
        return buffer.getvalue()


@dataclass(frozen=True)
class TextEncoder(Encoder):
    """The text of each row, in the column ``text_field``, followed by a separator."""

    text_field: str = "text"
    separator: str = "\n"

    extension: ClassVar[str] = "txt"

    def write(self, table: pa.Table, sink: BinaryIO) -> int:
        import pyarrow.compute as pc

        column = table.column(self.text_field)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise DataError(f"column {self.text_field!r} is {column.type}, not text")
        texts = pc.fill_null(column.cast(pa.large_string()), text_scalar(""))
        ended = pc.binary_join_element_wise(texts, text_scalar(""), text_scalar(self.separator))
        # The values of an Arrow array of text are contiguous: its data buffer is the content of the file.
        data = b"".join(_values(chunk) for chunk in ended.chunks)
        sink.write(self._compress(data))
        return 0


def _values(array: pa.Array) -> memoryview:
    import numpy as np

    _, offsets, data = array.buffers()
    edges = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    return memoryview(data or b"")[int(edges[0]) : int(edges[-1])]
