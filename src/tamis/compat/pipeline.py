"""``nemo_curator.pipeline`` for scripts: the tasks that a run returns are shown as pandas frames."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from tamis.compat.batch import DocumentBatch
from tamis.compat.executors import BaseExecutor
from tamis.compat.images import ImageBatch
from tamis.errors import PlanError
from tamis.pipeline import Pipeline as TamisPipeline
from tamis.runs.result import RunResult
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.tasks import ImageBatch as TamisImageBatch
from tamis.tasks import Task
from tamis.tasks.views import as_taken

__all__ = ["Pipeline", "Result"]

_ARRAY, _ARRAY_TASKS = "NEMO_CURATOR_SLURM_ARRAY_ENABLED", "SLURM_ARRAY_TASK_COUNT"


class Result(RunResult):
    """The result of a run, with batches as pandas frames, and images as lists of objects."""

    def __iter__(self) -> Iterator[Task[Any]]:
        return (
            as_taken(task, ImageBatch if isinstance(task, TamisImageBatch) else DocumentBatch)
            for task in super().__iter__()
        )


class Pipeline(TamisPipeline):
    """A pipeline as scripts for NeMo Curator use it: :class:`tamis.pipeline.Pipeline`, with frames in its result.

    Args:
        name, description, stages: As in :class:`tamis.pipeline.Pipeline`.
        config: Kept, but not used, as in NeMo Curator.
    """

    def __init__(
        self,
        name: str,
        description: str | None = None,
        stages: Sequence[ProcessingStage[Any, Any]] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(name, description, stages)
        self.config = config or {}

    def run(self, executor: Any = None, initial_tasks: Sequence[Task[Any]] | None = None, **settings: Any) -> Any:
        """Run the pipeline; an executor that the script defines is given the unfolded stages and the tasks.

        Args:
            executor, initial_tasks: As in :class:`tamis.pipeline.Pipeline`.
            settings: Further arguments of :meth:`tamis.pipeline.Pipeline.run`.
        """
        _refuse_array()
        if type(executor).__mro__.count(BaseExecutor):
            return executor.execute(_unfolded(self.stages), list(initial_tasks or []))
        result = super().run(executor, initial_tasks, **settings)
        return Result(result._directory, result.summary)


def _unfolded(stages: Sequence[ProcessingStage[Any, Any]]) -> list[ProcessingStage[Any, Any]]:
    flat: list[ProcessingStage[Any, Any]] = []
    for stage in stages:
        flat += _unfolded(stage.unfold()) if isinstance(stage, CompositeStage) else [stage]
    return flat


def _refuse_array() -> None:
    """Refuse Slurm arrays, whose tasks would each do all of the work."""
    is_off = os.environ.get(_ARRAY, "1").strip().lower() in ("0", "false", "no", "off")
    if not is_off and int(os.environ.get(_ARRAY_TASKS) or 1) > 1:
        raise PlanError(
            f"this is one of {os.environ[_ARRAY_TASKS]} tasks of a Slurm array, and tamis does not divide the input "
            "among them: each would do all of the work. Use one job with several nodes and SlurmRayClient, or, if each "
            f"task of the array has separate input and output, set {_ARRAY}=0"
        )
