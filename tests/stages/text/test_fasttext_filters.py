"""Filters and stages that work with a fastText model: a real one, trained here on the sample data set."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import fasttext
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tamis.errors import DataError
from tamis.models.language import UNKNOWN, load_language_model
from tamis.quickstart import sample_files
from tamis.stages.text.filters import FastTextLangId, FastTextQualityFilter, Filter, LanguageFilter, Score, ScoreFilter
from tamis.stages.text.language import AddLanguage
from tamis.tasks import DocumentBatch

LANGUAGES = ("de", "el", "fr", "ru")
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5)
ODD = ["", " \n", "\0", "\u3000\x1c", "\n\na\r\n__label__hq", "__label__ru __label__", "שלום\u200f", "e\u0301"]
MANY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="session")
def rows() -> list[dict[str, Any]]:
    (file,) = [file for file in sample_files() if file.endswith("docs-world-2.jsonl.gz")]
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        found = [json.loads(line) for line in lines]
    return [row for row in found if row["lang"] in LANGUAGES]


def train(path: Path, lines: list[str]) -> str:
    """Twelve threads: each sets a tenth of the initial weights, one more what is left over, or they are never set."""
    path.with_suffix(".txt").write_text("\n".join(lines), encoding="utf-8")
    options = {"dim": 8, "lr": 0.5, "epoch": 30, "minn": 2, "maxn": 3, "bucket": 20_000, "thread": 12, "verbose": 0}
    fasttext.train_supervised(str(path.with_suffix(".txt")), **options).save_model(str(path))
    return str(path)


@pytest.fixture(scope="session")
def languages_model(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> str:
    lines = [f"__label__{row['lang']} {' '.join(row['text'][:500].split())}" for row in rows]
    return train(tmp_path_factory.mktemp("model") / "languages.bin", lines)


@pytest.fixture(scope="session")
def quality_model(rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tells German text (which is good) from any other."""
    lines = [f"__label__{'hq' if row['lang'] == 'de' else 'cc'} {' '.join(row['text'][:500].split())}" for row in rows]
    return train(tmp_path_factory.mktemp("model") / "quality.bin", lines)


def test_language_and_probability_are_the_score(languages_model: str) -> None:
    keep = FastTextLangId(languages_model)
    score = keep.score_document("\n Das ist ein deutscher Satz,\nden man versteht. ")
    labels, (probability,) = fasttext.load_model(languages_model).predict(
        "Das ist ein deutscher Satz, den man versteht."
    )
    assert labels == ("__label__de",)
    assert score == str([probability.item(), "de"])


@pytest.mark.parametrize(
    ("lang", "score", "kept"),
    [
        (None, "[0.3, 'fr']", True),
        (None, "[0.29, 'fr']", False),
        ("", "[0.3, 'fr']", True),
        ("FR", "[0.9, 'fr']", True),
        ("fr", "[0.9, 'FR']", True),
        ("de", "[0.9, 'fr']", False),
        ("eng", "[0.9, 'eng_Latn']", True),
        ("eng_Latn", "[0.9, 'eng_Latn']", True),
        ("eng_Cyrl", "[0.9, 'eng_Latn']", False),
        ("en", "[0.9, 'eng_Latn']", False),
        ("fr", "[1.0000097751617432, 'fr']", True),
        ("fr", '[1e-05, "fr"]', False),
    ],
)
def test_language_decides(lang: str | None, score: str, kept: bool) -> None:
    keep = FastTextLangId("model.bin", lang=lang)
    assert keep.keep_document(score) is kept
    assert keep.keep_scores(pa.array([score, score])).tolist() == [kept, kept]


def test_what_is_no_score_is_refused() -> None:
    keep = FastTextLangId("model.bin")
    with pytest.raises(TypeError, match="a score is a text such as"):
        keep.keep_document(0.5)
    with pytest.raises(TypeError, match="a score is a text such as"):
        keep.keep_scores(pa.array([0.5]))
    with pytest.raises(ValueError, match="not 'exit'"):
        keep.keep_scores(pa.array(["exit"]))


@MANY
@given(texts=TEXTS)
@example(texts=ODD)
def test_both_forms_agree(languages_model: str, quality_model: str, texts: list[str]) -> None:
    column = pa.chunked_array([pa.array([*texts, None], pa.string())])
    for keep in (FastTextLangId(languages_model, lang="de"), FastTextQualityFilter(quality_model)):
        scores = keep.score_column(column)
        plain = [keep.score_document(text) for text in [*texts, ""]]
        assert list(scores.tolist() if isinstance(scores, np.ndarray) else scores.to_pylist()) == plain
        assert keep.keep_scores(scores).tolist() == [keep.keep_document(score) for score in plain]


def test_quality_is_the_probability_of_the_label(quality_model: str) -> None:
    keep = FastTextQualityFilter(quality_model)
    inner = fasttext.load_model(quality_model)
    for text in ("Das ist ein deutscher Satz, den man versteht.", "Ce n'est pas une phrase allemande."):
        (label,), (probability,) = inner.predict(text)
        expected = probability if label == "__label__hq" else 1 - probability
        assert keep.score_document(text.replace(" ", "\n", 1)) == pytest.approx(expected, abs=2e-5)


def test_draws_follow_pareto_and_the_seed(quality_model: str) -> None:
    scores = 0.3 + np.arange(20_000) * 1e-9  # as texts of one probability have them
    keep = FastTextQualityFilter(quality_model, seed=7)
    kept = keep.keep_scores(scores)
    assert kept.mean() == pytest.approx((2 - 0.3) ** -3, abs=0.02)  # P(draw > 1 - score), for alpha = 3
    assert kept.tolist() == FastTextQualityFilter("another.bin", seed=7).keep_scores(scores).tolist()
    assert kept.tolist() != FastTextQualityFilter(quality_model, seed=8).keep_scores(scores).tolist()
    assert keep.keep_scores(np.full(1000, np.nextafter(1, 0))).mean() > 0.99


def test_texts_of_equal_probability_draw_apart(quality_model: str) -> None:
    # fastText splits words at white space, so these are all the same to it
    texts = pa.chunked_array([[f"Satz{' ' * n}Satz" for n in range(1, 400)]])
    keep = FastTextQualityFilter(quality_model, alpha=1)
    scores = keep.score_column(texts)
    assert np.ptp(scores) < 1e-7
    assert len(np.unique(scores)) == len(texts)
    assert 0 < keep.keep_scores(scores).sum() < len(texts)


def test_decisions_are_the_same_in_one_stage_and_in_two(rows: list[dict[str, Any]], quality_model: str) -> None:
    batch = DocumentBatch({"text": [row["text"] for row in rows]})
    keep = FastTextQualityFilter(quality_model)
    at_once = ScoreFilter(keep, score_field="quality").process(batch)
    scored = Score(keep, "quality").process(batch)
    later = Filter(keep, "quality").process(scored)
    assert at_once.data.equals(later.data)
    assert 0 < at_once.num_items < batch.num_items


def test_model_can_stand_in_for_the_built_in_one(rows: list[dict[str, Any]], languages_model: str) -> None:
    batch = DocumentBatch({"text": [*(row["text"] for row in rows), "", " \n", None]})
    table = AddLanguage(model_path=languages_model).process(batch).data
    assert table["language"].to_pylist()[-3:] == [UNKNOWN] * 3
    right = [found == row["lang"] for found, row in zip(table["language"].to_pylist(), rows, strict=False)]
    assert sum(right) / len(right) > 0.85
    assert 0 <= min(table["language_score"].to_pylist()) <= max(table["language_score"].to_pylist()) <= 1
    german = LanguageFilter(["DE"], model_path=languages_model)
    scores = german.score_column(table["text"])
    expected = np.where(np.array(table["language"].to_pylist()) == "de", table["language_score"].to_numpy(), 0)
    assert scores.tolist() == expected.tolist()


@MANY
@given(texts=TEXTS, max_bytes=st.integers(1, 12))
@example(texts=ODD, max_bytes=3)
def test_any_text_has_a_language(languages_model: str, texts: list[str], max_bytes: int) -> None:
    codes, certain = load_language_model(languages_model, max_bytes).identify(pa.array(texts, pa.string()))
    assert set(codes.to_pylist()) <= {*LANGUAGES, UNKNOWN}
    assert ((certain >= 0) & (certain <= 1)).all()


def test_they_run_on_threads(languages_model: str, quality_model: str) -> None:
    assert ScoreFilter(FastTextLangId(languages_model)).releases_gil
    assert ScoreFilter(FastTextQualityFilter(quality_model)).releases_gil
    assert ScoreFilter(LanguageFilter(["de"], model_path=languages_model)).releases_gil
    assert AddLanguage(model_path=languages_model).releases_gil


def test_they_travel_after_use(languages_model: str) -> None:
    keep = FastTextLangId(languages_model)
    score = keep.score_document("ein Satz")
    assert pickle.loads(pickle.dumps(keep)).score_document("ein Satz") == score


def test_model_must_be_given_and_be_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="FastTextLangId: give model_path"):
        FastTextLangId("")
    with pytest.raises(ValueError, match="alpha=0"):
        FastTextQualityFilter("model.bin", alpha=0)
    with pytest.raises(FileNotFoundError, match=r"FastTextQualityFilter: there is no model file missing\.bin"):
        ScoreFilter(FastTextQualityFilter("missing.bin")).setup_on_node()
    (tmp_path / "text.bin").write_text("no model")
    with pytest.raises(DataError, match="it is no fastText model"):
        FastTextLangId(str(tmp_path / "text.bin")).load_model()
