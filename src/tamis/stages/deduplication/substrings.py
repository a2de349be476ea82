"""Substring deduplication: spans of text that occurred before are cut out, wherever in a document they are.

**What is removed.** A window is a span of ``min_bytes`` bytes within one document. Windows are in the order of the
input: by document, then by their first byte. With ``keep="first"``, a byte is removed if it lies in a window that is
equal to an earlier one; with ``keep="none"``, if it lies in a window that is equal to any other one. A longer span that
occurred before consists of such windows, so all spans of at least ``min_bytes`` bytes that occurred before are removed,
and nothing else. Two equal windows may overlap: of a row of 1,000 dashes, one dash stays. A character is removed if all
of its bytes are.

**How.** Lee et al. (2021, "Deduplicating Training Data Makes Language Models Better") sort all suffixes of the corpus.
That takes eight bytes of memory and more for each byte of text, and cannot be cut into parts that fit. Comparing a hash
of each window gives the same answer, and hashes can be compared part by part, but there are as many windows as bytes.
So most windows are decided on together, in two rounds:

1. Each window has an *anchor*, chosen by its content alone (see :mod:`tamis.kernels.sources.anchors`), so that equal
   windows have anchors with equal hashes. Dozens of neighbouring windows share an anchor. If no other anchor has the
   same hash, none of its windows is repeated. If another one has, and if all that the windows of both cover is equal
   (by a 128-bit hash), each of them is repeated. This decides on all that is well inside of a repeated span.
2. What is left are windows whose anchor is repeated but not all around it: those at the ends of repeated spans. They
   are compared one by one, by a 122-bit hash. Of anchors with equal surroundings only the first takes part in this:
   each window of the others is equal to one of its windows.

Each round is an exchange: every task writes its hashes in their order, and each range of hashes is compared on its own.
Occurrences are never compared in pairs: a span that occurs a million times takes a million entries, not their square.
Two different windows of n bytes have equal hashes with a probability of at most ``(n / 2**61) ** 2``: among ten billion
windows of 200 bytes, there is one such pair with a probability below 10^-12.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from tamis.arrays import arrow_array
from tamis.errors import PlanError
from tamis.kernels.spans import Ints, remove_spans
from tamis.kernels.utf8 import Utf8
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.column_values import texts_like
from tamis.stages.deduplication.memory import DEFAULT_MEMORY, memory_bytes
from tamis.stages.deduplication.span_files import HashPartitions, Runs, found_for_tasks
from tamis.stages.deduplication.span_matching import (
    CompareAnchors,
    CompareWindows,
    OpenTasks,
    WriteAnchors,
    WriteWindows,
    settled_folders,
)
from tamis.stages.deduplication.span_units import SpanRule, SpanText
from tamis.stages.emit import Drop
from tamis.stages.io.paths import join
from tamis.stages.scratch import load_task
from tamis.stages.spill import ScratchSource, ScratchStage, folder_for
from tamis.tasks import FileGroup, TableTask

__all__ = ["SubstringDeduplication"]

REASON = "nothing left without repeated spans"


@dataclass
class SubstringDeduplication(CompositeStage[TableTask, TableTask]):
    """Cut out spans of text that are repeated anywhere in the data: within a document or in another one.

    The text of a document becomes shorter; a document of which nothing is left is dropped. A span never reaches from
    one document into the next. The result is exact and depends on the order of the documents alone, not on how they
    are cut into tasks, on workers or on memory. A document without text (null) stays as it is.

    Args:
        text_field: The column with the texts.
        min_bytes: The shortest span that counts, in bytes of UTF-8. 200 bytes of English are about 50 tokens.
        min_words: The shortest span that counts, in words (``str.split()``), instead of in bytes. The white space
            between words does not count, and is removed with the word before it.
        keep: ``"first"``: of each repeated span the first occurrence in the order of the input stays. ``"none"``: all
            occurrences are removed.
        removed_bytes_field: A column to add: how many bytes were removed from the text. ``None`` adds none.
        memory_budget: Memory of one machine for hashes, beside the batches that are worked on, in bytes or as
            ``"8GB"``.
        partitions: The least number of parts in which hashes are compared; as many can be worked on at the same time.

    >>> from tamis.testing import run_stage
    >>> notice = "All rights reserved. "
    >>> rows = [{"text": notice + "One."}, {"text": "Two. " + notice}, {"text": notice}]
    >>> run = run_stage(SubstringDeduplication(min_bytes=15), rows)
    >>> run, run.dropped[0].reason
    ([{'text': 'All rights reserved. One.'}, {'text': 'Two. '}], 'nothing left without repeated spans')
    """

    text_field: str = "text"
    min_bytes: int = 200
    min_words: int | None = None
    keep: Literal["first", "none"] = "first"
    removed_bytes_field: str | None = None
    memory_budget: int | str = DEFAULT_MEMORY
    partitions: int = 16
    name: str = "SubstringDeduplication"

    def __post_init__(self) -> None:
        for parameter in ("min_bytes", "min_words", "partitions"):
            value = getattr(self, parameter)
            if value is not None and value < 1:
                raise PlanError(f"{parameter}={value}: must be at least 1")
        if self.keep not in ("first", "none"):
            raise PlanError(f"keep={self.keep!r}: must be 'first' or 'none'")
        memory_bytes(type(self).__name__, self.memory_budget)

    @property
    def rule(self) -> SpanRule:
        """Which spans are looked for."""
        if self.min_words is not None:
            return SpanRule(self.text_field, self.min_words, "word", self.keep)
        return SpanRule(self.text_field, self.min_bytes, "byte", self.keep)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder, rule, memory = folder_for(self.name), self.rule, memory_bytes(self.name, self.memory_budget)
        stages: dict[str, ProcessingStage[Any, Any]] = {
            "anchors": WriteAnchors(folder, rule, memory),
            "ranges of anchors": HashPartitions(folder, "anchors", self.partitions, memory),
            "compare anchors": CompareAnchors(folder, rule, memory),
            "open windows": OpenTasks(folder),
            "windows": WriteWindows(folder, rule, memory),
            "ranges of windows": HashPartitions(folder, "windows", self.partitions, memory),
            "compare windows": CompareWindows(folder, rule),
            "rows": FoundSpans(folder),
        }
        named = [stage.with_(name=f"{self.name} ({title})") for title, stage in stages.items()]
        return [*named, RemoveSpans(folder, rule, self.removed_bytes_field).with_(name=self.name)]


class FoundSpans(ScratchSource[FileGroup]):
    """The tasks of the input, with the places of the windows that are to be removed from each."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        for task, parts in found_for_tasks(join(scratch, self.folder), settled_folders()):
            task.reader_config = {"parts": parts}
            yield task


@dataclass
class RemoveSpans(ScratchStage[FileGroup, TableTask]):
    """Read the rows again and cut the repeated spans out of their texts."""

    rule: SpanRule
    removed_bytes_field: str | None
    internal: ClassVar[bool] = False

    def adds_columns(self) -> list[str]:
        return [] if self.removed_bytes_field is None else [self.removed_bytes_field]

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return None if available is None else available | frozenset(self.adds_columns())

    def process(self, task: FileGroup) -> Iterator[Drop | TableTask]:
        batch = load_task(task.data[0])
        assert isinstance(batch, TableTask)
        parts = task.reader_config["parts"]
        removed = np.zeros(batch.num_items, np.int64)
        changed = batch
        if parts:
            column = batch[self.rule.text_field]
            text = self.rule.text_of(column)
            begins, ends = text.to_bytes(*_spans(text, Runs.read(parts), self.rule.length))
            data, offsets = remove_spans(text.texts.data, text.texts.offsets, begins, ends)
            removed = np.diff(text.texts.offsets) - np.diff(offsets)
            changed = batch.with_columns(
                {self.rule.text_field: texts_like(column, pa.chunked_array([Utf8(data, offsets).to_arrow()]))}
            )
            self.log_metric("bytes_removed", int(removed.sum()))
            self.log_metric("spans_removed", len(begins))
            self.log_metric("documents_changed", int(np.count_nonzero(removed)))
            is_empty = (removed > 0) & (np.diff(offsets) == 0)
            if is_empty.any():
                rows = np.flatnonzero(is_empty)
                yield Drop(batch, rows, REASON, arrow_array(removed[rows].astype(np.float64)))
                changed, removed = changed.select(np.flatnonzero(~is_empty)), removed[~is_empty]
        if self.removed_bytes_field is not None:
            changed = changed.with_columns({self.removed_bytes_field: arrow_array(removed)})
        yield changed


def _spans(text: SpanText, runs: Runs, length: int) -> tuple[Ints, Ints]:
    """What some windows cover, in units: spans that neither overlap nor touch, each within one text."""
    begins, ends = runs.starts, np.maximum.accumulate(runs.starts + runs.counts - 1 + length)
    row = np.searchsorted(text.units.offsets, begins, side="right")
    is_new = np.append(True, (begins[1:] > ends[:-1]) | (row[1:] != row[:-1]))
    is_last = np.append(is_new[1:], True)
    return begins[is_new], ends[is_last]
