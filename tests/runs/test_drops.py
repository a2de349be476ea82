"""The drop ledger says the same however a run is done, whatever scores are."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis import LocalExecutor, Pipeline
from tamis.errors import PublishError
from tamis.runs.drops import DropLog
from tamis.stages.base import ProcessingStage
from tamis.stages.emit import Drop
from tamis.stages.flow import Dropped
from tamis.stages.io import JsonlWriter
from tamis.stages.text.filters import Filter, MeanWordLengthFilter, NumbersFilter, ScoreFilter, WordCountFilter
from tamis.tasks import DocumentBatch

TEXTS = [f"word {n} " * (n % 7) + "the end.\n" * (n % 3) for n in range(40)]


class Passes(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Does nothing, but says that it dropped no rows."""

    name = "passes"

    def process(self, task: DocumentBatch) -> Iterator[DocumentBatch | Drop]:
        yield Drop(task, np.zeros(0, np.int64), "nothing at all")
        yield task


def ledger(run_dir: Path, executor: LocalExecutor, keep: bool = False) -> list[dict[str, Any]]:
    middle: ProcessingStage[Any, Any] = ScoreFilter([NumbersFilter(0.1), MeanWordLengthFilter(3, 4)])
    middle = Dropped(middle, [JsonlWriter(str(run_dir / "dropped"))]) if keep else middle
    stages = [ScoreFilter(WordCountFilter(min_words=3)), middle, ScoreFilter(WordCountFilter(0, max_words=20))]
    batch = DocumentBatch({"text": TEXTS, "id": list(range(40))})
    result = Pipeline("noted", stages=stages).run(executor, [batch], run_dir=str(run_dir), progress="off")
    return list(result.drops().drop_columns(["stage"]).to_pylist())


@pytest.mark.parametrize(
    ("executor", "keep"),
    [
        (LocalExecutor(workers=0, fuse=False), False),
        (LocalExecutor(workers=2, execution_mode="batch"), False),
        (LocalExecutor(workers=2, substrate="processes"), False),
        (LocalExecutor(workers=0), True),
    ],
    ids=["not fused", "batch mode", "processes", "with a side branch"],
)
def test_the_ledger_is_the_same_however_the_run_is_done(tmp_path: Path, executor: LocalExecutor, keep: bool) -> None:
    expected = ledger(tmp_path / "one", LocalExecutor(workers=0))
    assert len(expected) > 20
    assert ledger(tmp_path / "other", executor, keep) == expected


@pytest.mark.parametrize(
    ("values", "number", "text"),
    [
        (pa.array([True]), 1.0, None),
        (pa.array([2**60 + 1]), 2.0**60, None),
        (pa.array([2**64 - 1], pa.uint64()), 2.0**64, None),
        (pa.array(["bad"]), None, "bad"),
        (pa.array([b"\xff\xfe"]), None, "fffe"),
        (pa.array([b"ab"], pa.binary(2)), None, "6162"),
        (pa.array([[0.5, 1.0]]), None, "[0.5, 1.0]"),
        (pa.array([{"p": 0.5, "b": b"a"}]), None, '{"p": 0.5, "b": "61"}'),
        (pa.nulls(1), None, None),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_scores_of_any_type_are_noted(tmp_path: Path, values: pa.Array, number: float | None, text: str | None) -> None:
    batch = DocumentBatch({"score": values})
    stages = [Filter(lambda score: False, "score")]
    result = Pipeline("odd", stages=stages).run(
        LocalExecutor(workers=0), [batch], run_dir=str(tmp_path), progress="off"
    )
    (row,) = result.drops().to_pylist()
    assert (row["score"], row["score_text"]) == (number, text)
    assert (row["source"], row["position"]) == ("task 000000", 0)


def test_a_drop_without_rows_is_none(tmp_path: Path) -> None:
    batch = DocumentBatch({"text": ["a"]})
    result = Pipeline("none", stages=[Passes()]).run(
        LocalExecutor(workers=0), [batch], run_dir=str(tmp_path), progress="off"
    )
    assert [task.num_items for task in result] == [1]
    assert result.drops().num_rows == 0


def test_texts_that_were_dropped_do_not_stay_in_memory() -> None:
    log = DropLog()
    batch = DocumentBatch({"text": ["a", "b"]}).named("in.jsonl")
    gone = weakref.ref(batch)
    log.add("stage", Drop(batch, np.array([1]), "reason"))
    del batch
    gc.collect()
    assert gone() is None
    assert log.table().select(["source", "position"]).to_pylist() == [{"source": "in.jsonl", "position": 1}]


def test_a_ledger_that_cannot_be_written_ends_the_run_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "drops").write_text("in the way", encoding="utf-8")
    pipeline = Pipeline("p", stages=[ScoreFilter(WordCountFilter())])
    with pytest.raises(PublishError, match=r"drops/.*: the drop ledger cannot be written: .*drop_ledger=False"):
        pipeline.run(
            LocalExecutor(workers=0), [DocumentBatch({"text": TEXTS})], run_dir=str(tmp_path / "run"), progress="off"
        )
