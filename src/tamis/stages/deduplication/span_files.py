"""The files between the rounds of substring deduplication: hashes by range, and what was found for each task.

Hashes are evenly spread over all numbers. So a file of them is sorted and cut into cells of equal ranges, and a
partition is a range, too: how many partitions there are is decided once it is known how many hashes there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import DataError
from tamis.kernels.hash_groups import HashGroups
from tamis.kernels.spans import Hashes, Ints
from tamis.sizes import size_text
from tamis.stages.deduplication.memory import memory_of_task
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import (
    Parts,
    Rows,
    file_codes,
    merge_indexes,
    read_cells,
    read_indexes,
    write_cells,
)
from tamis.stages.exchange.map_side import write_by
from tamis.stages.io.paths import join
from tamis.stages.spill import ScratchSource, spilled_files, spilled_tasks
from tamis.tasks import FileGroup, FileSlice

__all__ = [
    "ENTRY_BYTES",
    "HashPartitions",
    "HashRange",
    "Runs",
    "found_for_tasks",
    "places_of",
    "write_hashes",
    "write_runs",
]

ENTRY_BYTES = 128
"""Memory that one hash takes while equal ones are looked for, with what belongs to it, in bytes."""

_ENTRIES_PER_CELL = 2048
_FEWEST_CELLS, _MOST_CELLS = 16, 256
_ENTRIES_PER_PARTITION = 2**20
"""More are sorted in memory that has to be requested from the system again each time, and miss the cache."""

_HALF = np.uint64(32)


@dataclass(frozen=True)
class Runs:
    """Windows of one task or file, in runs.

    Args:
        starts: Where the first window of each run begins, in units.
        counts: How many windows it has; each begins one unit after the one before.
    """

    starts: Ints
    counts: Ints

    def table(self) -> pa.Table:
        """The runs as columns, with numbers as narrow as they can be."""
        return pa.table({"start": arrow_array(places_of(self.starts)), "count": arrow_array(places_of(self.counts))})

    @classmethod
    def read(cls, parts: Sequence[Parts]) -> Runs:
        """Runs from several places, in ascending order."""
        tables = [rows.table for one in parts for rows in read_cells(one.read())]
        starts, counts = (
            np.concatenate([numpy_array(table.column(name)).astype(np.int64) for table in tables])
            for name in ("start", "count")
        )
        order = np.argsort(starts, kind="stable")
        return cls(starts[order], counts[order])


def places_of(numbers: Ints) -> NDArray[Any]:
    """Numbers with 32 bits where that is enough, else with 64."""
    return numbers.astype(np.uint32 if numbers.max(initial=0) < 2**32 else np.uint64)


def write_runs(final: str, runs: Runs, owner: Ints | None = None) -> Publish:
    """Write runs, by the number of what they belong to if it is given, ready to be published."""
    return write_by(final, Rows(runs.table()), np.zeros(len(runs.starts), np.int64) if owner is None else owner)


def write_hashes(final: str, table: pa.Table, groups: HashGroups, chosen: NDArray[np.bool_]) -> Publish:
    """Write entries in the order of their first hash, the column ``hash``, in cells of equal ranges.

    Args:
        final: The name of the file.
        table: The entries.
        groups: Their order.
        chosen: Which of them to write, in that order.
    """
    order = groups.order[chosen]
    table = table.take(arrow_array(order))
    count = min(max(_FEWEST_CELLS, 1 << (len(order) // _ENTRIES_PER_CELL).bit_length()), _MOST_CELLS)
    cells, starts = np.unique(_range_of(numpy_array(table.column("hash")), count), return_index=True)
    return write_cells(final, Rows(table), cells, np.append(starts, len(order)), count=count, compress=False)


def _range_of(hashes: Hashes, count: int) -> Ints:
    """Which of ``count`` equal ranges each hash is in."""
    return (((hashes >> _HALF) * np.uint64(count)) >> _HALF).astype(np.int64)


@dataclass(frozen=True)
class HashRange:
    """The entries of all files whose hash is in one range.

    Args:
        parts: Where they are, among others.
        number: The number of the range.
        count: How many ranges there are.
    """

    parts: Parts
    number: int
    count: int

    def read(self, numerator: int = 0, denominator: int = 1) -> tuple[dict[str, NDArray[Any]], Ints]:
        """The columns of the entries, in the order of the files, and for each entry the number of its file.

        Args:
            numerator, denominator: Take only entries whose ``second`` hash leaves this rest when it is divided.
        """
        cells = self.parts.read()
        codes = file_codes(cells)
        files = codes[np.append(True, codes[1:] != codes[:-1])].tolist()
        columns: dict[str, list[NDArray[Any]]] = {}
        owners = []
        for file, rows in zip(files, read_cells(cells), strict=True):
            is_here = _range_of(numpy_array(rows.table.column("hash")), self.count) == self.number
            if denominator > 1:
                is_here &= numpy_array(rows.table.column("second")) % np.uint64(denominator) == numerator
            if not is_here.any():
                continue
            for name in rows.table.column_names:
                columns.setdefault(name, []).append(numpy_array(rows.table.column(name))[is_here])
            owners.append(np.full(int(is_here.sum()), file, np.int64))
        if not owners:
            return {}, np.zeros(0, np.int64)
        return {name: np.concatenate(values) for name, values in columns.items()}, np.concatenate(owners)


@dataclass
class HashPartitions(ScratchSource[FileGroup]):
    """One task for each range of the hashes that a stage wrote, each small enough for the memory budget.

    Args:
        kind: The folder of the files.
        partitions: The least number of ranges.
        memory_bytes: Memory for the entries of all tasks that run at the same time on a machine.
    """

    kind: str
    partitions: int
    memory_bytes: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = read_indexes([(path, size) for path, size, _ in spilled_files(join(directory, self.kind))])
        needed, given = len(files) * ENTRY_BYTES, memory_of_task(self.memory_bytes)
        if needed > given:
            raise DataError(
                f"{self.name}: a span that is in each of the {len(files):,} files of hashes takes {size_text(needed)} "
                f"of memory, more than the {size_text(given)} that each core has of memory_budget, "
                f"{size_text(self.memory_bytes)}",
                hint="Give a larger memory_budget, or read larger tasks (blocksize, files_per_partition).",
            )
        total = sum(int(numpy_array(file.table.column("rows")).sum()) for file in files)
        fitting = -(-total // max(1, given // ENTRY_BYTES // 2))
        count = max(self.partitions, fitting, min(total // _ENTRIES_PER_PARTITION, _MOST_CELLS))
        cells_of = np.array([file.count for file in files], np.int64)

        def overlapping(cells: pa.Table) -> tuple[Ints, Ints]:
            number, of = numpy_array(cells.column("cell")), cells_of[file_codes(cells)]
            first, last = number * count // of, ((number + 1) * count - 1) // of
            chosen = np.repeat(np.arange(len(number)), last - first + 1)
            before = np.cumsum(last - first + 1) - (last - first + 1)
            return chosen, first[chosen] + np.arange(len(chosen)) - before[chosen]

        found = merge_indexes(files, join(directory, f"{self.kind}.index"), overlapping)
        for number, parts in found.items():
            path = f"partition-{number}"
            config = {"range": HashRange(parts, number, count)}
            yield FileGroup([path], slices=(FileSlice(path, size=parts.nbytes),), reader_config=config)


def found_for_tasks(directory: str, found: Mapping[str, str | None]) -> Iterator[tuple[FileGroup, list[Parts]]]:
    """The tasks of the input as they were written, each with the places of what was found for it.

    Args:
        directory: The folder of the stage.
        found: Folders with runs. For one whose cells are the numbers of files of hashes, the folder of these files;
            ``None`` if a file of runs belongs to one task.
    """
    tasks = list(spilled_tasks(join(directory, "rows")))
    numbers = {task.order: number for number, task in enumerate(tasks)}
    places: list[list[Parts]] = [[] for _ in tasks]
    for folder, hashed in found.items():
        files = spilled_files(join(directory, folder))
        owners = files if hashed is None else spilled_files(join(directory, hashed))
        # A task writes several files if it has many hashes: the last number in their names counts them.
        owner = np.array([numbers[order[:-1]] for _, _, order in owners], np.int64)

        def chosen(cells: pa.Table, hashed: str | None = hashed, owner: Ints = owner) -> tuple[Ints, Ints]:
            which = file_codes(cells) if hashed is None else numpy_array(cells.column("cell"))
            return np.arange(len(which)), owner[which]

        indexes = read_indexes([(path, size) for path, size, _ in files])
        for number, parts in merge_indexes(indexes, join(directory, f"{folder}.index"), chosen).items():
            places[number].append(parts)
    yield from zip(tasks, places, strict=True)
