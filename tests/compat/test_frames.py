"""Stages of a script that work on pandas frames run unchanged, and their rows keep their names."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from tamis import LocalExecutor
from tamis.compat.batch import DocumentBatch
from tamis.compat.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.stages.text.modifiers import Modify, NewlineNormalizer
from tamis.stages.text.modules import AddId, DocumentJoiner, DocumentSplitter

pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")

TEXTS = ["one two three", "four", "four", "five six", "seven"]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "a.jsonl"
    path.parent.mkdir()
    rows = [{"text": text, "stars": None if n == 1 else n, "tags": [n]} for n, text in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class InPlace(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Assigns columns and drops rows of the frame itself."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        task.data["words"] = task.data["text"].str.split().str.len()
        task.data.loc[task.data["words"] > 2, "text"] = "changed"
        task.data.drop(index=task.data.index[task.data["words"] == 1], inplace=True)
        return task


class Sets(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Sets ``data`` to a filtered frame."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        frame = task.to_pandas()
        frame["words"] = frame["text"].str.split().str.len()
        task.data = frame[frame["words"] > 1].reset_index(drop=True)
        return task


class Makes(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Makes a new batch of a filtered frame."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        frame = task.data
        return DocumentBatch(
            task_id=f"{task.task_id}_filtered",
            dataset_name=task.dataset_name,
            data=frame[frame["text"].str.split().str.len() > 1],
            _metadata=task._metadata,
            _stage_perf=task._stage_perf,
        )


class Together(ProcessingStage[DocumentBatch, DocumentBatch]):
    batch_size = 2

    def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        return [Makes().process(task) for task in tasks]


@pytest.mark.parametrize("stage", [InPlace(), Sets(), Makes(), Together()], ids=lambda s: s.name)
@pytest.mark.parametrize("workers", [0, 1])
def test_rows_that_a_frame_loses_are_in_the_drop_ledger(
    lines: Path, tmp_path: Path, stage: ProcessingStage[Any, Any], workers: int
) -> None:
    out = tmp_path / "out"
    pipeline = Pipeline("p", stages=[JsonlReader(str(lines)), stage, JsonlWriter(str(out))])
    executor = LocalExecutor(workers=workers)
    result = pipeline.run(executor, progress="off", run_dir=str(tmp_path / "run"))
    written = [json.loads(line) for line in next(out.glob("*.jsonl")).read_text().splitlines()]
    assert [row["stars"] for row in written] == [0, 3]  # integers, though pandas makes them floats
    drops = result.drops().to_pylist()
    starts = [sum(len(line) + 1 for line in lines.read_text().splitlines()[:n]) for n in (1, 2, 4)]
    assert [(d["source"], d["position"]) for d in drops] == [(str(lines), start) for start in starts]
    assert {d["reason"] for d in drops} == {f"dropped by {stage.name}"}


def named(frame: pd.DataFrame) -> DocumentBatch:
    return DocumentBatch(data=frame, dataset_name="d").named("x")


def names(batch: DocumentBatch) -> list[str]:
    assert batch.names is not None
    return batch.names.to_texts()


def test_data_is_the_frame_that_was_given() -> None:
    frame = pd.DataFrame({"text": ["a", "b"]})
    batch = DocumentBatch(data=frame, dataset_name="d")
    assert batch.data is frame
    assert batch.to_pandas() is frame
    frame["more"] = 1
    assert batch.get_columns() == ["text", "more"]
    table = pa.table({"text": ["a"]})
    assert DocumentBatch(data=table).data is table


def test_a_sorted_frame_keeps_the_names_of_its_rows() -> None:
    batch = named(pd.DataFrame({"text": ["b", "a", "c"], "language": "en"}))
    batch.data.sort_values("text", inplace=True)
    assert names(batch) == ["x:1", "x:0", "x:2"]
    batch.data.sort_values("text", inplace=True, ascending=False, ignore_index=True)
    assert batch.data["text"].tolist() == ["c", "b", "a"]
    assert names(batch) == ["x:2", "x:0", "x:1"]


def test_changed_texts_keep_the_names_of_their_rows() -> None:
    batch = named(pd.DataFrame({"text": ["a", "A", "b"]}))
    batch.data["text"] = batch.data["text"].str.upper()
    assert names(batch) == ["x:0", "x:1", "x:2"]


def test_of_equal_rows_the_index_says_which_one_stayed() -> None:
    batch = named(pd.DataFrame({"text": ["a", "a", "b"]}))
    batch.data = batch.data[[False, True, True]]
    assert names(batch) == ["x:1", "x:2"]


def test_columns_that_were_only_read_keep_their_types() -> None:
    table = pa.table(
        {"text": ["a", "b"], "stars": pa.array([1, None], pa.int64()), "day": pa.array([1, 2], pa.date32())}
    )
    batch = DocumentBatch(data=table.to_pandas())
    batch = DocumentBatch.concat([batch._like(table, None)])
    frame = batch.to_pandas()
    frame["more"] = frame["stars"] + 1
    assert batch.to_pyarrow().drop_columns(["more"]).schema == table.schema


def test_a_copy_and_a_pickled_batch_are_batches_of_their_own() -> None:
    batch = named(pd.DataFrame({"text": ["a", "b"]}))
    batch.data["n"] = 1
    copies = [copy.copy(batch), pickle.loads(pickle.dumps(batch))]
    batch.data["n"] = 2
    assert [made.data["n"].tolist() for made in copies] == [[1, 1], [1, 1]]
    assert names(copies[1]) == ["x:0", "x:1"]


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (ScoreFilter(WordCountFilter(min_words=2), score_field="words"), {"text": ["a b"], "words": [2]}),
        (Modify(NewlineNormalizer()), {"text": ["a b", "c"]}),
        (Modify(lambda text: text + "!"), {"text": ["a b!", "c!"]}),
        (AddId(id_field="id"), None),
        (DocumentSplitter(separator=" "), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_built_in_stages_give_frames_when_they_are_called(stage: Any, expected: dict[str, list[Any]] | None) -> None:
    frame = stage.process(DocumentBatch(data=pd.DataFrame({"text": ["a b", "c"]}), dataset_name="d")).to_pandas()
    assert isinstance(frame, pd.DataFrame)
    if expected is not None:
        assert frame.to_dict("list") == expected


def test_a_split_and_joined_frame_is_as_before() -> None:
    frame = pd.DataFrame({"id": [1, 2], "text": ["a b", "c"]})
    split = DocumentSplitter(separator=" ").process(DocumentBatch(data=frame, dataset_name="d"))
    joined = DocumentJoiner(separator=" ", document_id_field="id").process(split)
    assert joined.data["text"].tolist() == ["a b", "c"]


def test_the_class_survives_shuffles_and_results_are_frames(tmp_path: Path) -> None:
    tasks = [DocumentBatch(data=pd.DataFrame({"text": TEXTS}), dataset_name="d")]
    pipeline = Pipeline("p", stages=[ExactDeduplication(), ScoreFilter(WordCountFilter(min_words=2))])
    result = pipeline.run(initial_tasks=tasks, progress="off", run_dir=str(tmp_path / "run"))
    assert [text for task in result for text in task.data["text"].tolist()] == ["one two three", "five six"]
    read = Pipeline("p", stages=[JsonlReader(str(write(tmp_path)))]).run(progress="off", run_dir=str(tmp_path / "2"))
    assert [task.data["text"].tolist() for task in read] == [["a"]]


def write(folder: Path) -> Path:
    path = folder / "b.jsonl"
    path.write_text('{"text": "a"}\n')
    return path


def test_functions_as_stages_are_given_frames(tmp_path: Path) -> None:
    script = """
        from nemo_curator.pipeline import Pipeline
        from nemo_curator.stages.function_decorators import processing_stage
        from nemo_curator.stages.text.io.reader import JsonlReader
        from nemo_curator.stages.text.io.writer import JsonlWriter
        from nemo_curator.tasks import DocumentBatch

        @processing_stage(name="long_enough")
        def long_enough(task: DocumentBatch) -> DocumentBatch:
            task.data["words"] = task.data["text"].apply(lambda text: len(text.split()))
            task.data = task.data[task.data["words"] > 1]
            return task

        pipeline = Pipeline(name="p", stages=[JsonlReader("in"), long_enough, JsonlWriter("out")])
        result = pipeline.run(progress="off")
        print(result.drops()["reason"].to_pylist())
    """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "a"}\n{"text": "a b"}\n')
    done = subprocess.run(
        [sys.executable, "-m", "tamis.compat", "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "['dropped by long_enough']\n", done.stderr
    assert json.loads(next((tmp_path / "out").glob("*.jsonl")).read_text()) == {"text": "a b", "words": 2}
