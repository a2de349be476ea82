"""From documents to pairs of similar documents: signatures, buckets, edges.

The signature of a document is cut into bands. Documents that agree in a whole band are in one bucket, and are taken for
similar. An exchange brings the documents of a bucket together; each of them is joined to the first, so a bucket of
``n`` documents gives ``n - 1`` edges, however large it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import DataError
from tamis.kernels.hashing import hash_text_64
from tamis.kernels.minhash import MinHash, band_hashes
from tamis.stages.column_values import read_column, text_values
from tamis.stages.deduplication.fuzzy.index import batch_digest, numbered_files
from tamis.stages.deduplication.fuzzy.sketches import sketch_array, write_sketches
from tamis.stages.deduplication.keep import Keep
from tamis.stages.deduplication.splitting import part_count
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Rows, merge_indexes, read_indexes, write_cells
from tamis.stages.exchange.map_side import partition_order
from tamis.stages.io.paths import join
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, spill, spilled_files
from tamis.tasks import FileGroup, FileSlice, TableTask
from tamis.tasks.storage import format_order

__all__ = ["BucketPartitions", "HashBands"]

_SORTING = 6
"""Memory that it takes to find the edges of a partition, as a multiple of the partition's own."""

_SIGNED_AT_ONCE = 2**15
"""Documents whose signatures are in memory at once."""


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
        made, buckets = self._signed(column)
        yield self._documents(join(self._directory, "documents", name), task, made)
        del made
        yield self._buckets(join(self._directory, "buckets", name), column, buckets)

    def _signed(self, column: pa.ChunkedArray) -> tuple[pa.Array, NDArray[np.uint64]]:
        """The sketches of texts and the buckets that they are in. Signatures of short texts are larger than both."""
        made = np.empty((len(column), self.minhash.num_hashes), np.uint8)
        buckets = np.empty((len(column), self.num_bands), np.uint64)
        for start in range(0, len(column), _SIGNED_AT_ONCE):
            some, at = column.slice(start, _SIGNED_AT_ONCE), slice(start, start + _SIGNED_AT_ONCE)
            signatures = self._signatures(some)
            if some.null_count:  # what a null has in its place means nothing
                is_there = numpy_array(pc.is_valid(some))[:, None]
                signatures = np.where(is_there, signatures, signatures.dtype.type(0))
            write_sketches(signatures, made[at])
            buckets[at] = band_hashes(signatures, self.num_bands)
        return sketch_array(made), buckets

    def _buckets(self, final: str, column: pa.ChunkedArray, buckets: NDArray[np.uint64]) -> Publish:
        """Write by partition the buckets that rows with a text are in, and the rows."""
        present = np.arange(len(buckets), dtype=np.uint32)
        if column.null_count:
            present = np.flatnonzero(numpy_array(pc.is_valid(column))).astype(np.uint32)
            buckets = buckets[present]
        flat = buckets.reshape(-1)
        order, numbers, edges = partition_order((flat % np.uint64(self.partitions)).astype(np.uint16))
        columns = {"bucket": arrow_array(flat[order])}
        np.floor_divide(order, self.num_bands, out=order)
        rows = present[order]
        columns["row"] = arrow_array(rows)
        if self.pairs:
            columns["key"] = arrow_array(hash_text_64(column)[rows])
        return write_cells(final, Rows(pa.table(columns)), numbers, edges, compress=False)

    def _signatures(self, column: pa.ChunkedArray) -> NDArray[Any]:
        if not self.resources.requires_gpu:
            return self.minhash.signatures(column)
        from tamis.kernels.gpu import minhash as gpu

        return gpu.signatures(self.minhash, column)

    def _documents(self, final: str, task: TableTask, made: pa.Array) -> Publish:
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
        try:
            indexes = read_indexes(files)
        except DataError as error:
            if not earlier:
                raise
            hint = "If this file is of the index, the index is damaged: make it again, from all documents."
            raise DataError(f"a file of buckets cannot be read: {error}", hint=hint) from None
        for number, parts in merge_indexes(indexes, join(directory, "buckets.index")).items():
            path = f"partition-{number}"
            count = part_count(parts.nbytes, self.memory_bytes, _SORTING)
            config = {"parts": parts, "earlier_files": len(earlier), "part_count": count}
            yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config=config)
