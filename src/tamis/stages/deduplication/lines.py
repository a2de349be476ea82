"""Deduplication of lines and paragraphs across all documents.

Only hashes and counts are exchanged: for each task and each line in it one hash and how often it occurs there, so a
line that is everywhere does not make a partition large. Back comes, for lines that occur too often, how many of those
in the task may stay. The rows wait in the run's scratch location and are read again in their old order, so the result
is the same for any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import PlanError
from tamis.kernels.line_pieces import Unit, cut, lengths, piece_hashes, with_text, without
from tamis.kernels.pieces import Pieces, sum_of_pieces
from tamis.kernels.utf8 import Utf8
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.column_values import read_column, text_values, texts_like
from tamis.stages.deduplication.marks import KeptRows
from tamis.stages.deduplication.memory import memory_bytes
from tamis.stages.deduplication.splitting import part_count, split, temporary_folder
from tamis.stages.emit import Drop, Publish
from tamis.stages.exchange.files import Parts, Rows, file_codes, merge_indexes, read_cells, read_indexes
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import join
from tamis.stages.scratch import load_task
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, folder_for, spill, spilled_files
from tamis.tasks import FileGroup, FileSlice, TableTask
from tamis.tasks.storage import format_order

__all__ = ["LineDeduplication"]

Hashes = NDArray[np.uint64]

_SORTING = 8
"""Memory that it takes to count the lines of a partition, as a multiple of the partition's own."""

_MOST_COUNTED = 2**32 - 1


@dataclass(frozen=True)
class LineRule:
    """Which lines are compared, and how many equal ones may stay.

    Args:
        unit: Lines or paragraphs.
        max_occurrences: How many equal ones may stay.
        keep: What stays of those that occur more often.
        min_length: The fewest characters of a line that is compared.
        normalize_text: Whether case and white space are made equal before.
    """

    unit: Unit
    max_occurrences: int
    keep: Literal["first", "none"]
    min_length: int
    normalize_text: bool

    def hashed(self, block: Utf8) -> tuple[Pieces, NDArray[np.int64], Hashes]:
        """The lines of a block of texts, the numbers of those that are compared, and the hashes of these."""
        pieces = cut(block, self.unit)
        compared = with_text(block, pieces)
        if self.min_length > 1:
            compared &= lengths(block, pieces) >= self.min_length
        numbers = np.flatnonzero(compared)
        return pieces, numbers, piece_hashes(block, pieces, self.normalize_text)[numbers]


@dataclass
class LineDeduplication(CompositeStage[TableTask, TableTask]):
    """Remove lines, or paragraphs, that occur more than once in all documents together.

    Lines are what newlines separate, paragraphs what two or more newlines separate. They are compared by a 64-bit hash.
    Lines of white space only are not compared and stay. A document of which nothing but white space is left is dropped.
    A document without text (null) stays as it is. The run's statistics have the numbers of lines and bytes removed
    (``removed_lines`` and ``removed_bytes``).

    Args:
        text_field: The column with the text.
        unit: ``"line"`` or ``"paragraph"``.
        max_occurrences: How often a line may occur.
        keep: What stays of a line that occurs more often: the ``"first"`` in the order of the input, as many as may
            occur, or ``"none"``.
        min_length: Shorter lines are not compared and stay; in characters.
        normalize_text: Whether lines that differ in case and white space only count as equal.
        counts_field: A column for the number of lines removed from each document, if it is wanted.
        partitions: How many parts the hashes are divided into; as many can be worked on at the same time.
        memory_budget: Memory for counting on one machine, in bytes or as ``"8GB"``. A partition that does not fit is
            split into parts on disk.

    >>> from tamis.testing import run_stage
    >>> rows = [{"text": "Home\\nCats purr."}, {"text": "Home\\nDogs bark.\\nHome"}, {"text": "Home"}]
    >>> run = run_stage(LineDeduplication(counts_field="removed"), rows)
    >>> run
    [{'text': 'Home\\nCats purr.', 'removed': 0}, {'text': 'Dogs bark.', 'removed': 2}]
    >>> run.dropped[0].reason
    'no line left after deduplication'
    """

    text_field: str = "text"
    unit: Literal["line", "paragraph"] = "line"
    max_occurrences: int = 1
    keep: Literal["first", "none"] = "first"
    min_length: int = 1
    normalize_text: bool = False
    counts_field: str | None = None
    partitions: int = 16
    memory_budget: int | str = "2GiB"
    name: str = "LineDeduplication"

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise PlanError(f"unit={self.unit!r}: must be 'line' or 'paragraph'")
        if self.keep not in ("first", "none"):
            raise PlanError(f"keep={self.keep!r}: must be 'first' or 'none'")
        for parameter in ("max_occurrences", "min_length", "partitions"):
            if getattr(self, parameter) < 1:
                raise PlanError(f"{parameter}={getattr(self, parameter)}: must be at least 1")
        if self.partitions > 2**15:
            raise PlanError(f"partitions={self.partitions}: must be at most {2**15}")
        memory_bytes(type(self).__name__, self.memory_budget)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder = folder_for(self.name)
        rule = LineRule(self.unit, self.max_occurrences, self.keep, self.min_length, self.normalize_text)
        stages: dict[str, ProcessingStage[Any, Any]] = {
            "hash": HashLines(folder, rule, self.text_field, self.partitions),
            "partitions": LinePartitions(folder, memory_bytes(self.name, self.memory_budget)),
            "count": CountLines(folder, rule, self.partitions),
            "rows": KeptRows(folder),
        }
        named = [stage.with_(name=f"{self.name} ({name})") for name, stage in stages.items()]
        return [*named, RemoveLines(folder, rule, self.text_field, self.counts_field).with_(name=self.name)]


@dataclass
class HashLines(ScratchStage[TableTask, FileGroup]):
    """Write the rows to a file, and by partition the hashes of their lines, each once and with its number.

    Args:
        folder: The folder of the deduplication.
        rule: Which lines are compared.
        text_field: The column with the text.
        partitions: How many partitions there are.
    """

    rule: LineRule
    text_field: str
    partitions: int

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field]

    def text_columns(self) -> list[str]:
        return [self.text_field]

    def process(self, task: TableTask) -> Iterator[Publish]:
        yield spill(task, join(self._directory, "rows"))
        column = read_column(task.columns([self.text_field]), self.text_field, self.name)
        texts = Utf8.from_arrow(text_values(column, self.text_field, self.name))
        found = [np.empty(0, np.uint64), *(self.rule.hashed(block)[2] for block in texts.blocks())]
        hashes, counts = np.unique(np.concatenate(found), return_counts=True)
        table = pa.table({"hash": arrow_array(hashes), "count": arrow_array(counts.astype(np.uint32))})
        final = join(self._directory, "lines", format_order(task.order) + SUFFIX)
        yield write_by(final, Rows(table), (hashes % np.uint64(self.partitions)).astype(np.int64))


@dataclass
class LinePartitions(ScratchSource[FileGroup]):
    """One task for each partition of the lines.

    Args:
        folder: The folder of the deduplication.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
    """

    memory_bytes: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = [(path, size) for path, size, _ in spilled_files(join(directory, "lines"))]
        for number, parts in merge_indexes(read_indexes(files), join(directory, "lines.index")).items():
            path = f"partition-{number}"
            config = {"parts": parts, "part_count": part_count(parts.nbytes, self.memory_bytes, _SORTING)}
            yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config=config)


@dataclass
class CountLines(ScratchStage[FileGroup, FileGroup]):
    """Find the lines of a partition that occur too often; write for each file how many of those in it may stay.

    Args:
        folder: The folder of the deduplication.
        rule: How many may stay.
        partitions: How many partitions there are.
    """

    rule: LineRule
    partitions: int

    def process(self, task: FileGroup) -> Iterator[Publish]:
        parts: Parts = task.reader_config["parts"]
        count = task.reader_config["part_count"]
        pieces = self._pieces(parts.read())
        if count == 1:
            yield from self._count(pieces, (*task.order, 0))
            return
        with temporary_folder(self._directory, "lines") as folder:
            some = split(pieces, self._further_bits, count, folder, parts.nbytes // count)
            for number, cells in enumerate(some):
                yield from self._count(read_cells(cells), (*task.order, number))

    def _pieces(self, cells: pa.Table) -> Iterator[Rows]:
        """The lines of the partition file by file, each with the number of its file."""
        for file, rows in zip(file_codes(cells), read_cells(cells), strict=True):
            yield Rows(rows.table.append_column("file", arrow_array(np.full(rows.table.num_rows, file, np.int32))))

    def _further_bits(self, table: pa.Table) -> Hashes:
        further: Hashes = numpy_array(table.column("hash")) // np.uint64(self.partitions)
        return further

    def _count(self, pieces: Iterable[Rows], place: tuple[int, ...]) -> Iterator[Publish]:
        """Write what is found among all lines of a partition, or of a part of it."""
        table = Rows.concat(list(pieces)).table
        hashes, counts, files = (numpy_array(table.column(name)) for name in ("hash", "count", "file"))
        counts = counts.astype(np.int64)
        # A stable sort keeps equal lines in the order of the input.
        order = np.argsort(hashes, kind="stable")
        hashes, counts, files = hashes[order], counts[order], files[order]
        is_first = np.ones(len(hashes), np.bool_)
        is_first[1:] = hashes[1:] != hashes[:-1]
        firsts = np.flatnonzero(is_first)
        group = np.cumsum(is_first) - 1
        until = np.cumsum(counts)
        before = until - counts - (until - counts)[firsts][group]
        if self.rule.keep == "first":
            allowed = np.clip(self.rule.max_occurrences - before, 0, counts)
        else:
            totals = np.add.reduceat(counts, firsts) if len(firsts) else counts
            allowed = np.where(totals[group] > self.rule.max_occurrences, 0, counts)
        too_many = np.flatnonzero(allowed < counts)
        if not len(too_many):
            return
        may_stay = np.minimum(allowed[too_many], _MOST_COUNTED).astype(np.uint32)
        found = pa.table({"hash": arrow_array(hashes[too_many]), "allowed": arrow_array(may_stay)})
        final = join(self._directory, "marks", format_order(place) + SUFFIX)
        yield write_by(final, Rows(found), files[too_many].astype(np.int64))


@dataclass
class RemoveLines(ScratchStage[FileGroup, TableTask]):
    """Read the rows again, without the lines that occur too often.

    Args:
        folder: The folder of the deduplication.
        rule: Which lines are compared.
        text_field: The column with the text.
        counts_field: The column for the number of lines removed, if it is wanted.
    """

    rule: LineRule
    text_field: str
    counts_field: str | None = None
    internal: ClassVar[bool] = False

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self.adds_columns()

    def adds_columns(self) -> list[str]:
        return [] if self.counts_field is None else [self.counts_field]

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return None if available is None else available | {*self.adds_columns()}

    def process(self, task: FileGroup) -> Iterator[Drop | TableTask]:
        batch = load_task(task.data[0])
        assert isinstance(batch, TableTask)
        parts = task.reader_config["parts"]
        if parts is None:
            yield self._counted(batch, np.zeros(batch.num_items, np.int64))
            return
        marks = Rows.concat(list(read_cells(parts.read()))).table.sort_by("hash")
        known, allowed = (numpy_array(marks.column(name)) for name in ("hash", "allowed"))
        before = batch.data.column(self.text_field)
        texts, removed, is_empty = self._cleaned(
            Utf8.from_arrow(text_values(before, self.text_field, self.name)), known, allowed
        )
        self.log_metric("removed_lines", int(removed.sum()))
        kept = np.flatnonzero(~is_empty)
        self.log_metric("removed_bytes", self._bytes(before) - self._bytes(texts))
        if len(kept) < len(is_empty):
            yield Drop(batch, np.flatnonzero(is_empty), f"no {self.rule.unit} left after deduplication")
        place = batch.data.column_names.index(self.text_field)
        table = batch.data.set_column(place, self.text_field, texts_like(before, texts))
        yield self._counted(batch.with_same_rows(table), removed).select(kept)

    def _cleaned(
        self, texts: Utf8, known: Hashes, allowed: NDArray[np.uint32]
    ) -> tuple[pa.ChunkedArray, NDArray[np.int64], NDArray[np.bool_]]:
        """The texts without the lines that are too many, how many those are, and which texts have none left."""
        blocks = [(block, *self.rule.hashed(block)) for block in texts.blocks()]
        hashes = np.concatenate([np.empty(0, np.uint64), *(found for *_, found in blocks)])
        is_removed = _too_many(hashes, known, allowed)
        chunks, removed, is_empty, done = [], [], [], 0
        for block, pieces, numbers, found in blocks:
            gone = np.zeros(len(pieces.starts), np.bool_)
            gone[numbers[is_removed[done : done + len(found)]]] = True
            done += len(found)
            removed.append(sum_of_pieces(gone, pieces.counts))
            left = sum_of_pieces(with_text(block, pieces) & ~gone, pieces.counts)
            is_empty.append((left == 0) & (removed[-1] > 0))
            chunks.append((without(block, pieces, gone) if gone.any() else block).to_arrow())
        return pa.chunked_array(chunks, pa.large_string()), np.concatenate(removed), np.concatenate(is_empty)

    def _counted(self, batch: TableTask, removed: NDArray[np.int64]) -> TableTask:
        if self.counts_field is None:
            return batch
        table, counts = batch.data, pa.chunked_array([arrow_array(removed)])
        if self.counts_field in table.column_names:
            return batch.with_same_rows(
                table.set_column(table.column_names.index(self.counts_field), self.counts_field, counts)
            )
        return batch.with_same_rows(table.append_column(self.counts_field, counts))

    def _bytes(self, column: pa.ChunkedArray) -> int:
        return int(pc.sum(pc.binary_length(text_values(column, self.text_field, self.name))).as_py() or 0)


def _too_many(hashes: Hashes, known: Hashes, allowed: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Which lines of a batch are beyond what may stay of them.

    Args:
        hashes: The hashes of all lines, in their order.
        known: The hashes of lines that occur too often, ascending.
        allowed: How many of each may stay here.
    """
    place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
    repeated = np.flatnonzero(known[place] == hashes)
    order = np.argsort(place[repeated], kind="stable")
    sorted_places = place[repeated][order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = sorted_places[1:] != sorted_places[:-1]
    rank = np.arange(len(order)) - np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    is_removed = np.zeros(len(hashes), np.bool_)
    is_removed[repeated[order]] = rank >= allowed[sorted_places]
    return is_removed
