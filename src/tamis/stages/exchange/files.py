"""The files of an exchange: rows in cells, with an index that says where each cell lies.

A file is an Arrow stream of a head (schema and dictionaries) and one cell after the other, then the index. A reader
that knows the index reads the head and the cells that it wants, and nothing else. The indexes of all files are merged
into one file, sorted by partition: a task that reads a partition reads its part of that file, and then one range of
each file that has rows for it.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import cloudpickle
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array, text_array
from tamis.errors import DataError
from tamis.stages.emit import Publish
from tamis.stages.scratch import make_visible, read_ranges, write_file
from tamis.tasks import RowNames, TableTask

__all__ = [
    "Cells",
    "Parts",
    "Rows",
    "file_codes",
    "merge_indexes",
    "put_together",
    "read_cells",
    "read_indexes",
    "write_cells",
]

_KIND, _HEAD, _COUNT = b"tamis.kind", b"tamis.head", b"tamis.count"
_MAGIC = b"TAMISCEL"
_TAIL = 2**16
"""Bytes at the end of a file that are read to find its index."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Rows on their way through an exchange: a table with the names of the rows in columns of its own.

    Args:
        table: The rows.
        kind: The class of the batches.
        dataset_name: Their label.
    """

    table: pa.Table
    kind: type[TableTask] = TableTask
    dataset_name: str = ""

    @classmethod
    def of(cls, batch: TableTask) -> Rows:
        """The rows of a batch."""
        table = batch.data if batch.names is None else batch.names.added_to(batch.data)
        return cls(table, type(batch), batch.dataset_name)

    @classmethod
    def concat(cls, pieces: Sequence[Rows]) -> Rows:
        """The rows of several pieces, one after the other."""
        return cls(put_together([p.table for p in pieces]), pieces[0].kind, pieces[0].dataset_name)

    @classmethod
    def lots(cls, pieces: Iterable[Rows], most_bytes: int) -> Iterator[Rows]:
        """Pieces put together as long as they take so much memory at most; larger ones stay alone.

        >>> pieces = [Rows(pa.table({"x": range(2)})) for _ in range(3)]
        >>> [rows.table.num_rows for rows in Rows.lots(pieces, 32)]
        [4, 2]
        """
        held: list[Rows] = []
        total = 0
        for piece in pieces:
            nbytes = piece.nbytes  # asked for once: there may be as many pieces as tasks
            if held and total + nbytes > most_bytes:
                yield cls.concat(held)
                held, total = [], 0
            held.append(piece)
            total += nbytes
        if held:
            yield cls.concat(held)

    def batch(self) -> TableTask:
        """The rows as a batch, with their names."""
        table, names = RowNames.taken_from(self.table)
        batch = self.kind(table, self.dataset_name)
        return batch if names is None else batch.named(names)

    def with_table(self, table: pa.Table) -> Rows:
        """Other rows of the same kind."""
        return Rows(table, self.kind, self.dataset_name)

    @property
    def nbytes(self) -> int:
        """Memory that the rows take, without dictionaries."""
        return int(_without_dictionaries(self.table).nbytes)


def put_together(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows of several batches as one table; an error if a column has types that do not go together."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as e:
        raise DataError(
            f"batches with different types cannot be put together: {e}",
            hint="Give the column one type, as with types={...} of a reader, or leave it out before.",
        ) from e


# -- one file --------------------------------------------------------------------------------------------------------


def write_cells(
    final: str,
    rows: Rows,
    cells: Ints,
    edges: Ints,
    keys: pa.Array | None = None,
    count: int = 0,
    compress: bool = True,
) -> Publish:
    """Write rows in cells to a file with an index, ready to be published.

    Args:
        final: The name of the file.
        rows: The rows, in the order of the cells.
        cells: The numbers of the cells, ascending.
        edges: The first row of each cell, and one past the last row of the last.
        keys: The smallest key of each cell, for cells that are ranges.
        count: A number to keep with the file, see :attr:`Cells.count`.
        compress: Whether to compress the rows. Hashes do not get smaller, only slower to write and to read.
    """
    table = rows.table.unify_dictionaries().combine_chunks()
    metadata = {**(table.schema.metadata or {}), _KIND: cloudpickle.dumps((rows.kind, rows.dataset_name))}
    schema = table.schema.with_metadata(metadata)
    measured = _without_dictionaries(table)
    spans = list(itertools.pairwise(edges.tolist()))
    sizes = [measured.slice(start, stop - start).nbytes for start, stop in spans]

    def fill(sink: pa.NativeFile) -> None:
        codec = "lz4" if compress and pa.Codec.is_available("lz4") else None
        options = pa.ipc.IpcWriteOptions(compression=codec)
        offsets = []
        with pa.ipc.new_stream(sink, schema, options=options) as writer:
            writer.write_batch(_first_batch(table, schema).slice(0, 0))
            for start, stop in spans:
                offsets.append(sink.tell())
                for batch in table.slice(start, stop - start).to_batches():
                    writer.write_batch(batch)
            offsets.append(sink.tell())
        _write_index(sink, offsets, count)

    def _write_index(sink: pa.NativeFile, offsets: list[int], count: int) -> None:
        places = np.array(offsets, np.int64)
        columns = {
            "cell": arrow_array(cells.astype(np.int64)),
            "offset": arrow_array(places[:-1].copy()),
            "length": arrow_array(np.diff(places)),
            "rows": arrow_array(np.diff(edges)),
            "nbytes": arrow_array(np.array(sizes, np.int64)),
            **({} if keys is None else {"key": keys}),
        }
        index = pa.table(columns).replace_schema_metadata({_HEAD: str(offsets[0]), _COUNT: str(count)})
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, index.schema) as writer:
            writer.write_table(index)
        content = buffer.getvalue()
        sink.write(content)
        sink.write(struct.pack("<Q", content.size) + _MAGIC)

    return write_file(final, table.num_rows, fill)


def _first_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    batches = table.to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_arrays([pa.array([], kind) for kind in schema.types], schema=schema)


def _without_dictionaries(table: pa.Table) -> pa.Table:
    """The table with the numbers in the place of dictionary values: what its rows take, for slices, too."""
    for number, kind in enumerate(table.schema.types):
        if pa.types.is_dictionary(kind):
            indices = pa.chunked_array([chunk.indices for chunk in table[number].chunks], kind.index_type)
            table = table.set_column(number, table.column_names[number], indices)
    return table


@dataclass(frozen=True)
class Cells:
    """The index of one file.

    Args:
        path: The file.
        head: The length of its head, in bytes.
        table: One row for each cell: ``cell``, ``offset``, ``length``, ``rows``, ``nbytes``, and perhaps ``key``.
        count: The number that was kept with the file.
    """

    path: str
    head: int
    table: pa.Table
    count: int = 0


def read_indexes(files: Sequence[tuple[str, int]]) -> list[Cells]:
    """The indexes of some files, given path and size of each."""
    tails = [(path, [(max(0, size - _TAIL), min(size, _TAIL))]) for path, size in files]
    return [_decode_index(path, size, tail[0]) for (path, size), tail in zip(files, read_ranges(tails), strict=True)]


def _decode_index(path: str, size: int, tail: pa.Buffer) -> Cells:
    if tail[tail.size - len(_MAGIC) :].to_pybytes() != _MAGIC:
        raise DataError("the file is not one of an exchange, or it is cut off", path=path)
    (length,) = struct.unpack("<Q", tail[tail.size - len(_MAGIC) - 8 : tail.size - len(_MAGIC)].to_pybytes())
    end = len(_MAGIC) + 8
    if length + end > tail.size:
        tail = next(read_ranges([(path, [(size - length - end, length + end)])]))[0]
    table = pa.ipc.open_stream(tail[tail.size - end - length : tail.size - end]).read_all()
    metadata = table.schema.metadata
    return Cells(path, int(metadata[_HEAD]), table.replace_schema_metadata(None), int(metadata[_COUNT]))


# -- all files of an exchange ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """Where the cells of one partition lie: a part of the merged index.

    Args:
        path: The file with the merged index.
        head: The length of its head, in bytes.
        offset, length: The part of this partition, in bytes.
        nbytes: Memory that the rows of the partition take.
        rows: How many rows there are.
    """

    path: str
    head: int
    offset: int
    length: int
    nbytes: int
    rows: int

    def read(self) -> pa.Table:
        """One row for each cell: ``path``, ``head``, ``offset``, ``length``, ``rows``, ``nbytes``, perhaps ``key``."""
        head, body = next(read_ranges([(self.path, [(0, self.head), (self.offset, self.length)])]))
        return _decode(head, body).table


def merge_indexes(
    files: Sequence[Cells], final: str, choose: Callable[[pa.Table], tuple[Ints, Ints]] | None = None
) -> dict[int, Parts]:
    """Merge the indexes of files into one file; return where each partition that has rows lies in it.

    Args:
        files: The indexes, in the order of the input.
        final: The file for the merged index.
        choose: Given the cells, says which of them (row numbers) belong to which partition. By default a cell is a
            partition.
    """
    cells = put_together([file.table for file in files]) if files else pa.table({"cell": pa.array([], pa.int64())})
    if not cells.num_rows:
        return {}
    counts = [file.table.num_rows for file in files]
    codes = np.repeat(np.arange(len(files), dtype=np.int32), counts)
    heads = np.repeat(np.array([file.head for file in files], np.int64), counts)
    paths = pa.DictionaryArray.from_arrays(arrow_array(codes), text_array([file.path for file in files]))
    cells = cells.append_column("path", paths).append_column("head", arrow_array(heads))
    if choose is None:
        chosen, partition = np.arange(cells.num_rows), numpy_array(cells.column("cell"))
    else:
        chosen, partition = choose(cells)
    order = np.argsort(partition, kind="stable")
    numbers, starts = np.unique(partition[order], return_index=True)
    edges = np.append(starts, len(order)).astype(np.int64)
    cells = cells.take(arrow_array(chosen[order].astype(np.int64)))
    finished = write_cells(final, Rows(cells), numbers.astype(np.int64), edges)
    make_visible(finished)
    (index,) = read_indexes([(finished.final, finished.nbytes)])
    nbytes = np.add.reduceat(numpy_array(cells.column("nbytes")), starts)
    rows = np.add.reduceat(numpy_array(cells.column("rows")), starts)
    offsets, lengths = (numpy_array(index.table.column(name)) for name in ("offset", "length"))
    return {
        int(number): Parts(finished.final, index.head, *map(int, place))
        for number, *place in zip(numbers, offsets, lengths, nbytes, rows, strict=True)
    }


def file_codes(cells: pa.Table) -> NDArray[np.int32]:
    """For each cell of a merged index the number of its file, counted in the order of the input."""
    paths = cells.column("path").combine_chunks()
    codes: NDArray[np.int32] = numpy_array((paths.chunk(0) if isinstance(paths, pa.ChunkedArray) else paths).indices)
    return codes


def read_cells(cells: pa.Table) -> Iterator[Rows]:
    """The rows of cells, one file after the other; neighbouring cells of a file are read at once.

    Args:
        cells: Rows of a merged index, in its order.
    """
    yield from (_decode(head, body) for head, body in read_ranges(_wanted(cells)))


def _wanted(cells: pa.Table) -> list[tuple[str, list[tuple[int, int]]]]:
    wanted: list[tuple[str, list[tuple[int, int]]]] = []
    paths = cells.column("path").to_pylist()
    heads, offsets, lengths = (cells.column(name).to_pylist() for name in ("head", "offset", "length"))
    for path, of_file in itertools.groupby(range(len(paths)), key=paths.__getitem__):
        places = list(of_file)
        first, last = places[0], places[-1]
        body = (offsets[first], offsets[last] + lengths[last] - offsets[first])
        wanted.append((path, [(0, heads[first]), body]))
    return wanted


def _decode(head: pa.Buffer, body: pa.Buffer) -> Rows:
    table = pa.ipc.open_stream(pa.py_buffer(b"".join((head, body)))).read_all()
    metadata = dict(table.schema.metadata)
    kind, name = _kind_of(metadata.pop(_KIND))
    return Rows(table.replace_schema_metadata(metadata or None), kind, name)


@functools.lru_cache(maxsize=64)
def _kind_of(pickled: bytes) -> tuple[type[TableTask], str]:
    """Class and label of the batches: the same in all cells of an exchange, as a rule."""
    kind: tuple[type[TableTask], str] = cloudpickle.loads(pickled)
    return kind
