"""Stages that use a trained classifier."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tamis import LocalExecutor, Pipeline
from tamis.errors import ModelError, PlanError
from tamis.models.text_classifier import Features
from tamis.pipeline.recipe import load_recipe
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.trained_classifier import TrainedClassifier, TrainedClassifierFilter
from tamis.tasks import DocumentBatch
from tamis.testing import run_stage
from tamis.training import train_classifier

TEXTS = ["good fine great", "bad awful poor", "good", None, " \n ", "fine bad"]


@pytest.fixture(scope="module", params=["linear", "fasttext"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("model"), request.param)


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("linear"), "linear")


def trained(folder: Path, kind: str) -> str:
    words = {"good": ["good", "fine", "great"], "bad": ["bad", "awful", "poor"]}
    rows = [
        {"text": f"{words[label][n % 3]} {words[label][n % 2]} {n}", "label": label}
        for n in range(60)
        for label in words
    ]
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    train_classifier(str(source), str(folder / "model"), kind=kind, features=Features(bits=12), epochs=30)
    return str(folder / "model")


def test_labels_and_probabilities_become_columns(model: str) -> None:
    stage = TrainedClassifier(model, probability_fields={"good": "good", "bad": "bad"})
    rows = stage.process(DocumentBatch({"text": TEXTS})).data.to_pylist()
    assert [row["label"] for row in rows[:5]] == ["good", "bad", "good", None, None]
    assert [row["label_score"] is None for row in rows] == [False, False, False, True, True, False]
    for row in rows[:3]:
        assert row["label_score"] == row[row["label"]] > 0.5
        assert row["good"] + row["bad"] == pytest.approx(1)


@pytest.fixture(scope="module")
def of_vectors(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("vectors")
    rows = [{"text": f"row {n}", "label": ("bad", "good")[n % 2], "embeddings": [n % 2 * 2 - 1, 1]} for n in range(60)]
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    train_classifier(str(source), str(folder / "model"), embedding_field="embeddings")
    return str(folder / "model")


def test_a_model_of_embeddings_reads_vectors(of_vectors: str) -> None:
    batch = DocumentBatch({"embeddings": [[2.0, 2.0], [-0.5, 0.5], None, [0.0, 0.0], [float("nan"), 1.0]]})
    labels = TrainedClassifier(of_vectors, embedding_field="embeddings").process(batch)
    assert labels["label"].to_pylist() == ["good", "bad", None, None, None]
    kept = TrainedClassifier(of_vectors, filter_by=["good"], embedding_field="embeddings").process(batch)
    assert kept.num_items == 1
    assert {drop.reason: len(drop.rows) for drop in kept.dropped} == {
        "no vector to classify": 3,
        "label is none of good": 1,
    }
    nothing = DocumentBatch({"embeddings": pa.nulls(2)})
    assert TrainedClassifier(of_vectors, embedding_field="embeddings").process(nothing)["label"].null_count == 2


def test_texts_and_embeddings_are_not_mixed_up(of_vectors: str, linear: str) -> None:
    with pytest.raises(ModelError, match="was trained on embeddings, not on texts: give TrainedClassifier"):
        TrainedClassifier(of_vectors).process(DocumentBatch({"text": ["a"]}))
    with pytest.raises(ModelError, match="was trained on embeddings"):
        TrainedClassifierFilter(of_vectors, "good").score_document("a")
    vectors = DocumentBatch({"embeddings": [[1.0, 2.0, 3.0]]})
    with pytest.raises(ModelError, match="was trained on texts"):
        TrainedClassifier(linear, embedding_field="embeddings").process(vectors)
    with pytest.raises(ModelError, match="vectors of 2 numbers, but these have 3"):
        TrainedClassifier(of_vectors, embedding_field="embeddings").process(vectors)


def test_only_some_labels_are_kept_and_drops_have_reasons_and_scores(model: str) -> None:
    kept = TrainedClassifier(model, filter_by=["good"]).process(DocumentBatch({"text": TEXTS[:5]}))
    assert kept["text"].to_pylist() == ["good fine great", "good"]
    drops = {drop.reason: drop for drop in kept.dropped}
    assert {reason: len(drop.rows) for reason, drop in drops.items()} == {
        "no text to classify": 2,
        "label is none of good": 1,
    }
    scores = drops["label is none of good"].scores
    assert scores is not None
    assert scores[0].as_py() > 0.5


def test_a_label_must_be_likely_enough(linear: str) -> None:
    whole = TrainedClassifier(linear).process(DocumentBatch({"text": ["good", "good zzz www"]}))
    scores = whole["label_score"].to_pylist()
    threshold = (scores[0] + scores[1]) / 2
    kept = TrainedClassifier(linear, min_score={"good": threshold}).process(
        DocumentBatch({"text": ["good", "good zzz www", "bad"]})
    )
    assert kept["label"].to_pylist() == ["good", "bad"]
    assert [drop.reason for drop in kept.dropped] == [f"good < {threshold:g}"]


def test_the_filter_scores_rows_and_columns_alike(model: str) -> None:
    scorer = TrainedClassifierFilter(model, "good", min_score=0.5)
    scores = scorer.score_column(pa.chunked_array([TEXTS])).tolist()
    assert scores == [scorer.score_document(text or "") for text in TEXTS]
    assert scores[3] == scores[4] == 0
    kept = ScoreFilter(scorer, score_field="good").process(DocumentBatch({"text": TEXTS[:5]}))
    assert kept["text"].to_pylist() == ["good fine great", "good"]


def test_it_runs_outside_of_the_lock(model: str) -> None:
    assert TrainedClassifier(model).releases_gil
    assert TrainedClassifierFilter(model, "good").vectorised


def test_the_result_does_not_depend_on_batches(linear: str) -> None:
    texts = [text or "" for text in TEXTS] * 30
    whole = TrainedClassifier(linear).process(DocumentBatch({"text": texts}))
    for size in (1, 7):
        parts = [
            TrainedClassifier(linear).process(DocumentBatch({"text": texts[i : i + size]})).data
            for i in range(0, len(texts), size)
        ]
        assert pa.concat_tables(parts).to_pylist() == whole.data.to_pylist()


def test_a_label_that_the_model_does_not_have_is_refused(linear: str) -> None:
    for stage in (
        TrainedClassifier(linear, filter_by=["goood"]),
        ScoreFilter(TrainedClassifierFilter(linear, "goood")),
    ):
        with pytest.raises(ModelError, match=r"no label 'goood', only 'bad', 'good'. Did you mean 'good'"):
            stage.setup()


def test_a_folder_that_is_missing_is_refused() -> None:
    with pytest.raises(ModelError, match="TrainedClassifier: there is no model folder nowhere"):
        TrainedClassifier("nowhere").setup_on_node()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"filter_by": []}, "this keeps nothing"),
        ({"min_score": {"good": 1.5}}, "must be between 0 and 1"),
        ({"filter_by": ["good"], "min_score": {"bad": 0.5}}, "min_score has 'bad', whose documents filter_by drops"),
        ({"label_field": "text"}, "columns get in each other's way"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        TrainedClassifier("model", **settings)  # type: ignore[arg-type]  # as a user may give them


def test_in_a_pipeline_on_threads_and_processes(model: str) -> None:
    rows = [{"text": text} for text in TEXTS * 5]
    run = run_stage(TrainedClassifier(model, filter_by=["good"]), rows)
    assert {row["label"] for row in run} == {"good"}
    assert len(run) + len(run.dropped) == 30


def test_as_a_recipe_and_with_another_threshold_afterwards(linear: str, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(
        "".join(json.dumps({"text": f"{text} {n}"}) + "\n" for n, text in enumerate(TEXTS)), encoding="utf-8"
    )

    def pipeline(threshold: float, output: str) -> Pipeline:
        scorer = TrainedClassifierFilter(linear, "good", min_score=threshold)
        stages = [
            JsonlReader(str(source)),
            ScoreFilter(scorer, score_field="good"),
            JsonlWriter(str(tmp_path / output)),
        ]
        return Pipeline("p", stages=stages)

    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(pipeline(0.5, "one").to_recipe(), encoding="utf-8")
    result = load_recipe(str(recipe)).to_pipeline().run(LocalExecutor(0), run_dir=str(tmp_path / "run"), progress="off")
    assert result.summary.output_rows >= 2
    scores = sorted(row["good"] for row in rows_in(tmp_path / "one"))
    changed = pipeline(0.5, "one").rethreshold(str(tmp_path / "run"), pipeline((scores[0] + scores[1]) / 2, "two"))
    assert (changed.kept_by_both, changed.newly_dropped) == (len(scores) - 1, 1)
    assert sorted(row["good"] for row in rows_in(tmp_path / "two")) == scores[1:]


def rows_in(folder: Path) -> list[dict[str, float]]:
    return [
        json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text(encoding="utf-8").splitlines()
    ]
