"""The stages in tamis' words: what its workers import."""

from __future__ import annotations

from dataclasses import dataclass

from streaming_parts.work import Sleeper

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
