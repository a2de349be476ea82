"""The code of NeMo Curator's guides that runs on a Ray cluster."""

from __future__ import annotations

import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tamis import compat
from tamis.backends.ray_actor_pool import RayActorPoolExecutor
from tamis.backends.ray_data import RayDataExecutor
from tamis.compat.batch import DocumentBatch
from tamis.compat.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.tasks import Task

pytestmark = pytest.mark.usefixtures("ray_cluster")

SEEDS = Path(__file__).parent / "seeds"


@pytest.mark.parametrize(
    ("script", "expected"), [("ray_data_executor.py", [["some words"]]), ("end_to_end.py", [["one"], ["two"]])]
)
def test_executors_on_ray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: list[list[str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    compat.activate()
    try:
        results = runpy.run_path(str(SEEDS / script), run_name="__main__")["results"]
    finally:
        compat.deactivate()
    assert [task.to_pyarrow()["text"].to_pylist() for task in results] == expected


class Shorten(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Changes and filters the frame of a batch, as scripts do."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        task.data["words"] = task.data["text"].str.split().str.len()
        task.data = task.data[task.data["words"] > 1]
        return task


@dataclass
class Vectors(Task[list[np.ndarray[Any, Any]]]):
    """A task type of a script's own."""


class Embed(ProcessingStage[DocumentBatch, Vectors]):
    def process(self, task: DocumentBatch) -> Vectors:
        return Vectors([np.full(3, len(text)) for text in task.data["text"]], task.dataset_name)


@pytest.mark.parametrize("executor", [RayActorPoolExecutor, RayDataExecutor])
def test_frames_and_task_types_of_a_script_on_ray(tmp_path: Path, executor: Any) -> None:
    tasks = [DocumentBatch(data=pd.DataFrame({"text": ["a", "a b", "a b c"]}), dataset_name="d")]
    pipeline = Pipeline("p", stages=[Shorten(), Embed().with_(num_workers=1)])
    result = pipeline.run(executor(), initial_tasks=tasks, progress="off", run_dir=str(tmp_path / "run"))
    assert [[vector.tolist() for vector in task.data] for task in result] == [[[3, 3, 3], [5, 5, 5]]]
    assert result.drops().select(["source", "position", "reason"]).to_pylist() == [
        {"source": "task 000000", "position": 0, "reason": "dropped by Shorten"}
    ]
