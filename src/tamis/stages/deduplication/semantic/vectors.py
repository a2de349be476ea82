"""Vectors in columns: found in a batch, checked, and written to files of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import ColumnError
from tamis.kernels.hashing import hash_text_64
from tamis.kernels.unit_vectors import unit_rows
from tamis.stages.column_values import read_column
from tamis.stages.deduplication.marks import name_texts
from tamis.stages.deduplication.semantic.ranking import Ranking
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Rows, write_cells
from tamis.stages.io.paths import join
from tamis.stages.spill import SUFFIX, ScratchStage, spill
from tamis.tasks import FileGroup, RowNames, TableTask
from tamis.tasks.storage import format_order

__all__ = ["CARRIED", "WriteVectors", "vector_column", "vectors_by_length", "vectors_of"]

Vectors = NDArray[np.float32]
Places = NDArray[np.int64]

CARRIED: Final = "column "
"""What the names of columns begin with that are only carried."""


def vectors_by_length(column: pa.ChunkedArray | pa.Array, name: str, stage: str) -> Iterator[tuple[Places, Vectors]]:
    """The vectors of a column, those of each length together: the numbers of their rows, and a matrix.

    Rows without a vector (null, or of no numbers) are in none. A null in a vector is NaN.

    Args:
        column: Lists of numbers, of a fixed size or not, or tensors of a fixed shape.
        name: The column's name, for messages.
        stage: The stage that reads it, for messages.

    >>> found = vectors_by_length(pa.array([[1.0, 2.0], None, [3.0, 4.0], [5.0]]), "embeddings", "example")
    >>> [(rows.tolist(), matrix.shape) for rows, matrix in found]
    [([3], (1, 1)), ([0, 2], (2, 2))]
    """
    column = pa.chunked_array([column]) if isinstance(column, pa.Array) else column
    if pa.types.is_null(column.type):
        return
    if not column.num_chunks:
        column = pa.chunked_array([pa.nulls(0, column.type)])
    arrays = [chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk for chunk in column.chunks]
    array = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    kind = array.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise ColumnError(f"{stage}: the column {name!r} holds {column.type}; vectors are lists of numbers")
    present = numpy_array(pc.is_valid(array))
    if pa.types.is_fixed_size_list(kind):
        lengths = np.full(len(array), kind.list_size)
        starts = (np.arange(len(array)) + array.offset) * kind.list_size
        values = array.values
    else:
        offsets = np.asarray(array.offsets)
        starts, lengths, values = offsets[:-1].astype(np.int64), np.diff(offsets), array.values
    numbers = _numbers(values)
    lengths = np.where(present, lengths, 0)
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        yield rows, _matrix(numbers, starts[rows], length)


def _numbers(values: pa.Array) -> Vectors:
    """Numbers in single precision; nulls are NaN."""
    if values.type != pa.float32():
        values = values.cast(pa.float32(), safe=False)
    if values.null_count:
        values = pc.fill_null(values, pa.array([np.nan], pa.float32())[0])
    found: Vectors = numpy_array(values)
    return found


def _matrix(numbers: Vectors, starts: Places, length: int) -> Vectors:
    if len(starts) and starts[-1] - starts[0] == (len(starts) - 1) * length:  # one after the other
        return numbers[starts[0] : starts[0] + len(starts) * length].reshape(-1, length)
    matrix = np.empty((len(starts), length), np.float32)
    step = max(1, 2**20 // length)
    for first in range(0, len(starts), step):
        some = starts[first : first + step]
        matrix[first : first + step] = numbers[some[:, None] + np.arange(length)]
    return matrix


def vector_column(matrix: Vectors) -> pa.Array:
    """A matrix as a column: each row as its bytes."""
    rows, length = matrix.shape
    offsets = np.arange(rows + 1, dtype=np.int64) * (4 * length)
    content = pa.py_buffer(np.ascontiguousarray(matrix).reshape(-1))
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(offsets), content])


def vectors_of(table: pa.Table, length: int) -> Vectors:
    """The reverse of :func:`vector_column`, for the column ``vector`` of a table.

    >>> vectors_of(pa.table({"vector": vector_column(np.ones((2, 3), np.float32))}), 3).shape
    (2, 3)
    """
    pieces = []
    for chunk in table.column("vector").chunks:
        if len(chunk):
            _, offsets, content = chunk.buffers()
            first = np.frombuffer(offsets, np.int64, 1, 8 * chunk.offset)[0]
            pieces.append(np.frombuffer(content, np.float32, len(chunk) * length, int(first)).reshape(-1, length))
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces) if pieces else np.zeros((0, length), np.float32)


@dataclass
class WriteVectors(ScratchStage[TableTask, FileGroup]):
    """Write the rows, and their vectors, scaled to the length one, by the count of their numbers.

    A row without a vector, or with one that has no direction (zeros, NaN, infinity), is not a duplicate of anything.

    Args:
        folder: The folder of the deduplication.
        embedding_field: The column with the vectors.
        ranking: The order of rows.
        id_field: A column that must be there.
        carried: Columns that are written with the vectors.
    """

    embedding_field: str
    ranking: Ranking
    id_field: str | None = None
    carried: tuple[str, ...] = ()

    def inputs(self) -> tuple[list[str], list[str]]:
        wanted = [
            self.embedding_field,
            *self.ranking.columns,
            *([self.id_field] if self.id_field else []),
            *self.carried,
        ]
        return ["data"], list(dict.fromkeys(wanted))

    def ordered_columns(self) -> list[str]:
        return self.ranking.columns

    def process(self, task: TableTask) -> Iterator[Publish]:
        yield spill(task, join(self._directory, "rows"))
        column = read_column(task.columns([self.embedding_field]), self.embedding_field, self.name)
        keys = row_keys(task)
        ranks = self.ranking.of_rows(task, keys)
        found, lengths, edges = [], [], [0]
        missing = task.num_items
        for rows, matrix in vectors_by_length(column, self.embedding_field, self.name):
            missing -= len(rows)
            unit, valid = unit_rows(matrix)
            if not valid.all():
                self.log_metric("vectors_without_direction", int((~valid).sum()))
                rows, unit = rows[valid], unit[valid]
            if len(rows):
                found.append(self._table(task, rows, unit, keys, ranks))
                lengths.append(matrix.shape[1])
                edges.append(edges[-1] + len(rows))
        if missing:
            self.log_metric("rows_without_vector", missing)
        table = pa.concat_tables(found) if found else pa.table({"vector": pa.array([], pa.large_binary())})
        final = join(self._directory, "vectors", format_order(task.order) + SUFFIX)
        yield write_cells(final, Rows(table), np.array(lengths, np.int64), np.array(edges, np.int64), compress=False)

    def _table(
        self,
        task: TableTask,
        rows: Places,
        unit: Vectors,
        keys: NDArray[np.uint64],
        ranks: dict[str, NDArray[np.uint64]],
    ) -> pa.Table:
        columns = {"vector": vector_column(unit), "row": arrow_array(rows.astype(np.uint32))}
        columns["key"] = arrow_array(keys[rows])
        columns |= {name: arrow_array(values[rows]) for name, values in ranks.items()}
        table = pa.table(columns)
        if self.carried:
            carried = task.columns(list(self.carried)).take(arrow_array(rows))
            for name in self.carried:
                table = table.append_column(f"{CARRIED}{name}", carried.column(name))
        return table if task.names is None else with_names(table, task.names.take(rows))


def with_names(table: pa.Table, names: RowNames) -> pa.Table:
    """A table with the names of its rows: sources as they are, since a dictionary is read again with each cell."""
    named = names.added_to(table)
    for number, kind in enumerate(named.schema.types):
        if pa.types.is_dictionary(kind):
            named = named.set_column(number, named.column_names[number], named.column(number).cast(kind.value_type))
    return named


def row_keys(task: TableTask) -> NDArray[np.uint64]:
    """A number for each row that follows from its name."""
    if task.names is None:
        return hash_text_64(arrow_array(np.arange(task.num_items)).cast(pa.string()))
    return hash_text_64(name_texts(task.names))
