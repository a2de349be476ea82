"""Stages with a GPU, on the local executor, on a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpu_stages import Square

from tamis.backends.local import LocalExecutor
from tamis.core import host
from tamis.errors import ResourceError
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.resources import Resources
from tamis.tasks import DocumentBatch, EmptyTask, Task

pytestmark = pytest.mark.skipif(not host.gpus(), reason="this machine has no NVIDIA GPU")


class Make(ProcessingStage[EmptyTask, DocumentBatch]):
    def process(self, task: EmptyTask) -> list[DocumentBatch]:
        return [DocumentBatch({"n": [float(i)]}) for i in range(24)]


def rows(tmp_path: Path, resources: Resources, workers: int = 4) -> list[dict[str, Any]]:
    pytest.importorskip("torch")
    stages = [Make(), Square().with_(resources=resources)]
    result = Pipeline("gpu", stages=stages).run(LocalExecutor(workers), run_dir=str(tmp_path / "run"), progress="off")
    return [row for task in result for row in task.data.to_pylist()]


@pytest.mark.parametrize("resources", [Resources(gpus=1), Resources(gpus=0.25), Resources(gpu_memory_gb=10)])
def test_a_stage_runs_on_the_gpu_it_was_given(tmp_path: Path, resources: Resources) -> None:
    found = rows(tmp_path, resources)
    assert [r["n"] for r in found] == [float(i * i) for i in range(24)]
    assert all(r["visible"] == str(r["given"][0]) and r["gpus"] == 1 for r in found)


def test_a_whole_gpu_has_one_worker_and_a_quarter_up_to_four(tmp_path: Path) -> None:
    cards = len(host.gpus())
    whole = {r["pid"] for r in rows(tmp_path / "whole", Resources(gpus=1), workers=4 * cards)}
    shared = {r["pid"] for r in rows(tmp_path / "shared", Resources(gpus=0.25), workers=4 * cards)}
    assert len(whole) <= cards
    assert len(whole) < len(shared) <= 4 * cards


def test_more_gpus_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="asks for 1000 GPUs for each worker, this machine has"):
        rows(tmp_path, Resources(gpus=1000))


def test_more_memory_than_a_card_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match="the largest card of this machine has"):
        rows(tmp_path, Resources(gpu_memory_gb=100_000))


class ToCard(ProcessingStage[DocumentBatch, Task[Any]]):
    """Makes a tensor on the card."""

    resources = Resources(gpus=0.5)
    makes_rows = "new"

    def process(self, task: DocumentBatch) -> Task[Any]:
        import torch

        return Task([torch.tensor(task["n"].to_pylist(), device="cuda")])


class FromCard(ProcessingStage[Task[Any], DocumentBatch]):
    """Works on that tensor, which is where it was."""

    resources = Resources(gpus=0.5)
    makes_rows = "new"

    def process(self, task: Task[Any]) -> DocumentBatch:
        (numbers,) = task.data
        return DocumentBatch({"n": (numbers * 2).tolist(), "on_card": [numbers.is_cuda] * len(numbers)})


def test_tensors_stay_on_the_card_between_neighbours(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pipeline = Pipeline("gpu", stages=[Make(), ToCard(), FromCard()])
    result = pipeline.run(LocalExecutor(2), run_dir=str(tmp_path / "run"), progress="off")
    found = [row for task in result for row in task.data.to_pylist()]
    assert [row["n"] for row in found] == [2.0 * i for i in range(24)]
    assert all(row["on_card"] for row in found)


def test_two_stages_with_a_whole_card_each_need_two(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    whole = Resources(gpus=len(host.gpus()))
    stages = [Make(), Square().with_(resources=whole), Square().with_(resources=whole, fuse=False)]
    with pytest.raises(ResourceError, match=r"at the same time, this machine has"):
        Pipeline("gpu", stages=stages).run(LocalExecutor(2), run_dir=str(tmp_path / "run"), progress="off")
