"""The pipeline on tamis' streaming executor, with its defaults: neighbouring CPU stages are fused; or ``unfused``."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

# Loaded lazily by the executor; the peers' modules load it at their top, which is not on the clock either.
import ray  # noqa: F401
from streaming_parts.scenarios import Job
from streaming_parts.work import Sleeper

from tamis.backends.streaming import StreamingExecutor
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage, WorkerMetadata
from tamis.stages.resources import Resources
from tamis.tasks import Task


@dataclass
class Ticket(Task[int]):
    """A task that is only a number."""

    data: int = 0


class SleepingStage(ProcessingStage[Ticket, Ticket]):
    """A stage in tamis' words."""

    def __init__(self, sleeper: Sleeper) -> None:
        self.sleeper = sleeper
        stage = sleeper.job.stages[sleeper.stage]
        self.name, self.resources = stage.name, Resources(cpus=stage.cpus, gpus=stage.gpus)

    def process(self, task: Ticket) -> Ticket:
        self.sleeper.work(task.data)
        return task


class StageWithSetup(SleepingStage):
    """One that loads something first."""

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self.sleeper.setup()


def run(job: Job, variant: str) -> int:
    """Run the pipeline on the cluster of ``RAY_ADDRESS``; give the number of tasks that came out."""
    kinds = [StageWithSetup if stage.setup_s else SleepingStage for stage in job.stages]
    stages = [kind(Sleeper(job, number)) for number, kind in enumerate(kinds)]
    tasks = [Ticket(number) for number in range(job.tasks)]
    with tempfile.TemporaryDirectory() as folder:
        executor = StreamingExecutor(fuse=variant != "unfused")
        pipeline = Pipeline("streaming", stages=stages)
        return len(pipeline.run(executor, initial_tasks=tasks, run_dir=f"{folder}/run", progress="off"))
