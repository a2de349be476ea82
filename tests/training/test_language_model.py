"""Training of n-gram language models from files, and the filter that uses them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.cli import main
from tamis.errors import DataError, PlanError
from tamis.models.ngram_model import load_ngram_model
from tamis.stages.text.filters import PerplexityFilter, ScoreFilter
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage
from tamis.training import train_language_model

SUBJECTS = ["the cat", "the dog", "a bird", "my friend", "the small fish"]
VERBS = ["sees", "hears", "likes", "follows", "remembers"]


def sentences(count: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)
    return [f"{chance.choice(SUBJECTS)} {chance.choice(VERBS)} {chance.choice(SUBJECTS)} {n}." for n in range(count)]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(600)), encoding="utf-8")
    return path


def test_the_same_texts_give_the_same_file_in_any_order(texts: Path, tmp_path: Path) -> None:
    rows = sentences(600)
    random.Random(1).shuffle(rows)
    other = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"text": [*rows, rows[0]], "n": range(601)}), other, row_group_size=50)
    one, two = tmp_path / "one.lm", tmp_path / "two.lm"
    train_language_model(str(texts), str(one), max_bytes=10_000)
    train_language_model(str(other), str(two), max_bytes=10_000)
    assert one.read_bytes() == two.read_bytes()


def test_text_of_the_same_kind_is_less_surprising(texts: Path, tmp_path: Path) -> None:
    trained = train_language_model(str(texts), str(tmp_path / "m.lm"), order=3)
    assert trained.perplexity is not None
    assert trained.perplexity < 30
    stage = ScoreFilter(PerplexityFilter(str(tmp_path / "m.lm"), max_perplexity=20), score_field="perplexity")
    batch = DocumentBatch({"text": ["The dog likes the cat 5.", "cat the 5 likes . dog dog", "", None]})
    kept = stage.process(batch)
    assert kept["text"].to_pylist() == ["The dog likes the cat 5."]
    assert [drop.reason for drop in kept.dropped] == ["perplexity > 20"]


def test_rows_and_columns_are_scored_alike(texts: Path, tmp_path: Path) -> None:
    train_language_model(str(texts), str(tmp_path / "m.lm"), unit="character", order=4)
    scorer = PerplexityFilter(str(tmp_path / "m.lm"))
    rows = [*sentences(5, seed=3), "", "a\n\nb", "zzz"]
    scores = scorer.score_column(pa.chunked_array([rows])).tolist()
    assert scores == [scorer.score_document(row) for row in rows]
    assert scorer.vectorised


def test_quantised_probabilities_are_close(texts: Path, tmp_path: Path) -> None:
    for name, exact in (("small", False), ("large", True)):
        train_language_model(str(texts), str(tmp_path / name), exact=exact)
    rows = pa.array(sentences(50, seed=5))
    small, large = (load_ngram_model(str(tmp_path / name)).score(rows).logs for name in ("small", "large"))
    assert small.tolist() == pytest.approx(large.tolist(), abs=0.01)


def test_a_filter_runs_in_a_pipeline(texts: Path, tmp_path: Path) -> None:
    train_language_model(str(texts), str(tmp_path / "m.lm"))
    rows = [{"text": text} for text in [*sentences(20, seed=9), "entirely different words stand here"]]
    run = run_stage(ScoreFilter(PerplexityFilter(str(tmp_path / "m.lm"), max_perplexity=60)), rows)
    assert (len(run), [dropped.reason for dropped in run.dropped]) == (20, ["perplexity > 60"])


def test_no_text_is_an_error_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "  "}\n{"text": null}\n', encoding="utf-8")
    with pytest.raises(DataError, match="none of 2 rows has a text"):
        train_language_model(str(path), str(tmp_path / "m.lm"))


def test_a_file_that_is_no_model_is_not_overwritten(texts: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"texts\.jsonl is there and is not a tamis n-gram model"):
        train_language_model(str(texts), str(texts))
    train_language_model(str(texts), str(tmp_path / "m.lm"), order=2)
    train_language_model(str(texts), str(tmp_path / "m.lm"), order=3)
    assert load_ngram_model(str(tmp_path / "m.lm")).table.order == 3


def test_the_command(texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(tmp_path / "m.lm")
    assert main(["train-lm", str(texts), "--output", output, "--order", "3", "--min-counts", "1,2"]) == 0
    shown = capsys.readouterr().out
    for part in ("588, 4,", "1-grams", "3-grams", "rare ones left out", "perplexity", "m.lm"):
        assert part in shown
    assert main(["train-lm", "--output", output]) == 2
    assert "give either texts or --arpa FILE" in capsys.readouterr().err
