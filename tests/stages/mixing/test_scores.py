"""Several scores as one, scores as buckets, and rows that are repeated or thinned out by bucket."""

from __future__ import annotations

import bisect
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_tests import examples

from tamis import LocalExecutor, Pipeline
from tamis.errors import DataError, PlanError
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.mixing import Resample, ScoreBuckets, ScoreEnsemble
from tamis.stages.mixing.scores import bucket_edges
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage

NAN = float("nan")


def batches(values: list[Any], size: int) -> list[DocumentBatch]:
    return [
        DocumentBatch(
            pa.table({"score": pa.array(values[i : i + size], pa.float64()), "n": range(i, min(i + size, len(values)))})
        )
        for i in range(0, len(values), size)
    ]


@pytest.mark.parametrize(
    ("how", "weights", "expected"),
    [
        ("mean", None, [2.0, 4.0, None, 1.5]),
        ("max", None, [3.0, 4.0, None, 2.0]),
        ("min", None, [1.0, 4.0, None, 1.0]),
        ("weights", [1.0, 3.0], [2.5, 4.0, None, 1.25]),
    ],
)
def test_scores_are_put_together_and_missing_ones_left_out(
    how: str, weights: Any, expected: list[float | None]
) -> None:
    batch = DocumentBatch({"a": [1.0, None, None, 2.0], "b": [3.0, 4.0, NAN, 1.0]})
    made = ScoreEnsemble(["a", "b"], how=how, weights=weights).process(batch)
    assert made["ensemble_score"].to_pylist() == expected


def test_scores_may_be_whole_numbers_or_missing_altogether() -> None:
    batch = DocumentBatch(pa.table({"a": [1, 2], "b": pa.nulls(2)}))
    assert ScoreEnsemble(["a", "b"], how="max").process(batch)["ensemble_score"].to_pylist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"score_fields": "a"}, "give a list of columns"),
        ({"score_fields": ["a"], "how": "median"}, "must be one of 'mean', 'max', 'min', 'weights'"),
        ({"score_fields": ["a"], "how": "weights"}, r"weights=\[...\] goes with"),
        ({"score_fields": ["a"], "how": "weights", "weights": [1, 2]}, "2 weights for 1 columns"),
        ({"score_fields": ["a"], "how": "weights", "weights": [0]}, "nor all zero"),
    ],
)
def test_an_ensemble_that_cannot_work_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        ScoreEnsemble(**settings)


def test_a_column_of_texts_is_refused() -> None:
    with pytest.raises(DataError, match="a score is a number, but the column 'a' holds string"):
        ScoreEnsemble(["a"]).process(DocumentBatch({"a": ["x"]}))


SCORES = st.one_of(st.none(), st.floats(allow_infinity=True, allow_nan=True), st.sampled_from([0.0, -0.0, 0.5, 1.0]))


@examples(15)
@given(values=st.lists(SCORES, min_size=1, max_size=60), buckets=st.integers(2, 9), size=st.integers(1, 20))
def test_buckets_follow_the_order_of_all_scores(values: list[float | None], buckets: int, size: int) -> None:
    there = sorted(value for value in values if value is not None and not math.isnan(value))
    edges = [there[len(there) * k // buckets] for k in range(1, buckets)] if there else []
    expected = [None if v is None or math.isnan(v) else bisect.bisect_right(edges, v) for v in values]
    run = run_stage(ScoreBuckets("score", buckets=buckets), batches(values, size))
    assert [row["bucket"] for row in run] == expected
    if there:
        assert bucket_edges([v for v in values if v is not None], buckets) == edges


def test_buckets_of_different_scores_have_the_same_size() -> None:
    values = [random.Random(n).random() for n in range(400)]
    run = run_stage(ScoreBuckets("score"), batches(values, 33))
    assert Counter(row["bucket"] for row in run) == dict.fromkeys(range(20), 20)
    assert [row["n"] for row in run] == list(range(400))


def test_the_result_is_the_same_for_any_number_of_workers(tmp_path: Path) -> None:
    for file in range(6):
        lines = "".join(f'{{"score": {random.Random(file * 50 + n).random()}}}\n' for n in range(50))
        (tmp_path / f"in{file}.jsonl").write_text(lines, encoding="utf-8")
    written = []
    for workers in (0, 2):
        reader = JsonlReader(str(tmp_path / "in*.jsonl"), files_per_partition=1)
        stages = [reader, ScoreBuckets("score", 5), JsonlWriter(str(tmp_path / f"out{workers}"))]
        Pipeline("p", stages=stages).run(
            LocalExecutor(workers), run_dir=str(tmp_path / f"run{workers}"), progress="off"
        )
        written.append({f.name: f.read_bytes() for f in (tmp_path / f"out{workers}").glob("*.jsonl")})
    assert written[0] == written[1]
    assert len(written[0]) == 6


def test_groups_of_buckets() -> None:
    stage = ScoreBuckets("score", 4, edges=[1, 2, 3], groups={"low": 0, "medium": 1, "high": 3})
    rows = stage.process(DocumentBatch({"score": [0.5, 1.0, 2.5, 3.0, None]})).data.to_pylist()
    assert [row["bucket"] for row in rows] == [0, 1, 2, 3, None]
    assert [row["quality"] for row in rows] == ["low", "medium", "medium", "high", None]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"buckets": 1}, "must be from 2 to 1000"),
        ({"buckets": 3, "edges": [1.0]}, "3 buckets have 2 edges, not 1"),
        ({"buckets": 3, "edges": [2.0, 1.0]}, "in ascending order"),
        ({"groups": {"low": 1}}, "give the first bucket of each group"),
        ({"groups": {"low": 0, "high": 20}}, "from 0 up to 19"),
    ],
)
def test_buckets_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        ScoreBuckets("score", **settings)


def test_one_batch_alone_has_no_edges() -> None:
    with pytest.raises(PlanError, match="without edges it needs the whole input"):
        ScoreBuckets("score").process(DocumentBatch({"score": [1.0]}))
    with pytest.raises(DataError, match="there is no score"):
        bucket_edges([None, NAN])


ROWS = [{"id": f"doc {n}", "quality": ("low", "medium", "high", None)[n % 4]} for n in range(4000)]


def test_rows_are_repeated_and_thinned_out() -> None:
    run = run_stage(
        Resample("quality", {"high": 2.5, "low": 0.1, "medium": 0}, id_fields=["id"], repeat_field="copy"), ROWS
    )
    counts = Counter((row["quality"], row["copy"]) for row in run)
    assert counts["high", 0] == counts["high", 1] == counts[None, 0] == 1000
    assert 400 < counts["high", 2] < 600
    assert 50 < counts["low", 0] < 150
    assert Counter(dropped.reason for dropped in run.dropped) == {
        "not wanted": 1000,
        "passed on 0.1 times": 1000 - counts["low", 0],
    }


def test_the_rows_that_are_chosen_do_not_depend_on_batches() -> None:
    stage = Resample("quality", {"high": 1.5, "low": 0.5}, id_fields=["id"])
    chosen = []
    for size in (4000, 170):
        cut = [DocumentBatch(ROWS[i : i + size]) for i in range(0, len(ROWS), size)]
        chosen.append(Counter(row["id"] for row in run_stage(stage, cut)))
    assert chosen[0] == chosen[1]


def test_another_seed_repeats_other_rows() -> None:
    one, other = (
        Counter(row["id"] for row in run_stage(Resample("quality", {"high": 1.5}, seed=seed, id_fields=["id"]), ROWS))
        for seed in (0, 1)
    )
    assert one != other


def test_buckets_are_numbers_and_may_be_named_as_such() -> None:
    run = run_stage(Resample("bucket", {19: 2, "0": 0}), [{"bucket": b} for b in (0, 1, 19)])  # type: ignore[dict-item]  # as YAML gives it
    assert [row["bucket"] for row in run] == [1, 19, 19]


@pytest.mark.parametrize("number", [-1, 5000, "x"])
def test_a_number_of_times_that_makes_no_sense_is_refused(number: Any) -> None:
    with pytest.raises(PlanError, match="must be a number from 0 to 1000"):
        Resample("quality", {"high": number})
