"""Stages that wait, for tests of calls in flight."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis.stages.base import ProcessingStage, WorkerMetadata
from tamis.tasks import DocumentBatch


@dataclass
class Meet(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Every call waits until ``together`` calls are in flight: with fewer at a time it never ends."""

    together: int = 40

    async def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self.inside, self.enough = 0, asyncio.Event()

    async def process(self, task: DocumentBatch) -> DocumentBatch:
        self.inside += 1
        if self.inside == self.together:
            self.enough.set()
        await self.enough.wait()
        odd = pc.equal(pc.bit_wise_and(task["n"], 1), 1)
        return task.with_column("process", [os.getpid()] * task.num_items).keep(odd, reason="even")


class Backwards(ProcessingStage[DocumentBatch, DocumentBatch]):
    """The call for the last row returns first: each waits for the one after it."""

    max_in_flight = 20

    async def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self.done = [asyncio.Event() for _ in range(21)]
        self.done[20].set()

    async def process(self, task: DocumentBatch) -> Any:
        (n,) = task["n"].to_pylist()
        await self.done[n + 1].wait()
        self.done[n].set()
        yield task


class FailsOnce(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Raises the first time that it is given row 3, hangs the first time that it is given row 5."""

    async def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self.seen: set[int] = set()

    async def process(self, task: DocumentBatch) -> DocumentBatch:
        (n,) = task["n"].to_pylist()
        first = n not in self.seen
        self.seen.add(n)
        if n == 3 and first:
            raise ValueError("the server is busy")
        if n == 5 and first:
            await asyncio.Event().wait()
        return task.with_column("process", [os.getpid()])


class Hangs(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Never returns, except for row 0, for which it raises."""

    async def process(self, task: DocumentBatch) -> DocumentBatch:
        if task["n"].to_pylist() == [0]:
            raise ValueError("no such model")
        await asyncio.Event().wait()
        return task


def rows_of(count: int, each: int = 1) -> list[DocumentBatch]:
    return [DocumentBatch(pa.table({"n": list(range(start, start + each))})) for start in range(0, count * each, each)]
