"""Predicts what a run needs: time, memory, disk and the size of the output, from a sample of the input.

The first sample, of whole tasks, shows what starting costs and how much memory is used. Then pairs of a small and a
larger one show what a byte of input costs, once everything is loaded: costs that every run has are in both and cancel
out.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from tamis.backends.base import Executor
from tamis.backends.local import LocalExecutor
from tamis.errors import PlanError
from tamis.pipeline.cluster_shape import ClusterShape
from tamis.pipeline.sample_run import InputParts, SampleRun, disk_bytes_per_s, list_input, run_sample, spread
from tamis.plan import Plan
from tamis.plan.graph import END
from tamis.runs import figures
from tamis.runs.extrapolation import distinct_in_whole, relative_spread

if TYPE_CHECKING:
    from tamis.pipeline.pipeline import Pipeline

__all__ = ["Estimate", "StageEstimate", "estimate_pipeline"]

SAMPLE_S: Final = 10.0
MAX_SAMPLE_BYTES: Final = 512 * 2**20
LEAST_SAMPLE_BYTES: Final = 64 * 2**20
"""A sample is a tenth of the input, but at least this (if the time suffices) and at most the above."""

MAX_PAIRS: Final = 5
"""How often a small and a larger sample are run."""

MACHINE_NOISE: Final = 0.1
"""How far two equal runs on one machine are apart, as a share."""


@dataclass(frozen=True)
class StageEstimate:
    """What one stage needs.

    Args:
        name: The stage.
        cpu_seconds: Seconds spent in it, summed over workers.
        share: Its share of the seconds of all stages, 0 to 1.
        rows_out: Rows that it hands on or writes; ``None`` for stages that do not count rows.
    """

    name: str
    cpu_seconds: float
    share: float
    rows_out: int | None


@dataclass(frozen=True)
class Estimate:
    """What a run will need.

    Args:
        pipeline: The name of the pipeline.
        target: The machine or cluster that it is for, in words.
        workers: Workers, or cores of the cluster.
        input_bytes, input_tasks: The input: the size of its files, and tasks.
        sample_bytes, sample_tasks, sample_seconds: What was run to find out.
        seconds: How long the run takes, from the start of the first worker to the last file.
        seconds_range: The same, at least and at most.
        startup_seconds: The part of it that does not depend on the input.
        limit: What limits the speed: ``"cpu"``, ``"gpu"`` or ``"disk"``.
        memory_bytes: Highest memory of one machine.
        scratch_bytes: Data between stages on disk, at most.
        output_rows, output_bytes: What is written.
        record_bytes: The size of the run directory.
        stages: What each stage needs.
        notes: What to know about the figures.
    """

    pipeline: str
    target: str
    workers: int
    input_bytes: int
    input_tasks: int
    sample_bytes: int
    sample_tasks: int
    sample_seconds: float
    seconds: float
    seconds_range: tuple[float, float]
    startup_seconds: float
    limit: str
    memory_bytes: int
    scratch_bytes: int
    output_rows: int
    output_bytes: int
    record_bytes: int
    stages: list[StageEstimate]
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


def estimate_pipeline(
    pipeline: Pipeline,
    executor: Executor,
    cluster: str | None = None,
    sample_seconds: float = SAMPLE_S,
    drop_ledger: bool = True,
) -> Estimate:
    """Run samples through a pipeline and predict what the whole needs; see :meth:`Pipeline.estimate`."""
    shape = ClusterShape.parse(cluster) if cluster is not None else None
    if not isinstance(executor, LocalExecutor):
        if shape is None:
            raise PlanError("an estimate for a cluster needs its shape, for instance --cluster 8x16cpu,2gpu")
        executor = LocalExecutor()
    plan = pipeline.plan(executor)
    parts = list_input(plan)
    workers = max(1, executor.workers)

    def run(sample: Sequence[Any]) -> SampleRun:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            return run_sample(pipeline.plan(executor), executor, sample, place, drop_ledger)

    with tempfile.TemporaryDirectory(prefix="tamis-estimate-") as folder:
        cold = run(spread(parts.tasks, 2 * workers, 0))
        sampled = cold.seconds
        found: list[_Extrapolation] = []
        count, until = 0, time.monotonic() + sample_seconds
        disk = disk_bytes_per_s(folder)
        while not found or (len(found) < MAX_PAIRS and time.monotonic() < until):
            warm = run(spread(parts.parts, workers, 2 * len(found) + 1))
            count = count or _main_tasks(parts, warm, workers, sample_seconds / 3)
            main = run(spread(parts.parts, count, 2 * len(found) + 2))
            found.append(_Extrapolation(plan, parts, cold, warm, main, workers, disk))
            sampled += warm.seconds + main.seconds
    # Other programs slow down some of the runs: the median is closest to what the whole takes.
    middle = sorted(found, key=lambda one: one.per_byte)[len(found) // 2]
    # Runs of one process leave memory behind: the later ones show more than a run on its own takes.
    return replace(middle.estimate(shape), sample_seconds=sampled, memory_bytes=found[0].memory())


def _main_tasks(parts: InputParts, warm: SampleRun, workers: int, sample_seconds: float) -> int:
    """How many parts the larger sample has: as many as fit into the time, in whole rounds of all workers."""
    rounds = max(3, int(sample_seconds / max(warm.seconds, 0.02)))
    most = min(MAX_SAMPLE_BYTES, max(LEAST_SAMPLE_BYTES, parts.nbytes // 10))
    bound = int(most / max(1, warm.nbytes))
    return workers * min(rounds, max(3, bound), max(1, len(parts.parts) // workers))


class _Extrapolation:
    """The arithmetic from samples to the whole."""

    def __init__(
        self,
        plan: Plan,
        parts: InputParts,
        cold: SampleRun,
        warm: SampleRun,
        main: SampleRun,
        workers: int,
        disk: float,
    ) -> None:
        self.plan, self.parts, self.cold, self.warm, self.main = plan, parts, cold, warm, main
        self.workers, self.disk = workers, disk
        self.scale = parts.nbytes / max(1, main.nbytes)
        self.notes: list[str] = []
        failed = sum(stage.tasks_set_aside for stage in main.stages)
        if failed:
            self.notes.append(
                f"{failed} of {main.tasks} tasks of the sample could not be processed. The run would set them aside, "
                "and the figures are without them"
            )
        self._kept = self._kept_after_deduplication()
        self.startup_s, self.per_byte = self._line()

    def estimate(self, shape: ClusterShape | None) -> Estimate:
        """The prediction for this machine, or for a cluster."""
        cpu_s = self._cpu_seconds()
        busy = sum(cpu_s)
        startup, per_byte = self.startup_s, self.per_byte
        before, after = self._stage_slopes(adjusted=False), self._stage_slopes(adjusted=True)
        adjusted = sum(after) / sum(before) if sum(before) else 1.0
        work_s, limit = per_byte * adjusted * self.parts.nbytes, "cpu"
        cores = self.workers
        if shape is not None:
            overhead = min(2.0, max(1.0, per_byte * self.workers / max(sum(before), 1e-15)))
            cores = shape.cpus
            work_s, limit = self._on(shape, cpu_s, overhead)
        scratch = int(self.main.scratch_bytes * self.scale)
        rows, output = self._output()
        disk_s = (scratch + output) / self.disk / (shape.machines if shape else 1)
        if disk_s > work_s:
            work_s, limit = disk_s, "disk"
        seconds = startup + work_s
        spread = relative_spread(self.main.costs, min(1.0, 1 / self.scale)) + MACHINE_NOISE
        return Estimate(
            pipeline=self.plan.name,
            target=str(shape) if shape else f"this machine, {self.workers} workers",
            workers=cores,
            input_bytes=self.parts.nbytes,
            input_tasks=len(self.parts.tasks),
            sample_bytes=self.main.nbytes,
            sample_tasks=self.main.tasks,
            sample_seconds=self.main.seconds,
            seconds=seconds,
            seconds_range=(seconds * max(0.0, 1 - spread), seconds * (1 + spread)),
            startup_seconds=startup,
            limit=limit,
            memory_bytes=self.memory(),
            scratch_bytes=scratch,
            output_rows=rows,
            output_bytes=output,
            record_bytes=int(self.main.record_bytes * self.scale),
            stages=self._stages(cpu_s, busy),
            notes=self.notes,
        )

    def _line(self) -> tuple[float, float]:
        """Seconds that every run takes, and seconds per byte of input, both on all workers."""
        more = self.main.nbytes - self.warm.nbytes
        per_byte = self.main.seconds / max(1, self.main.nbytes)
        if more > 0 and self.main.tasks >= 2 * self.warm.tasks and self.main.seconds > self.warm.seconds:
            per_byte = (self.main.seconds - self.warm.seconds) / more
        fixed = max(0.0, self.main.seconds - per_byte * self.main.nbytes)
        return max(fixed, self.cold.seconds - per_byte * self.cold.nbytes), per_byte

    def _stage_slopes(self, *, adjusted: bool) -> list[float]:
        """Seconds of each stage per byte of input."""
        more = self.main.nbytes - self.warm.nbytes
        slopes = []
        for vertex, (big, small) in enumerate(zip(self.main.stages, self.warm.stages, strict=True)):
            slope = big.seconds / max(1, self.main.nbytes)
            if more > 0 and self.main.tasks >= 2 * self.warm.tasks:
                slope = max(0.0, (big.seconds - small.seconds) / more)
            slopes.append(slope * (self._kept[vertex][0] if adjusted else 1.0))
        return slopes

    def _cpu_seconds(self) -> list[float]:
        return [slope * self.parts.nbytes for slope in self._stage_slopes(adjusted=True)]

    def _kept_after_deduplication(self) -> list[tuple[float, float]]:
        """For each stage, how its input and output differ from the sample's, because the whole has more duplicates."""
        kept = [(1.0, 1.0)] * len(self.plan.vertices)
        for vertex in self.plan.vertices:
            inputs = [kept[i][1] for i in vertex.inputs]
            before = sum(inputs) / len(inputs) if inputs else 1.0
            ratio = 1.0
            copies = self.main.copies.get(vertex.name)
            stats = self.main.stages[vertex.index]
            if copies and stats.rows_out:
                rows = stats.rows_out + stats.rows_dropped
                whole = distinct_in_whole(copies, rows, min(1.0, 1 / self.scale), self.main.nearby.get(vertex.name, 0))
                ratio = whole / (stats.rows_out / rows)
                self.notes.append(
                    f"{vertex.name}: {figures.percent(stats.rows_dropped / rows)} of the rows of the sample are "
                    f"duplicates; in the whole input it may be {figures.percent(1 - whole)}"
                )
            kept[vertex.index] = (before, before * ratio)
        return kept

    def _on(self, shape: ClusterShape, cpu_s: Sequence[float], overhead: float) -> tuple[float, str]:
        """Seconds on a cluster, and what limits them. All stages run at the same time, on different tasks."""
        cores = gpus = 0.0
        for group in self.plan.groups:
            seconds = sum(cpu_s[v] for v in group.vertices)
            cores += seconds * max(1.0, group.resources.cpus)
            needs = group.resources.gpus or (1.0 if group.resources.requires_gpu else 0.0)
            if needs and not shape.gpus:
                raise PlanError(f"stage {self.plan.vertices[group.entry].name!r} needs a GPU, and the cluster has none")
            gpus += seconds * needs
        on_cores = cores * overhead / min(shape.cpus, max(1, len(self.parts.tasks)))
        on_gpus = gpus / shape.gpus if shape.gpus else 0.0
        self.notes.append(
            "The sample ran on this machine: cores of the cluster count as equal to its cores, the network is not "
            "counted, and starting workers takes longer than here"
        )
        return max(on_cores, on_gpus), "gpu" if on_gpus > on_cores else "cpu"

    def _output(self) -> tuple[int, int]:
        """Rows and bytes that are written. Writers after a deduplication get less than in the sample."""
        writers = [v.index for v in self.plan.vertices if v.stage.is_sink_stage]
        rows = {v: figures.steps([self.main.stages[v]])[0].after for v in writers if self.main.stages[v].files}
        nbytes = {v: self.main.stages[v].bytes_in for v in rows}
        shares = [
            sum(self._kept[v][0] * amount for v, amount in amounts.items()) / max(1, sum(amounts.values()))
            for amounts in (rows, nbytes)
        ]
        return int(self.main.output_rows * self.scale * shares[0]), int(self.main.output_bytes * self.scale * shares[1])

    def memory(self) -> int:
        """Highest memory on this machine: what whole tasks took, worker processes, and a part of each exchange."""
        memory = self.main.memory_peak
        if any(not group.releases_gil for group in self.plan.groups if not group.is_source):
            memory += self.main.child_peak * self.workers
        return memory

    def _stages(self, cpu_s: Sequence[float], busy: float) -> list[StageEstimate]:
        found = []
        for vertex, stats in zip(self.plan.vertices, self.main.stages, strict=True):
            if vertex.is_source:
                continue
            step = next(iter(figures.steps([stats])), None)
            rows = None
            if step is not None and step.counts_rows:
                kept = self._kept[vertex.index][0 if END in vertex.edges.values() and stats.files else 1]
                rows = int(step.after * self.scale * kept)
            seconds = cpu_s[vertex.index]
            found.append(StageEstimate(vertex.name, seconds, seconds / busy if busy else 0.0, rows))
        return found
