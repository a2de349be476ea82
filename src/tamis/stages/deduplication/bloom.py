"""Exact deduplication with a Bloom filter: for so many documents that their hashes do not fit into memory.

The rows wait in the run's scratch location, and beside them, by partition, eight bytes of hash for each. When all are
there, each partition is read once, in the order of the input, through a Bloom filter. So a task that is tried again, or
a run that is resumed, has the same result, and the filter is not kept between tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import PlanError
from tamis.kernels.bloom import BloomFilter
from tamis.kernels.hashing import hash_text_64
from tamis.sizes import size_text
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.column_values import read_column
from tamis.stages.deduplication.exact.repeats import compared
from tamis.stages.deduplication.marks import KeptRows, RemoveMarked, document_numbers, write_marks
from tamis.stages.deduplication.memory import DEFAULT_MEMORY, memory_bytes
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Parts, Rows, file_codes, merge_indexes, read_cells, read_indexes
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import join
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, folder_for, spill, spilled_files
from tamis.tasks import FileGroup, FileSlice, TableTask
from tamis.tasks.storage import format_order

__all__ = ["REASON", "BloomDeduplication"]

REASON = "probable duplicate"

_LOWEST_RATE = 1e-9
"""Hashes have 64 bits: of 2 ** 32 documents, one in four thousand million has the hash of another by chance."""

_MOST_PASSES = 64
"""How often the hashes of a partition may be read. More often, a run would take forever."""

_MOST_MARKS = 2**22
"""Duplicates that are held in memory before they are written."""


@dataclass
class BloomDeduplication(CompositeStage[TableTask, TableTask]):
    """Keep the first of each set of documents with the same text, in a fixed amount of memory.

    A Bloom filter takes a document for a duplicate that is none with a small probability. For each expected document it
    takes ``-log(false_positive_rate) / log(2)**2`` bits in all partitions together: 3.6 bytes with the default rate.
    If there are more documents than expected, or than ``memory_budget`` has room for, each partition is read several
    times, for other hashes each time: memory and rate stay as they are. All duplicates are found. A document without
    text (null) is not a duplicate of anything.

    Args:
        text_field: The column compared: text or bytes.
        expected_documents: For how many documents the filters have room.
        false_positive_rate: The highest probability with which a document is removed that is not a duplicate.
        normalize_text: Whether texts that differ in case and white space only count as equal.
        partitions: How many parts the hashes are divided into; as many can be worked on at the same time, each with a
            filter of its own.
        memory_budget: How much memory the filters of all partitions may take together, as a number of bytes or as
            ``"8GB"``.

    >>> from tamis.testing import run_stage
    >>> run = run_stage(BloomDeduplication(), [{"text": "a"}, {"text": "b"}, {"text": "a"}])
    >>> run, run.dropped[0].reason
    ([{'text': 'a'}, {'text': 'b'}], 'probable duplicate')
    """

    text_field: str = "text"
    expected_documents: int = 100_000_000
    false_positive_rate: float = 1e-6
    normalize_text: bool = False
    partitions: int = 16
    memory_budget: int | str = DEFAULT_MEMORY
    name: str = "BloomDeduplication"

    def __post_init__(self) -> None:
        for parameter in ("expected_documents", "partitions"):
            if getattr(self, parameter) < 1:
                raise PlanError(f"{parameter}={getattr(self, parameter)}: must be at least 1")
        if self.partitions > 2**15:
            raise PlanError(f"partitions={self.partitions}: must be at most {2**15}")
        if not _LOWEST_RATE <= self.false_positive_rate < 1:
            raise PlanError(
                f"false_positive_rate={self.false_positive_rate}: must be from {_LOWEST_RATE} to less than 1. "
                "ExactDeduplication makes no such errors"
            )
        passes = -(-self._expected() // self._room())
        if passes > _MOST_PASSES:
            needed = self.partitions * BloomFilter.size_of(_room_for(self._expected()), self.false_positive_rate)
            raise PlanError(
                f"{type(self).__name__}(memory_budget={self.memory_budget!r}): filters for {self.expected_documents:,} "
                f"documents take {size_text(needed)}, so the hashes would be read {passes:,} times; at most "
                f"{_MOST_PASSES} times is allowed. Give at least {size_text(-(-needed // _MOST_PASSES))}, or use "
                "ExactDeduplication"
            )

    def _expected(self) -> int:
        """How many hashes a partition is expected to have."""
        return -(-self.expected_documents // self.partitions)

    def _room(self) -> int:
        """How many of them its filter is made for: all, or as many as its share of the memory has room for."""
        share = memory_bytes(type(self).__name__, self.memory_budget) // self.partitions
        fitting = int(8 * share * math.log(2) ** 2 / -math.log(self.false_positive_rate))
        return max(1, min(self._expected(), fitting - 5 * math.isqrt(fitting)))

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder, expected = folder_for(self.name), self._room()
        stages: dict[str, ProcessingStage[Any, Any]] = {
            "hash": HashTexts(folder, self.text_field, self.normalize_text, self.partitions),
            "partitions": FilteredPartitions(folder, expected),
            "filter": FilterHashes(folder, expected, self.false_positive_rate, self.partitions, self._expected()),
            "rows": KeptRows(folder),
        }
        named = [stage.with_(name=f"{self.name} ({name})") for name, stage in stages.items()]
        settings = (self.text_field, expected, self.false_positive_rate, self.normalize_text)
        return [*named, RemoveFound(folder, REASON, (*settings, self.partitions)).with_(name=self.name)]


@dataclass
class HashTexts(ScratchStage[TableTask, FileGroup]):
    """Write the rows to a file, and by partition the hashes of their texts.

    Args:
        folder: The folder of the deduplication.
        text_field: The column compared.
        normalize_text: Whether case and white space are made equal before.
        partitions: How many partitions there are.
    """

    text_field: str
    normalize_text: bool
    partitions: int

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def process(self, task: TableTask) -> Iterator[Publish]:
        yield spill(task, join(self._directory, "rows"))
        column = read_column(task.columns([self.text_field]), self.text_field, self.name)
        column = compared(column, self.text_field, self.normalize_text)
        present = np.flatnonzero(numpy_array(pc.is_valid(column)))
        hashes = hash_text_64(column)[present]
        rows = Rows(pa.table({"hash": arrow_array(hashes), "row": arrow_array(present.astype(np.uint32))}))
        final = join(self._directory, "hashes", format_order(task.order) + SUFFIX)
        yield write_by(final, rows, (hashes % np.uint64(self.partitions)).astype(np.int64))


def _room_for(expected: int) -> int:
    """For how many hashes a filter has room: some more than expected, as hashes are not spread quite evenly."""
    return expected + 4 * math.isqrt(expected) + 4


@dataclass
class FilteredPartitions(ScratchSource[FileGroup]):
    """One task for each partition, or several for one with more hashes than its filter has room for.

    Args:
        folder: The folder of the deduplication.
        expected: How many hashes a filter has room for.
    """

    expected: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = [(path, size) for path, size, _ in spilled_files(join(directory, "hashes"))]
        for number, parts in merge_indexes(read_indexes(files), join(directory, "hashes.index")).items():
            passes = 1 if parts.rows <= _room_for(self.expected) else -(-parts.rows // self.expected)
            for part in range(passes):
                path = f"partition-{number}" if passes == 1 else f"partition-{number}.{part}"
                config = {"parts": parts, "pass": (part, passes)}
                yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes // passes),), reader_config=config)


@dataclass
class FilterHashes(ScratchStage[FileGroup, FileGroup]):
    """Read the hashes of a partition through a Bloom filter, and write which rows of which file were there before.

    Args:
        folder: The folder of the deduplication.
        expected: How many hashes a filter has room for.
        false_positive_rate: The rate of its errors.
        partitions: How many partitions there are.
        in_partition: How many hashes a partition is expected to have.
    """

    expected: int
    false_positive_rate: float
    partitions: int
    in_partition: int

    def notes(self) -> list[str]:
        size = BloomFilter.size_of(_room_for(self.expected), self.false_positive_rate)
        passes = -(-self.in_partition // self.expected)
        return [
            f"each of {self.partitions} partitions takes {size_text(size)} of memory for its Bloom filter, with room "
            f"for {self.expected:,} documents; false-positive rate at most {self.false_positive_rate:g}"
            + (f"; to fit into memory_budget, it is read {passes} times" if passes > 1 else "")
        ]

    def process(self, task: FileGroup) -> Iterator[Publish]:
        held: list[NDArray[np.uint64]] = []
        written = 0
        for found in self._duplicates(task):
            held.append(found)
            if sum(map(len, held)) >= _MOST_MARKS:
                yield self._marks(task, held, written)
                held, written = [], written + 1
        if held:
            yield self._marks(task, held, written)

    def _duplicates(self, task: FileGroup) -> Iterator[NDArray[np.uint64]]:
        """The numbers of the documents whose hash came before, file by file in the order of the input."""
        parts: Parts = task.reader_config["parts"]
        part, passes = task.reader_config["pass"]
        seen = BloomFilter(min(_room_for(self.expected), parts.rows), self.false_positive_rate)
        cells = parts.read()
        for file, rows in zip(file_codes(cells), read_cells(cells), strict=True):
            hashes, row = (numpy_array(rows.table.column(name)) for name in ("hash", "row"))
            if passes > 1:
                own = (hashes // np.uint64(self.partitions)) % np.uint64(passes) == np.uint64(part)
                hashes, row = hashes[own], row[own]
            is_repeated = seen.add(hashes)
            if is_repeated.any():
                yield document_numbers(int(file), row[is_repeated])

    def _marks(self, task: FileGroup, held: list[NDArray[np.uint64]], written: int) -> Publish:
        documents = np.concatenate(held)
        final = join(self._directory, "marks", format_order((*task.order, written)) + SUFFIX)
        return write_marks(final, documents, pa.nulls(len(documents), pa.string()))


@dataclass
class RemoveFound(RemoveMarked):
    """Read the rows again and leave the duplicates out.

    Args:
        folder: The folder of the deduplication.
        reason: Why a row is dropped.
        settings: What the result depends on, so that a run with other settings is another run: for a plan only the
            stages count that reports show.
    """

    settings: tuple[str | float, ...] = ()
