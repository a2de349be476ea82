"""Exact deduplication: against plain Python, for every rule of what stays, in any memory, however the input is cut."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.local import LocalExecutor
from tamis.errors import ColumnError, PlanError
from tamis.pipeline import Pipeline
from tamis.stages.deduplication.bloom import BloomDeduplication
from tamis.stages.deduplication.exact import ExactDeduplication, repeats
from tamis.stages.io import JsonlReader
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage

Row = dict[str, Any]


def documents(count: int, seed: int = 1) -> list[Row]:
    drawn = random.Random(seed)
    texts = [f"text {n}" for n in range(count // 4)]
    rows = []
    for number in range(count):
        text = drawn.choice(texts)
        text = drawn.choice([text, text.upper(), f"  {text}", text.replace(" ", "   ")])
        score = drawn.choice([None, drawn.randrange(5), drawn.random()])
        rows.append({"n": number, "text": drawn.choice([text, text, text, None]), "score": score})
    return rows


def normal(text: str) -> str:
    return " ".join(text.lower().split())


def expected(rows: list[Row], keep: str, normalize: bool) -> list[int]:
    def rank(row: Row) -> tuple[Any, ...]:
        value = row["score"]
        ranks = {
            "first": (),
            "longest": (-len(row["text"].encode()),),
            "highest:score": (value is None, -(value or 0)),
            "lowest:score": (value is None, value or 0),
        }
        return *ranks[keep], row["n"]

    best: dict[str, Row] = {}
    for row in rows:
        if row["text"] is not None:
            key = normal(row["text"]) if normalize else row["text"]
            best[key] = min(best.get(key, row), row, key=rank)
    stays = {row["n"] for row in best.values()}
    return [row["n"] for row in rows if row["text"] is None or row["n"] in stays]


def little_memory(monkeypatch: pytest.MonkeyPatch, nbytes: int) -> str:
    """Let a task hold this many bytes of hashes; returns the budget to give."""
    budget = 64 * 2**20
    monkeypatch.setattr(repeats, "_WORKING", max(1, budget // (os.cpu_count() or 1) // nbytes))
    return "64MiB"


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("keep", ["first", "longest", "highest:score", "lowest:score"])
def test_what_stays(tmp_path: Path, keep: str, normalize: bool) -> None:
    rows = documents(300)
    for number in range(3):
        lines = [json.dumps(row) for row in rows[100 * number : 100 * number + 100]]
        (tmp_path / f"{number}.jsonl").write_text("\n".join(lines))
    stage = ExactDeduplication(normalize_text=normalize, keep=keep, partitions=3)
    for workers, blocksize in ((0, "1MiB"), (3, "300B")):
        result = Pipeline("p", [JsonlReader(str(tmp_path / "*.jsonl"), blocksize=blocksize), stage]).run(
            LocalExecutor(workers=workers), run_dir=tmp_path / f"run{workers}", progress="off"
        )
        found = [row["n"] for task in result for row in task.data.to_pylist()]
        assert found == expected(rows, keep, normalize)
        assert result.stage("ExactDeduplication").dropped == {"exact duplicate": 300 - len(found)}


@pytest.mark.parametrize("at_once", [400, 20_000])
def test_memory_does_not_change_the_answer(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    rows = [*documents(200), *({"n": n, "text": "the same", "score": n % 7} for n in range(200, 300))]
    budget = little_memory(monkeypatch, at_once)
    found = run_stage(ExactDeduplication(keep="highest:score", partitions=2, memory_budget=budget), batches(rows, 60))
    assert [row["n"] for row in found] == expected(rows, "highest:score", normalize=False)


def batches(rows: list[Row], size: int) -> list[Any]:
    return [DocumentBatch(rows[start : start + size]) for start in range(0, len(rows), size)]


def test_a_text_that_is_everywhere_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows of one hash than a task may hold: then the other rows are found in a second reading."""
    budget = little_memory(monkeypatch, 200)
    seen: list[int] = []
    best = repeats._best

    def measured(table: Any) -> Any:
        seen.append(table.num_rows)
        return best(table)

    monkeypatch.setattr(repeats, "_best", measured)
    rows = [{"text": "same"} for _ in range(100)]
    found = run_stage(ExactDeduplication(memory_budget=budget), batches(rows, 5))
    assert len(found) == 1
    assert len(found.dropped) == 99
    assert max(seen) < 40


def test_the_column_that_decides_must_have_an_order(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "name": "x"}\n')
    reader = JsonlReader(str(tmp_path / "a.jsonl"))
    with pytest.raises(ColumnError, match="compares the values of the column 'name', which holds"):
        Pipeline("p", [reader, ExactDeduplication(keep="lowest:name")]).plan()
    with pytest.raises(ColumnError, match=r"needs the column 'nme'.*Did you mean 'name'"):
        Pipeline("p", [reader, ExactDeduplication(keep="lowest:nme")]).plan()
    with pytest.raises(PlanError, match=r"must be at least 64 MiB"):
        ExactDeduplication(memory_budget="1MB")


@pytest.mark.parametrize("stage", [ExactDeduplication(normalize_text=True), BloomDeduplication(normalize_text=True)])
def test_bytes_cannot_be_normalised(stage: Any) -> None:
    with pytest.raises(ColumnError, match="normalize_text=True compares texts, but the column 'text' holds binary"):
        run_stage(stage, DocumentBatch({"text": [b"\xff\xfe", b"A"]}))


@pytest.mark.parametrize("stage", [ExactDeduplication(), BloomDeduplication()])
def test_nested_values_are_not_compared(stage: Any) -> None:
    with pytest.raises(ColumnError, match="compares texts, bytes or numbers, but the column 'text' holds list"):
        run_stage(stage, DocumentBatch({"text": [["a"], ["a"]]}))
