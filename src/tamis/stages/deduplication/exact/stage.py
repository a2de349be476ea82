"""Exact deduplication as a stage of a pipeline.

Only hashes and names are exchanged. The rows are written to the run's scratch location once; they are read again in
their old order and their old tasks, without the duplicates, so the result is the same for any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.arrays import numpy_array
from tamis.errors import PlanError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.exact.repeats import HashPartitions, find_repeats, hashes_of
from tamis.stages.deduplication.keep import Keep
from tamis.stages.deduplication.marks import KeptRows, RemoveMarked, document_numbers, name_texts, write_marks
from tamis.stages.deduplication.memory import DEFAULT_MEMORY, memory_bytes
from tamis.stages.emit import Publish
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import join
from tamis.stages.spill import SUFFIX, ScratchStage, folder_for, spill
from tamis.tasks import FileGroup, RowNames, TableTask
from tamis.tasks.storage import format_order

__all__ = ["ExactDeduplication"]

REASON = "exact duplicate"


@dataclass
class ExactDeduplication(CompositeStage[TableTask, TableTask]):
    """Keep one of each set of documents with the same text, by default the first by name (path, then position).

    Texts are compared by a 128-bit hash. A document without text (null) is not a duplicate of anything. The drop ledger
    says of each duplicate which row it is a duplicate of (``score_text``).

    Args:
        text_field: The column compared.
        normalize_text: Whether texts that differ in case and white space only count as equal.
        partitions: How many parts the hashes are sorted in; as many can be worked on at the same time.
        keep: Which document of a set stays: ``"first"``, ``"longest"`` (of texts that are equal when normalised),
            ``"highest:COLUMN"`` or ``"lowest:COLUMN"``; see :class:`~tamis.stages.deduplication.keep.Keep`.
        memory_budget: How much memory of a machine the hashes may take, as a number of bytes or as ``"8GB"``. What does
            not fit is worked on in parts.

    >>> from tamis.testing import run_stage
    >>> run = run_stage(ExactDeduplication(), [{"text": "a"}, {"text": "b"}, {"text": "a"}])
    >>> run, run.dropped[0].reason
    ([{'text': 'a'}, {'text': 'b'}], 'exact duplicate')
    """

    text_field: str = "text"
    normalize_text: bool = False
    partitions: int = 16
    keep: str = "first"
    memory_budget: int | str = DEFAULT_MEMORY
    name: str = "ExactDeduplication"

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise PlanError(f"partitions={self.partitions}: must be at least 1")
        self.keep = str(Keep.parse(self.keep))
        memory_bytes(type(self).__name__, self.memory_budget)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder = folder_for(self.name)
        budget = memory_bytes(type(self).__name__, self.memory_budget)
        hashing = HashRows(folder, self.partitions, self.text_field, self.normalize_text, Keep.parse(self.keep))
        return [
            hashing.with_(name=f"{self.name} (hash)"),
            HashPartitions(folder, budget).with_(name=f"{self.name} (partitions)"),
            FindDuplicates(folder).with_(name=f"{self.name} (find)"),
            KeptRows(folder).with_(name=f"{self.name} (rows)"),
            RemoveMarked(folder, REASON).with_(name=self.name),
        ]


@dataclass
class HashRows(ScratchStage[TableTask, FileGroup]):
    """Write the rows to a file, and by partition the hashes of their texts, with the names of the rows."""

    partitions: int
    text_field: str
    normalize_text: bool
    keep: Keep

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field, *self.keep.columns]

    def ordered_columns(self) -> list[str]:
        return self.keep.columns

    def process(self, task: TableTask) -> Iterator[Publish]:
        rows, low = hashes_of(self.compared(task), self.text_field, self.normalize_text, self.keep)
        yield spill(task, join(self._directory, "rows"))
        final = join(self._directory, "hashes", format_order(task.order) + SUFFIX)
        yield write_by(final, rows, (low % np.uint64(self.partitions)).astype(np.int64))

    def compared(self, task: TableTask) -> TableTask:
        """The rows with the column that is compared."""
        return task


class FindDuplicates(ScratchStage[FileGroup, FileGroup]):
    """Find the repeated hashes of one partition; write for each file which of its rows are duplicates, and of what."""

    def process(self, task: FileGroup) -> Iterator[Publish]:
        for number, found in enumerate(find_repeats(task.reader_config, self._directory)):
            _, names = RowNames.taken_from(found.stays)
            originals = pa.nulls(len(found.of), pa.string()) if names is None else name_texts(names.take(found.of))
            file, row = (numpy_array(found.rows.column(name)) for name in ("file", "row"))
            final = join(self._directory, "marks", format_order((*task.order, number)) + SUFFIX)
            yield write_marks(final, document_numbers(file, row), originals)
