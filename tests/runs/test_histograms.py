"""Histograms of scores: complete, equal however the work is divided, and stored with the run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.runs.histograms import ScoreHistogram, read_scores
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import JsonlReader
from tamis.stages.text.filters import Filter, Score, ScoreFilter, UrlsFilter, WordCountFilter
from tamis.tasks import DocumentBatch

SCORES = st.lists(st.floats(-1e9, 1e9) | st.sampled_from([0.0, -0.0, 1e-30, 1e300, -math.inf]), min_size=1)


@given(SCORES, st.data())
def test_every_score_is_in_the_bin_that_holds_it(scores: list[float], data: st.DataObject) -> None:
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores))))
    histogram = ScoreHistogram()
    histogram.count(np.array(scores), kept)
    assert (histogram.rows_kept, histogram.rows_dropped) == (kept.sum(), (~kept).sum())
    bins = list(histogram.bins())
    assert [b.low for b in bins] == sorted(b.low for b in bins)
    for score in scores:
        if 2**-20 <= abs(score) < 2**43:
            assert any(b.low <= score <= b.high for b in bins)
    for made in (
        ScoreHistogram.from_dict(json.loads(json.dumps(histogram.to_dict()))),
        ScoreHistogram.from_record(json.loads(json.dumps(histogram.record()))),
    ):
        assert list(made.bins()) == bins


@given(SCORES, st.integers(0, 100))
def test_parts_add_up_to_the_whole(scores: list[float], cut: int) -> None:
    whole, parts = ScoreHistogram(), ScoreHistogram()
    values = np.array(scores)
    whole.count(values, values > 0)
    for part in (values[cut:], values[:cut]):
        one = ScoreHistogram()
        one.count(part, part > 0)
        parts.add(one)
    assert list(parts.bins()) == list(whole.bins())


def corpus(folder: Path, files: int = 3) -> str:
    (folder / "data").mkdir()
    for number in range(files):
        lines = [json.dumps({"text": "word " * (number * 10 + i)}) for i in range(10)]
        (folder / "data" / f"{number}.jsonl").write_text("\n".join(lines))
    return str(folder / "data")


@processing_stage(name="own")
def own(task: DocumentBatch) -> DocumentBatch:
    lengths = [len(text) for text in task["text"].to_pylist()]
    return task.keep([length < 130 for length in lengths], "too long", lengths)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_counts_the_scores_of_kept_and_dropped_rows(tmp_path: Path, workers: int) -> None:
    stages = [
        JsonlReader(corpus(tmp_path)),
        Score(WordCountFilter(), "n"),
        ScoreFilter([WordCountFilter(min_words=5), UrlsFilter()]),
        Filter(WordCountFilter(min_words=8), "n", invert=True),
        own,
        Filter(lambda n: n > 1, "n"),
    ]
    result = Pipeline("p", stages=stages).run(LocalExecutor(workers=workers), run_dir=tmp_path / "run", progress="off")
    found = {
        (stage, name): (h.rows_kept, h.rows_dropped, h.bounds, h.inverted)
        for stage, of_stage in read_scores(result.run_dir).items()
        for name, h in of_stage.items()
    }
    words = next(stage for stage, name in found if stage.startswith("ScoreFilter"))
    assert found[words, "word_count"] == (25, 5, (5, 100000), False)
    assert found[words, "urls_ratio"][:2] == (25, 0)
    assert [v for (_, name), v in found.items() if name == "word_count"] == [
        (30, 0, (None, None), False),
        (25, 5, (5, 100000), False),
        (3, 22, (8, 100000), True),
    ]
    assert found["own", "too long"] == (3, 0, (None, None), False)
    assert "scores" not in json.loads((tmp_path / "run" / "run.json").read_text())["stages"][1]


def test_a_damaged_file_is_no_histogram(tmp_path: Path) -> None:
    for content in ("", "[]", '{"stages": 1}', '{"stages": {"a": {"b": {"bins": [[1]]}}}}'):
        (tmp_path / "scores.json").write_text(content)
        assert read_scores(str(tmp_path)) == {}
