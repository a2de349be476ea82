"""Output in files of about equal size: tasks write pieces, consecutive pieces are merged into shards.

How much a task writes is only known afterwards, so the shards are made in two steps. Their names and their bytes depend
on the input alone, not on the order in which workers finish.
"""

from __future__ import annotations

import functools
import io
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, ClassVar

import pyarrow as pa

from tamis.errors import PlanError
from tamis.stages.base import ProcessingStage, WorkerMetadata
from tamis.stages.emit import Publish
from tamis.stages.io.encoders import Encoder
from tamis.stages.io.one_schema import unified
from tamis.stages.io.paths import join, open_read
from tamis.stages.io.sink import FileSink
from tamis.stages.io.writers import chosen_columns, partitions
from tamis.stages.scratch import place_file
from tamis.tasks import DocumentBatch, FileGroup, FileSlice
from tamis.tasks.storage import format_order

__all__ = ["MergeShards", "WritePieces"]


@dataclass
class WritePieces(ProcessingStage[DocumentBatch, FileGroup]):
    """Write a batch into pieces, none larger than a shard, in the run's directory for data between stages.

    Args:
        encoder: The format.
        shard_bytes: Size of a shard, in bytes.
        fields: Columns to write; all of them when not given.
        partition_by: A column whose values are kept apart.
        label: Part of the directory's name, different for each writer.
    """

    encoder: Encoder
    shard_bytes: int
    fields: list[str] | None = None
    partition_by: str | None = None
    label: str = "0"

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._directory = ""

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [*(self.fields or ()), *([self.partition_by] if self.partition_by else ())]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        if worker_metadata is None or not worker_metadata.scratch:
            raise PlanError(f"{self.name}: shard_bytes needs a run directory for the pieces")
        self._directory = join(worker_metadata.scratch, f"{self.name}-{self.label}".replace("/", "_"))

    def process(self, task: DocumentBatch) -> Iterator[FileGroup]:
        if not self._directory:
            raise RuntimeError(f"{self.name}: setup() was not called")
        columns = chosen_columns(task, self.fields, self.partition_by)
        number = 0
        for directory, rows in partitions(task, self.partition_by):
            for part, encoded, header in self._pieces(columns if rows is None else columns.take(rows)):
                name = f"{format_order(task.order)}-{task.task_id}.{number}.{self.encoder.extension}"
                piece = join(self._directory, name)
                place_file(piece, encoded)  # a task that is run again writes the same bytes under the same name
                number += 1
                yield FileGroup(
                    [piece],
                    dataset_name=task.dataset_name,
                    slices=(FileSlice(piece, size=len(encoded)),),
                    reader_config={
                        "rows": part.num_rows,
                        "directory": directory,
                        "header_bytes": header,
                        "shape": self.encoder.shape(part),
                        "schema": self.encoder.schema(part),
                    },
                    _metadata=dict(task._metadata),
                )

    def _pieces(self, table: pa.Table) -> Iterator[tuple[pa.Table, memoryview, int]]:
        """Encoded parts of a table, halved until none is too large (or a single row)."""
        buffer = io.BytesIO()
        header = self.encoder.write(table, buffer)
        encoded = buffer.getbuffer()
        if len(encoded) <= self.shard_bytes or table.num_rows == 1:
            yield table, encoded, header
            return
        parts = min(table.num_rows, -(-len(encoded) // self.shard_bytes))
        edges = [i * table.num_rows // parts for i in range(parts + 1)]
        del encoded, buffer
        for start, stop in itertools.pairwise(edges):
            yield from self._pieces(table.slice(start, stop - start))


@dataclass
class MergeShards(FileSink[FileGroup]):
    """Merge consecutive pieces into shards.

    The pieces come in the order of the input, as many at once as make about :attr:`batch_bytes`. A shard is named
    after its first piece. The pieces are not removed: whether the task will be recorded is not known here.

    Args:
        destination: The directory and the names in it.
        encoder: The format.
        shard_bytes: Largest size of a shard, in bytes; only a single row may exceed it.
    """

    shard_bytes: int

    ordered: ClassVar[bool] = True

    @property
    def batch_bytes(self) -> int:  # type: ignore[override]  # it follows from another parameter
        """How much input one call of :meth:`process_batch` gets, in bytes."""
        return self.shard_bytes

    def process(self, task: FileGroup) -> Iterator[Publish | FileGroup]:
        yield from self.process_batch([task])

    def process_batch(self, tasks: list[FileGroup]) -> Iterator[Publish | FileGroup]:
        for pieces in self._shards(tasks):
            first = pieces[0]
            name = self.name_for(first)
            directory = first.reader_config["directory"]
            schemas = [(p.reader_config["schema"], p.data[0]) for p in pieces if p.reader_config["schema"] is not None]
            schema = unified(schemas) if schemas else None
            finished = self.write(
                f"{directory}/{name}" if directory else name,
                sum(piece.reader_config["rows"] for piece in pieces),
                functools.partial(self._join, pieces, schema),
                schema,
            )
            yield finished
            yield FileGroup(
                [finished.final],
                dataset_name=first.dataset_name,
                slices=(FileSlice(finished.final, size=finished.nbytes),),
                _metadata=dict(first._metadata),
            )

    def _shards(self, tasks: list[FileGroup]) -> Iterator[list[FileGroup]]:
        """Pieces that make a shard: of the same directory and shape, consecutive, and together not too large."""
        open_shards: dict[tuple[str, str], list[FileGroup]] = {}
        sizes: dict[tuple[str, str], int] = {}
        for task in tasks:
            key = (task.reader_config["directory"], task.reader_config["shape"])
            pieces = open_shards.setdefault(key, [])
            size = sizes.get(key, 0) + task.weight
            if pieces and size > self.shard_bytes:
                yield pieces
                pieces, size = [], task.weight
                open_shards[key] = pieces
            pieces.append(task)
            sizes[key] = size
        yield from open_shards.values()

    def _join(self, pieces: list[FileGroup], schema: pa.Schema | None, sink: BinaryIO) -> None:
        self.encoder.join(_opened(pieces), sink, schema)


def _opened(pieces: list[FileGroup]) -> Iterator[tuple[BinaryIO, int]]:
    """Each piece, open one at a time, and the length of its header."""
    for piece in pieces:
        with open_read(piece.slices[0].path) as handle:
            yield handle, piece.reader_config["header_bytes"]
