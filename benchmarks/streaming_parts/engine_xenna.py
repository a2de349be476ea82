"""The pipeline on cosmos-xenna used directly (0.3 or 0.5), with its defaults.

Two things are set, both in its favour: it may use all CPUs (its default leaves 5 % of them alone, rounded up to one
CPU of 16), and the outputs of the last stage are not sent to the driver (its default; NeMo Curator has them sent).
Xenna finds GPUs by asking NVML, so the simulated ones are shown to it where it counts them. The variant ``scaled``
multiplies its three time constants by the scale of the scenario, as if all times in the world were scaled alike: its
re-balancing interval of 180 s is longer than most of the runs here.
"""

from __future__ import annotations

import uuid
from typing import Any

import ray
from cosmos_xenna.pipelines import v1 as xenna
from cosmos_xenna.pipelines.private import resources
from streaming_parts.scenarios import GPUS, Job
from streaming_parts.work import Sleeper


class SleepingStage(xenna.Stage):
    """A stage in Xenna's words."""

    def __init__(self, sleeper: Sleeper) -> None:
        self.sleeper = sleeper
        self.needs = sleeper.job.stages[sleeper.stage]

    @property
    def stage_batch_size(self) -> int:
        return 1

    @property
    def required_resources(self) -> Any:
        return xenna.Resources(cpus=self.needs.cpus, gpus=self.needs.gpus)

    def setup(self, worker_metadata: Any) -> None:
        if self.needs.setup_s:
            self.sleeper.setup()

    def process_data(self, in_data: list[int]) -> list[int]:
        for task in in_data:
            self.sleeper.work(task)
        return in_data


def run(job: Job, variant: str) -> int:
    """Run the pipeline on the cluster of ``RAY_ADDRESS``; give the number of tasks that came out."""
    show_gpus()
    mode = xenna.StreamingSpecificSpec()
    if variant == "scaled":
        for constant in (
            "autoscale_interval_s",
            "autoscale_speed_estimation_window_duration_s",
            "scale_down_grace_after_ready_s",
        ):
            if hasattr(mode, constant):  # the last one is not in 0.3
                setattr(mode, constant, getattr(mode, constant) * job.scale)
    stages = [xenna.StageSpec(SleepingStage(Sleeper(job, number))) for number in range(len(job.stages))]
    config = xenna.PipelineConfig(mode_specific=mode, cpu_allocation_percentage=1.0)
    xenna.run_pipeline(xenna.PipelineSpec(list(range(job.tasks)), stages, config))
    ray.shutdown()
    return job.tasks


def show_gpus() -> None:
    cards = [resources.GpuInfo(index=i, name="simulated", uuid_=uuid.UUID(int=i + 1)) for i in range(GPUS)]
    resources._get_gpus = lambda info_from_ray, info_from_node: cards
