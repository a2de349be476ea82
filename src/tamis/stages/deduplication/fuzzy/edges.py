"""From buckets to pairs of documents: the edges of a graph, or candidates whose texts are to be compared."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.kernels.components import spanning_forest
from tamis.kernels.hash_groups import HashGroups
from tamis.stages.deduplication.fuzzy.index import NEW_FILES
from tamis.stages.deduplication.marks import Documents, document_numbers, file_of, row_of
from tamis.stages.deduplication.splitting import slices_of, split, temporary_folder
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Parts, Rows, file_codes, read_cells, write_cells
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import join
from tamis.stages.spill import SUFFIX, ScratchStage
from tamis.tasks import FileGroup
from tamis.tasks.storage import format_order

__all__ = ["FindEdges", "gathered", "with_firsts"]

Hashes = NDArray[np.uint64]


@dataclass
class FindEdges(ScratchStage[FileGroup, FileGroup]):
    """Join the documents of each bucket.

    A partition that does not fit into memory is split by bucket. A bucket may still be larger than memory: then its
    documents are read some at a time, and what is held is the first of each bucket.

    Args:
        folder: The folder of the deduplication.
        partitions: How many partitions of buckets there are.
        within: Whether documents of the input are joined to each other, too, not only to those of the index.
        pairs: Whether to write pairs of documents that are to be compared, and not the edges of a graph. The documents
            of a bucket are then in the order of a hash of their texts, so that the pairs do not depend on the order of
            the input: each is compared with the first of the bucket and with the one before it, and one that has the
            same text as others with the first of these only.
    """

    partitions: int
    within: bool = True
    pairs: bool = False

    def process(self, task: FileGroup) -> Iterator[Publish]:
        parts: Parts = task.reader_config["parts"]
        count = task.reader_config["part_count"]
        at_once = 2 * parts.nbytes // count  # twice: parts are not all of the same size
        pieces = self._pieces(parts.read(), task.reader_config["earlier_files"])
        if count == 1:
            yield from self._edges([pieces], at_once, (*task.order, 0))
            return
        self.log_metric("parts", count)
        with temporary_folder(self._directory, "buckets") as folder:
            some = split(pieces, self._further_bits, count, folder, parts.nbytes // count)
            for number, cells in enumerate(some):
                nbytes = int(numpy_array(cells.column("nbytes")).sum())
                ranges: Iterable[Iterable[Rows]] = [read_cells(cells)]
                if self.pairs and nbytes > at_once:
                    ranges = _by_key(read_cells(cells), 2 * nbytes // at_once, os.path.join(folder, "keys"), at_once)
                yield from self._edges(ranges, at_once, (*task.order, number))

    def _edges(self, ranges: Iterable[Iterable[Rows]], at_once: int, order: tuple[int, ...]) -> Iterator[Publish]:
        """Write the edges of the buckets of a partition, or of a part of it."""
        found = _chains(ranges, at_once) if self.pairs else _stars(ranges, at_once)
        for number, (left, right) in enumerate(found):
            if not self.within:
                of_index = file_of(left) < NEW_FILES
                left, right = left[of_index], right[of_index]
            if not len(left):
                continue
            final = join(self._directory, "edges", format_order((*order, number)) + SUFFIX)
            if self.pairs:
                yield _texts_to_send(final, left, right)
                continue
            needed = spanning_forest(left, right)
            edges = Rows(pa.table(dict(zip(("left", "right"), map(arrow_array, needed), strict=True))))
            yield write_cells(final, edges, np.zeros(1, np.int64), np.array([0, edges.table.num_rows], np.int64))

    def _pieces(self, cells: pa.Table, earlier: int) -> Iterator[Rows]:
        """The buckets of the partition, the documents in them, and the hashes of their texts, file by file."""
        files = file_codes(cells).astype(np.int64)
        files = np.where(files < earlier, files, files - earlier + NEW_FILES)
        # Each file has one cell for a partition, so the pieces are those of the cells.
        for file, rows in zip(files, read_cells(cells), strict=True):
            documents = arrow_array(document_numbers(file, numpy_array(rows.table.column("row"))))
            columns = {"bucket": rows.table.column("bucket"), "document": documents}
            if self.pairs:
                columns["key"] = rows.table.column("key")
            yield Rows(pa.table(columns))

    def _further_bits(self, table: pa.Table) -> Hashes:
        further: Hashes = numpy_array(table.column("bucket")) // np.uint64(self.partitions)
        return further


def _by_key(pieces: Iterable[Rows], count: int, folder: str, held_bytes: int) -> Iterator[Iterator[Rows]]:
    """The rows in ascending ranges of keys, by way of files."""

    def range_of(table: pa.Table) -> Hashes:
        return ((numpy_array(table.column("key")) >> np.uint64(32)) * np.uint64(count)) >> np.uint64(32)

    os.makedirs(folder, exist_ok=True)
    yield from map(read_cells, split(pieces, range_of, count, folder, held_bytes))


def gathered(pieces: Iterable[Rows], at_once: int, columns: Sequence[str]) -> Iterator[list[Hashes]]:
    """The columns of some pieces at a time."""
    for rows in Rows.lots(slices_of(pieces, at_once), at_once):
        yield [numpy_array(rows.table.column(name)) for name in columns]


def _stars(ranges: Iterable[Iterable[Rows]], at_once: int) -> Iterator[tuple[Documents, Documents]]:
    """Each document with the first of its bucket in the order of the input."""
    firsts: list[Hashes] = []
    for bucket, document in itertools.chain.from_iterable(
        gathered(pieces, at_once, ("bucket", "document")) for pieces in ranges
    ):
        if firsts:
            bucket, document = (np.append(*both) for both in zip(firsts, (bucket, document), strict=True))
        # The sort is stable: it keeps the documents of a bucket in the order of the input.
        groups = HashGroups.of((bucket,))
        left, right, firsts = with_firsts((bucket, document), groups.order, groups.is_new[0])
        yield left, right


def with_firsts(
    columns: tuple[Hashes, ...], order: NDArray[np.int64], is_first: NDArray[np.bool_]
) -> tuple[Documents, Documents, list[Hashes]]:
    """Each document that is not the first of its group with the first; and the columns of the firsts.

    The last column has the documents.
    """
    firsts, others = np.flatnonzero(is_first), np.flatnonzero(~is_first)
    documents = columns[-1][order]
    left = documents[firsts[np.cumsum(is_first)[others] - 1]]
    return left, documents[others], [column[order[firsts]] for column in columns]


def _chains(ranges: Iterable[Iterable[Rows]], at_once: int) -> Iterator[tuple[Documents, Documents]]:
    """Each document with the first and with the one before it in its bucket, by key; see :class:`FindEdges`."""
    # Of each bucket in the ranges before: the first document, then the last one if that is another.
    before = [np.zeros(0, np.uint64), np.zeros(0, np.uint64)]
    for pieces in ranges:
        firsts: list[Hashes] = []
        for columns in gathered(pieces, at_once, ("bucket", "key", "document")):
            if firsts:
                columns = [np.append(*both) for both in zip(firsts, columns, strict=True)]
            bucket, key, document = columns
            groups = HashGroups.of((bucket, key))
            left, right, firsts = with_firsts((bucket, key, document), groups.order, groups.is_new[1])
            yield left, right
        if not firsts:
            continue
        known = len(before[0])
        bucket, document = (np.append(*both) for both in zip(before, (firsts[0], firsts[2]), strict=True))
        order = HashGroups.of((bucket,)).order
        bucket, document, is_known = bucket[order], document[order], order < known
        is_first, is_last = np.ones(len(order), np.bool_), np.ones(len(order), np.bool_)
        is_first[1:] = bucket[1:] != bucket[:-1]
        is_last[:-1] = is_first[1:]
        starts = np.flatnonzero(is_first)
        first_of = starts[np.cumsum(is_first) - 1]
        others = np.flatnonzero(~is_first & ~is_known)
        chained = others[others - 1 != first_of[others]]
        yield (
            np.append(document[first_of[others]], document[chained - 1]),
            np.append(document[others], document[chained]),
        )
        ends = np.flatnonzero(is_first | is_last)
        before = [bucket[ends], document[ends]]


def _texts_to_send(final: str, left: Documents, right: Documents) -> Publish:
    """Write which documents take part in which comparisons, by the file of the document.

    The text of each is sent to where the first document of the pair is, and the first document itself, too.
    """
    leaders = np.unique(left)
    documents, sent_to = np.append(right, leaders), np.append(left, leaders)
    table = pa.table({"row": arrow_array(row_of(documents)), "leader": arrow_array(sent_to)})
    return write_by(final, Rows(table), file_of(documents))
