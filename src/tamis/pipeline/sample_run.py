"""Runs a plan over a part of its input, in a temporary directory, and measures it."""

from __future__ import annotations

import copy
import itertools
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis.backends.base import Executor
from tamis.errors import PlanError
from tamis.pipeline.monitor import Monitoring, RunMonitor
from tamis.pipeline.run import run_plan
from tamis.plan import Plan
from tamis.runs.ledger import committed_lines, segments
from tamis.runs.process_memory import peak_memory, resident_memory
from tamis.runs.progress import NoProgress
from tamis.runs.prometheus_endpoint import LOOPBACK
from tamis.runs.stats import StageStats
from tamis.stages.base import SourceStage
from tamis.stages.io.parquet import ParquetReaderStage
from tamis.stages.io.partitioning import FilePartitioningStage
from tamis.stages.io.paths import directory_bytes
from tamis.stages.io.sink import FileSink
from tamis.tasks import EmptyTask, FileGroup

__all__ = ["InputParts", "SampleRun", "disk_bytes_per_s", "list_input", "run_sample", "spread"]

SAMPLE_BLOCK_BYTES = 8 * 2**20
"""The size of a part of a file that may be cut: small, so that the parts are spread over the input."""


@dataclass(frozen=True)
class InputParts:
    """The input, and the parts that a sample can be made of.

    Args:
        nbytes: The size of the input, as its files are.
        tasks: Tasks that a run makes of it.
        parts: The same, or parts of them.
    """

    nbytes: int
    tasks: list[FileGroup]
    parts: list[FileGroup]


def spread(groups: Sequence[FileGroup], count: int, seed: int) -> list[FileGroup]:
    """Some of the groups, in order: one of each of ``count`` equal stretches, at a random place in it.

    At equal distances they would not do: data that repeats itself would look more alike than it is.
    """
    count = min(count, len(groups))
    edges = [i * len(groups) // count for i in range(count + 1)] if count else []
    chance = random.Random(seed)
    return [groups[chance.randrange(low, high)] for low, high in itertools.pairwise(edges)]


@dataclass
class SampleRun:
    """What was measured in a run over a sample.

    Args:
        tasks, nbytes: The sample: parts of the input, and their size in the files.
        seconds: How long the run took.
        stages: The counts of the stages.
        output_rows, output_bytes: What it wrote.
        scratch_bytes: Data between stages that it wrote.
        record_bytes: The size of its run directory, without that.
        memory_before, memory_peak: Resident memory of this process, before it and at most.
        child_peak: Highest resident memory of a worker process; 0 without any.
        costs: Seconds per byte of each task that was read.
        copies: For each stage that says of which row each duplicate is one: how often these rows occur.
        nearby: For each such stage, the duplicates of rows in the same part of the input, which are not in ``copies``.
    """

    tasks: int
    nbytes: int
    seconds: float
    stages: list[StageStats]
    output_rows: int
    output_bytes: int
    scratch_bytes: int
    record_bytes: int
    memory_before: int
    memory_peak: int
    child_peak: int
    costs: list[float] = field(default_factory=list)
    copies: dict[str, list[int]] = field(default_factory=dict)
    nearby: dict[str, int] = field(default_factory=dict)

    @property
    def busy_s(self) -> float:
        """Seconds spent in stages, summed over workers."""
        return sum(stage.seconds for stage in self.stages)


@dataclass
class _SampleSource(SourceStage[EmptyTask, FileGroup]):
    """Makes the tasks of a sample."""

    groups: list[FileGroup] = field(default_factory=list)

    def parameters(self) -> dict[str, Any]:
        return {}

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        yield from self.noting_input(copy.copy(group) for group in self.groups)


def list_input(plan: Plan) -> InputParts:
    """List the input of a plan. It must read files."""
    source = plan.vertices[0].stage
    if not isinstance(source, FilePartitioningStage):
        raise PlanError(
            f"an estimate needs a pipeline that starts with a reader of files, and this one starts with {source.name!r}"
        )
    tasks = list(source.splits(""))
    nbytes = sum(_nbytes(task, source.block_bytes) for task in tasks)
    if not nbytes:
        raise PlanError("the input is empty, so there is nothing to estimate")
    parts = tasks
    # A Parquet file can only be cut between row groups, so a part of a task may have no rows.
    reads_parquet = any(isinstance(plan.vertices[v].stage, ParquetReaderStage) for v in plan.vertices[0].edges.values())
    if source.splittable and source.files_per_partition is None and not reads_parquet:
        parts = list(replace(source, blocksize=min(source.block_bytes, SAMPLE_BLOCK_BYTES)).splits(""))
    return InputParts(nbytes, tasks, parts)


def _nbytes(task: FileGroup, unknown: int) -> int:
    ends = [s.size if s.stop is None else s.stop for s in task.slices]
    return sum(unknown if end < 0 else end - s.start for s, end in zip(task.slices, ends, strict=True))


def run_sample(plan: Plan, executor: Executor, parts: Sequence[FileGroup], folder: str, drop_ledger: bool) -> SampleRun:
    """Run a plan over some parts of its input. The plan is used up: its writers write below the folder.

    Args:
        plan: The plan.
        executor: What runs it.
        parts: The sample.
        folder: An empty directory for the output, the run directory and data between stages.
        drop_ledger: Whether to record which rows were dropped, as the real run does.
    """
    source = plan.vertices[0]
    assert isinstance(source.stage, FilePartitioningStage)
    name, block_bytes = source.stage.name, source.stage.block_bytes
    source.stage = _SampleSource(groups=list(parts)).with_(name=name)
    for vertex in plan.vertices:
        if isinstance(vertex.stage, FileSink):
            sink = copy.copy(vertex.stage)
            target = os.path.join(folder, f"out-{vertex.index}")
            sink.destination = replace(sink.destination, path=target, mode="error", storage_options={})
            vertex.stage = sink
    run_dir = os.path.join(folder, "run")
    before = resident_memory()
    began = time.monotonic()
    with RunMonitor(Monitoring(None, LOOPBACK, traces=False), plan) as monitor:
        result = run_plan(
            plan,
            executor,
            [EmptyTask()],
            description="",
            run_dir=run_dir,
            progress=_Silent(),
            drop_ledger=drop_ledger,
            fresh=True,
            failure_budget=None,  # a sample may have more broken rows than the whole
            monitor=monitor,
            data_card=False,
        )
    seconds = min(time.monotonic() - began, result.summary.seconds)
    run = SampleRun(
        len(parts),
        sum(_nbytes(part, block_bytes) for part in parts),
        seconds,
        result.summary.stages,
        result.summary.output_rows,
        result.summary.output_bytes,
        0,
        directory_bytes(run_dir),
        before,
        peak_memory(),
        _child_peak(),
    )
    _read_ledger(run, os.path.join(run_dir, "ledger"), os.path.join(run_dir, "scratch"), plan)
    if drop_ledger:
        _read_duplicates(run, result.drops())
    return run


class _Silent(NoProgress):
    """Shows nothing: what is set aside in a sample is removed with it."""

    def message(self, text: str) -> None:
        pass


def _read_ledger(run: SampleRun, ledger: str, scratch: str, plan: Plan) -> None:
    """Take from the ledger what single tasks took, and how much was written between stages."""
    readers = {plan.vertices[v].name for v in plan.vertices[0].edges.values()}
    for segment in segments(ledger):
        for _, line in committed_lines(os.path.join(ledger, segment), lambda _: None):
            values = json.loads(line)
            run.scratch_bytes += sum(int(f["bytes"]) for f in values.get("files", ()) if f["path"].startswith(scratch))
            counts = values.get("counts", {})
            read = sum(counts[name].get("bytes_out", 0) for name in readers if name in counts)
            if read:
                run.costs.append(sum(c.get("seconds", 0.0) for c in counts.values()) / read)


def _read_duplicates(run: SampleRun, drops: pa.Table) -> None:
    """Take from the drop ledger how often rows occur: in the same part of the input, and elsewhere."""
    found: dict[str, Counter[str]] = {}
    wanted = drops.filter(pc.is_valid(drops.column("score_text")))
    names = ("stage", "reason", "score_text", "source", "position")
    for stage, reason, original, source, position in zip(*(wanted.column(n).to_pylist() for n in names), strict=True):
        if "duplicate" not in reason:
            continue
        path, _, place = original.rpartition(":")
        if path == source and place.isdecimal() and abs(int(place) - position) < SAMPLE_BLOCK_BYTES:
            run.nearby[stage] = run.nearby.get(stage, 0) + 1
        else:
            found.setdefault(stage, Counter())[original] += 1
    run.copies = {stage: [count + 1 for count in originals.values()] for stage, originals in found.items()}


def _child_peak() -> int:
    """Highest resident memory of a process that this one started and that has ended."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def disk_bytes_per_s(folder: str, nbytes: int = 32 * 2**20) -> float:
    """How fast a disk takes data, measured with one file."""
    data = os.urandom(2**20)
    path = Path(folder, "disk-speed")
    began = time.monotonic()
    with path.open("wb") as file:
        for _ in range(nbytes // len(data)):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    seconds = time.monotonic() - began
    path.unlink()
    return nbytes / max(seconds, 1e-6)
