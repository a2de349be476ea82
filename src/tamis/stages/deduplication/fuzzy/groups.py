"""From edges to duplicates: connected components, and of each the document that stays."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.kernels.components import Components
from tamis.kernels.hashing import hash_text_64
from tamis.stages.deduplication.fuzzy.index import NEW_FILES, numbered_files, run_of
from tamis.stages.deduplication.fuzzy.sketches import estimated_similarity, sketch_bytes
from tamis.stages.deduplication.marks import (
    Documents,
    by_name,
    document_numbers,
    file_of,
    name_texts,
    row_of,
    write_marks,
)
from tamis.stages.deduplication.splitting import part_count, slices_of, split, temporary_folder
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Parts, Rows, merge_indexes, put_together, read_cells, read_indexes
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import join
from tamis.stages.scratch import read_file
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, spilled_files
from tamis.tasks import FileGroup, FileSlice, RowNames
from tamis.tasks.storage import format_order

__all__ = ["ChooseKept", "EdgeFiles", "GroupPartitions", "JoinEdges", "MemberFiles", "SendMembers", "spread"]

_CHOOSING = 4
"""Memory that it takes to choose the documents of a partition, as a multiple of the partition's own."""


@dataclass
class EdgeFiles(ScratchSource[FileGroup]):
    """One task for all edges, once they are found.

    Args:
        folder: The folder of the deduplication.
        edges: The folder in it that has the edges.
    """

    edges: str = "edges"

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        files = spilled_files(join(scratch, self.folder, self.edges))
        if files:
            slices = tuple(FileSlice(path, size=size) for path, size, _ in files)
            yield FileGroup([path for path, _, _ in files], slices=slices)


@dataclass
class JoinEdges(ScratchStage[FileGroup, FileGroup]):
    """Find the groups of documents that edges connect; write the documents by file, each with its group.

    A group has the number of its first document.

    Args:
        folder: The folder of the deduplication.
        memory_bytes: Memory for the components.
    """

    memory_bytes: int

    def process(self, task: FileGroup) -> Iterator[Publish]:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(temporary_folder(self._directory, "components"))
            components = stack.enter_context(Components(self.memory_bytes, folder))
            for path in task.data:
                edges = read_stream(path)
                components.add(*(numpy_array(edges.column(side)) for side in ("left", "right")))
            for number, (documents, groups) in enumerate(components.members()):
                members = Rows(pa.table({"row": arrow_array(row_of(documents)), "group": arrow_array(groups)}))
                final = join(self._directory, "members", format_order((*task.order, number)) + SUFFIX)
                yield write_by(final, members, file_of(documents))


def read_stream(path: str) -> pa.Table:
    """All rows of a file of an exchange: its index comes after the stream of rows."""
    return pa.ipc.open_stream(read_file(path)).read_all()


@dataclass
class MemberFiles(ScratchSource[FileGroup]):
    """One task for each file of documents of which some are in a group.

    Args:
        folder: The folder of the deduplication.
        index: The folder with the documents of earlier runs, if there are any.
    """

    index: str = ""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = spilled_files(join(directory, "members"))
        indexes = read_indexes([(path, size) for path, size, _ in files])
        earlier = [join(self.index, "documents", name) for name, _ in numbered_files(self.index, directory)]
        own = [path for path, _, _ in spilled_files(join(directory, "documents"))]
        for number, parts in merge_indexes(indexes, join(directory, "members.index")).items():
            path = own[number - NEW_FILES] if number >= NEW_FILES else earlier[number]
            config = {"parts": parts, "file": number}
            yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config=config)


@dataclass
class SendMembers(ScratchStage[FileGroup, FileGroup]):
    """Write what is known of the documents in groups, by group.

    Args:
        folder: The folder of the deduplication.
        partitions: How many partitions of groups there are.
    """

    partitions: int

    def process(self, task: FileGroup) -> Iterator[Publish]:
        members = Rows.concat(list(read_cells(task.reader_config["parts"].read()))).table
        rows = numpy_array(members.column("row"))
        table = read_stream(task.data[0]).take(arrow_array(rows.astype(np.int64))).replace_schema_metadata(None)
        groups = numpy_array(members.column("group"))
        table = table.append_column("group", arrow_array(groups))
        table = table.append_column("document", arrow_array(document_numbers(task.reader_config["file"], rows)))
        final = join(self._directory, "groups", format_order(task.order) + SUFFIX)
        partition = (spread(groups) % np.uint64(self.partitions)).astype(np.uint16)
        yield write_by(final, Rows(table), partition, compress=False)


def spread(groups: Documents) -> NDArray[np.uint64]:
    """Numbers that spread evenly, from the numbers of documents."""
    mixed = (groups ^ (groups >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
    return mixed ^ (mixed >> np.uint64(32))


@dataclass
class GroupPartitions(ScratchSource[FileGroup]):
    """One task for each partition of the groups.

    Args:
        folder: The folder of the deduplication.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
        index: The folder with the documents of earlier runs, if there are any.
    """

    memory_bytes: int
    index: str = ""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = spilled_files(join(directory, "groups"))
        indexes = read_indexes([(path, size) for path, size, _ in files])
        runs = tuple(run_of(name) for name, _ in numbered_files(self.index, directory))
        for number, parts in merge_indexes(indexes, join(directory, "groups.index")).items():
            path = f"groups-{number}"
            count = part_count(parts.nbytes, self.memory_bytes, _CHOOSING)
            config = {"parts": parts, "part_count": count, "runs": runs}
            yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config=config)


@dataclass
class ChooseKept(ScratchStage[FileGroup, FileGroup]):
    """Choose the document of each group that stays, and mark the others.

    A document of the index stays before all of the input; then the rank decides, then the name. A large
    partition is read twice, and only the documents that stay are in memory at once: a group may be of any size.

    Args:
        folder: The folder of the deduplication.
        partitions: How many partitions of groups there are.
        within: Whether a document may be removed because of another one of the input.
    """

    partitions: int
    within: bool = True

    def process(self, task: FileGroup) -> Iterator[Publish]:
        parts: Parts = task.reader_config["parts"]
        count = task.reader_config["part_count"]
        runs = np.array(task.reader_config["runs"], np.int64)
        at_once = 2 * parts.nbytes // count  # twice: parts are not all of the same size
        if count == 1:
            yield from self._choose(parts.read(), runs, at_once, (*task.order, 0))
            return
        self.log_metric("parts", count)
        with temporary_folder(self._directory, "groups") as folder:
            some = split(read_cells(parts.read()), self._further_bits, count, folder, parts.nbytes // count)
            for number, cells in enumerate(some):
                yield from self._choose(cells, runs, at_once, (*task.order, number))

    def _further_bits(self, table: pa.Table) -> NDArray[np.uint64]:
        return spread(numpy_array(table.column("group"))) // np.uint64(self.partitions)

    def _choose(
        self, cells: pa.Table, runs: NDArray[np.int64], at_once: int, order: tuple[int, ...]
    ) -> Iterator[Publish]:
        """Mark the documents of a partition, or of a part of it, that do not stay."""
        again = Again.of(_read(cells, at_once), runs) if len(runs) else None
        tables: Callable[[], Iterable[pa.Table]] = functools.partial(_read, cells, at_once, again)
        if sum(numpy_array(cells.column("nbytes"))) <= at_once:
            whole = list(tables())
            tables = lambda: whole  # noqa: E731 - small enough to be read once
        kept = _kept(tables(), runs)
        groups, documents = (numpy_array(kept.column(name)) for name in ("group", "document"))
        sketches = sketch_bytes(kept.column("sketch"))
        names = RowNames.taken_from(kept)[1]
        texts = pa.nulls(len(groups), pa.string()) if names is None else name_texts(names)
        for number, table in enumerate(tables()):
            document = numpy_array(table.column("document"))
            place = np.searchsorted(groups, numpy_array(table.column("group")))
            is_removed = (documents[place] != document) & is_of_input(document)
            if not self.within:
                is_removed &= ~is_of_input(documents[place])
            removed = np.flatnonzero(is_removed)
            if not len(removed):
                continue
            original = place[removed]
            similarity = self.similarity(sketch_bytes(table.column("sketch"))[removed], sketches[original])
            final = join(self._directory, "marks", format_order((*order, number)) + SUFFIX)
            yield write_marks(final, document[removed], texts.take(arrow_array(original)), similarity)
        self.log_metric("groups", len(groups))

    @staticmethod
    def similarity(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> NDArray[np.float32]:
        """How similar documents are, row by row, given their sketches."""
        return estimated_similarity(one, other)


def is_of_input(documents: Documents) -> NDArray[np.bool_]:
    """Which documents are of the input, and not of an index."""
    of_input: NDArray[np.bool_] = file_of(documents) >= NEW_FILES
    return of_input


def _run_numbers(documents: Documents, runs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of the run that added each document to the index; for those of the input, that of none."""
    return np.append(runs, NEW_FILES)[np.minimum(file_of(documents), len(runs))]


def _kept(tables: Iterable[pa.Table], runs: NDArray[np.int64]) -> pa.Table:
    """The documents that stay, sorted by group: of the index the earliest, of the input by rank; then by name."""
    best: pa.Table | None = None
    for table in tables:
        both = table if best is None else put_together([best, table])
        columns = {name: numpy_array(both.column(name)) for name in ("group", "document")}
        # Documents of an index have ranks only if they were added with a rule for them.
        ranks = _column_of(both, "rank", np.zeros(1, np.uint64))
        ranks = np.broadcast_to(ranks, len(columns["group"]))
        run = _run_numbers(columns["document"], runs)
        order = np.lexsort((columns["document"], *by_name(both), ranks, run, columns["group"]))
        firsts = np.ones(len(order), np.bool_)
        in_order = columns["group"][order]
        firsts[1:] = in_order[1:] != in_order[:-1]
        best = both.take(arrow_array(order[firsts])).unify_dictionaries().combine_chunks()
    assert best is not None
    return best


def _column_of(table: pa.Table, name: str, otherwise: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The numbers of a column, zero for nulls."""
    return numpy_array(pc.fill_null(table.column(name), 0)) if name in table.column_names else otherwise


def _read(cells: pa.Table, at_once: int, again: Again | None = None) -> Iterator[pa.Table]:
    """The documents of some cells, about so many bytes at a time; without those of the index that do not count."""
    pieces = slices_of(read_cells(cells), at_once)
    if again is not None:
        pieces = (rows.with_table(rows.table.filter(arrow_array(again.counts(rows.table)))) for rows in pieces)
    for rows in Rows.lots(pieces, at_once):
        yield rows.table.unify_dictionaries().combine_chunks()


@dataclass(frozen=True)
class Again:
    """Groups with documents of the input that an earlier run added to the index: the same name, the same signature.

    That is how it is when a run is repeated, or goes on after it was killed. Its documents then are compared with
    those that were in the index before it, not with themselves and what came later, so the result stays the same.

    Args:
        runs: The numbers of the runs that added the files of the index.
        groups: The groups, sorted.
        since: The first run that added a document of the group that is in the input.
    """

    runs: NDArray[np.int64]
    groups: Documents
    since: NDArray[np.int64]

    @classmethod
    def of(cls, tables: Iterable[pa.Table], runs: NDArray[np.int64]) -> Again:
        """What is known of the groups of some documents."""
        columns = [(numpy_array(t.column("group")), _identities(t), numpy_array(t.column("document"))) for t in tables]
        group, identity, document = (np.concatenate(column) for column in zip(*columns, strict=True))
        run, is_new = _run_numbers(document, runs), is_of_input(document)
        old = np.flatnonzero(~is_new)
        old = old[np.lexsort((run[old], identity[old]))]  # of equal ones, the earliest first
        new = np.flatnonzero(is_new)
        if not len(old):
            return cls(runs, group[:0], run[:0])
        place = np.minimum(np.searchsorted(identity[old], identity[new]), len(old) - 1)
        is_again = identity[old][place] == identity[new]
        group, since = group[new][is_again], run[old][place][is_again]
        order = np.lexsort((since, group))
        groups, firsts = np.unique(group[order], return_index=True)
        return cls(runs, groups, since[order][firsts])

    def counts(self, table: pa.Table) -> NDArray[np.bool_]:
        """Which documents are of the input, or of the index from before."""
        if not len(self.groups):
            return np.ones(table.num_rows, np.bool_)
        group = numpy_array(table.column("group"))
        place = np.minimum(np.searchsorted(self.groups, group), len(self.groups) - 1)
        document = numpy_array(table.column("document"))
        is_later = _run_numbers(document, self.runs) >= self.since[place]
        counts: NDArray[np.bool_] = is_of_input(document) | (self.groups[place] != group) | ~is_later
        return counts


def _identities(table: pa.Table) -> NDArray[np.uint64]:
    """A number for each document that follows from its name and its signature."""
    names = RowNames.taken_from(table)[1]
    if names is None:
        return numpy_array(table.column("document"))
    return hash_text_64(name_texts(names)) * np.uint64(0x9E3779B97F4A7C15) ^ hash_text_64(table.column("sketch"))
