"""Find rows with equal hashes, in a memory budget.

The hashes of all rows are on disk by partition. A partition that is larger than the budget allows is split into parts,
each of which has all rows of some hashes. A part is read twice if it has more rows than fit: once to find the row of
each hash that stays, once to find the others. So a text that occurs a billion times takes no more memory than others.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import ColumnError
from tamis.kernels.hashing import hash_text_128, normalize_text
from tamis.stages.column_values import holds_text
from tamis.stages.deduplication.keep import Keep
from tamis.stages.deduplication.marks import by_name
from tamis.stages.deduplication.splitting import part_count, split, temporary_folder
from tamis.stages.exchange.files import Parts, Rows, file_codes, merge_indexes, put_together, read_cells, read_indexes
from tamis.stages.io.paths import join
from tamis.stages.spill import ScratchSource, spilled_files
from tamis.tasks import FileGroup, FileSlice, TableTask

__all__ = ["HashPartitions", "Repeats", "compared", "find_repeats", "hashes_of"]

_WORKING: Final = 4
"""How many bytes sorting takes for each byte of hashes and names, the bytes themselves included."""


def compared(column: pa.ChunkedArray, text_field: str, normalize: bool) -> pa.ChunkedArray:
    """What is compared of a column: its values, or its texts in another form.

    Args:
        column: The column: texts, bytes or numbers.
        text_field: Its name, for messages.
        normalize: Whether case and white space do not count; then it must hold texts.
    """
    if pa.types.is_null(column.type):
        return column.cast(pa.string())
    if pa.types.is_nested(column.type) or (normalize and not holds_text(column.type)):
        able = "normalize_text=True compares texts" if normalize else "compares texts, bytes or numbers"
        raise ColumnError(f"{able}, but the column {text_field!r} holds {column.type}")
    return normalize_text(column) if normalize else column


def hashes_of(
    task: TableTask, text_field: str, normalize: bool, keep: Keep, ids: str = ""
) -> tuple[Rows, NDArray[np.uint64]]:
    """The hash, the rank and the number of each row that has a text, with its name or id.

    Args:
        task: The batch.
        text_field: The column that is hashed.
        normalize: Whether case and white space do not count.
        keep: Which row of a group stays.
        ids: A column to take along instead of the names of the rows.

    Returns:
        The rows, and the lower half of their hashes.
    """
    column = compared(task[text_field], text_field, normalize)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        column = column.cast(pa.large_string(), safe=False)  # only hashed: the bytes of images and the like
    present = np.flatnonzero(numpy_array(pc.is_valid(column)))
    hashes = hash_text_128(column)[present]
    columns = {
        "low": arrow_array(hashes[:, 0].copy()),
        "high": arrow_array(hashes[:, 1].copy()),
        "row": arrow_array(present.astype(np.uint32)),
    }
    ranks = keep.ranks(task, text_field)
    if ranks is not None:
        columns["rank"] = arrow_array(ranks[present])
    keys = pa.table(columns)
    if ids:
        keys = keys.append_column("id", task[ids].take(arrow_array(present)))
    elif task.names is not None:
        keys = task.names.take(present).added_to(keys)
    return Rows(keys), hashes[:, 0]


@dataclass
class HashPartitions(ScratchSource[FileGroup]):
    """One task per partition of the hashes.

    Args:
        folder: The folder of the deduplication.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
    """

    memory_bytes: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = spilled_files(join(directory, "hashes"))
        indexes = read_indexes([(path, size) for path, size, _ in files])
        for number, parts in merge_indexes(indexes, join(directory, "hashes.index")).items():
            path = f"partition-{number}"
            config = {"parts": parts, "part_count": part_count(parts.nbytes, self.memory_bytes, _WORKING)}
            yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config=config)


@dataclass(frozen=True)
class Repeats:
    """Some rows that are duplicates, and the row that each of them is a duplicate of.

    Args:
        rows: The columns of :func:`hashes_of`, and ``file``, the number of the file that the row was hashed in.
        stays: The same of the rows that stay.
        of: For each of ``rows`` the number of the one in ``stays``.
    """

    rows: pa.Table
    stays: pa.Table
    of: NDArray[np.int64]


def find_repeats(config: dict[str, Any], directory: str) -> Iterator[Repeats]:
    """The duplicates of one task of :class:`HashPartitions`.

    Args:
        config: The task's ``reader_config``.
        directory: The folder of the deduplication in the scratch location.
    """
    parts: Parts = config["parts"]
    count: int = config["part_count"]
    at_once = 2 * parts.nbytes // count  # twice: parts are not all of the same size
    cells = parts.read()
    if count == 1:
        yield from _found(functools.partial(_pieces, cells), at_once)
        return
    with temporary_folder(directory, "hashes") as folder:
        pieces = (Rows(table) for table in _pieces(cells))
        for some in split(pieces, lambda table: _hashes(table)[1], count, folder, parts.nbytes // count):
            yield from _found(functools.partial(_tables, some), at_once)


def _found(pieces: Callable[[], Iterator[pa.Table]], at_once: int) -> Iterator[Repeats]:
    """The duplicates among some rows: all at once where they fit, else piece by piece."""
    held: list[pa.Table] = []
    held_bytes, limit, fits = 0, at_once, True
    for piece in pieces():
        held.append(piece)
        held_bytes += piece.nbytes
        if held_bytes > limit:
            best = _best(put_together(held))
            fits, held, held_bytes = False, [best], best.nbytes
            limit = max(limit, 2 * best.nbytes)  # so that each row is sorted only a few times
    if not held:
        return
    whole = put_together(held)
    stays = _best(whole)
    for rows in [whole] if fits else pieces():
        found = _repeated(rows, stays)
        if len(found.of):
            yield found


def _pieces(cells: pa.Table) -> Iterator[pa.Table]:
    """The rows of a partition, one file after the other, each with the number of its file."""
    codes = [int(code) for code, _ in itertools.groupby(file_codes(cells).tolist())]
    for code, table in zip(codes, _tables(cells), strict=True):
        yield table.append_column("file", arrow_array(np.full(table.num_rows, code, np.int32)))


def _tables(cells: pa.Table) -> Iterator[pa.Table]:
    return (rows.table for rows in read_cells(cells))


def _best(table: pa.Table) -> pa.Table:
    """Of each hash the row that stays, sorted by the hash. Ties go to the first by name or in the input."""
    low, high = _hashes(table)
    ranks = (numpy_array(table.column("rank")),) if "rank" in table.column_names else ()
    order = np.lexsort((*by_name(table), *ranks, high, low))
    low, high = low[order], high[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    return table.unify_dictionaries().take(arrow_array(order[is_first])).combine_chunks()


def _repeated(rows: pa.Table, stays: pa.Table) -> Repeats:
    """The rows that do not stay."""
    low, high = _hashes(rows)
    known_low, known_high = _hashes(stays)
    at = np.searchsorted(known_low, low)
    while len(wrong := np.flatnonzero(known_high[at] != high)):  # the lower halves of two hashes are equal
        at[wrong] += 1
    others = [numpy_array(rows.column(n)) != numpy_array(stays.column(n))[at] for n in ("file", "row")]
    places = np.flatnonzero(others[0] | others[1])
    return Repeats(rows.unify_dictionaries().take(arrow_array(places)), stays, at[places])


def _hashes(table: pa.Table) -> Sequence[NDArray[np.uint64]]:
    return [numpy_array(table.column(name)) for name in ("low", "high")]
