"""Rows of an output file of JSON lines or Parquet, some of which are left out and to which others are added."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.stages.io.byte_streams import byte_stream
from tamis.stages.io.encoders import JsonlEncoder
from tamis.stages.io.json_lines import parse_json_lines
from tamis.stages.io.writers import WriterStage, chosen_columns
from tamis.tasks import DocumentBatch, FileSlice

__all__ = ["WrittenRows"]


class WrittenRows:
    """Rows of an output file: lines as they are, or a table."""

    def __init__(self, sink: WriterStage, lines: Sequence[bytes] = (), table: pa.Table | None = None) -> None:
        self._sink, self._lines, self._table = sink, list(lines), table

    @classmethod
    def read(cls, path: str, sink: WriterStage) -> WrittenRows:
        """The rows of a file."""
        if isinstance(sink.encoder, JsonlEncoder):
            data = b"".join(byte_stream(FileSlice(path), sink.destination.storage_options))
            return cls(sink, _lines(data))
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            return cls(sink, table=file.read())

    def __len__(self) -> int:
        return len(self._lines) if self._table is None else int(self._table.num_rows)

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some columns, as far as they are there."""
        if self._table is not None:
            return self._table.select([name for name in names if name in self._table.column_names])
        table = parse_json_lines(b"".join(self._lines)).table
        return table.select([name for name in names if name in table.column_names])

    def text(self, row: int) -> str:
        """The row, for a person."""
        if self._table is None:
            return self._lines[row].decode("utf-8", "replace").strip()
        return str(self._table.slice(row, 1).to_pylist()[0])

    def merged(
        self, kept: NDArray[np.bool_], places: NDArray[np.int64], new: DocumentBatch | None, at: NDArray[np.int64]
    ) -> WrittenRows:
        """The rows that are kept, and new ones, in the order of their places."""
        chosen = np.flatnonzero(kept)
        order = np.argsort(np.concatenate([places[chosen], at]), kind="stable")
        added = None if new is None else chosen_columns(new, self._sink.fields, None)
        if isinstance(self._sink.encoder, JsonlEncoder):
            lines = [self._lines[row] for row in chosen.tolist()]
            if added is not None:
                buffer = io.BytesIO()
                JsonlEncoder().write(added, buffer)
                lines += _lines(buffer.getvalue())
            return WrittenRows(self._sink, [lines[place] for place in order.tolist()])
        tables = [] if self._table is None else [self._table.take(pa.array(chosen))]
        tables += [] if added is None else [added]
        whole = pa.concat_tables(tables, promote_options="permissive")
        if self._table is not None:
            whole = whole.cast(pa.schema(list(self._table.schema), self._table.schema.metadata))
        return WrittenRows(self._sink, table=whole.take(pa.array(order)).combine_chunks())

    def schema(self) -> pa.Schema | None:
        """The schema of the rows, where all files must have the same."""
        return None if self._table is None else self._sink.encoder.schema(self._table)

    def write(self, sink: BinaryIO) -> None:
        """Write the rows."""
        if self._table is not None:
            self._sink.encoder.write(self._table, sink)
        else:
            sink.write(self._sink.encoder._compress(b"".join(self._lines)))


def _lines(data: bytes) -> list[bytes]:
    return [line + b"\n" for line in data.split(b"\n")[:-1]]
