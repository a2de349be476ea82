"""Bring the ids of documents together by a key, a bucket or a group, within a memory budget.

Keys and ids lie on disk by cell. A cell that does not fit into memory is split into parts, each of which has all ids of
some keys, and a part is read file by file if the ids of one key are too many. What is held is the first id of each
key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import DataError
from tamis.stages.deduplication.fuzzy.groups import spread
from tamis.stages.deduplication.splitting import part_count, split, temporary_folder
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Parts, Rows, merge_indexes, read_cells, read_indexes
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import join, open_read
from tamis.stages.spill import ScratchSource, spilled_files
from tamis.tasks import FileGroup, FileSlice

__all__ = ["KeyCells", "KeyedIds", "integer_ids", "parquet_pieces", "read_keyed", "write_keyed"]

Keys = NDArray[np.uint64]
Ids = NDArray[np.int64]

_WORKING: Final = 6
"""How many bytes sorting takes for each byte of keys and ids, the bytes themselves included."""

_ROWS_AT_ONCE: Final = 2**16


def parquet_pieces(path: str, columns: list[str], read_kwargs: dict[str, Any] | None) -> Iterator[pa.Table]:
    """The rows of a Parquet file that a step of the deduplication wrote, some at a time."""
    import pyarrow.parquet as pq

    with open_read(path, (read_kwargs or {}).get("storage_options")) as source:
        try:
            parquet = pq.ParquetFile(source)
            missing = [name for name in columns if name not in parquet.schema_arrow.names]
            if missing:
                names = ", ".join(parquet.schema_arrow.names)
                raise DataError(f"there is no column {missing[0]!r}, only {names}", path=path)
            for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=columns):
                yield pa.Table.from_batches([batch])
        except pa.ArrowInvalid as e:
            raise DataError(f"this is not a Parquet file, or it is cut off: {e}", path=path) from e


def integer_ids(column: pa.ChunkedArray | pa.Array, name: str, path: str = "") -> Ids:
    """Ids as numbers of 64 bits; an error if they are not whole numbers from 0 on."""
    if not pa.types.is_integer(column.type) or column.null_count:
        raise DataError(
            f"the column {name!r} must hold whole numbers, none of them null; it is {column.type}", path=path
        )
    ids: Ids = numpy_array(column.cast(pa.int64()))
    if len(ids) and int(ids.min()) < 0:
        raise DataError(f"the column {name!r} has negative ids", path=path)
    return ids


def write_keyed(final: str, keys: Keys, ids: Ids, cells: NDArray[np.int64]) -> Publish:
    """Write keys and ids by cell, ready to be published."""
    return write_by(final, Rows(pa.table({"key": arrow_array(keys), "id": arrow_array(ids)})), cells)


@dataclass
class KeyCells(ScratchSource[FileGroup]):
    """One task for each cell.

    Args:
        folder: The folder of the step.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
    """

    memory_bytes: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = spilled_files(join(directory, "keys"))
        indexes = read_indexes([(path, size) for path, size, _ in files])
        for number, parts in merge_indexes(indexes, join(directory, "keys.index")).items():
            path = f"cell-{number}"
            count = part_count(parts.nbytes, self.memory_bytes, _WORKING)
            config = {"parts": parts, "cell": number, "part_count": count}
            yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config=config)


@dataclass(frozen=True)
class KeyedIds:
    """Keys and ids, sorted by the key and then by the id, with what is known of each key.

    Args:
        keys, ids: One of each for a row.
        firsts: The smallest id of the row's key, in all pieces.
        counts: How many ids the row's key has, in all pieces.
    """

    keys: Keys
    ids: Ids
    firsts: Ids
    counts: Ids


def read_keyed(config: dict[str, Any], directory: str) -> Iterator[KeyedIds]:
    """The rows of one task of :class:`KeyCells`: all at once where they fit, else in parts that have all ids of a key.

    Args:
        config: The task's ``reader_config``.
        directory: The folder of the step in the scratch location.
    """
    parts: Parts = config["parts"]
    count: int = config["part_count"]
    at_once = 2 * parts.nbytes // count  # twice: parts are not all of the same size
    cells = parts.read()
    if count == 1:
        yield from _read(cells, at_once)
        return
    with temporary_folder(directory, "keys") as folder:
        for some in split(read_cells(cells), _further_bits, count, folder, parts.nbytes // count):
            yield from _read(some, at_once)


def _further_bits(table: pa.Table) -> Keys:
    return spread(numpy_array(table.column("key"))) >> np.uint64(32)


def _read(cells: pa.Table, at_once: int) -> Iterator[KeyedIds]:
    """The rows of some cells: all at once where they fit, else file by file."""
    limit, fits = at_once, True
    pieces: list[tuple[Keys, Ids]] = []
    known = _Known.of_nothing()
    held = 0
    for keys, ids in _pieces(cells):
        pieces.append((keys, ids))
        held += keys.nbytes + ids.nbytes
        if held > limit:
            known = known.extended(pieces)
            fits, pieces, held = False, [], 0
            limit = max(limit, known.nbytes)  # so that each row is sorted only a few times
    if fits:
        yield from _sorted_once(*_together(pieces))
        return
    known = known.extended(pieces)
    for keys, ids in _pieces(cells):
        order = np.lexsort((ids, keys))
        at = np.searchsorted(known.keys, keys[order])
        yield KeyedIds(keys[order], ids[order], known.firsts[at], known.counts[at])


def _sorted_once(keys: Keys, ids: Ids) -> Iterator[KeyedIds]:
    """All rows of a share, whose first ids and counts are seen from the order itself."""
    if not len(keys):
        return
    order = np.lexsort((ids, keys))
    keys, ids = keys[order], ids[order]
    starts = _starts(keys)
    counts = np.diff(np.append(starts, len(keys)))
    yield KeyedIds(keys, ids, np.repeat(ids[starts], counts), np.repeat(counts, counts))


def _starts(keys: Keys) -> NDArray[np.int64]:
    """Where the rows of each key begin, in sorted keys."""
    is_first = np.ones(len(keys), np.bool_)
    is_first[1:] = keys[1:] != keys[:-1]
    return np.flatnonzero(is_first)


@dataclass(frozen=True)
class _Known:
    keys: Keys
    firsts: Ids
    counts: Ids

    @classmethod
    def of_nothing(cls) -> _Known:
        return cls(np.zeros(0, np.uint64), np.zeros(0, np.int64), np.zeros(0, np.int64))

    @property
    def nbytes(self) -> int:
        return 24 * len(self.keys)

    def extended(self, pieces: list[tuple[Keys, Ids]]) -> _Known:
        """With the rows of some more pieces."""
        keys, ids = _together([(self.keys, self.firsts), *pieces])
        counts = np.concatenate([self.counts, np.ones(len(keys) - len(self.keys), np.int64)])
        order = np.lexsort((ids, keys))
        keys, ids, counts = keys[order], ids[order], counts[order]
        starts = _starts(keys)
        return _Known(keys[starts], ids[starts], np.add.reduceat(counts, starts) if len(starts) else counts)


def _pieces(cells: pa.Table) -> Iterator[tuple[Keys, Ids]]:
    for rows in read_cells(cells):
        yield numpy_array(rows.table.column("key")), numpy_array(rows.table.column("id"))


def _together(pieces: list[tuple[Keys, Ids]]) -> tuple[Keys, Ids]:
    keys, ids = zip(*pieces, strict=True) if pieces else ((), ())
    return np.concatenate([np.zeros(0, np.uint64), *keys]), np.concatenate([np.zeros(0, np.int64), *ids])
