"""Composite stages that are called directly, with one batch: the stages they stand for run on it, in this thread."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from typing import Any

from tamis.errors import DataError, PlanError
from tamis.stages.base import CompositeStage, ProcessingStage, SourceStage, WorkerMetadata, emissions
from tamis.stages.emit import MAIN, BadRows, Drop, Emit, Publish
from tamis.stages.flow import BranchStage
from tamis.stages.scratch import make_visible
from tamis.stages.task_types import task_types
from tamis.tasks import TableTask, Task
from tamis.tasks.views import as_taken

__all__ = ["run_on_one_batch"]


def run_on_one_batch(composite: CompositeStage[Any, Any], batch: Any) -> Any:
    """The batch that a composite stage makes of one batch, as if that were the whole input.

    What is kept between stages lies in a temporary directory. The rows that were left out are in ``dropped``.

    >>> from tamis.stages.deduplication.exact import ExactDeduplication
    >>> from tamis.tasks import DocumentBatch
    >>> made = run_on_one_batch(ExactDeduplication(), DocumentBatch({"text": ["a", "b", "a"]}))
    >>> made["text"].to_pylist(), made.dropped[0].reason
    (['a', 'b'], 'exact duplicate')
    """
    stages = list(_unfolded(composite))
    first, last = stages[0], stages[-1]
    if not isinstance(batch, TableTask) or isinstance(first, SourceStage) or last.is_sink_stage:
        raise _cannot_run_alone(composite)
    if not batch.has_names:
        batch = batch.named("batch")
    drops = list(batch.dropped)
    tasks: list[Task[Any]] = [_placed(batch, (0,))]
    with tempfile.TemporaryDirectory(prefix="tamis-batch-", ignore_cleanup_errors=True) as scratch:
        for stage in stages:
            tasks = list(_made_by(stage, tasks, scratch, drops))
            for metric, value in stage.take_metrics().items():
                composite.log_metric(metric, value)
    tables = [task for task in tasks if isinstance(task, TableTask)]
    if len(tables) < len(tasks):
        raise _cannot_run_alone(composite)
    made = copy.copy(type(tables[0]).concat(tables) if tables else batch.select([]))
    made.order, made.task_id, made.dropped = batch.order, batch.task_id, drops
    return made


def _unfolded(composite: CompositeStage[Any, Any]) -> Iterator[ProcessingStage[Any, Any]]:
    for stage in composite.unfold():
        if isinstance(stage, CompositeStage):
            yield from _unfolded(stage)
        elif isinstance(stage, BranchStage):
            raise _cannot_run_alone(composite)
        else:
            yield stage.without_gpu() if stage.gpu_is_optional and stage.resources.gpus else stage


def _made_by(
    stage: ProcessingStage[Any, Any], tasks: list[Task[Any]], scratch: str, drops: list[Drop]
) -> Iterator[Task[Any]]:
    """The tasks that a stage makes of those before it. What it publishes is there afterwards."""
    if isinstance(stage, SourceStage):
        yield from (_placed(task, (number,)) for number, task in enumerate(stage.splits(scratch)))
        return
    taken, _ = task_types(stage)
    stage.setup(WorkerMetadata(scratch=scratch))
    for task in tasks:
        given = as_taken(copy.copy(task), taken)
        result = stage.process_batch([given]) if stage.supports_batch_processing() else stage.process(given)
        for number, item in enumerate(emissions(result)):
            made = item.task if isinstance(item, Emit) and item.port == MAIN else item
            if isinstance(made, Publish):
                make_visible(made)
            elif isinstance(made, Drop):
                drops.append(made)
            elif isinstance(made, BadRows):
                raise DataError(made.rows[0].problem)
            elif isinstance(made, Task):
                if isinstance(made, TableTask) and isinstance(task, TableTask):
                    made.made_of(task)
                if isinstance(made, TableTask):
                    drops += [drop for drop in made.dropped if all(drop is not known for known in drops)]
                yield _placed(made, (*task.order, number))
    stage.teardown()


def _placed(task: Task[Any], order: tuple[int, ...]) -> Task[Any]:
    """The task at a place in the order; files that are kept between stages are named after it."""
    placed = copy.copy(task)
    placed.order = order
    return placed


def _cannot_run_alone(composite: CompositeStage[Any, Any]) -> PlanError:
    return PlanError(
        f"{composite.name}: process() is for stages that make a batch of a batch; "
        f"run it in a pipeline: Pipeline(name, stages=[..., {type(composite).__name__}(...)]).run()"
    )
