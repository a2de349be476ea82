"""Stages with ``async def process``: many calls in flight in one worker, on every substrate."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from async_stages import Backwards, FailsOnce, Hangs, Meet, rows_of

from tamis.backends.local import LocalExecutor
from tamis.errors import StageError
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.function_decorators import processing_stage
from tamis.tasks import DocumentBatch

LOCAL = [LocalExecutor(0), LocalExecutor(2, "threads"), LocalExecutor(2, "processes")]
KINDS = ["inline", "threads", "processes"]


def run(tmp_path: Path, stage: ProcessingStage[Any, Any], executor: Any, tasks: list[DocumentBatch]) -> Any:
    return Pipeline("p", stages=[stage]).run(executor, tasks, run_dir=str(tmp_path / "run"), progress="off")


def numbers(result: Any, column: str = "n") -> list[int]:
    return [row[column] for task in result for row in task.data.to_pylist()]


@pytest.mark.parametrize("executor", LOCAL, ids=KINDS)
@pytest.mark.parametrize(("rows_per_task", "batch_rows"), [(1, None), (10, 1)], ids=["tasks", "rows"])
def test_one_worker_keeps_many_calls_in_flight(
    tmp_path: Path, executor: LocalExecutor, rows_per_task: int, batch_rows: int | None
) -> None:
    stage = Meet(together=40).with_(max_in_flight=40, batch_rows=batch_rows)
    result = run(tmp_path, stage, executor, rows_of(60 // rows_per_task * 2, rows_per_task))
    assert numbers(result) == list(range(1, 120, 2)), "in the order of the input"
    assert len(set(numbers(result, "process"))) == 1
    assert result.stage("Meet").dropped == {"even": 60}


@pytest.mark.parametrize("executor", LOCAL, ids=KINDS)
def test_results_may_arrive_in_any_order(tmp_path: Path, executor: LocalExecutor) -> None:
    assert numbers(run(tmp_path, Backwards(), executor, rows_of(20))) == list(range(20))


@pytest.mark.parametrize("executor", [LocalExecutor(0), LocalExecutor(2)], ids=["inline", "processes"])
def test_a_call_that_raises_or_hangs_is_tried_again_and_the_others_go_on(
    tmp_path: Path, executor: LocalExecutor
) -> None:
    result = run(tmp_path, FailsOnce().with_(timeout_s=0.5), executor, rows_of(10))
    assert numbers(result) == list(range(10))
    assert result.stage("FailsOnce").retries == 2
    assert len(set(numbers(result, "process"))) == 1, "the worker was not replaced"


@pytest.mark.parametrize("executor", LOCAL, ids=KINDS)
def test_calls_in_flight_are_cancelled_when_the_run_fails(tmp_path: Path, executor: LocalExecutor) -> None:
    with pytest.raises(StageError, match=r"stage 'Hangs', task 000000, tried 2 times: ValueError: no such model"):
        run(tmp_path, Hangs(), executor, rows_of(5))


def test_a_function_may_be_async_too() -> None:
    @processing_stage(name="wait", max_in_flight=7)
    async def wait(task: DocumentBatch) -> DocumentBatch:
        await asyncio.sleep(0)
        return task

    (task,) = rows_of(1)
    assert asyncio.run(wait(task)) is task
    assert asyncio.run(wait.process(task)) is task
    plan = Pipeline("p", stages=[wait]).plan(initial=DocumentBatch)
    assert (plan.groups[0].is_async, plan.groups[0].in_flight) == (True, 7)
    assert "1 worker, up to 7 calls in flight" in str(plan)


@pytest.mark.usefixtures("ray_cluster")
def test_one_actor_keeps_many_calls_in_flight(tmp_path: Path) -> None:
    from tamis.backends.streaming import StreamingExecutor

    stage = Meet(together=40).with_(max_in_flight=40)
    result = run(tmp_path, stage, StreamingExecutor(), rows_of(60))
    assert numbers(result) == list(range(1, 60, 2))
    assert len(set(numbers(result, "process"))) == 1
