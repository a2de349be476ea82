"""The helpers for tests: they pass what is right and say what is wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tamis.errors import StageError
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage, SourceStage
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.emit import BadRow, BadRows, Publish
from tamis.stages.flow import Route
from tamis.stages.function_decorators import processing_stage
from tamis.tasks import DocumentBatch, FileGroup
from tamis.testing import assert_batches_equal, run_everywhere, run_stage


@processing_stage(name="shout")
def shout(task: DocumentBatch) -> DocumentBatch:
    return DocumentBatch([{"text": t.upper()} for t in task.data["text"].to_pylist()])


class Count(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Needs its setup, and teardown after the last task."""

    def setup(self, worker_metadata: Any = None) -> None:
        self.numbers = itertools.count()

    def process(self, task: DocumentBatch) -> DocumentBatch:
        numbers = pa.array([next(self.numbers) for _ in range(task.num_items)])
        return task.with_table(task.data.append_column("n", numbers))


class Files(SourceStage[FileGroup, FileGroup]):
    def splits(self, scratch: str) -> Iterator[FileGroup]:
        yield FileGroup(["a"])


@processing_stage(name="half_bad")
def half_bad(task: DocumentBatch) -> Any:
    return [BadRows([BadRow("a.jsonl", 2, None, "no JSON")]), task]


@processing_stage(name="fails")
def fails(task: DocumentBatch) -> Any:
    raise KeyError("lost")


class TestRunStage:
    def test_rows_in_rows_out(self) -> None:
        assert run_stage(shout, [{"text": "a"}, {"text": "b"}]) == [{"text": "A"}, {"text": "B"}]

    def test_a_stage_is_set_up(self) -> None:
        assert run_stage(Count(), [{"a": 1}, {"a": 2}]) == [{"a": 1, "n": 0}, {"a": 2, "n": 1}]

    def test_batches_stay_batches_and_are_not_touched(self) -> None:
        batches = [DocumentBatch({"text": ["a"]}), DocumentBatch({"text": ["b", "c"]})]
        run = run_stage(shout, batches)
        assert [task.num_items for task in run.tasks] == [1, 2]
        assert [task.order for task in run.tasks] == [(0,), (1,)]
        assert [(b.task_id, b.order) for b in batches] == [("", ()), ("", ())]

    def test_tasks_of_other_runs_are_new_here(self) -> None:
        first, second = (run_stage(shout, [{"text": text}]) for text in ("a", "b"))
        assert run_stage(shout, [*first.tasks, *second.tasks]) == [{"text": "A"}, {"text": "B"}]

    def test_a_column_that_only_a_later_row_has_is_kept(self) -> None:
        assert run_stage(Count(), [{"a": 1}, {"b": 2}])[1] == {"a": None, "b": 2, "n": 1}

    def test_dropped_rows_come_with_their_reason(self) -> None:
        rows = [{"text": "same"}, {"text": "same"}, {"text": "other"}]
        run = run_stage(ExactDeduplication(), rows)
        assert run == [{"text": "same"}, {"text": "other"}]
        assert run.dropped == [({"text": "same"}, "exact duplicate")]
        assert run.stages[-1].dropped == {"exact duplicate": 1}

    def test_bad_rows_are_shown(self) -> None:
        run = run_stage(half_bad, [{"a": 1}])
        assert run == [{"a": 1}]
        assert [(row["source"], row["problem"]) for row in run.quarantined] == [("a.jsonl", "no JSON")]

    def test_a_branch_gives_what_comes_out_of_it(self) -> None:
        stage = Route("n > 1", {"true": [shout], "false": []})
        assert run_stage(stage, [{"n": 1, "text": "a"}, {"n": 2, "text": "b"}]) == [
            {"text": "B"},
            {"n": 1, "text": "a"},
        ]

    def test_a_source_gives_its_tasks(self) -> None:
        assert [task.data for task in run_stage(Files(), []).tasks] == [["a"]]

    def test_no_rows_no_run(self) -> None:
        assert run_stage(shout, []) == []

    def test_the_same_with_workers(self) -> None:
        batches = [DocumentBatch({"text": [str(n)]}) for n in range(5)]
        assert run_stage(shout, batches, workers=2) == run_stage(shout, batches)

    def test_an_error_is_raised_at_the_first_try(self) -> None:
        with pytest.raises(StageError, match=r"stage 'fails', task 000000: KeyError: 'lost'"):
            run_stage(fails, [{"a": 1}])


class TestAssertBatchesEqual:
    def test_how_rows_are_cut_does_not_matter(self) -> None:
        whole = DocumentBatch({"n": [1, 2, 3]})
        parts = [DocumentBatch({"n": [1]}), DocumentBatch({"n": [2, 3]})]
        assert_batches_equal(whole, parts)
        assert_batches_equal(parts, whole.data)

    def test_order_of_columns_and_nan_do_not_matter(self) -> None:
        assert_batches_equal([{"a": 1, "b": float("nan")}], [{"b": float("nan"), "a": 1}])
        assert_batches_equal([{"b": float("nan")}], [{"b": float("nan")}], check_order=False)

    def test_order_of_rows_need_not_matter(self) -> None:
        assert_batches_equal([{"n": 1}, {"n": None}, {"n": 1}], [{"n": None}, {"n": 1}, {"n": 1}], check_order=False)

    @pytest.mark.parametrize(
        ("left", "right", "check_order", "message"),
        [
            ([{"a": 1}, {"a": [2, 3]}], [{"a": 1}, {"a": [2, 4]}], True, "row 1, column 'a':\n  left:  [2, 3]\n"),
            ([{"a": 1}], [{"a": 1.0}], True, "left:  1\n  right: 1.0"),
            ([{"a": 1}], [{"a": True}], False, "row 0 of left has no counterpart in right:\n  {'a': 1}"),
            ([{"a": 1}], [{"a": 1, "b": 2}], True, "row 0: only right has the column 'b'"),
            ([{"a": 1}, {"a": 2}], [{"a": 1}], True, "left has 2 rows, right 1. The first that only left has:\n  {'a'"),
            ([{"a": 1}, {"a": 2}], [{"a": 2}, {"a": 1}], True, "row 0, column 'a'"),
            ([{"a": 1}], [{"a": 1}, {"a": 1}], False, "row 0 of right has no counterpart in left"),
        ],
    )
    def test_the_first_difference_is_named(self, left: Any, right: Any, check_order: bool, message: str) -> None:
        with pytest.raises(AssertionError) as caught:
            assert_batches_equal(left, right, check_order=check_order)
        assert message in str(caught.value)


@dataclass
class WriteText(ProcessingStage[DocumentBatch, FileGroup]):
    folder: str
    is_sink_stage = True

    def process(self, task: DocumentBatch) -> Iterator[Any]:
        final = f"{self.folder}/{task.task_id}.txt"
        text = "".join(task.data["text"].to_pylist())
        Path(f"{final}.tmp").write_text(text)
        yield Publish(f"{final}.tmp", final, task.num_items, len(text))
        yield FileGroup([final])


@dataclass
class WorkerOfTask(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage whose result depends on who runs it."""

    def setup(self, worker_metadata: Any = None) -> None:
        self.worker_id = worker_metadata.worker_id

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return DocumentBatch([{"worker": self.worker_id}])


BATCHES = [DocumentBatch({"text": [f"{n} ", "and"]}) for n in range(4)]


class TestRunEverywhere:
    def test_each_place_is_checked(self) -> None:
        places: list[str] = []
        run_everywhere(
            lambda folder: Pipeline("p", stages=[shout, WriteText(str(folder))]),
            initial_tasks=BATCHES,
            check=lambda result: places.append(result.summary.executor),
            workers=2,
        )
        assert places == [
            "local, inline",
            "local, 1 worker on threads",
            "local, 2 workers on threads",
            "local, 1 worker on processes",
            "local, 2 workers on processes",
        ]

    def test_a_result_that_depends_on_the_place_is_found(self) -> None:
        with pytest.raises(AssertionError, match=r"1 worker on threads \(left\) and local, inline \(right\) differ"):
            run_everywhere(lambda _: Pipeline("p", stages=[WorkerOfTask()]), initial_tasks=BATCHES)
