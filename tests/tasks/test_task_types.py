"""Task types of users: anything that can be pickled, with arrays that are not copied on the way."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tamis import LocalExecutor, Pipeline
from tamis.stages.base import ProcessingStage
from tamis.tasks import EmptyTask, Task
from tamis.tasks.storage import read_task, write_task


@dataclass
class Embedding:
    name: str
    vector: np.ndarray[Any, Any]


@dataclass
class Embeddings(Task[list[Embedding]]):
    """Some embeddings, and a matrix for all of them."""

    data: list[Embedding] = field(default_factory=list)
    matrix: np.ndarray[Any, Any] | None = None

    @property
    def num_items(self) -> int:
        return len(self.data)


def embeddings(count: int, size: int = 1000) -> Embeddings:
    rows = [Embedding(str(n), np.full(size, n, np.float32)) for n in range(count)]
    return Embeddings(rows, "d", matrix=np.eye(size, dtype=np.float32))


def test_arrays_are_in_the_file_and_not_copied(tmp_path: Path) -> None:
    task = embeddings(3)
    header, *buffers = task.to_buffers()
    assert len(header) < 5000
    assert len(buffers) == 4
    assert all(
        np.shares_memory(np.frombuffer(b, np.float32), row.vector) for b, row in zip(buffers, task.data, strict=False)
    )
    size = write_task(task, str(tmp_path / "task"))
    assert size > 4 * (3 * 1000 + 1000 * 1000)
    read = read_task(str(tmp_path / "task"))
    assert isinstance(read, Embeddings)
    assert read.matrix is not None
    assert np.array_equal(read.matrix, task.matrix)
    assert [row.vector[0] for row in read.data] == [0, 1, 2]
    # They are the file's memory.
    assert not any(array.flags.owndata for array in (read.matrix, read.data[0].vector))
    read.matrix[0, 0] = 7  # which may be written to, and stays private
    del read
    gc.collect()
    assert read_task(str(tmp_path / "task")).matrix[0, 0] == 1


def test_some_of_the_items_and_all_of_them(tmp_path: Path) -> None:
    task = embeddings(5)
    assert 20_000 < Task.nbytes.fget(task) < 40_000  # type: ignore[attr-defined]  # measured: five vectors
    pieces = task.split(2)
    assert [[row.name for row in piece.data] for piece in pieces] == [["0", "1", "2"], ["3", "4"]]
    whole = Embeddings.concat(pieces)
    assert [row.name for row in whole.data] == [row.name for row in task.data]
    assert whole.dataset_name == "d"


class Make(ProcessingStage[EmptyTask, Embeddings]):
    def process(self, task: EmptyTask) -> list[Embeddings]:
        return [embeddings(2), embeddings(3)]


class Double(ProcessingStage[Embeddings, Embeddings]):
    def process(self, task: Embeddings) -> Embeddings:
        for row in task.data:
            row.vector = row.vector * 2
        return task


@pytest.mark.parametrize("substrate", ["threads", "processes"])
def test_a_users_type_goes_through_a_run(tmp_path: Path, substrate: Any) -> None:
    executor = LocalExecutor(substrate=substrate, workers=2)
    pipeline = Pipeline("p", stages=[Make(), Double().with_(num_workers=1)])
    result = pipeline.run(executor, progress="off", run_dir=str(tmp_path / "run"))
    assert [[float(row.vector[0]) for row in task.data] for task in result] == [[0, 2], [0, 2, 4]]
    assert all(type(task).__name__ == "Embeddings" for task in result)
