"""The rows of each cluster are compared, each cluster in memory that is bounded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.kernels.products import products_on
from tamis.stages.deduplication.fuzzy.groups import spread
from tamis.stages.deduplication.marks import by_name, name_texts
from tamis.stages.deduplication.semantic.cell import OPEN, Cell, SimilarRows, find_similar
from tamis.stages.deduplication.semantic.files import device_of, open_vectors, share_of_memory
from tamis.stages.deduplication.semantic.ranking import rank_keys
from tamis.stages.deduplication.semantic.vectors import vectors_of
from tamis.stages.deduplication.splitting import temporary_folder
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Parts, Rows, merge_indexes, put_together, read_cells, read_indexes
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import join
from tamis.stages.scratch import write_file
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, spilled_files
from tamis.tasks import FileGroup, FileSlice, RowNames
from tamis.tasks.storage import format_order

__all__ = ["CellFiles", "CompareCells", "LoadedCell", "load_cell", "similar_table", "write_similar"]

Vectors = NDArray[np.float32]
Places = NDArray[np.int64]

_COMPARING: Final = 4
"""Memory that comparing takes, as a multiple of that of the vectors."""


@dataclass
class CellFiles(ScratchSource[FileGroup]):
    """One task for each group of clusters.

    Args:
        folder: The folder of the deduplication.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
    """

    memory_bytes: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        most = max(share_of_memory(self.memory_bytes) // 16, 2**20)
        length = open_vectors(directory).length
        group: dict[int, Parts] = {}
        number = total = 0
        for cluster, parts in cell_parts(directory).items():
            nbytes = parts.nbytes
            if group and total + nbytes > most:
                yield _group(group, number, length)
                group, number, total = {}, number + 1, 0
            group[cluster] = parts
            total += nbytes
        if group:
            yield _group(group, number, length)


def cell_parts(directory: str, final: str = "cells.index") -> dict[int, Parts]:
    """Where the rows of each cluster lie."""
    files = spilled_files(join(directory, "cells"))
    return merge_indexes(read_indexes([(path, size) for path, size, _ in files]), join(directory, final))


def _group(clusters: dict[int, Parts], number: int, length: int) -> FileGroup:
    path, size = f"clusters-{number}", sum(parts.nbytes for parts in clusters.values())
    config = {"clusters": clusters, "length": length}
    return FileGroup([path], slices=(FileSlice(path, size=size),), reader_config=config)


@dataclass(frozen=True)
class LoadedCell:
    """The rows of a cluster, in the order of their ranks.

    Args:
        cell: Their vectors.
        documents: Their numbers.
        names: Their names as text.
    """

    cell: Cell
    documents: NDArray[np.uint64]
    names: pa.Array


@contextlib.contextmanager
def load_cell(parts: Parts, length: int, memory_bytes: int, directory: str) -> Iterator[LoadedCell]:
    """The rows of a cluster. Vectors that do not fit into memory are in a file while they are needed.

    Args:
        parts: Where the rows lie.
        length: Numbers in a vector.
        memory_bytes: Memory for them.
        directory: The folder of the deduplication.
    """
    with contextlib.ExitStack() as stack:
        shape = (parts.rows, length)
        held_bytes = memory_bytes // _COMPARING
        vectors: Vectors
        if 4 * parts.rows * length <= held_bytes:
            vectors = np.empty(shape, np.float32)
        else:
            folder = stack.enter_context(temporary_folder(directory, "cell"))
            vectors = np.memmap(os.path.join(folder, "vectors"), np.float32, "w+", shape=shape)
        known, done = [], 0
        for rows in read_cells(parts.read()):
            known.append(rows.table.drop_columns(["vector"]))
            vectors[done : done + rows.table.num_rows] = vectors_of(rows.table, length)
            done += rows.table.num_rows
        table = put_together(known).combine_chunks()
        documents = numpy_array(table.column("document"))
        order = np.lexsort((documents, *by_name(table), *rank_keys(table, table.column_names)))
        is_home, is_shared = (numpy_array(table.column(name))[order] for name in ("is_home", "is_shared"))
        names = RowNames.taken_from(table)[1]
        texts = pa.nulls(len(order), pa.string()) if names is None else name_texts(names.take(order))
        cell = Cell(lambda numbers: vectors[order[numbers]], is_home, is_shared, length, held_bytes)
        yield LoadedCell(cell, documents[order], texts)


@dataclass
class CompareCells(ScratchStage[FileGroup, FileGroup]):
    """Find the similar rows of some clusters.

    Args:
        folder: The folder of the deduplication.
        threshold: The least cosine of similar rows.
        compare_with: Whether only rows that stay remove others (``"kept"``), or all (``"all"``).
        partitions: How many parts the pairs are divided into.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
        pairs_path: Where to write all similar pairs as Parquet, if anywhere.
    """

    threshold: float
    compare_with: str
    partitions: int
    memory_bytes: int
    pairs_path: str = ""
    gpu_is_optional: ClassVar[bool] = True

    def process(self, task: FileGroup) -> Iterator[Publish]:
        products, length = products_on(device_of(self)), task.reader_config["length"]
        decided, undecided, cuts, pairs = [], [], [], []
        for cluster, parts in task.reader_config["clusters"].items():
            with load_cell(parts, length, share_of_memory(self.memory_bytes), self._directory) as loaded:
                found = find_similar(
                    loaded.cell,
                    self.threshold,
                    products,
                    all_remove=self.compare_with == "all",
                    record=bool(self.pairs_path),
                )
            decided.append(similar_table(loaded, found, found.is_decided))
            undecided.append(similar_table(loaded, found, ~found.is_decided))
            cut = loaded.documents[found.is_cut & (found.state == OPEN)]
            cuts.append((np.full(len(cut), cluster), cut))
            pairs += [_named(loaded, *some) for some in found.pairs]
        yield from write_similar(join(self._directory, "removed"), task.order, decided, self.partitions)
        yield from write_similar(join(self._directory, "open"), task.order, undecided, self.partitions)
        clusters, documents = (np.concatenate(some) for some in zip(*cuts, strict=True))
        if len(documents):
            final = join(self._directory, "cut", format_order(task.order) + SUFFIX)
            yield write_by(final, Rows(pa.table({"document": arrow_array(documents)})), clusters.astype(np.int64))
        if pairs:
            yield _pairs_file(join(self.pairs_path, f"pairs-{format_order(task.order)}.parquet"), pairs)


def similar_table(loaded: LoadedCell, found: SimilarRows, chosen: NDArray[np.bool_]) -> pa.Table:
    """Some of the pairs that were found, with the numbers of the documents and the name of the first."""
    later, earlier = found.later[chosen], found.earlier[chosen]
    columns = {
        "later": arrow_array(loaded.documents[later]),
        "earlier": arrow_array(loaded.documents[earlier]),
        "similarity": arrow_array(found.similarity[chosen]),
        "is_open": arrow_array(~found.is_decided[chosen]),
        "name": loaded.names.take(arrow_array(earlier)),
    }
    return pa.table(columns)


def write_similar(folder: str, order: tuple[int, ...], tables: list[pa.Table], partitions: int) -> Iterator[Publish]:
    """Write pairs by the document that is removed, if there are any."""
    table = put_together(tables)
    if table.num_rows:
        partition = (spread(numpy_array(table.column("later"))) % np.uint64(partitions)).astype(np.uint16)
        yield write_by(join(folder, format_order(order) + SUFFIX), Rows(table), partition)


def _named(loaded: LoadedCell, later: Places, earlier: Places, similarity: Vectors) -> pa.Table:
    left, right = (loaded.names.take(arrow_array(side)) for side in (earlier, later))
    return pa.table({"left": left, "right": right, "similarity": arrow_array(similarity)})


def _pairs_file(final: str, pairs: list[pa.Table]) -> Publish:
    import pyarrow.parquet as pq

    table = put_together(pairs)
    return write_file(final, table.num_rows, lambda sink: pq.write_table(table, sink, compression="zstd"))
