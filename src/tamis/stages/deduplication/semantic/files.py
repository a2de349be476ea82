"""The files of semantic deduplication: vectors by the length that most of them have, and centres of clusters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import numpy_array
from tamis.errors import MissingExtraError
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.semantic.vectors import vector_column, vectors_of
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import (
    Cells,
    Parts,
    Rows,
    file_codes,
    merge_indexes,
    read_cells,
    read_indexes,
    write_cells,
)
from tamis.stages.io.paths import join
from tamis.stages.scratch import exists, read_file
from tamis.stages.spill import SUFFIX, ScratchSource, spilled_files
from tamis.tasks import FileGroup, FileSlice
from tamis.tasks.storage import format_order

__all__ = [
    "VectorFiles",
    "cells_file",
    "centroids_file",
    "device_of",
    "open_vectors",
    "pieces_of",
    "read_centroids",
    "share_of_memory",
    "write_centroids",
]

Vectors = NDArray[np.float32]
Ints = NDArray[np.int64]

_SMALLEST_GROUP: Final = 4 * 2**20
_LARGEST_GROUP: Final = 256 * 2**20


@dataclass(frozen=True)
class Vectorized:
    """The files of vectors, and which of them are compared.

    Args:
        files: The indexes of the files, in the order of the input.
        length: How many numbers a vector has: the length of the most vectors, of equally many the largest. 0 if there
            are no vectors.
        rows: How many vectors of this length there are.
        others: How many of other lengths.
    """

    files: list[Cells]
    length: int
    rows: int
    others: int


def open_vectors(directory: str) -> Vectorized:
    """The files of vectors in a folder."""
    files = read_indexes([(path, size) for path, size, _ in spilled_files(join(directory, "vectors"))])
    counts: dict[int, int] = {}
    for file in files:
        for length, rows in zip(*(numpy_array(file.table.column(c)).tolist() for c in ("cell", "rows")), strict=True):
            counts[length] = counts.get(length, 0) + rows
    if not counts:
        return Vectorized(files, 0, 0, 0)
    length = max(counts, key=lambda length: (counts[length], length))
    return Vectorized(files, length, counts[length], sum(counts.values()) - counts[length])


def share_of_memory(memory_bytes: int) -> int:
    """Memory for each of the tasks that may run at the same time on a machine."""
    return max(1, memory_bytes // (os.cpu_count() or 1))


@dataclass
class VectorFiles(ScratchSource[FileGroup]):
    """One task for each group of files with vectors.

    Args:
        folder: The folder of the deduplication.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
        round: Which centres the tasks are given.
    """

    memory_bytes: int
    round: int = 0

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        found = open_vectors(directory)
        if not found.rows:
            return
        config = {"length": found.length, "others": found.others, "centroids": centroids_file(directory, self.round)}
        cells = cells_file(directory)
        config["cells"] = cells if exists(cells) else None
        yield from self._groups(directory, found, config)

    def _groups(self, directory: str, found: Vectorized, config: dict[str, Any]) -> Iterator[FileGroup]:
        group_bytes = min(max(share_of_memory(self.memory_bytes) // 8, _SMALLEST_GROUP), _LARGEST_GROUP)

        def choose(cells: pa.Table) -> tuple[Ints, Ints]:
            chosen = np.flatnonzero(numpy_array(cells.column("cell")) == found.length)
            ends = np.cumsum(numpy_array(cells.column("nbytes"))[chosen])
            return chosen, (np.maximum(ends - 1, 0) // group_bytes).astype(np.int64)

        for number, parts in merge_indexes(
            found.files, join(directory, f"{type(self).__name__}.index"), choose
        ).items():
            path = f"vectors-{number}"
            own = {**config, "parts": parts}
            yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config=own)


def pieces_of(parts: Parts, length: int) -> Iterator[tuple[int, pa.Table, Vectors]]:
    """The rows of a group of files, file by file: the number of the file, the rows, and their vectors."""
    cells = parts.read()
    for file, rows in zip(file_codes(cells).tolist(), read_cells(cells), strict=True):
        yield file, rows.table, vectors_of(rows.table, length)


def centroids_file(directory: str, rounds: int) -> str:
    """The file with the centres after so many rounds over all vectors."""
    return join(directory, "centroids", format_order((rounds,)) + SUFFIX)


def cells_file(directory: str) -> str:
    """The file with the centres of the cells in which rows are compared, if these are not those of the clusters."""
    return join(directory, "cell-centroids", format_order((0,)) + SUFFIX)


def write_centroids(final: str, centroids: Vectors) -> Publish:
    """Write centres, ready to be published."""
    edges = np.array([0, len(centroids)], np.int64)
    table = pa.table({"vector": vector_column(centroids)})
    return write_cells(final, Rows(table), np.zeros(1, np.int64), edges, compress=False)


def read_centroids(path: str, length: int) -> Vectors:
    """The centres in a file."""
    return vectors_of(pa.ipc.open_stream(read_file(path)).read_all(), length)


def device_of(stage: ProcessingStage[Any, Any]) -> str:
    """Where a stage computes products: on its GPU, if it has one."""
    if not stage.resources.requires_gpu:
        return "cpu"
    try:
        import torch  # noqa: F401 - only to see whether it is there
    except ImportError as error:
        raise MissingExtraError(f"{stage.name} on a GPU", package="torch", extra="models") from error
    return "cuda"
