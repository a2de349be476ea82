"""Partitions that do not fit into memory: they are written in parts to this machine's disk, and read part by part.

Each row is read twice and written once, however many parts there are, so the time grows with the size of the data and
not with its square.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.stages.deduplication.memory import memory_of_task
from tamis.stages.exchange.files import Rows, merge_indexes, read_indexes
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import is_local
from tamis.stages.scratch import make_visible

__all__ = ["part_count", "slices_of", "split", "temporary_folder"]


def part_count(nbytes: int, memory_bytes: int, multiple: int) -> int:
    """In how many parts a partition is worked on.

    Args:
        nbytes: Memory that its rows take.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
        multiple: Memory that it takes to work on rows, as a multiple of their own.

    >>> part_count(1000, memory_bytes=2**40, multiple=6)
    1
    """
    at_once = max(1, memory_of_task(memory_bytes) // multiple)
    return max(1, -(-nbytes // at_once))


def temporary_folder(directory: str, name: str) -> tempfile.TemporaryDirectory[str]:
    """A folder on a disk of this machine, for as long as a task runs: in the scratch location if that is local."""
    local = directory if is_local(directory) else tempfile.gettempdir()
    os.makedirs(local, exist_ok=True)
    return tempfile.TemporaryDirectory(dir=local, prefix=f".{name}-")


def slices_of(pieces: Iterable[Rows], nbytes: int) -> Iterator[Rows]:
    """Rows in slices of about so many bytes at most.

    >>> import pyarrow as pa
    >>> [rows.table.num_rows for rows in slices_of([Rows(pa.table({"x": range(5)}))], 16)]
    [2, 2, 1]
    """
    for rows in pieces:
        step = max(1, rows.table.num_rows * nbytes // max(rows.nbytes, 1))
        for start in range(0, rows.table.num_rows, step):
            yield rows.with_table(rows.table.slice(start, step))


def split(
    pieces: Iterable[Rows], numbers: Callable[[pa.Table], NDArray[np.uint64]], count: int, folder: str, held_bytes: int
) -> Iterator[pa.Table]:
    """Write rows to files by part; then for each part that has rows its cells, as ``read_cells`` takes them.

    The rows of a part stay in their order.

    Args:
        pieces: The rows.
        numbers: A number for each row; rows with equal numbers come to the same part.
        count: How many parts there are.
        folder: Where the files are written.
        held_bytes: Memory for rows that wait to be written.
    """
    files: list[tuple[str, int]] = []
    held: list[Rows] = []

    def write() -> None:
        rows = Rows.concat(held)
        part = (numbers(rows.table) % np.uint64(count)).astype(np.int64)
        finished = write_by(os.path.join(folder, f"{len(files):06d}"), rows, part, compress=False)
        make_visible(finished)
        files.append((finished.final, finished.nbytes))
        held.clear()

    size = 0
    for piece in pieces:
        held.append(piece)
        size += piece.nbytes
        if size > held_bytes:
            write()
            size = 0
    if held:
        write()
    for parts in merge_indexes(read_indexes(files), os.path.join(folder, "index")).values():
        yield parts.read()
