"""The two rounds of substring deduplication, which find the windows that are repeated.

See :mod:`tamis.stages.deduplication.substrings` for what they do and why that is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array
from tamis.kernels.hash_groups import HashGroups
from tamis.kernels.spans import Anchors, Ints, find_anchors, hash_windows
from tamis.stages.deduplication.memory import memory_of_task
from tamis.stages.deduplication.span_files import (
    ENTRY_BYTES,
    HashRange,
    Runs,
    found_for_tasks,
    places_of,
    write_hashes,
    write_runs,
)
from tamis.stages.deduplication.span_units import SpanRule
from tamis.stages.emit import Publish
from tamis.stages.io.paths import join
from tamis.stages.scratch import load_task
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, spill
from tamis.tasks import FileGroup, TableTask
from tamis.tasks.storage import format_order

__all__ = ["CompareAnchors", "CompareWindows", "OpenTasks", "WriteAnchors", "WriteWindows", "settled_folders"]

Mask = NDArray[np.bool_]


def settled_folders() -> dict[str, str | None]:
    """Where the windows to be removed are: see :func:`tamis.stages.deduplication.span_files.found_for_tasks`."""
    return {
        "own-anchors": None,
        "own-windows": None,
        "settled-anchors": "anchors",
        "settled-windows": "windows",
    }


@dataclass
class WriteAnchors(ScratchStage[TableTask, FileGroup]):
    """Write the rows to a file, and the anchors of their texts in the order of their hashes."""

    rule: SpanRule
    memory_bytes: int

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.rule.text_field]

    def text_columns(self) -> list[str]:
        return [self.rule.text_field]

    def process(self, task: TableTask) -> Iterator[Publish]:
        yield spill(task, join(self._directory, "rows"))
        units = self.rule.text_of(task[self.rule.text_field]).units
        lots = find_anchors(units, self.rule.length, max(1, memory_of_task(self.memory_bytes) // ENTRY_BYTES))
        for number, found in enumerate(lots):
            yield from self._written(found, format_order((*task.order, number)) + SUFFIX)

    def _written(self, found: Anchors, name: str) -> Iterator[Publish]:
        second, third = (found.spans[:, i].copy() for i in (0, 1))
        table = pa.table(
            {
                "hash": arrow_array(found.keys),
                "second": arrow_array(second),
                "third": arrow_array(third),
                "start": arrow_array(places_of(found.starts)),
                "count": arrow_array(places_of(found.counts)),
            }
        )
        groups = HashGroups.of((found.keys, second, third))
        is_first = groups.is_new[-1]
        yield write_hashes(join(self._directory, "anchors", name), table, groups, is_first)
        repeats = groups.order[_removed(is_first, self.rule)]
        if len(repeats):
            runs = Runs(found.starts[repeats], found.counts[repeats])
            yield write_runs(join(self._directory, "own-anchors", name), runs)


def _removed(is_first: Mask, rule: SpanRule) -> Mask:
    """Which entries are repeats that do not stay, given which are the first of a group of equal ones."""
    removed = ~is_first
    if rule.keep == "none":
        removed[:-1] |= removed[1:] & is_first[:-1]  # one that is followed by a repeat
    return removed


@dataclass
class CompareAnchors(ScratchStage[FileGroup, FileGroup]):
    """Find anchors with equal hashes, and decide on their windows where that is possible.

    If all that the windows of an anchor cover is repeated, so is each of them. They are settled. The first anchor with
    this content is open if other anchors with the same hash have another content: some of their windows may be equal.
    """

    rule: SpanRule
    memory_bytes: int

    def process(self, task: FileGroup) -> Iterator[Publish]:
        entries: HashRange = task.reader_config["range"]
        # Only the anchors of one hash can be too many, because ranges are chosen to fit. They are then compared in
        # several passes, by their content, and all that differ are open.
        passes = max(1, -(-entries.parts.rows * ENTRY_BYTES // memory_of_task(self.memory_bytes)))
        for number in range(passes):
            name = format_order((*task.order, number)) + SUFFIX
            yield from self._compared(entries, number, passes, name)

    def _compared(self, entries: HashRange, number: int, passes: int, name: str) -> Iterator[Publish]:
        columns, files = entries.read(number, passes)
        if not columns:
            return
        groups = HashGroups.of([columns[name] for name in ("hash", "second", "third")])
        is_new_hash, _, is_first = groups.is_new
        hash_of = np.cumsum(is_new_hash) - 1
        contents = np.bincount(hash_of[is_first])  # how many different contents the anchors of each hash have
        is_open = is_first & (contents[hash_of] > 1) if passes == 1 else is_first
        for folder, chosen in (("settled-anchors", _removed(is_first, self.rule)), ("open", is_open)):
            places = groups.order[chosen]
            if len(places):
                runs = Runs(columns["start"][places].astype(np.int64), columns["count"][places].astype(np.int64))
                yield write_runs(join(self._directory, folder, name), runs, files[places])


class OpenTasks(ScratchSource[FileGroup]):
    """The tasks of the input that have open windows, with the places of these."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        for task, parts in found_for_tasks(join(scratch, self.folder), {"open": "anchors"}):
            if parts:
                task.reader_config = {"parts": parts}
                yield task


@dataclass
class WriteWindows(ScratchStage[FileGroup, FileGroup]):
    """Write the hashes of the open windows of a task, in their order."""

    rule: SpanRule
    memory_bytes: int

    def process(self, task: FileGroup) -> Iterator[Publish]:
        batch = load_task(task.data[0])
        assert isinstance(batch, TableTask)
        units = self.rule.text_of(batch[self.rule.text_field]).units
        runs = Runs.read(task.reader_config["parts"])
        for number, lot in enumerate(_lots(runs, max(1, memory_of_task(self.memory_bytes) // ENTRY_BYTES))):
            hashes = hash_windows(units, self.rule.length, lot.starts, lot.counts)
            name = format_order((*task.order, number)) + SUFFIX
            yield from self._written(hashes, _each(lot), name)

    def _written(self, hashes: NDArray[np.uint64], starts: Ints, name: str) -> Iterator[Publish]:
        first, second = (hashes[:, i].copy() for i in (0, 1))
        columns = {
            "hash": arrow_array(first),
            "second": arrow_array(second),
            "start": arrow_array(places_of(starts)),
        }
        groups = HashGroups.of((first, second))
        is_first = groups.is_new[-1]
        yield write_hashes(join(self._directory, "windows", name), pa.table(columns), groups, is_first)
        repeats = groups.order[_removed(is_first, self.rule)]
        if len(repeats):
            runs = Runs(starts[repeats], np.ones_like(repeats))
            yield write_runs(join(self._directory, "own-windows", name), runs)


def _lots(runs: Runs, room: int) -> Iterator[Runs]:
    """Runs in lots of about so many windows, at least one run each."""
    lot = (np.cumsum(runs.counts) - 1) // room
    for some in np.split(np.arange(len(lot)), np.flatnonzero(np.diff(lot)) + 1):
        yield Runs(runs.starts[some], runs.counts[some])


def _each(runs: Runs) -> Ints:
    """Where each window of some runs begins."""
    before = np.cumsum(runs.counts) - runs.counts
    starts: Ints = np.repeat(runs.starts - before, runs.counts) + np.arange(int(runs.counts.sum()))
    return starts


@dataclass
class CompareWindows(ScratchStage[FileGroup, FileGroup]):
    """Find open windows that are equal."""

    rule: SpanRule

    def process(self, task: FileGroup) -> Iterator[Publish]:
        entries: HashRange = task.reader_config["range"]
        columns, files = entries.read()
        if not columns:
            return
        groups = HashGroups.of([columns["hash"], columns["second"]])
        places = groups.order[_removed(groups.is_new[-1], self.rule)]
        if len(places):
            runs = Runs(columns["start"][places].astype(np.int64), np.ones(len(places), np.int64))
            yield write_runs(
                join(self._directory, "settled-windows", format_order(task.order) + SUFFIX), runs, files[places]
            )
