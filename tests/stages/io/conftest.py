"""Runs readers and writers the way an executor does, without one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tamis.runs.publication import publish
from tamis.stages.base import CompositeStage, WorkerMetadata, emissions
from tamis.stages.emit import BadRow, BadRows, Publish
from tamis.stages.io import MergeShards
from tamis.stages.io.output_directory import OutputDirectory, WriterRun
from tamis.tasks import DocumentBatch, FileGroup

RUNS = itertools.count(1)


@dataclass
class Read:
    """What a reader gave: batches, rows and what was set aside."""

    batches: list[DocumentBatch] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches for row in batch.data.to_pylist()]

    @property
    def table(self) -> pa.Table:
        return pa.concat_tables([b.data for b in self.batches], promote_options="permissive")


def read_all(reader: CompositeStage[Any, Any]) -> Read:
    partitioning, stage = reader.decompose()
    result = Read()
    for group in partitioning.splits(""):  # type: ignore[attr-defined]  # a source stage
        for made in emissions(stage.process(group)):
            if isinstance(made, BadRows):
                result.bad += made.rows
            else:
                assert isinstance(made, DocumentBatch)
                result.batches.append(made)
    return result


def write_all(
    writer: CompositeStage[Any, Any],
    tables: Sequence[Any],
    scratch: Path,
    orders: Iterable[tuple[int, ...]] = (),
    fingerprint: str = "test",
) -> list[FileGroup]:
    """Write batches as one run, publish the files, return what the sink handed on."""
    stages = writer.decompose()
    places = list(orders) or [(i,) for i in range(len(tables))]
    tasks: list[Any] = [
        DocumentBatch(table, order=place, task_id=f"task{'.'.join(map(str, place))}", dataset_name="data")
        for place, table in zip(places, tables, strict=True)
    ]
    output = OutputDirectory([stages[-1]])  # type: ignore[list-item]  # a sink
    run = WriterRun(f"20260101-000000-{next(RUNS):08x}", "run", "test", fingerprint, "2026-01-01T00:00:00+00:00")
    published: list[str] = []
    output.lock(run)
    try:
        output.prepare(run, lambda: "input")
        for stage in stages:
            stage.setup(WorkerMetadata(scratch=str(scratch)))
            step = _merged if isinstance(stage, MergeShards) else _processed
            tasks = step(stage, tasks, output, published)  # type: ignore[arg-type]  # by its class
        for rewritten, _ in output.rewrites(lambda: published):
            publish(rewritten)
        output.finish("input", lambda: published)
    finally:
        output.release()
    return tasks


def _processed(stage: Any, tasks: list[Any], output: OutputDirectory, published: list[str]) -> list[Any]:
    result = []
    for task in tasks:
        children = _published(stage.process(task), output, published)
        for i, child in enumerate(children):
            child.order, child.task_id = (*task.order, i), f"{task.task_id}.{i}"
        result += children
    return result


def _merged(stage: MergeShards, tasks: list[Any], output: OutputDirectory, published: list[str]) -> list[Any]:
    """Consecutive tasks up to the size the stage asks for."""
    assert stage.ordered
    batches: list[list[Any]] = [[]]
    for task in tasks:
        if batches[-1] and sum(t.weight for t in batches[-1]) + task.weight > stage.batch_bytes:
            batches.append([])
        batches[-1].append(task)
    return [made for batch in batches if batch for made in _published(stage.process_batch(batch), output, published)]


def _published(result: Any, output: OutputDirectory, published: list[str]) -> list[Any]:
    tasks = []
    for made in emissions(result):
        if isinstance(made, Publish):
            output.check(made)
            publish(made)
            published.append(made.final)
        else:
            tasks.append(made)
    return tasks


@pytest.fixture
def read() -> Callable[[CompositeStage[Any, Any]], Read]:
    return read_all


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., list[FileGroup]]:
    return lambda writer, tables, **more: write_all(writer, tables, tmp_path / "scratch", **more)
