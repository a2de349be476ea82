"""``nemo_curator.tasks.utils``: the times of several pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.pipeline.workflow import WorkflowBase, WorkflowRunResult
from tamis.tasks import StagePerf, Task

__all__ = ["TaskPerfUtils", "WorkflowBase", "WorkflowRunResult"]


Tasks = Iterable[Task[Any]] | WorkflowRunResult | Mapping[str, Any] | None


class TaskPerfUtils:
    """Sums up what each stage did, from the statistics that output tasks carry.

    >>> task = Task([], _stage_perf=[StagePerf("read", 0.5, 10), StagePerf("filter", 1.5, 10)])
    >>> TaskPerfUtils.get_aggregated_stage_stat([task], "filter", "process_time")
    1.5
    """

    @staticmethod
    def collect_stage_metrics(tasks: Tasks) -> dict[str, dict[str, NDArray[np.float64]]]:
        """The values of each metric of each stage, one per call of the stage."""
        values: dict[str, dict[str, list[float]]] = {}
        seen: set[int] = set()
        held: list[StagePerf] = []  # keeps the objects alive, so that ids are not reused
        for task in (task for made in _by_pipeline(tasks).values() for task in made):
            for perf in task._stage_perf:
                if id(perf) in seen:  # tasks that were made together share it
                    continue
                seen.add(id(perf))
                held.append(perf)
                metrics = values.setdefault(perf.stage_name, {})
                for name, value in _metrics(perf).items():
                    metrics.setdefault(name, []).append(value)
        return {stage: {name: np.array(some) for name, some in metrics.items()} for stage, metrics in values.items()}

    @staticmethod
    def aggregate_task_metrics(tasks: Tasks, prefix: str | None = None) -> dict[str, float]:
        """Sum, mean and standard deviation of each metric, under ``<stage>_<metric>_<sum|mean|std>``.

        Args:
            tasks: Output tasks, or those of several pipelines by their names.
            prefix: A prefix for each name; with several pipelines, the pipeline's name follows.
        """
        by_pipeline, found = _by_pipeline(tasks), {}
        for pipeline, made in by_pipeline.items():
            first = [prefix] if prefix else []
            first += [pipeline] if pipeline and (prefix or len(by_pipeline) > 1) else []
            for stage, metrics in TaskPerfUtils.collect_stage_metrics(made).items():
                for name, values in metrics.items():
                    for how, number in (("sum", values.sum()), ("mean", values.mean()), ("std", values.std())):
                        found["_".join([*first, stage, name, how])] = float(number)
        return found

    @staticmethod
    def get_aggregated_stage_stat(tasks: Tasks, stage_prefix: str, stat: str) -> float:
        """The sum of one metric over all stages whose names begin with a prefix."""
        collected = TaskPerfUtils.collect_stage_metrics(tasks).items()
        return float(sum(m[stat].sum() for stage, m in collected if stage.startswith(stage_prefix) and stat in m))


def _by_pipeline(tasks: Tasks) -> dict[str, list[Task[Any]]]:
    if isinstance(tasks, WorkflowRunResult):
        tasks = tasks.pipeline_tasks
    if isinstance(tasks, Mapping):
        tasks = tasks.get("pipeline_tasks", tasks) if isinstance(tasks.get("pipeline_tasks"), Mapping) else tasks
        named: Mapping[str, Any] = tasks
        return {str(name): [made] if isinstance(made, Task) else list(made or []) for name, made in named.items()}
    if isinstance(tasks, Task) or (tasks is not None and not isinstance(tasks, Iterable)):
        raise TypeError(f"tasks is of type {type(tasks).__name__}: give a list of tasks, or one for each pipeline")
    return {"": list(tasks or [])}


def _metrics(perf: StagePerf) -> dict[str, float]:
    own = {"process_time": perf.process_time, "num_items_processed": perf.num_items_processed}
    return {k: float(v) for k, v in {**own, **{f"custom.{n}": v for n, v in perf.custom_metrics.items()}}.items()}
