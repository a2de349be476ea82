"""The pipeline on Ray Data, put together as NeMo Curator's RayDataExecutor does it.

One block per task (``from_items(override_num_blocks=)``), one ``map_batches`` of batch size 1 a stage, ``take_all()``.
Stages that set something up are actors in an autoscaling pool (``ActorPoolStrategy(min_size=1)``, no upper limit), the
others are tasks; the variant with actors has pools for all. What Ray Data decides by itself is left to it: which
operators it fuses (neighbouring tasks with equal needs: one way to be faster), budgets, queue sizes, pool sizes. Its
progress bars are off, which only helps it.
"""

from __future__ import annotations

from typing import Any

import ray
import ray.data
from ray.data import ActorPoolStrategy, DataContext, Dataset
from streaming_parts.scenarios import Job
from streaming_parts.work import Sleeper

Batch = dict[str, Any]


class Worker:
    """An actor of a stage."""

    def __init__(self, sleeper: Sleeper) -> None:
        self.sleeper = sleeper
        if sleeper.job.stages[sleeper.stage].setup_s:
            sleeper.setup()

    def __call__(self, batch: Batch) -> Batch:
        return work_on(batch, self.sleeper)


def work_on(batch: Batch, sleeper: Sleeper) -> Batch:
    for task in batch["item"]:
        sleeper.work(int(task))
    return batch


def run(job: Job, variant: str) -> int:
    """Run the pipeline on the cluster of ``RAY_ADDRESS``; give the number of tasks that came out."""
    DataContext.get_current().enable_progress_bars = False
    ray.init(log_to_driver=False)
    dataset = ray.data.from_items(list(range(job.tasks)), override_num_blocks=job.tasks)
    for number, stage in enumerate(job.stages):
        dataset = add_stage(dataset, Sleeper(job, number), stage.setup_s > 0 or variant == "actors")
    done = len(dataset.take_all())
    ray.shutdown()
    return done


def add_stage(dataset: Dataset, sleeper: Sleeper, is_actor: bool) -> Dataset:
    stage = sleeper.job.stages[sleeper.stage]
    needs: dict[str, Any] = {"num_cpus": stage.cpus, **({"num_gpus": stage.gpus} if stage.gpus else {})}
    if not is_actor:
        return dataset.map_batches(work_on, fn_kwargs={"sleeper": sleeper}, batch_size=1, **needs)
    pool = ActorPoolStrategy(min_size=1)
    return dataset.map_batches(Worker, fn_constructor_kwargs={"sleeper": sleeper}, batch_size=1, compute=pool, **needs)
