"""An exchange that is repeated until nothing changes, as connected components need it.

The rounds are laid out one after the other in the plan. Each begins at a barrier that looks at what the round before
counted: if no row changed, this round and those after it have nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import DataError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.emit import Publish
from tamis.stages.exchange.exchange import Exchange
from tamis.stages.exchange.files import Rows
from tamis.stages.exchange.map_side import FilesToMerge, MergeFiles, PartitionRows, write_partitions
from tamis.stages.exchange.reduce_side import ReadPartition, Reduce, map_files, partition_tasks
from tamis.stages.io.paths import join
from tamis.stages.scratch import exists
from tamis.stages.spill import SUFFIX, ScratchSource, folder_for
from tamis.tasks import FileGroup, TableTask
from tamis.tasks.storage import format_order

__all__ = ["Rounds"]


@dataclass
class Rounds(CompositeStage[Any, Any]):
    """Repeat an exchange: what its ``reduce`` returns is exchanged again, by the same key, until no row has changed.

    ``reduce`` adds a column that says of each row whether it changed (true or false). The column is taken out before
    the next round and from the result. The result comes by partition, as the exchange has brought it together.

    Args:
        exchange: The exchange.
        changed: The column that says whether a row changed.
        at_most: How many rounds there may be. If rows still change in the last of them, the run stops with an error.

    >>> class Halve(Exchange[TableTask, TableTask]):
    ...     key = "n"
    ...     def reduce(self, rows):
    ...         halves = pc.divide(rows["n"], 2)
    ...         return rows.with_columns({"n": halves, "changed": pc.not_equal(halves, rows["n"])})
    >>> from tamis.testing import run_stage
    >>> run_stage(Rounds(Halve()), [{"n": 5}, {"n": 0}])
    [{'n': 0}, {'n': 0}]
    """

    exchange: Exchange[Any, Any]
    changed: str = "changed"
    at_most: int = 20
    name: str = "Rounds"

    def __post_init__(self) -> None:
        if self.at_most < 1:
            raise ValueError(f"Rounds(at_most={self.at_most}): must be at least 1")

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        owner, folder = self.exchange, folder_for(self.name)
        owner._check()
        stages: list[ProcessingStage[Any, Any]] = [
            PartitionRows(join(folder, "0"), owner).with_(name=f"{self.name} (partition)"),
            FilesToMerge(join(folder, "0"), owner).with_(name=f"{self.name} (files)"),
            MergeFiles(join(folder, "0"), owner).with_(name=f"{self.name} (merge)"),
        ]
        for number in range(self.at_most):
            title = f"{self.name} (round {number + 1}"
            here, following = (join(folder, str(n)) for n in (number, number + 1))
            stages += [
                RoundPartitions(here, owner, number).with_(name=f"{title}, partitions)"),
                ReadPartition(here, owner).with_(name=f"{title}, read)"),
                ReduceRound(owner).with_(name=f"{title})"),
                PartitionAgain(following, owner, self.changed).with_(name=f"{title}, partition)"),
            ]
        return [
            *stages,
            LastRound(folder, owner, self.at_most).with_(name=f"{self.name} (result)"),
            ReadResult(folder, owner).with_(name=self.name),
        ]


class ReduceRound(Reduce):
    """The reduce step of one round."""

    internal: ClassVar[bool] = True


@dataclass
class PartitionAgain(PartitionRows):
    """Write the rows of a round by partition, for the next one, and count those that changed."""

    changed: str

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return None

    def process(self, task: TableTask) -> Iterator[Publish]:
        if self.changed not in task.get_columns():
            kind = type(self.owner).__name__
            raise DataError(
                f"{kind}.reduce() must add the column {self.changed!r}, which says of each row whether it changed; "
                f"it returned {', '.join(task.get_columns())}"
            )
        count = pc.sum(task[self.changed].cast(pa.int64())).as_py() or 0
        rows = Rows.of(task.with_same_rows(task.data.drop_columns([self.changed])))
        final = join(self._directory, "map", format_order(task.order) + SUFFIX)
        yield write_partitions(self.owner, final, rows, count)


@dataclass
class RoundPartitions(ScratchSource[FileGroup]):
    """The partitions of one round; none if no row changed in the round before."""

    owner: Exchange[Any, Any]
    number: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = map_files(directory)
        if self.number == 0 or any(file.count for file in files):
            yield from partition_tasks(self.owner, files, join(directory, "index"))


@dataclass
class LastRound(ScratchSource[FileGroup]):
    """The partitions that the last round made."""

    owner: Exchange[Any, Any]
    at_most: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        done = 0  # a round that had something to do has left its index
        while done < self.at_most and exists(join(directory, str(done), "index")):
            done += 1
        files = map_files(join(directory, str(done)))
        left = sum(file.count for file in files)
        if done == self.at_most and left:
            raise DataError(
                f"{left:,} rows still changed in round {done}, the last one: the exchange does not settle",
                hint="Allow more rounds with at_most=, or look at what reduce() says has changed.",
            )
        yield from partition_tasks(self.owner, files, join(directory, "result"))


class ReadResult(ReadPartition):
    """Read a partition of the result."""

    internal: ClassVar[bool] = False
