"""Find rows with equal hashes, in a memory budget.

The hashes of all rows are on disk by partition. A partition that is larger than the budget allows is read in shares,
each of which has all rows of some hashes. A share is read twice if it has more rows than fit: once to find the row of
each hash that stays, once to find the others. So a text that occurs a billion times takes no more memory than others.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
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
    """One task per partition of the hashes, or several where the hashes of one do not fit into memory.

    Args:
        folder: The folder of the deduplication.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
    """

    memory_bytes: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = spilled_files(join(directory, "hashes"))
        indexes = read_indexes([(path, size) for path, size, _ in files])
        at_once = max(1, self.memory_bytes // _WORKING // (os.cpu_count() or 1))
        for number, parts in merge_indexes(indexes, join(directory, "hashes.index")).items():
            shares = -(-parts.nbytes // at_once)
            for share in range(shares):
                path = f"partition-{number}" if shares == 1 else f"partition-{number}-{share}"
                config = {"parts": parts, "share": (share, shares), "at_once": at_once}
                yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes // shares),), reader_config=config)


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


def find_repeats(config: dict[str, Any]) -> Iterator[Repeats]:
    """The duplicates of one task of :class:`HashPartitions`: all at once where they fit, else file by file.

    Args:
        config: The task's ``reader_config``.
    """
    parts: Parts = config["parts"]
    share, shares = config["share"]
    cells = parts.read()
    held: list[pa.Table] = []
    held_bytes, limit, fits = 0, 2 * config["at_once"], True  # twice: shares are not all of the same size
    for piece in _pieces(cells, share, shares):
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
    for rows in [whole] if fits else _pieces(cells, share, shares):
        found = _repeated(rows, stays)
        if len(found.of):
            yield found


def _pieces(cells: pa.Table, share: int, shares: int) -> Iterator[pa.Table]:
    """The rows of a share, one file after the other."""
    codes = [int(code) for code, _ in itertools.groupby(file_codes(cells).tolist())]
    for code, rows in zip(codes, read_cells(cells), strict=True):
        table = rows.table
        if shares > 1:
            mine = numpy_array(table.column("high")) % np.uint64(shares) == np.uint64(share)
            table = table.filter(arrow_array(mine))
        if table.num_rows:
            yield table.append_column("file", arrow_array(np.full(table.num_rows, code, np.int32)))


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
