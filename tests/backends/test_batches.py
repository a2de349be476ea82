"""Batches by rows, bytes and tokens: what a call of a stage is given, and what it returns."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis.backends.local import LocalExecutor
from tamis.backends.stage_calls import calls_of
from tamis.errors import PlanError
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch, Task


class Sizes(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Adds how many rows the call was given; drops rows whose number can be divided by 5."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        kept = [n % 5 != 0 for n in task["n"].to_pylist()]
        return task.with_column("given", [task.num_items] * task.num_items).keep(kept, reason="five")


class Lists(Sizes):
    """The same for several tasks at once."""

    def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        rows = sum(task.num_items for task in tasks)
        return [task.with_column("given", [rows] * task.num_items) for task in tasks]


class ByLength(Sizes):
    batch_tokens = 12

    def count_tokens(self, task: Any) -> Any:
        return [len(text) for text in task["text"].to_pylist()]


def tasks_of(*sizes: int, text: str = "ab") -> list[DocumentBatch]:
    found, start = [], 0
    for size in sizes:
        numbers = list(range(start, start + size))
        found.append(DocumentBatch(pa.table({"n": numbers, "text": [text] * size})))
        start += size
    return found


def run(tmp_path: Path, stage: Any, tasks: list[Any], executor: Any = None) -> Any:
    executor = executor or LocalExecutor(2, "threads")
    return Pipeline("p", stages=[stage]).run(executor, tasks, run_dir=str(tmp_path / "run"), progress="off")


@pytest.mark.parametrize("stage", [Sizes(), Lists()], ids=["one task", "lists"])
def test_small_tasks_are_joined_and_large_ones_are_cut(tmp_path: Path, stage: Any) -> None:
    result = run(tmp_path, stage.with_(batch_rows=10), tasks_of(4, 4, 4, 25, 1))
    rows = [row for task in result for row in task.data.to_pylist()]
    assert [row["n"] for row in rows] == [n for n in range(38) if n % 5 or isinstance(stage, Lists)]
    assert {row["n"]: row["given"] for row in rows if row["n"] in (1, 6, 8, 11, 12, 31, 32, 37)} == {
        1: 8, 6: 8, 8: 4, 11: 4, 12: 10, 31: 10, 32: 5, 37: 1,
    }  # fmt: skip
    assert [task.num_items for task in result][-2:-1] in ([20], [25]), "a task that was cut comes out in one piece"


def test_rows_keep_their_names_when_a_task_is_cut(tmp_path: Path) -> None:
    task = DocumentBatch({"n": list(range(12)), "text": ["x"] * 12}).named("file")
    result = run(tmp_path, Sizes().with_(batch_rows=5), [task])
    assert [name for t in result for name in t.names.to_texts()] == [f"file:{n}" for n in range(12) if n % 5]
    assert result.stage("Sizes").dropped == {"five": 3}


def test_the_parts_of_a_task_have_identities_of_their_own() -> None:
    (task,) = tasks_of(5)
    task.order, task.task_id = (3,), "one"
    stage = Sizes()
    stage.batch_rows = 2
    parts = [call.part for call in calls_of(stage, [task])]
    assert [part.order for part in parts if part is not None] == [(3, 0), (3, 1), (3, 2)]
    assert len({part.task_id for part in parts if part is not None}) == 3


def test_batches_by_bytes_and_tokens(tmp_path: Path) -> None:
    by_bytes = run(tmp_path / "b", Sizes().with_(batch_bytes=1000), tasks_of(8, text="x" * 240))
    assert [row["given"] for task in by_bytes for row in task.data.to_pylist()] == [4] * 3 + [4] * 3
    by_tokens = run(tmp_path / "t", ByLength(), tasks_of(3, 2, 9))  # two tokens each
    assert [row["given"] for task in by_tokens for row in task.data.to_pylist()] == [5] * 4 + [6] * 4 + [3] * 3


def test_a_column_with_the_number_of_tokens_is_used(tmp_path: Path) -> None:
    tasks = [DocumentBatch({"n": [1, 2, 3], "num_tokens": [7, 3, 3]})]
    result = run(tmp_path, Sizes().with_(batch_tokens=10), tasks)
    assert [row["given"] for task in result for row in task.data.to_pylist()] == [2, 2, 1]
    with pytest.raises(TypeError, match=r"Sizes sets batch_tokens, but the tasks have no column 'num_tokens'"):
        Sizes().count_tokens(DocumentBatch({"n": [1]}))


def test_the_plan_shows_the_limit_and_refuses_two() -> None:
    stages = [Sizes().with_(batch_bytes=2 * 2**20)]
    assert "up to 2 MiB at once" in str(Pipeline("p", stages=stages).plan(initial=DocumentBatch))
    both = Sizes().with_(batch_rows=5, batch_bytes=2**20)
    with pytest.raises(PlanError, match=r"stage 'Sizes' sets batch_rows and batch_bytes; set only one of them"):
        Pipeline("p", stages=[both]).plan(initial=DocumentBatch)


class Numbers(Task[list[int]]):
    @property
    def num_items(self) -> int:
        return len(self.data)


@examples(200)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(1, 12))
def test_every_row_is_in_one_call_in_the_order_of_the_input(sizes: list[int], most: int) -> None:
    class Stage(ProcessingStage[Any, Any]):
        batch_rows: ClassVar[int] = most

        def process(self, task: Any) -> Any:
            return task

    for tasks, rows in (
        (tasks_of(*sizes), lambda task: task["n"].to_pylist()),
        ([Numbers(list(range(10 * n, 10 * n + size))) for n, size in enumerate(sizes)], lambda task: task.data),
    ):
        given_rows = [rows(call.begin(Stage())) for call in calls_of(Stage(), list(tasks))]
        assert [row for call in given_rows for row in call] == [row for task in tasks for row in rows(task)]
        assert all(len(call) <= most for call in given_rows)
