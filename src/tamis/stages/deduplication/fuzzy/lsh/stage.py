"""From files of signatures to files of buckets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import DataError, PlanError
from tamis.kernels.minhash import band_hashes
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.file_barrier import each_group
from tamis.stages.deduplication.fuzzy.columns import CURATOR_DEFAULT_MINHASH_FIELD, CURATOR_LSH_BUCKET_FIELD
from tamis.stages.deduplication.fuzzy.keyed_ids import (
    KeyCells,
    KeyedIds,
    integer_ids,
    parquet_pieces,
    read_keyed,
    write_keyed,
)
from tamis.stages.deduplication.id_generator import CURATOR_DEDUP_ID_STR
from tamis.stages.deduplication.memory import memory_bytes
from tamis.stages.deduplication.part_files import FOLDER, PART, write_parts
from tamis.stages.emit import Publish
from tamis.stages.io.paths import join
from tamis.stages.spill import SUFFIX, ScratchStage, folder_for
from tamis.tasks import DocumentBatch, FileGroup
from tamis.tasks.storage import format_order

__all__ = ["LSHStage"]


@dataclass
class LSHStage(CompositeStage[FileGroup, FileGroup]):
    """Bring documents that agree in a whole band of their signatures together.

    The buckets of the bands ``s`` to ``e - 1`` are in ``<output_path>/LSHStage/band_<s>-band_<e>/part.<k>.parquet``: a
    bucket, and the sorted ids of its documents. Buckets with one document are left out. A bucket whose documents do not
    fit into memory has several rows, each of which begins with its first document.

    Args:
        num_bands: How many bands a signature has.
        minhashes_per_band: How many numbers a band has.
        id_field: The column with the ids: whole numbers.
        minhash_field: The column with the signatures.
        output_path: The directory above that of the buckets.
        read_kwargs: ``storage_options`` for the signatures; nothing else in it is used.
        write_kwargs: Further arguments of ``pyarrow.parquet.ParquetWriter``.
        rmm_pool_size, spill_memory_limit, enable_statistics, use_async_memory: For NeMo Curator's GPU code; not used.
        bands_per_iteration: How many bands are in one folder.
        total_nparts: How many files a folder has at most; 16 by default.
        memory_budget: How much memory of a machine the buckets may take, as a number of bytes or as ``"8GB"``.

    >>> [stage.name for stage in LSHStage(20, 13, output_path="cache").decompose()][-1]
    'LSHStage'
    """

    num_bands: int
    minhashes_per_band: int
    id_field: str = CURATOR_DEDUP_ID_STR
    minhash_field: str = CURATOR_DEFAULT_MINHASH_FIELD
    output_path: str = "./"
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    rmm_pool_size: int | str | None = "auto"
    spill_memory_limit: int | str | None = "auto"
    enable_statistics: bool = False
    bands_per_iteration: int = 5
    total_nparts: int | None = None
    use_async_memory: bool = True
    memory_budget: int | str = "2GiB"
    name: str = "LSHStage"

    def __post_init__(self) -> None:
        owner = type(self).__name__
        for parameter in ("num_bands", "minhashes_per_band", "total_nparts"):
            value = getattr(self, parameter)
            if value is not None and value < 1:
                raise PlanError(f"{owner}({parameter}={value}): must be at least 1")
        if not 1 <= self.bands_per_iteration <= self.num_bands:
            raise PlanError(
                f"{owner}(bands_per_iteration={self.bands_per_iteration}): must be from 1 to num_bands={self.num_bands}"
            )
        memory_bytes(type(self).__name__, self.memory_budget)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder, parts = folder_for(self.name), self.total_nparts or 16
        columns = [CURATOR_LSH_BUCKET_FIELD, self.id_field]
        writing = write_parts(join(self.output_path, type(self).__name__), columns, self.write_kwargs)
        banding = BandSignatures(
            folder,
            self.num_bands,
            self.minhashes_per_band,
            self.bands_per_iteration,
            parts,
            self.id_field,
            self.minhash_field,
            self.read_kwargs,
        )
        buckets = MakeBuckets(folder, self.num_bands, self.bands_per_iteration, parts, self.id_field)
        return [
            *each_group(self.name),
            banding.with_(name=f"{self.name} (bands)"),
            KeyCells(folder, memory_bytes(self.name, self.memory_budget)).with_(name=f"{self.name} (cells)"),
            buckets.with_(name=f"{self.name} (buckets)"),
            writing.with_(name=self.name),
        ]


@dataclass
class BandSignatures(ScratchStage[FileGroup, FileGroup]):
    """Write the hashes of bands, with the ids of documents, by folder and part."""

    num_bands: int
    minhashes_per_band: int
    bands_per_iteration: int
    parts: int
    id_field: str
    minhash_field: str
    read_kwargs: dict[str, Any] | None = None

    def process(self, task: FileGroup) -> Iterator[Publish]:
        number = 0
        folders = np.arange(self.num_bands, dtype=np.int64) // self.bands_per_iteration
        for path in task.data:
            for table in parquet_pieces(path, [self.id_field, self.minhash_field], self.read_kwargs):
                ids = integer_ids(table.column(self.id_field), self.id_field, path)
                buckets = band_hashes(self._signatures(table, path), self.num_bands)
                cells = folders * self.parts + (buckets % np.uint64(self.parts)).astype(np.int64)
                final = join(self._directory, "keys", format_order((*task.order, number)) + SUFFIX)
                yield write_keyed(final, buckets.reshape(-1), np.repeat(ids, self.num_bands), cells.reshape(-1))
                number += 1

    def _signatures(self, table: pa.Table, path: str) -> NDArray[Any]:
        lists = table.column(self.minhash_field).combine_chunks()
        lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
        length = self.num_bands * self.minhashes_per_band
        values = lists.flatten()
        if len(values) != length * len(lists):
            raise DataError(
                f"signatures have {len(values) // max(len(lists), 1)} numbers, and {self.num_bands} bands of "
                f"{self.minhashes_per_band} need {length}",
                path=path,
            )
        if values.type not in (pa.uint32(), pa.uint64()):
            raise DataError(f"signatures hold {values.type}, and must hold uint32 or uint64", path=path)
        signatures: NDArray[Any] = numpy_array(values).reshape(-1, length)
        return signatures


@dataclass
class MakeBuckets(ScratchStage[FileGroup, DocumentBatch]):
    """Make the rows of one file of buckets."""

    num_bands: int
    bands_per_iteration: int
    parts: int
    id_field: str
    makes_rows: ClassVar[Literal["same", "split", "joined", "new"]] = "new"

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return frozenset({CURATOR_LSH_BUCKET_FIELD, self.id_field})

    def process(self, task: FileGroup) -> Iterator[DocumentBatch]:
        config = task.reader_config
        iteration, part = divmod(config["cell"], self.parts)
        first = iteration * self.bands_per_iteration
        folder = f"band_{first}-band_{min(first + self.bands_per_iteration, self.num_bands)}"
        for number, rows in enumerate(read_keyed(config, self._directory)):
            table = _buckets(rows, self.id_field)
            if table.num_rows:
                name = f"{part}-{number}" if number else str(part)
                yield DocumentBatch(table, _metadata={FOLDER: folder, PART: name})


def _buckets(rows: KeyedIds, id_field: str) -> pa.Table:
    """A row for each bucket with several documents: its first document, and all others that are here."""
    others = np.flatnonzero((rows.counts > 1) & (rows.ids != rows.firsts))
    keys, ids = rows.keys[others], rows.ids[others]
    is_first = np.ones(len(keys), np.bool_)
    is_first[1:] = keys[1:] != keys[:-1]
    starts = np.flatnonzero(is_first)
    # The first document of each bucket comes before the others.
    values = np.insert(ids, starts, rows.firsts[others][starts])
    offsets = np.append(starts + np.arange(len(starts)), len(values))
    lists = pa.LargeListArray.from_arrays(arrow_array(offsets.astype(np.int64)), arrow_array(values))
    return pa.table({CURATOR_LSH_BUCKET_FIELD: _hexadecimal(keys[starts]), id_field: lists})


def _hexadecimal(numbers: NDArray[np.uint64]) -> pa.Array:
    """Numbers as texts of 16 hexadecimal digits."""
    digits = numbers.astype(">u8").tobytes().hex().encode()
    offsets = np.arange(len(numbers) + 1, dtype=np.int64) * 16
    return pa.LargeStringArray.from_buffers(len(numbers), pa.py_buffer(offsets), pa.py_buffer(digits))
