"""Candidate pairs are compared: the texts of two documents meet, and their exact Jaccard similarity decides.

The texts of a pair are sent to the partition of its first document. There the first documents are in memory, and the
others are read in a stream, so a document may be compared with any number of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.kernels.minhash import MinHash
from tamis.stages.column_values import read_column, text_values
from tamis.stages.deduplication.fuzzy.groups import spread
from tamis.stages.deduplication.fuzzy.index import NEW_FILES
from tamis.stages.deduplication.keep import Keep
from tamis.stages.deduplication.marks import document_numbers, name_texts
from tamis.stages.deduplication.splitting import part_count, slices_of, split, temporary_folder
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Parts, Rows, merge_indexes, read_cells, read_indexes, write_cells
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import base_name, join, remove_file
from tamis.stages.scratch import exists, list_files, load_task, place_file, write_file
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, spilled_files
from tamis.tasks import FileGroup, FileSlice, RowNames, TableTask
from tamis.tasks.base import digest
from tamis.tasks.storage import format_order

__all__ = ["ComparePairs", "PairPartitions", "SendTexts", "TextsToSend"]

_COMPARED_AT_ONCE = 32 * 2**20
"""Bytes of text that are compared in one call."""

_WRITTEN_AT_ONCE = 2**18
"""Pairs in one file."""

_PAIRS_FILE = re.compile(r"pairs-(?:s\d\d+-)?\d{6,}(?:-\d{4,})*\.parquet")

_COMPARING = 4
"""Memory that it takes to compare the pairs of a partition, as a multiple of the partition's own."""


@dataclass
class TextsToSend(ScratchSource[FileGroup]):
    """One task for each file that has rows which are to be compared."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = spilled_files(join(directory, "edges"))
        indexes = read_indexes([(path, size) for path, size, _ in files])
        rows = [path for path, _, _ in spilled_files(join(directory, "rows"))]
        for number, parts in merge_indexes(indexes, join(directory, "edges.index")).items():
            path = rows[number - NEW_FILES]
            config = {"parts": parts, "file": number}
            yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config=config)


@dataclass
class SendTexts(ScratchStage[FileGroup, FileGroup]):
    """Write the texts of documents by the first documents of their pairs.

    Args:
        folder: The folder of the deduplication.
        text_field: The column compared.
        keep: Which document of a group stays.
        partitions: How many partitions of pairs there are.
    """

    text_field: str
    keep: Keep
    partitions: int

    def process(self, task: FileGroup) -> Iterator[Publish]:
        wanted = Rows.concat(list(read_cells(task.reader_config["parts"].read()))).table
        row, leader = (numpy_array(wanted.column(name)) for name in ("row", "leader"))
        # Several buckets may have the same pair.
        order = np.lexsort((leader, row))
        row, leader = row[order], leader[order]
        is_first = np.ones(len(order), np.bool_)
        is_first[1:] = (row[1:] != row[:-1]) | (leader[1:] != leader[:-1])
        row, leader = row[is_first], leader[is_first]
        batch = load_task(task.data[0])
        assert isinstance(batch, TableTask)
        column = read_column(batch.columns([self.text_field]), self.text_field, "text_field")
        texts = text_values(column, self.text_field, "FuzzyDeduplication").cast(pa.large_string())
        ranks = self.keep.ranks(batch, self.text_field)
        # A text may be sent to many places: as many at a time as take a certain memory.
        sizes = numpy_array(pc.fill_null(pc.binary_length(texts), 0))[row]
        lots = (np.cumsum(sizes) - sizes) // _COMPARED_AT_ONCE
        for number, some in enumerate(np.split(np.arange(len(row)), np.flatnonzero(np.diff(lots)) + 1)):
            columns = {
                "leader": arrow_array(leader[some]),
                "document": arrow_array(document_numbers(task.reader_config["file"], row[some])),
                "text": texts.take(arrow_array(row[some].astype(np.int64))),
                "rank": arrow_array(np.zeros(len(some), np.uint64) if ranks is None else ranks[row[some]]),
            }
            table, names = pa.table(columns), batch.names
            rows = Rows(table if names is None else names.take(row[some]).added_to(table))
            final = join(self._directory, "texts", format_order((*task.order, number)) + SUFFIX)
            yield write_by(final, rows, (spread(leader[some]) % np.uint64(self.partitions)).astype(np.uint16))


@dataclass
class PairPartitions(ScratchSource[FileGroup]):
    """One task for each partition of the pairs.

    Args:
        folder: The folder of the deduplication.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
        pairs_path: Where the pairs will be written, if anywhere: what an earlier run wrote there is removed.
    """

    memory_bytes: int
    pairs_path: str = ""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = spilled_files(join(directory, "texts"))
        texts = digest(*files) if self.pairs_path else ""  # with other texts, all tasks are other ones
        begun = join(directory, f"pairs.{texts}")
        if self.pairs_path and not exists(begun):
            for path, _ in list_files(self.pairs_path):
                if _PAIRS_FILE.fullmatch(base_name(path)):
                    remove_file(path)
            for path, _ in list_files(directory):
                if base_name(path).startswith("pairs."):
                    remove_file(path)
            place_file(begun, b"")
        indexes = read_indexes([(path, size) for path, size, _ in files])
        for number, parts in merge_indexes(indexes, join(directory, "texts.index")).items():
            path = f"pairs-{number}{texts}"
            config = {"parts": parts, "part_count": part_count(parts.nbytes, self.memory_bytes, _COMPARING)}
            yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config=config)


@dataclass
class ComparePairs(ScratchStage[FileGroup, FileGroup]):
    """Compute the exact similarity of pairs; those that are similar enough are edges.

    Args:
        folder: The folder of the deduplication.
        minhash: How texts are cut into n-grams.
        threshold: The least similarity.
        partitions: How many partitions of pairs there are.
        pairs_path: Where to write the pairs with their similarities as Parquet, if anywhere.
    """

    minhash: MinHash
    threshold: float
    partitions: int
    pairs_path: str = ""

    def process(self, task: FileGroup) -> Iterator[Publish]:
        parts: Parts = task.reader_config["parts"]
        count = task.reader_config["part_count"]
        if count == 1:
            yield from self._compare(parts.read(), (*task.order, 0))
            return
        self.log_metric("parts", count)
        with temporary_folder(self._directory, "pairs") as folder:
            some = split(read_cells(parts.read()), self._further_bits, count, folder, parts.nbytes // count)
            for number, cells in enumerate(some):
                yield from self._compare(cells, (*task.order, number))

    def _further_bits(self, table: pa.Table) -> NDArray[np.uint64]:
        return spread(numpy_array(table.column("leader"))) // np.uint64(self.partitions)

    def _compare(self, cells: pa.Table, order: tuple[int, ...]) -> Iterator[Publish]:
        """Compare the pairs of a partition, or of a part of it."""
        leaders, first = self._leaders(cells)
        names = _texts_of(first)
        found: list[pa.Table] = []
        lot = pairs = 0
        for rows in slices_of(read_cells(cells), _COMPARED_AT_ONCE):
            document, leader = (numpy_array(rows.table.column(name)) for name in ("document", "leader"))
            other = np.flatnonzero(document != leader)
            place = np.searchsorted(leaders, leader[other])
            followers = rows.table.take(arrow_array(other))
            similarity = self.minhash.jaccard(followers.column("text"), first.column("text").take(arrow_array(place)))
            self.log_metric("pairs_compared", len(other))
            enough = np.flatnonzero(similarity >= self.threshold)
            similar, to = followers.take(arrow_array(enough)), first.take(arrow_array(place[enough]))
            columns = {
                "left": to.column("document"),
                "right": similar.column("document"),
                "left_name": names.take(arrow_array(place[enough])),
                "right_name": _texts_of(similar),
                "left_rank": to.column("rank"),
                "right_rank": similar.column("rank"),
                "similarity": arrow_array(similarity[enough].astype(np.float32)),
            }
            found.append(pa.table(columns))
            pairs += len(enough)
            if pairs >= _WRITTEN_AT_ONCE:
                yield from self._written(found, (*order, lot))
                found, lot, pairs = [], lot + 1, 0
        if found:
            yield from self._written(found, (*order, lot))

    def _written(self, found: list[pa.Table], order: tuple[int, ...]) -> Iterator[Publish]:
        """Write some pairs as edges, and as pairs if they are wanted."""
        pairs = pa.concat_tables(found).sort_by([("left", "ascending"), ("right", "ascending")])
        if not pairs.num_rows:
            return
        self.log_metric("pairs_similar", pairs.num_rows)
        final = join(self._directory, "verified", format_order(order) + SUFFIX)
        edges = np.array([0, pairs.num_rows], np.int64)
        yield write_cells(final, Rows(pairs.select(["left", "right"])), np.zeros(1, np.int64), edges)
        if self.pairs_path:
            yield _pairs_file(join(self.pairs_path, f"pairs-{format_order(order)}.parquet"), pairs)

    def _leaders(self, cells: pa.Table) -> tuple[NDArray[np.uint64], pa.Table]:
        """The numbers of the first documents of the pairs, sorted, and what is known of them."""
        found = []
        for rows in slices_of(read_cells(cells), _COMPARED_AT_ONCE):
            document, leader = (numpy_array(rows.table.column(name)) for name in ("document", "leader"))
            found.append(rows.with_table(rows.table.filter(arrow_array(document == leader))))
        table = Rows.concat(found).table.unify_dictionaries().combine_chunks()
        order = np.argsort(numpy_array(table.column("document")))
        table = table.take(arrow_array(order))
        return numpy_array(table.column("document")), table


def _texts_of(table: pa.Table) -> pa.Array:
    """The names of the rows of a table."""
    names = RowNames.taken_from(table)[1]
    return pa.nulls(table.num_rows, pa.string()) if names is None else name_texts(names)


def _pairs_file(final: str, pairs: pa.Table) -> Publish:
    import pyarrow.parquet as pq

    named = pairs.select(["left_name", "right_name", "similarity", "left_rank", "right_rank"])
    named = named.rename_columns(["left", "right", "similarity", "left_rank", "right_rank"])
    made = write_file(final, named.num_rows, lambda sink: pq.write_table(named, sink, compression="zstd"))
    return replace(made, beside=True)
