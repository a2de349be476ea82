"""Deduplication with a Bloom filter finds all duplicates, and few others."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tamis import Pipeline
from tamis.backends.local import LocalExecutor
from tamis.errors import PlanError
from tamis.kernels.bloom import BloomFilter
from tamis.stages.deduplication import bloom
from tamis.stages.deduplication.bloom import BloomDeduplication
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage


def batches(values: list[Any], size: int = 50) -> list[DocumentBatch]:
    tables = [
        pa.table({"text": values, "id": list(range(len(values)))}).slice(at, size) for at in range(0, len(values), size)
    ]
    return [DocumentBatch(table) for table in tables]


@pytest.mark.parametrize(
    "parameters",
    [{}, {"partitions": 1}, {"expected_documents": 40, "partitions": 3}, {"expected_documents": 1, "partitions": 1}],
)
def test_the_first_of_each_text_stays(parameters: dict[str, Any]) -> None:
    """Also if there are more documents than expected: then a partition is read several times."""
    values = [None if n % 50 == 7 else f"text {n * n % 113}" for n in range(400)]
    kept = [n for n, value in enumerate(values) if value is None or value not in values[:n]]
    run = run_stage(BloomDeduplication(false_positive_rate=1e-9, **parameters), batches(values), workers=2)
    assert [row["id"] for row in run] == kept
    assert [row.reason for row in run.dropped] == ["probable duplicate"] * (400 - len(kept))


def test_texts_that_differ_in_case_and_white_space_only() -> None:
    rows = [{"text": text} for text in ("A b", "a  B\n", "ab", "A b")]
    assert [row["text"] for row in run_stage(BloomDeduplication(), rows)] == ["A b", "a  B\n", "ab"]
    assert [row["text"] for row in run_stage(BloomDeduplication(normalize_text=True), rows)] == ["A b", "ab"]


def test_bytes_are_compared_too() -> None:
    given = DocumentBatch({"image": [b"\xff\x00", b"\xff\x01", b"\xff\x00"]})
    assert [row["image"] for row in run_stage(BloomDeduplication("image"), given)] == [b"\xff\x00", b"\xff\x01"]


def test_a_batch_without_texts_is_passed_on() -> None:
    given = [DocumentBatch({"text": pa.nulls(3, pa.string())}), DocumentBatch({"text": ["a", "a"]})]
    assert [row["text"] for row in run_stage(BloomDeduplication(), given)] == [None, None, None, "a"]


def test_many_duplicates_are_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bloom, "_MOST_MARKS", 10)
    run = run_stage(BloomDeduplication(), batches(["a", "b"] * 200))
    assert [row["id"] for row in run] == [0, 1]


def test_new_documents_are_taken_for_duplicates_as_seldom_as_stated() -> None:
    """The expected number of errors is less than the rate for each document, as filters are not full from the start."""
    count, rate = 60_000, 0.02
    stage = BloomDeduplication(expected_documents=count, false_positive_rate=rate, partitions=4)
    numbers = np.arange(count)
    tables = [
        pa.table({"text": pa.array(numbers[at : at + 20_000]).cast(pa.string())}) for at in range(0, count, 20_000)
    ]
    wrong = len(run_stage(stage, [DocumentBatch(table) for table in tables]).dropped)
    # A filter that is filled to the share x has the rate (1 - 2 ** -x) ** k; the average over x is what is expected.
    probes = round(-math.log2(rate))
    filled = (np.arange(10_000) + 0.5) / 10_000
    expected = count * float(((1 - 2.0**-filled) ** probes).mean())
    assert wrong <= count * rate
    assert abs(wrong - expected) <= 0.1 * expected + 5 * math.sqrt(expected)


def test_a_run_with_another_rate_is_another_run(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": f"text {n}"}) + "\n" for n in range(300)))

    def rows(rate: float) -> int:
        stage = BloomDeduplication(expected_documents=300, false_positive_rate=rate, partitions=1)
        stages = [JsonlReader(str(source)), stage, JsonlWriter(str(tmp_path / "out"), mode="overwrite")]
        return Pipeline("bloom", stages).run(LocalExecutor(0), run_dir=str(tmp_path / "run"), progress="off").rows

    assert rows(0.5) < rows(1e-9) == 300


def test_the_plan_states_memory_and_rate(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    stage = BloomDeduplication(expected_documents=16_000_000)
    plan = Pipeline("bloom", [JsonlReader(str(tmp_path / "in.jsonl")), stage]).plan()
    assert "each of 16 partitions takes 3.4 MiB of memory for its Bloom filter" in str(plan)
    assert "false-positive rate at most 1e-06" in str(plan)
    assert BloomFilter.size_of(1_000_000, 1e-6) / 2**20 == pytest.approx(3.43, abs=0.01)


def test_filters_that_do_not_fit_are_made_for_fewer_hashes_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tamis.stages.deduplication.memory.LEAST_MEMORY", 1)
    stage = BloomDeduplication(expected_documents=2000, partitions=2, memory_budget=2048)
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": f"text {n % 1500}"}) + "\n" for n in range(2000)))
    pipeline = Pipeline("bloom", [JsonlReader(str(tmp_path / "in.jsonl")), stage])
    assert "to fit into memory_budget, it is read 5 times" in str(pipeline.plan())
    assert pipeline.run(LocalExecutor(0), run_dir=str(tmp_path / "run"), progress="off").rows == 1500


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"expected_documents": 0}, "expected_documents=0: must be at least 1"),
        ({"false_positive_rate": 0}, "false_positive_rate=0: must be from 1e-09"),
        ({"partitions": 2**16}, "partitions=65536: must be at most 32768"),
        ({"memory_budget": "1MiB"}, "memory_budget='1MiB'.: must be at least 64 MiB"),
        ({"expected_documents": 10**12}, "take 3.3 TiB, so the hashes would be read 1,676 times"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        BloomDeduplication(**parameters)
