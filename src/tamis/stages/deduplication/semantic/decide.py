"""What no cell could decide alone: rows near to borders. Then the rows that are removed, by file."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array, one_array
from tamis.kernels.hashing import hash_text_64
from tamis.kernels.products import products_on
from tamis.stages.deduplication.fuzzy.groups import spread
from tamis.stages.deduplication.marks import write_marks
from tamis.stages.deduplication.semantic.cell import KEPT, OPEN, REMOVED, find_similar
from tamis.stages.deduplication.semantic.compare import LoadedCell, cell_parts, load_cell, similar_table, write_similar
from tamis.stages.deduplication.semantic.files import open_vectors
from tamis.stages.deduplication.splitting import part_count, split, temporary_folder
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Parts, Rows, merge_indexes, read_cells, read_indexes, write_cells
from tamis.stages.io.paths import join
from tamis.stages.scratch import exists, read_file
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, spilled_files
from tamis.tasks import FileGroup, FileSlice
from tamis.tasks.storage import format_order

__all__ = ["DecideOpen", "MarkDuplicates", "OpenPairs", "SimilarPairs", "decided"]

Documents = NDArray[np.uint64]
Places = NDArray[np.int64]
States = NDArray[np.uint8]

_CHOOSING: Final = 4
"""Memory that it takes to choose the row for which each row is removed, as a multiple of that of the pairs."""


def decided(later: Places, earlier: Places, state: States, is_cut: NDArray[np.bool_]) -> States:
    """Decide on open rows, in the order of their ranks, as far as that is possible.

    A row with one before it that stays is removed. A row stays if all rows before it are removed, and none is unknown.

    Args:
        later, earlier: Pairs of similar rows, of which the second is ranked before the first.
        state: What is known of each row.
        is_cut: Of which rows some pairs are not known.

    >>> chain = np.array([1, 2]), np.array([0, 1])
    >>> decided(*chain, np.full(3, OPEN, np.uint8), np.zeros(3, np.bool_)).tolist() == [KEPT, REMOVED, KEPT]
    True
    """
    state = state.copy()
    while True:
        removed = np.zeros(len(state), np.bool_)
        removed[later[state[earlier] == KEPT]] = True
        blocked = is_cut.copy()
        blocked[later[state[earlier] == OPEN]] = True
        changed = (state == OPEN) & (removed | ~blocked)
        if not changed.any():
            return state
        state[changed] = np.where(removed[changed], REMOVED, KEPT)
        live = state[later] == OPEN
        later, earlier = later[live], earlier[live]


@dataclass
class OpenPairs(ScratchSource[FileGroup]):
    """One task for all pairs of open rows, if there are any."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files, cuts = (spilled_files(join(directory, name)) for name in ("open", "cut"))
        if not files and not cuts:
            return
        clusters = merge_indexes(read_indexes([(path, size) for path, size, _ in cuts]), join(directory, "cut.index"))
        cells = {}
        if clusters:
            everything = cell_parts(directory, "cut-cells.index")
            cells = {cluster: (everything[cluster], parts) for cluster, parts in clusters.items()}
        slices = tuple(FileSlice(path, size=size) for path, size, _ in files)
        config = {"cells": cells, "length": open_vectors(directory).length}
        yield FileGroup([path for path, _, _ in files] or ["cut"], slices=slices, reader_config=config)


@dataclass
class DecideOpen(ScratchStage[FileGroup, FileGroup]):
    """Decide on open rows, and write which of them stay.

    Of some rows, more similar ones are before them than were written down. If those decide nothing, the cells of the
    rows are looked at again, with what is known by then.

    Args:
        folder: The folder of the deduplication.
        threshold: The least cosine of similar rows.
        partitions: How many parts the pairs are divided into.
        memory_bytes: Memory of a machine.
    """

    threshold: float
    partitions: int
    memory_bytes: int

    def process(self, task: FileGroup) -> Iterator[Publish]:
        cells: dict[int, tuple[Parts, Parts]] = task.reader_config["cells"]
        pairs = [_columns(file.path, ("later", "earlier")) for file in task.slices]
        later, earlier = (_together([pair[side] for pair in pairs]) for side in (0, 1))
        cut = {cluster: _documents(parts) for cluster, (_, parts) in cells.items()}
        nodes = np.unique(np.concatenate([later, earlier, *cut.values()]))
        removed = self._removed_before()
        state = np.where(_is_in(nodes, removed), REMOVED, OPEN).astype(np.uint8)
        rows = _OpenRows(nodes, state, np.searchsorted(nodes, later), np.searchsorted(nodes, earlier), cut)
        found: list[pa.Table] = []
        while rows.decide():
            self.log_metric("looked_at_again", int((rows.state == OPEN).sum()))
            for cluster in rows.cut:
                if (rows.state_of(rows.cut[cluster]) == OPEN).any():
                    parts, length = cells[cluster][0], task.reader_config["length"]
                    with load_cell(parts, length, self.memory_bytes, self._directory) as loaded:
                        found.append(rows.look_again(cluster, loaded, self.threshold, removed))
        if found:
            yield from write_similar(join(self._directory, "open"), (*task.order, 0), found, self.partitions)
        kept = nodes[rows.state == KEPT]
        table = pa.table({"document": arrow_array(kept)})
        final = join(self._directory, "kept", format_order((0,)) + SUFFIX)
        yield write_cells(final, Rows(table), np.zeros(1, np.int64), np.array([0, len(kept)], np.int64), compress=False)

    def _removed_before(self) -> Documents:
        """The rows that cells have decided to remove."""
        files = spilled_files(join(self._directory, "removed"))
        return np.unique(_together([_columns(path, ("later",))[0] for path, _, _ in files]))


@dataclass
class _OpenRows:
    """Rows that no cell could decide on alone.

    Args:
        nodes: Their numbers, sorted.
        state: What is known of each.
        later, earlier: The places of pairs of similar rows.
        cut: By cluster, the rows of which not all pairs are known.
    """

    nodes: Documents
    state: States
    later: Places
    earlier: Places
    cut: dict[int, Documents]

    def decide(self) -> bool:
        """Decide on what can be decided; return whether rows are left."""
        is_cut = np.zeros(len(self.nodes), np.bool_)
        for documents in self.cut.values():
            is_cut[np.searchsorted(self.nodes, documents)] = True
        self.state = decided(self.later, self.earlier, self.state, is_cut)
        return bool((self.state == OPEN).any())

    def state_of(self, documents: Documents) -> States:
        """What is known of some of the rows."""
        return self.state[np.searchsorted(self.nodes, documents)]

    def look_again(self, cluster: int, loaded: LoadedCell, threshold: float, removed: Documents) -> pa.Table:
        """Look at a cell with what is known by now; return the pairs that were found.

        Args:
            cluster: The number of the cell.
            loaded: Its rows.
            threshold: The least cosine of similar rows.
            removed: The rows that cells have decided to remove, sorted.
        """
        documents = loaded.documents
        known = np.full(len(documents), KEPT, np.uint8)  # a row of which nothing was written down
        known[_is_in(documents, removed)] = REMOVED
        is_node = _is_in(documents, self.nodes)
        known[is_node] = self.state_of(documents[is_node])
        again = find_similar(loaded.cell, threshold, products_on(), known=known)
        new, still = (similar_table(loaded, again, chosen) for chosen in (again.is_decided, ~again.is_decided))
        self.state[np.searchsorted(self.nodes, numpy_array(new.column("later")))] = REMOVED
        self.later = np.append(self.later, np.searchsorted(self.nodes, numpy_array(still.column("later"))))
        self.earlier = np.append(self.earlier, np.searchsorted(self.nodes, numpy_array(still.column("earlier"))))
        self.cut[cluster] = documents[again.is_cut]
        return pa.concat_tables([new, still])


@dataclass
class SimilarPairs(ScratchSource[FileGroup]):
    """One task for each part of the pairs.

    Args:
        folder: The folder of the deduplication.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
    """

    memory_bytes: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        found: dict[str, dict[int, Parts]] = {}
        for name in ("removed", "open"):
            files = spilled_files(join(directory, name))
            indexes = read_indexes([(path, size) for path, size, _ in files])
            found[name] = merge_indexes(indexes, join(directory, f"{name}.index"))
        for number in sorted(found["removed"].keys() | found["open"].keys()):
            parts = [found[name][number] for name in found if number in found[name]]
            size, path = sum(part.nbytes for part in parts), f"similar-{number}"
            config = {"parts": parts, "part_count": part_count(size, self.memory_bytes, _CHOOSING)}
            yield FileGroup([path], slices=(FileSlice(path, size=size),), reader_config=config)


@dataclass
class MarkDuplicates(ScratchStage[FileGroup, FileGroup]):
    """Write for each file which of its rows are removed, because of which row, and how similar they are.

    Args:
        folder: The folder of the deduplication.
        partitions: How many parts the pairs are divided into.
    """

    partitions: int

    def process(self, task: FileGroup) -> Iterator[Publish]:
        kept_file = join(self._directory, "kept", format_order((0,)) + SUFFIX)
        kept = _columns(kept_file, ("document",))[0] if exists(kept_file) else np.zeros(0, np.uint64)
        parts: list[Parts] = task.reader_config["parts"]
        count = task.reader_config["part_count"]
        pieces = itertools.chain.from_iterable(read_cells(part.read()) for part in parts)
        if count == 1:
            yield from self._marks(pieces, kept, (*task.order, 0))
            return
        self.log_metric("parts", count)
        with temporary_folder(self._directory, "similar") as folder:
            held = sum(part.nbytes for part in parts) // count
            for number, cells in enumerate(split(pieces, self._further_bits, count, folder, held)):
                yield from self._marks(read_cells(cells), kept, (*task.order, number))

    def _further_bits(self, table: pa.Table) -> NDArray[np.uint64]:
        return spread(numpy_array(table.column("later"))) // np.uint64(self.partitions)

    def _marks(self, pieces: Any, kept: Documents, order: tuple[int, ...]) -> Iterator[Publish]:
        table = Rows.concat(list(pieces)).table.combine_chunks()
        is_open = numpy_array(table.column("is_open"))
        later, earlier = (numpy_array(table.column(name)) for name in ("later", "earlier"))
        chosen = np.flatnonzero(~is_open | _is_in(earlier, kept))
        similarity = numpy_array(table.column("similarity"))[chosen]
        names = one_array(table.column("name")).take(arrow_array(chosen))
        by_row = np.lexsort((hash_text_64(names), earlier[chosen], -similarity, later[chosen]))
        in_order = later[chosen][by_row]
        firsts = by_row[np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1])[: len(in_order)])]
        if len(firsts):
            final = join(self._directory, "marks", format_order(order) + SUFFIX)
            originals = names.take(arrow_array(firsts))
            yield write_marks(final, later[chosen][firsts], originals, similarity[firsts])


def _columns(path: str, names: tuple[str, ...]) -> list[Documents]:
    """Columns of documents in a file."""
    with pa.ipc.open_stream(read_file(path)) as stream:
        batches = [[numpy_array(batch.column(name)) for name in names] for batch in stream]
    return [_together([batch[place] for batch in batches]) for place in range(len(names))]


def _documents(parts: Parts) -> Documents:
    return _together([numpy_array(rows.table.column("document")) for rows in read_cells(parts.read())])


def _together(pieces: list[Documents]) -> Documents:
    return np.concatenate([np.zeros(0, np.uint64), *pieces])


def _is_in(documents: Documents, known: Documents) -> NDArray[np.bool_]:
    """Which documents are among others, which are sorted."""
    if not len(known):
        return np.zeros(len(documents), np.bool_)
    place = np.minimum(np.searchsorted(known, documents), len(known) - 1)
    found: NDArray[np.bool_] = known[place] == documents
    return found
