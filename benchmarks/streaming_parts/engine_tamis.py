"""The pipeline on tamis' streaming executor, with its defaults: neighbouring CPU stages are fused; or ``unfused``."""

from __future__ import annotations

import tempfile

# Loaded lazily by the executor; the peers' modules load it at their top, which is not on the clock either.
import ray  # noqa: F401
from streaming_parts.scenarios import Job
from streaming_parts.tamis_stages import SleepingStage, StageWithSetup, Ticket
from streaming_parts.work import Sleeper

from tamis.backends.streaming import StreamingExecutor
from tamis.pipeline import Pipeline


def run(job: Job, variant: str) -> int:
    """Run the pipeline on the cluster of ``RAY_ADDRESS``; give the number of tasks that came out."""
    kinds = [StageWithSetup if stage.setup_s else SleepingStage for stage in job.stages]
    stages = [kind(Sleeper(job, number)) for number, kind in enumerate(kinds)]
    tasks = [Ticket(number) for number in range(job.tasks)]
    with tempfile.TemporaryDirectory() as folder:
        executor = StreamingExecutor(fuse=variant != "unfused")
        pipeline = Pipeline("streaming", stages=stages)
        return len(pipeline.run(executor, initial_tasks=tasks, run_dir=f"{folder}/run", progress="off"))
