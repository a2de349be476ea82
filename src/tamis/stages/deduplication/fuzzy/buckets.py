"""From documents to pairs of similar documents: signatures, buckets, edges.

The signature of a document is cut into bands. Documents that agree in a whole band are in one bucket, and are taken for
similar. An exchange brings the documents of a bucket together; each of them is joined to the first, so a bucket of
``n`` documents gives ``n - 1`` edges, however large it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.kernels.components import spanning_forest
from tamis.kernels.hash_groups import HashGroups
from tamis.kernels.hashing import hash_text_64
from tamis.kernels.minhash import MinHash, band_hashes
from tamis.stages.column_values import read_column, text_values
from tamis.stages.deduplication.fuzzy.index import NEW_FILES, batch_digest, numbered_files
from tamis.stages.deduplication.fuzzy.sketches import sketches
from tamis.stages.deduplication.fuzzy.splitting import part_count, split, temporary_folder
from tamis.stages.deduplication.keep import Keep
from tamis.stages.deduplication.marks import Documents, document_numbers, file_of, row_of
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Parts, Rows, file_codes, merge_indexes, read_cells, read_indexes, write_cells
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import join
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, spill, spilled_files
from tamis.tasks import FileGroup, FileSlice, TableTask
from tamis.tasks.storage import format_order

__all__ = ["BucketPartitions", "FindEdges", "HashBands"]

_SORTING = 6
"""Memory that it takes to find the edges of a partition, as a multiple of the partition's own."""


@dataclass
class HashBands(ScratchStage[TableTask, FileGroup]):
    """Write the rows, what is to be known of each document later, and by partition the buckets that it is in.

    Args:
        folder: The folder of the deduplication.
        minhash: How signatures are made.
        num_bands: How many bands a signature has.
        text_field: The column compared.
        keep: Which document of a group stays.
        partitions: How many partitions of buckets there are.
        pairs: Whether texts will be compared: then a hash of the text orders the documents of a bucket.
    """

    minhash: MinHash
    num_bands: int
    text_field: str
    keep: Keep
    partitions: int
    pairs: bool = False
    gpu_is_optional: ClassVar[bool] = True

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field, *self.keep.columns]

    def text_columns(self) -> list[str]:
        return [self.text_field]

    def ordered_columns(self) -> list[str]:
        return self.keep.columns

    def process(self, task: TableTask) -> Iterator[Publish]:
        name = format_order(task.order) + SUFFIX
        yield spill(task, join(self._directory, "rows"))
        column = read_column(task.columns([self.text_field]), self.text_field, self.name)
        column = text_values(column, self.text_field, self.name)
        signatures = self._signatures(column)
        present = np.arange(len(signatures))
        if column.null_count:
            is_present = numpy_array(pc.is_valid(column))
            present = np.flatnonzero(is_present)
            signatures = np.where(is_present[:, None], signatures, signatures.dtype.type(0))
        yield self._documents(join(self._directory, "documents", name), task, signatures)
        buckets = band_hashes(signatures, self.num_bands)
        buckets = (buckets[present] if column.null_count else buckets).reshape(-1)
        rows = np.repeat(present.astype(np.uint32), self.num_bands)
        columns = {"bucket": arrow_array(buckets), "row": arrow_array(rows)}
        if self.pairs:
            columns["key"] = arrow_array(np.repeat(hash_text_64(column)[present], self.num_bands))
        table = Rows(pa.table(columns))
        partition = (buckets % np.uint64(self.partitions)).astype(np.uint16)
        yield write_by(join(self._directory, "buckets", name), table, partition, compress=False)

    def _signatures(self, column: pa.ChunkedArray) -> NDArray[Any]:
        if not self.resources.requires_gpu:
            return self.minhash.signatures(column)
        from tamis.kernels.gpu import minhash as gpu

        return gpu.signatures(self.minhash, column)

    def _documents(self, final: str, task: TableTask, signatures: NDArray[Any]) -> Publish:
        made = sketches(signatures)
        columns = {"sketch": made}
        ranks = self.keep.ranks(task, self.text_field)
        if ranks is not None:
            columns["rank"] = arrow_array(ranks)
        documents = pa.table(columns)
        names = task.names
        rows = Rows(documents if names is None else names.added_to(documents))
        edges = np.array([0, documents.num_rows], np.int64)
        return write_cells(final, rows, np.zeros(1, np.int64), edges, count=batch_digest(task, made), compress=False)


@dataclass
class BucketPartitions(ScratchSource[FileGroup]):
    """One task for each partition of the buckets.

    Args:
        folder: The folder of the deduplication.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
        index: The folder with the buckets of earlier documents, if there are any.
    """

    memory_bytes: int
    index: str = ""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        numbered = numbered_files(self.index, directory, update=True)
        earlier = [(join(self.index, "buckets", name), size) for name, size in numbered]
        files = [*earlier, *((path, size) for path, size, _ in spilled_files(join(directory, "buckets")))]
        for number, parts in merge_indexes(read_indexes(files), join(directory, "buckets.index")).items():
            path = f"partition-{number}"
            count = part_count(parts.nbytes, self.memory_bytes, _SORTING)
            config = {"parts": parts, "earlier_files": len(earlier), "part_count": count}
            yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config=config)


@dataclass
class FindEdges(ScratchStage[FileGroup, FileGroup]):
    """Join the documents of each bucket.

    Args:
        folder: The folder of the deduplication.
        partitions: How many partitions of buckets there are.
        within: Whether documents of the input are joined to each other, too, not only to those of the index.
        pairs: Whether to write pairs of documents that are to be compared, and not the edges of a graph: each
            document of a bucket with the first and with the one before it. The documents of a bucket are then in the
            order of a hash of their texts, so that the pairs do not depend on the order of the input.
    """

    partitions: int
    within: bool = True
    pairs: bool = False

    def process(self, task: FileGroup) -> Iterator[Publish]:
        parts: Parts = task.reader_config["parts"]
        count = task.reader_config["part_count"]
        pieces = self._pieces(parts.read(), task.reader_config["earlier_files"])
        if count == 1:
            yield from self._edges(pieces, (*task.order, 0))
            return
        self.log_metric("parts", count)
        with temporary_folder(self._directory, "buckets") as folder:
            some = split(pieces, self._further_bits, count, folder, parts.nbytes // count)
            for number, cells in enumerate(some):
                yield from self._edges(read_cells(cells), (*task.order, number))

    def _edges(self, pieces: Iterable[Rows], order: tuple[int, ...]) -> Iterator[Publish]:
        """Write the edges of the buckets of a partition, or of a part of it."""
        left, right = self._joined(pieces)
        if not self.within:
            of_index = file_of(left) < NEW_FILES
            left, right = left[of_index], right[of_index]
        if not len(left):
            return
        final = join(self._directory, "edges", format_order(order) + SUFFIX)
        if self.pairs:
            yield _texts_to_send(final, left, right)
            return
        left, right = spanning_forest(left, right)
        edges = Rows(pa.table({"left": arrow_array(left), "right": arrow_array(right)}))
        yield write_cells(final, edges, np.zeros(1, np.int64), np.array([0, len(left)], np.int64))

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

    def _further_bits(self, table: pa.Table) -> NDArray[np.uint64]:
        further: NDArray[np.uint64] = numpy_array(table.column("bucket")) // np.uint64(self.partitions)
        return further

    def _joined(self, pieces: Iterable[Rows]) -> tuple[Documents, Documents]:
        table = Rows.concat(list(pieces)).table
        bucket, documents = (numpy_array(table.column(name)) for name in ("bucket", "document"))
        keys = numpy_array(table.column("key")) if self.pairs else None
        # The sort is stable: it keeps the documents of a bucket in the order of the input.
        groups = HashGroups.of((bucket,) if keys is None else (bucket, keys))
        documents, is_first = documents[groups.order], groups.is_new[0]
        others = np.flatnonzero(~is_first)
        firsts = np.flatnonzero(is_first)[np.cumsum(is_first)[others] - 1]
        left, right = documents[firsts], documents[others]
        if keys is None:
            return left, right
        before = np.flatnonzero(others - 1 != firsts)
        left, right = np.append(left, documents[others[before] - 1]), np.append(right, right[before])
        return left, right


def _texts_to_send(final: str, left: Documents, right: Documents) -> Publish:
    """Write which documents take part in which comparisons, by the file of the document.

    The text of each is sent to where the first document of the pair is, and the first document itself, too.
    """
    leaders = np.unique(left)
    documents, sent_to = np.append(right, leaders), np.append(left, leaders)
    table = pa.table({"row": arrow_array(row_of(documents)), "leader": arrow_array(sent_to)})
    return write_by(final, Rows(table), file_of(documents))
