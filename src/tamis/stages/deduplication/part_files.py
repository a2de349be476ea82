"""Files of a deduplication step: Parquet, named ``part.0.parquet``, ``part.1.parquet`` and so on."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from tamis.stages.emit import Publish
from tamis.stages.io.destination import TEMPORARY, Destination
from tamis.stages.io.encoders import ParquetEncoder
from tamis.stages.io.paths import absolute
from tamis.stages.io.sink import FileSink
from tamis.tasks import FileGroup, FileSlice, TableTask, Task

__all__ = ["FOLDER", "PartDestination", "WriteParts", "id_row_groups", "part_encoder", "write_parts"]

FOLDER: Final = "tamis.folder"
"""Where a batch's metadata has the folder, below the directory, that its file belongs in."""

_NOT_OURS: Final = ("compression", "storage_options", "index")


@dataclass(frozen=True)
class PartDestination(Destination):
    """A directory with files ``part.<number>.parquet``: the number is the place of the task.

    A task that became several has a number for each: ``part.3.parquet``, ``part.3-1.parquet``.

    >>> [PartDestination("out").name_for(Task([], order=order)) for order in ((12,), (-2, 3, 0), (-2, 3, 1))]
    ['part.12.parquet', 'part.3.parquet', 'part.3-1.parquet']
    """

    ending: str = ".parquet"

    def name_for(self, task: Task[Any], run: str = "") -> str:
        numbers = list(task.order[1:] if task.order and task.order[0] < 0 else task.order) or [0]
        while len(numbers) > 1 and numbers[-1] == 0:
            numbers.pop()
        return f"part.{'-'.join(map(str, numbers))}{self.ending}"

    def own_names(self) -> str:
        return rf"(?:[^/]+/)?(?:part\.\d+(?:-\d+)*\.parquet|{TEMPORARY.pattern})"


@dataclass
class WriteParts(FileSink[TableTask]):
    """Write each batch to a file ``part.<number>.parquet``, in the folder that its metadata names.

    Args:
        columns: The columns to write, in this order.
        by_ids: Whether the rows are ids, which readers look for by their ranges: smaller row groups.
    """

    columns: list[str] = field(default_factory=list)
    by_ids: bool = False

    internal: ClassVar[bool] = False

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.columns)

    def process(self, task: TableTask) -> Iterator[Publish | FileGroup]:
        if not task.num_items:
            return
        table = task.columns(self.columns)
        encoder = self.encoder
        if self.by_ids:
            groups = id_row_groups(table.num_rows)
            assert isinstance(encoder, ParquetEncoder)
            settings = {"row_group_size": groups, **encoder.write_kwargs}
            encoder = ParquetEncoder(encoder.compression, encoder.level, settings)
        folder, name = task._metadata.get(FOLDER), self.name_for(task)
        write = functools.partial(encoder.write, table)
        finished = self.write(f"{folder}/{name}" if folder else name, table.num_rows, write, encoder.schema(table))
        yield finished
        yield FileGroup(
            [finished.final],
            slices=(FileSlice(finished.final, size=finished.nbytes),),
            _metadata={"num_removal_ids": table.num_rows} if self.by_ids else {},
        )


def write_parts(
    path: str, columns: list[str], write_kwargs: dict[str, Any] | None = None, *, by_ids: bool = False
) -> WriteParts:
    """A stage that writes batches into a directory, and first removes what an earlier run wrote there.

    Args:
        path: The directory.
        columns: The columns to write.
        write_kwargs: Further arguments of ``pyarrow.parquet.ParquetWriter``, and ``storage_options``.
        by_ids: Whether the rows are ids.
    """
    options = (write_kwargs or {}).get("storage_options") or {}
    destination = PartDestination(absolute(path), mode="overwrite", storage_options=options)
    return WriteParts(destination, part_encoder(write_kwargs), columns, by_ids)


def part_encoder(write_kwargs: dict[str, Any] | None) -> ParquetEncoder:
    """Parquet with the settings of ``write_kwargs``."""
    given = write_kwargs or {}
    settings = {k: v for k, v in given.items() if k not in _NOT_OURS}
    return ParquetEncoder(given.get("compression", "zstd"), None, settings)


def id_row_groups(rows: int) -> int:
    """How many ids a row group has: about ten row groups in a file.

    >>> id_row_groups(50), id_row_groups(50_000), id_row_groups(10**9)
    (1000, 5000, 1000000)
    """
    return max(1000, min(rows // 10, 1_000_000))
