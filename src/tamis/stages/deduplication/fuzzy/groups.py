"""From edges to duplicates: connected components, and of each the document that stays."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.kernels.components import Components
from tamis.kernels.hashing import hash_text_128
from tamis.stages.deduplication.fuzzy.index import NEW_FILES, index_files
from tamis.stages.deduplication.fuzzy.sketches import estimated_similarity, sketch_bytes
from tamis.stages.deduplication.fuzzy.splitting import part_count, split, temporary_folder
from tamis.stages.deduplication.marks import (
    Documents,
    by_name,
    document_numbers,
    file_of,
    name_texts,
    row_of,
    write_marks,
)
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Parts, Rows, merge_indexes, read_cells, read_indexes
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import join
from tamis.stages.scratch import read_file
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, spilled_files
from tamis.tasks import FileGroup, FileSlice, RowNames
from tamis.tasks.storage import format_order

__all__ = ["ChooseKept", "EdgeFiles", "GroupPartitions", "JoinEdges", "MemberFiles", "SendMembers", "spread"]

_WRITTEN_AT_ONCE = 2**22
"""Documents in one file of members or of marks."""

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
        earlier = [path for path, _ in index_files(self.index, "documents")]
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
    """

    memory_bytes: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = spilled_files(join(directory, "groups"))
        indexes = read_indexes([(path, size) for path, size, _ in files])
        for number, parts in merge_indexes(indexes, join(directory, "groups.index")).items():
            path = f"groups-{number}"
            config = {"parts": parts, "part_count": part_count(parts.nbytes, self.memory_bytes, _CHOOSING)}
            yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config=config)


@dataclass
class ChooseKept(ScratchStage[FileGroup, FileGroup]):
    """Choose the document of each group that stays, and mark the others.

    A document of the index stays before all of the input; then the rank decides, then the name. A large
    partition is read twice, and only the documents that stay are in memory at once: a group may be of any size.

    Args:
        folder: The folder of the deduplication.
        partitions: How many partitions of groups there are.
        has_index: Whether there may be documents of an index among them.
    """

    partitions: int
    has_index: bool = False

    def process(self, task: FileGroup) -> Iterator[Publish]:
        parts: Parts = task.reader_config["parts"]
        count = task.reader_config["part_count"]
        if count == 1:
            yield from self._choose(parts.read(), (*task.order, 0))
            return
        self.log_metric("parts", count)
        with temporary_folder(self._directory, "groups") as folder:
            some = split(read_cells(parts.read()), self._further_bits, count, folder, parts.nbytes // count)
            for number, cells in enumerate(some):
                yield from self._choose(cells, (*task.order, number))

    def _further_bits(self, table: pa.Table) -> NDArray[np.uint64]:
        return spread(numpy_array(table.column("group"))) // np.uint64(self.partitions)

    def _choose(self, cells: pa.Table, order: tuple[int, ...]) -> Iterator[Publish]:
        """Mark the documents of a partition, or of a part of it, that do not stay."""
        repeated = self._names_of_input(cells) if self.has_index else None
        tables: Callable[[], Iterable[pa.Table]] = functools.partial(self._read, cells, repeated)
        if sum(numpy_array(cells.column("rows"))) <= _WRITTEN_AT_ONCE:
            whole = list(tables())
            tables = lambda: whole  # noqa: E731 - small enough to be read once
        kept = self._kept(tables())
        groups, documents = (numpy_array(kept.column(name)) for name in ("group", "document"))
        sketches = sketch_bytes(kept.column("sketch"))
        names = RowNames.taken_from(kept)[1]
        texts = pa.nulls(len(groups), pa.string()) if names is None else name_texts(names)
        for number, table in enumerate(tables()):
            document = numpy_array(table.column("document"))
            place = np.searchsorted(groups, numpy_array(table.column("group")))
            removed = np.flatnonzero((documents[place] != document) & (file_of(document) >= NEW_FILES))
            if not len(removed):
                continue
            original = place[removed]
            similarity = estimated_similarity(sketch_bytes(table.column("sketch"))[removed], sketches[original])
            final = join(self._directory, "marks", format_order((*order, number)) + SUFFIX)
            yield write_marks(final, document[removed], texts.take(arrow_array(original)), similarity)
        self.log_metric("groups", len(groups))

    def _kept(self, tables: Iterable[pa.Table]) -> pa.Table:
        """The documents that stay, sorted by group."""
        best: pa.Table | None = None
        for table in tables:
            both = table if best is None else pa.concat_tables([best, table], promote_options="permissive")
            columns = {name: numpy_array(both.column(name)) for name in ("group", "document")}
            ranks = numpy_array(both.column("rank")) if "rank" in both.column_names else np.zeros(1, np.uint64)
            is_new = file_of(columns["document"]) >= NEW_FILES
            ranks = np.where(is_new, ranks, np.uint64(0))
            order = np.lexsort((columns["document"], *by_name(both), ranks, is_new, columns["group"]))
            firsts = np.ones(len(order), np.bool_)
            in_order = columns["group"][order]
            firsts[1:] = in_order[1:] != in_order[:-1]
            best = both.take(arrow_array(order[firsts])).unify_dictionaries().combine_chunks()
        assert best is not None
        return best

    def _names_of_input(self, cells: pa.Table) -> NDArray[np.uint64] | None:
        """The hashed names of the documents of the input, sorted, if there are documents of an index beside them."""
        hashes, has_index = [], False
        for table in self._read(cells):
            is_new = file_of(numpy_array(table.column("document"))) >= NEW_FILES
            has_index |= not is_new.all()
            hashes.append(_name_hashes(table.filter(arrow_array(is_new))))
        return np.sort(np.concatenate(hashes)) if has_index else None

    def _read(self, cells: pa.Table, repeated: NDArray[np.uint64] | None = None) -> Iterator[pa.Table]:
        """The documents of some cells, some at a time; without those that are repeated."""
        held: list[Rows] = []
        for rows in read_cells(cells):
            if repeated is not None:
                rows = rows.with_table(rows.table.filter(arrow_array(~_is_repeated(rows.table, repeated))))
            held.append(rows)
            if sum(piece.table.num_rows for piece in held) >= _WRITTEN_AT_ONCE:
                yield Rows.concat(held).table.unify_dictionaries().combine_chunks()
                held = []
        if held:
            yield Rows.concat(held).table.unify_dictionaries().combine_chunks()


def _name_hashes(table: pa.Table) -> NDArray[np.uint64]:
    names = RowNames.taken_from(table)[1]
    if names is None or not len(names):
        return np.zeros(0, np.uint64)
    return hash_text_128(pa.chunked_array([name_texts(names)]))[:, 0]


def _is_repeated(table: pa.Table, names_of_input: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which documents of the index are in the input again: an earlier run over the same rows added them."""
    is_old = file_of(numpy_array(table.column("document"))) < NEW_FILES
    hashes = _name_hashes(table)
    if not len(hashes):
        return np.zeros(table.num_rows, np.bool_)
    place = np.minimum(np.searchsorted(names_of_input, hashes), len(names_of_input) - 1)
    return is_old & (names_of_input[place] == hashes) if len(names_of_input) else np.zeros(table.num_rows, np.bool_)
