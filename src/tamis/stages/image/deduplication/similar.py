"""From images to pairs of similar images: hashes, groups of equal ones, and pairs of those that differ in few bits.

Images with the same hash are grouped first, so that a million black images count as one. Only different hashes are
compared, see :mod:`tamis.kernels.hamming`; each task does so for some choices of blocks of bits, and for a part of the
hashes where all of them do not fit into memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.kernels.components import spanning_forest
from tamis.kernels.hamming import BYTES_PER_HASH, Choice, Choices, hamming_distances, spread_bits
from tamis.kernels.hash_groups import HashGroups
from tamis.stages.deduplication.fuzzy.edges import FindEdges, gathered, with_firsts
from tamis.stages.deduplication.fuzzy.groups import ChooseKept
from tamis.stages.deduplication.keep import Keep
from tamis.stages.deduplication.marks import Documents
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Parts, Rows, merge_indexes, read_cells, read_indexes, write_cells
from tamis.stages.exchange.map_side import write_by
from tamis.stages.image.deduplication.hashes import hashes_in, image_hashes
from tamis.stages.io.paths import join
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, spill, spilled_files
from tamis.tasks import FileGroup, FileSlice, ImageBatch, TableTask
from tamis.tasks.storage import format_order

__all__ = ["ChooseAmongSimilar", "FindSimilar", "GroupEqual", "HashImages", "HashParts", "SimilarEdges"]

Hashes = NDArray[np.uint64]

_EDGES_AT_ONCE = 2**18
"""How many pairs wait to be written."""

_LEAST_WORK = 2**20
"""A task has so many hashes at least, or all choices of blocks."""

_MOST_PARTS = 2**12


@dataclass
class HashImages(ScratchStage[TableTask, FileGroup]):
    """Write the rows, what is to be known of each later, and by partition their hashes.

    Args:
        folder: The folder of the deduplication.
        kind: Which hash.
        hash_field: A column that has the hashes; they are made from the images when it is empty.
        exact: Whether images are decoded whole.
        keep: Which image of a group stays.
        partitions: How many partitions of hashes there are.
    """

    kind: str
    hash_field: str
    exact: bool
    keep: Keep
    partitions: int

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [*([self.hash_field] if self.hash_field else []), *self.keep.columns]

    def ordered_columns(self) -> list[str]:
        return self.keep.columns

    def process(self, task: TableTask) -> Iterator[Publish]:
        name = format_order(task.order) + SUFFIX
        if self.hash_field:
            hashes, rows = hashes_in(task, self.hash_field)
        else:
            hashes = image_hashes(ImageBatch.of(task), (self.kind,), self.exact)[self.kind]
            rows = np.arange(task.num_items)
        every = np.zeros(task.num_items, np.uint64)
        every[rows] = hashes
        columns = {"sketch": _as_bytes(every)}
        ranks = self.keep.ranks(task, "")
        if ranks is not None:
            columns["rank"] = arrow_array(ranks)
        documents = pa.table(columns)
        described = Rows(documents if task.names is None else task.names.added_to(documents))
        edges = np.array([0, task.num_items], np.int64)
        yield spill(task, join(self._directory, "rows"))
        yield write_cells(
            join(self._directory, "documents", name), described, np.zeros(1, np.int64), edges, compress=False
        )
        table = pa.table({"bucket": arrow_array(hashes), "row": arrow_array(rows.astype(np.uint32))})
        partition = (spread_bits(hashes) % np.uint64(self.partitions)).astype(np.uint16)
        yield write_by(join(self._directory, "buckets", name), Rows(table), partition, compress=False)


def _as_bytes(hashes: Hashes) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(8), len(hashes), [None, pa.py_buffer(hashes.astype(">u8"))])


@dataclass
class GroupEqual(FindEdges):
    """Join the images with the same hash, and write each hash once, with the first image that has it."""

    def _edges(self, ranges: Iterable[Iterable[Rows]], at_once: int, order: tuple[int, ...]) -> Iterator[Publish]:
        firsts: list[Hashes] = []
        number = 0
        for pieces in ranges:
            for bucket, document in gathered(pieces, at_once, ("bucket", "document")):
                if firsts:
                    bucket, document = (np.append(*both) for both in zip(firsts, (bucket, document), strict=True))
                groups = HashGroups.of((bucket,))
                left, right, firsts = with_firsts((bucket, document), groups.order, groups.is_new[0])
                if len(left):
                    yield _edges_file(join(self._directory, "edges"), (*order, number), left, right)
                    number += 1
        if firsts:
            final = join(self._directory, "distinct", format_order(order) + SUFFIX)
            table = pa.table(dict(zip(("hash", "document"), map(arrow_array, firsts), strict=True)))
            edges = np.array([0, table.num_rows], np.int64)
            yield write_cells(final, Rows(table), np.zeros(1, np.int64), edges, compress=False)

    def _further_bits(self, table: pa.Table) -> Hashes:
        further: Hashes = spread_bits(numpy_array(table.column("bucket"))) // np.uint64(self.partitions)
        return further


def _edges_file(directory: str, order: tuple[int, ...], left: Documents, right: Documents) -> Publish:
    edges = Rows(pa.table({"left": arrow_array(left), "right": arrow_array(right)}))
    final = join(directory, format_order(order) + SUFFIX)
    return write_cells(final, edges, np.zeros(1, np.int64), np.array([0, len(left)], np.int64))


@dataclass
class HashParts(ScratchSource[FileGroup]):
    """The comparisons to be made, divided into tasks.

    Args:
        folder: The folder of the deduplication.
        max_distance: How many bits may differ.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
    """

    max_distance: int
    memory_bytes: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = spilled_files(join(directory, "distinct"))
        indexes = read_indexes([(path, size) for path, size, _ in files])
        parts = merge_indexes(indexes, join(directory, "distinct.index")).get(0)
        if parts is None or parts.rows < 2 or not self.max_distance:
            return
        count = len(Choices.of(parts.rows, self.max_distance).all)
        ranges = range_count(parts.rows, self.memory_bytes)
        together = min(max(_LEAST_WORK // parts.rows, 1), count)
        for first in range(0, count, together):
            for part in range(ranges):
                path = f"hashes-{first}-{part}"
                config = {"parts": parts, "choices": (first, first + together), "range": part, "ranges": ranges}
                yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config=config)


def range_count(hashes: int, memory_bytes: int) -> int:
    """In how many ranges hashes are compared, so that those of a range fit into the memory of a task.

    >>> range_count(10**6, 2**40), range_count(10**9, 2**31) >= 32
    (1, True)
    """
    at_once = max(memory_bytes // (os.cpu_count() or 1), 1)
    return min(-(-hashes * 2 * (BYTES_PER_HASH + 16) // at_once), _MOST_PARTS)


@dataclass
class FindSimilar(ScratchStage[FileGroup, FileGroup]):
    """Find the pairs of different hashes that differ in few bits; write the images that have them.

    Args:
        folder: The folder of the deduplication.
        max_distance: How many bits may differ.
    """

    max_distance: int

    def process(self, task: FileGroup) -> Iterator[Publish]:
        config = task.reader_config
        parts: Parts = config["parts"]
        choices = Choices.of(parts.rows, self.max_distance).all[slice(*config["choices"])]
        held: tuple[Hashes, Documents] | None = None
        number = 0
        for choice in choices:
            if held is None or config["ranges"] > 1:
                held = _hashes_of(parts, choice, config["range"], config["ranges"])
            for left, right in self._edges(choice, *held):
                yield _edges_file(join(self._directory, "similar"), (*task.order, number), left, right)
                number += 1

    def _edges(self, choice: Choice, hashes: Hashes, documents: Documents) -> Iterator[tuple[Documents, Documents]]:
        """The edges of one choice of blocks, as few as connect the same images."""
        left, right = np.zeros(0, np.uint64), np.zeros(0, np.uint64)
        for one, other, _ in choice.pairs(hashes, self.max_distance):
            self.log_metric("pairs_similar", len(one))
            left, right = np.append(left, documents[one]), np.append(right, documents[other])
            if len(left) >= _EDGES_AT_ONCE:
                left, right = spanning_forest(left, right)
                if len(left) >= _EDGES_AT_ONCE // 2:
                    yield left, right
                    left, right = left[:0], right[:0]
        if len(left):
            yield spanning_forest(left, right)


def _hashes_of(parts: Parts, choice: Choice, number: int, count: int) -> tuple[Hashes, Documents]:
    """The hashes of one range and the images that have them: those that agree in the chosen blocks are in one range."""
    hashes, documents = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    for rows in read_cells(parts.read()):
        hash_, document = (numpy_array(rows.table.column(name)) for name in ("hash", "document"))
        if count > 1:
            of_range = spread_bits(hash_ & np.uint64(choice.mask)) % np.uint64(count) == number
            hash_, document = hash_[of_range], document[of_range]
        hashes.append(hash_)
        documents.append(document)
    return np.concatenate(hashes), np.concatenate(documents)


@dataclass
class SimilarEdges(ScratchSource[FileGroup]):
    """One task for all edges: of equal hashes and of similar ones."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = [file for name in ("edges", "similar") for file in spilled_files(join(directory, name))]
        if files:
            slices = tuple(FileSlice(path, size=size) for path, size, _ in files)
            yield FileGroup([path for path, _, _ in files], slices=slices)


@dataclass
class ChooseAmongSimilar(ChooseKept):
    """Choose the image of each group that stays; how similar the others are is the share of equal bits."""

    @staticmethod
    def similarity(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> NDArray[np.float32]:
        bits: list[NDArray[Any]] = [np.ascontiguousarray(each).view(np.uint64).reshape(-1) for each in (one, other)]
        equal: NDArray[np.float32] = 1 - hamming_distances(bits[0], bits[1]).astype(np.float32) / np.float32(64)
        return equal
