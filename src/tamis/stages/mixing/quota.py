"""Take a wanted amount of each group of rows: those with the smallest keys, and all of them again if it is more.

How much there is of a group is known only when everything was seen. So the rows are written to the run's scratch
location, with a random key and a size for each; once all are there, one task finds the largest key to take of each
group; then the rows are read again in their old order and their old tasks. What is in memory at once does not grow with
the number of rows, only with the number of groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.errors import DataError, PlanError
from tamis.stages.base import ProcessingStage, WorkerMetadata
from tamis.stages.column_values import read_column, text_values
from tamis.stages.emit import Drop, Publish
from tamis.stages.io.paths import base_name, join
from tamis.stages.mixing.row_keys import row_keys
from tamis.stages.scratch import load_task, read_file, write_file
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, folder_for, spill, spilled_files, spilled_tasks
from tamis.tasks import DocumentBatch, FileGroup
from tamis.tasks.storage import format_order

__all__ = ["Quota", "take_quotas"]

Group = str | None
"""The value of the column that groups are made by, as text; ``None`` for a null, and for all rows if there is none."""

_DECISION = "decision.arrow"
_CELLS = 2**22
"""How many counts the histograms of keys may have together, over all groups."""


@dataclass(repr=False)
class Quota:
    """How rows are grouped and measured, and how much of each group is wanted. Subclasses say how much.

    Args:
        by: The column whose values are the groups; all rows are one group when not given.
        measure: What the size of a row is: ``"rows"`` (1), ``"bytes"`` of text, or a column of whole numbers.
        text_field: The column whose UTF-8 bytes are counted.
        seed: For the keys.
        id_fields: Columns that tell rows apart; a row is its place in the input when not given.
    """

    by: str | None
    measure: str
    text_field: str
    seed: int
    id_fields: list[str] | None

    purpose: ClassVar[str] = "quota"
    counts_groups: ClassVar[bool] = False
    """Whether the run's statistics say how much was taken of each group."""

    def wanted(self, sizes: Mapping[Group, int]) -> Mapping[Group, int]:
        """How much of each group to take, given how much there is of each."""
        raise NotImplementedError

    def reason(self, group: Group) -> str:
        """Why a row of the group was not taken."""
        raise NotImplementedError

    def columns(self) -> list[str]:
        """The columns needed."""
        measured = {"rows": [], "bytes": [self.text_field]}.get(self.measure, [self.measure])
        return list(dict.fromkeys([*([self.by] if self.by else []), *measured, *(self.id_fields or [])]))

    def groups(self, table: pa.Table) -> pa.Array:
        """The group of each row."""
        if self.by is None:
            return pa.nulls(table.num_rows, pa.large_string())
        return read_column(table, self.by, self.purpose).cast(pa.large_string()).combine_chunks()

    def sizes(self, table: pa.Table) -> NDArray[np.int64]:
        """The size of each row."""
        if self.measure == "rows":
            return np.ones(table.num_rows, np.int64)
        if self.measure == "bytes":
            texts = text_values(read_column(table, self.text_field, self.purpose), self.text_field, self.purpose)
            values = pc.binary_length(texts)
        else:
            values = read_column(table, self.measure, self.purpose)
            if not pa.types.is_integer(values.type):
                raise DataError(f"{self.purpose}: sizes are whole numbers, but {self.measure!r} holds {values.type}")
        sizes: NDArray[np.int64] = pc.fill_null(values, 0).cast(pa.int64()).to_numpy()
        if len(sizes) and sizes.min() < 0:
            raise DataError(f"{self.purpose}: the column {self.measure!r} has a negative size")
        return sizes


def take_quotas(name: str, quota: Quota, repeat_field: str | None = None) -> list[ProcessingStage[Any, Any]]:
    """The stages that take the wanted amount of each group; ``repeat_field`` gets the number of each copy of a row."""
    folder = folder_for(name)
    return [
        MeasureRows(folder, quota).with_(name=f"{name} (measure)"),
        AllMeasured(folder).with_(name=f"{name} (all measured)"),
        Decide(folder, quota).with_(name=f"{name} (decide)"),
        MeasuredRows(folder).with_(name=f"{name} (rows)"),
        TakeRows(folder, quota, repeat_field).with_(name=name),
    ]


@dataclass(repr=False)
class MeasureRows(ScratchStage[DocumentBatch, FileGroup]):
    """Write the rows to a file, and to another one their keys, groups and sizes."""

    quota: Quota

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self.quota.columns()

    def process(self, task: DocumentBatch) -> Iterator[Publish]:
        yield spill(task, join(self._directory, "rows"))
        quota = self.quota
        keys = row_keys(task, quota.id_fields, quota.seed, quota.purpose)
        table = pa.table({"key": keys, "group": quota.groups(task.data), "size": quota.sizes(task.data)})
        yield _write(table, join(self._directory, "keys", format_order(task.order) + SUFFIX))


class AllMeasured(ScratchSource[FileGroup]):
    """One task, once all rows are measured."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        files = [path for path, _, _ in spilled_files(join(scratch, self.folder, "keys"))]
        if files:
            yield FileGroup(files)


@dataclass(repr=False)
class Decide(ScratchStage[FileGroup, FileGroup]):
    """Find out how much there is of each group, and which key is the last to be taken."""

    quota: Quota

    def process(self, task: FileGroup) -> Iterator[Publish]:
        files = task.data
        totals = _totals(files)
        groups = sorted(totals, key=lambda group: (group is None, group or ""))
        wanted = self.quota.wanted({group: totals[group] for group in groups})
        amount = np.array([wanted.get(group, 0) if totals[group] else 0 for group in groups], np.int64)
        size = np.array([max(1, totals[group]) for group in groups], np.int64)
        names = pa.array(groups, pa.large_string())
        last = _last_taken(files, names, amount % size)
        decision = pa.table({"group": names, "copies": amount // size, **last})
        yield _write(decision, join(self._directory, _DECISION))


def _totals(files: list[str]) -> dict[Group, int]:
    """The size of each group."""
    totals: dict[Group, int] = {}
    for path in files:
        frame = pl.from_arrow(_read(path))
        assert isinstance(frame, pl.DataFrame)
        for group, size in frame.group_by("group").agg(pl.col("size").sum()).iter_rows():
            totals[group] = totals.get(group, 0) + size
    return totals


def _last_taken(files: list[str], names: pa.Array, amount: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The key and the place (file, row) of the row of each group with which the amount is reached."""
    count = len(amount)
    bits = max(0, min(16, int(math.log2(_CELLS / max(1, count)))))
    histogram = np.zeros((count, 2**bits), np.int64)
    for path in files:
        keys, groups, sizes = _columns(path, names)
        np.add.at(histogram.reshape(-1), groups * 2**bits + _cells(keys, bits), sizes)
    running = np.cumsum(histogram, axis=1)
    # The amount is reached in the first cell whose running sum is no less; only the rows of that cell are sorted.
    cell = np.minimum((running < amount[:, None]).sum(axis=1), 2**bits - 1)
    before = np.where(cell > 0, running[np.arange(count), np.maximum(cell - 1, 0)], 0)
    found = []
    for number, path in enumerate(files):
        keys, groups, sizes = _columns(path, names)
        rows = np.flatnonzero((_cells(keys, bits) == cell[groups]) & (amount[groups] > 0))
        found.append((groups[rows], keys[rows], np.full(len(rows), number, np.int64), rows, sizes[rows]))
    group, key, file, row, size = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((row, file, key, group))
    group, key, file, row, size = group[order], key[order], file[order], row[order], size[order]
    last = {"key": np.zeros(count, np.uint64), "file": np.full(count, -1), "row": np.full(count, -1)}
    edges = np.searchsorted(group, np.arange(count + 1))
    for g in np.flatnonzero(amount > 0):
        inside = slice(edges[g], edges[g + 1])
        place = edges[g] + int(np.searchsorted(before[g] + np.cumsum(size[inside]), amount[g]))
        last["key"][g], last["file"][g], last["row"][g] = key[place], file[place], row[place]
    return last


def _cells(keys: NDArray[np.uint64], bits: int) -> NDArray[np.int64]:
    """The first bits of each key."""
    return (keys >> np.uint64(64 - bits)).astype(np.int64) if bits else np.zeros(len(keys), np.int64)


def _columns(path: str, names: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """Keys, numbers of groups and sizes of one file."""
    table = _read(path)
    groups = pc.index_in(table.column("group"), value_set=names).to_numpy().astype(np.int64)
    return table.column("key").to_numpy(), groups, table.column("size").to_numpy()


class MeasuredRows(ScratchSource[FileGroup]):
    """The files of rows, in the order of the input."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        yield from spilled_tasks(join(scratch, self.folder, "rows"))


@dataclass(repr=False)
class TakeRows(ScratchStage[FileGroup, DocumentBatch]):
    """Read the rows again, and pass each on as often as it is wanted."""

    quota: Quota
    repeat_field: str | None = None
    internal: ClassVar[bool] = False

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        super().setup(worker_metadata)
        self._decision: pa.Table | None = None

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available if available is None else available | set(self.adds_columns())

    def adds_columns(self) -> list[str]:
        return [] if self.repeat_field is None else [self.repeat_field]

    def process(self, task: FileGroup) -> Iterator[Drop | DocumentBatch]:
        batch = load_task(task.data[0])
        assert isinstance(batch, DocumentBatch)
        keys, groups, sizes = self._keys(task)
        copies = self._copies(int(task.reader_config["file"]), keys, groups)
        yield from self._dropped(batch, groups, copies == 0)
        for number in range(int(copies.max(initial=0))):
            taken = batch.select(np.flatnonzero(copies > number))
            yield taken if self.repeat_field is None else taken.with_column(*self._numbered(taken, number))
        self._count(groups, copies, sizes)

    def _keys(self, task: FileGroup) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
        if self._decision is None:
            self._decision = _read(join(self._directory, _DECISION))
        names = self._decision.column("group").combine_chunks()
        return _columns(join(self._directory, "keys", base_name(task.data[0])), names)

    def _copies(self, file: int, keys: NDArray[np.uint64], groups: NDArray[np.int64]) -> NDArray[np.int64]:
        """How often to take each row of a file."""
        assert self._decision is not None
        copies, key, last_file, last_row = (
            self._decision.column(name).to_numpy()[groups] for name in ("copies", "key", "file", "row")
        )
        row = np.arange(len(keys))
        # Rows with equal keys come in the order of the input.
        tie = (keys == key) & ((file < last_file) | ((file == last_file) & (row <= last_row)))
        number: NDArray[np.int64] = copies + ((last_file >= 0) & ((keys < key) | tie))
        return number

    def _dropped(self, batch: DocumentBatch, groups: NDArray[np.int64], left_out: NDArray[np.bool_]) -> Iterator[Drop]:
        rows = np.flatnonzero(left_out)
        found, place = np.unique(groups[rows], return_inverse=True)
        reasons = [self.quota.reason(name) for name in self._names(found)]
        for reason in dict.fromkeys(reasons):
            yield Drop(batch, rows[np.array([other == reason for other in reasons])[place]], reason)

    def _names(self, groups: NDArray[np.int64]) -> list[Group]:
        assert self._decision is not None
        names: list[Group] = self._decision.column("group").take(pa.array(groups)).to_pylist()
        return names

    def _numbered(self, batch: DocumentBatch, number: int) -> tuple[str, pa.Array]:
        """The column with the number of a copy."""
        assert self.repeat_field is not None
        if self.repeat_field in batch.get_columns():
            raise PlanError(
                f"{self.name}: the rows have a column {self.repeat_field!r} already; give another repeat_field"
            )
        return self.repeat_field, pa.repeat(pa.scalar(number, pa.int32()), batch.num_items)

    def _count(self, groups: NDArray[np.int64], copies: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        if not self.quota.counts_groups:
            return
        found, place = np.unique(groups, return_inverse=True)
        for number, name in enumerate(self._names(found)):
            taken = copies[place == number]
            self.log_metric(f"{name}: rows", int(taken.sum()))
            if self.quota.measure != "rows":
                self.log_metric(f"{name}: {self.quota.measure}", int((taken * sizes[place == number]).sum()))


def _write(table: pa.Table, final: str) -> Publish:
    def fill(sink: pa.NativeFile) -> None:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)

    return write_file(final, table.num_rows, fill)


def _read(path: str) -> pa.Table:
    return pa.ipc.open_file(read_file(path)).read_all().combine_chunks()
