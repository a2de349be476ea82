"""Classifiers as stages: columns, filtering, limits, tokens that are there already, and what cannot be loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from small_models import (
    TEXTS,
    save_labelled,
    save_prompt_classifier,
    save_sequence_classifier,
    tokens_of,
)

from tamis import LocalExecutor, Pipeline
from tamis.errors import ModelError, PlanError
from tamis.models.model import Model
from tamis.models.prompt_complexity import COLUMNS, PromptHeads
from tamis.models.registry import known_model
from tamis.pipeline.recipe import dump_recipe, load_recipe
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.math.classifiers import FineMathClassifier
from tamis.stages.text.classifiers import (
    AegisClassifier,
    ContentTypeClassifier,
    DistributedDataClassifier,
    DomainClassifier,
    FineWebEduClassifier,
    FineWebMixtralEduClassifier,
    FineWebNemotronEduClassifier,
    InstructionDataGuardClassifier,
    MultilingualDomainClassifier,
    PromptTaskComplexityClassifier,
    QualityClassifier,
)
from tamis.stages.text.classifiers.base import ClassifierStage
from tamis.tasks import DocumentBatch

LABELS = ["High", "Medium", "Low"]
BATCH = DocumentBatch({"text": [*TEXTS, None]})


@pytest.fixture(scope="module")
def quality(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[list[float]]]:
    """A small quality classifier, and the probabilities that its layout means for the texts."""
    folder = tmp_path_factory.mktemp("models") / "quality"
    backbone, head = save_labelled(folder, LABELS)
    expected = []
    for row in tokens_of(folder):
        with torch.no_grad():
            outputs = head(backbone(input_ids=torch.tensor([row])).last_hidden_state[0, 0])
        expected.append(torch.softmax(outputs, dim=0).tolist())
    return str(folder), expected


@pytest.fixture(scope="module")
def educational(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[float]]:
    """A small model with one output, and that output for the texts as transformers computes it."""
    folder = tmp_path_factory.mktemp("models") / "edu"
    network = save_sequence_classifier(folder)
    with torch.no_grad():
        expected = [float(network(input_ids=torch.tensor([row])).logits) for row in tokens_of(folder)]
    return str(folder), expected


def test_labels_and_probabilities(quality: tuple[str, list[list[float]]]) -> None:
    folder, expected = quality
    made = QualityClassifier(model_identifier=folder, score_field="shares", max_seq_length=64).process(BATCH)
    assert made.get_columns() == ["text", "quality_pred", "shares"]
    assert made["text"].to_pylist() == BATCH["text"].to_pylist()
    assert made["quality_pred"].to_pylist() == [LABELS[int(np.argmax(shares))] for shares in expected] + [None]
    np.testing.assert_allclose(made["shares"].to_pylist()[:-1], expected, atol=1e-4)
    assert made["shares"].to_pylist()[-1] is None
    assert made["shares"].type == pa.list_(pa.float32(), 3)


def test_rows_with_other_labels_are_dropped_with_the_probability_of_the_wanted_ones(
    quality: tuple[str, list[list[float]]],
) -> None:
    folder, expected = quality
    labels = [LABELS[int(np.argmax(shares))] for shares in expected] + [None]
    wanted = [labels[0], next(label for label in labels if label != labels[0])]
    stage = QualityClassifier(model_identifier=folder, filter_by=wanted[:1], max_seq_length=64)
    made = stage.process(BATCH)
    (drop,) = made.dropped
    assert made["quality_pred"].to_pylist() == [label for label in labels if label == wanted[0]]
    assert drop.rows.tolist() == [row for row, label in enumerate(labels) if label != wanted[0]]
    assert drop.reason == f"quality_pred is not {wanted[0]}"
    shares = [expected[row][LABELS.index(wanted[0])] if row < len(expected) else None for row in drop.rows]
    assert drop.scores is not None
    assert drop.scores.to_pylist() == [None if share is None else pytest.approx(share, abs=1e-4) for share in shares]


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        (DomainClassifier, "domain_pred"),
        (MultilingualDomainClassifier, "multilingual_domain_pred"),
        (ContentTypeClassifier, "content_pred"),
        (DistributedDataClassifier, "preds"),
    ],
)
def test_each_classifier_has_its_column(
    quality: tuple[str, list[list[float]]], kind: type[DistributedDataClassifier], column: str
) -> None:
    made = kind(model_identifier=quality[0], text_field="body").process(DocumentBatch({"body": TEXTS[:2]}))
    assert made.get_columns() == ["body", column]
    assert set(made[column].to_pylist()) <= set(LABELS)


def test_a_classifier_of_transformers_can_be_used_as_well(tmp_path: Path) -> None:
    network = save_sequence_classifier(tmp_path / "m", "Roberta", outputs=2)
    made = DistributedDataClassifier(model_identifier=str(tmp_path / "m"), label_field="kind").process(BATCH)
    with torch.no_grad():
        best = [int(network(input_ids=torch.tensor([row])).logits.argmax()) for row in tokens_of(tmp_path / "m")]
    assert made["kind"].to_pylist() == [f"LABEL_{number}" for number in best] + [None]
    assert len(set(best)) == 2


@pytest.mark.parametrize(
    ("kind", "prefix"),
    [
        (FineWebEduClassifier, "fineweb-edu"),
        (FineWebMixtralEduClassifier, "fineweb-mixtral-edu"),
        (FineWebNemotronEduClassifier, "fineweb-nemotron-edu"),
    ],
)
def test_scores_of_fineweb(educational: tuple[str, list[float]], kind: type[FineWebEduClassifier], prefix: str) -> None:
    folder, expected = educational
    made = kind(model_identifier=folder, max_seq_length=64).process(BATCH)
    scores = [min(5.0, max(0.0, output)) for output in expected]
    assert made[f"{prefix}-score-float"].to_pylist()[:-1] == pytest.approx(scores, abs=1e-3)
    assert made[f"{prefix}-score-int"].to_pylist() == [*map(round, scores), None]
    labels = ["high_quality" if output >= 2.5 else "low_quality" for output in expected]
    assert made[f"{prefix}-score-label"].to_pylist() == [*labels, None]
    assert min(expected) < 0 < 2.5 < 5 < max(expected)  # so that every limit counts


def test_low_quality_is_dropped_with_its_score(educational: tuple[str, list[float]]) -> None:
    folder, expected = educational
    stage = FineWebEduClassifier(model_identifier=folder, filter_by=["high_quality"], max_seq_length=64)
    made = stage.process(DocumentBatch({"text": TEXTS}))
    (drop,) = made.dropped
    low = [row for row, output in enumerate(expected) if output < 2.5]
    assert drop.rows.tolist() == low
    assert drop.scores is not None
    assert drop.scores.to_pylist() == pytest.approx([max(0.0, expected[row]) for row in low], abs=1e-3)


def test_tasks_and_complexity_of_prompts(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    backbone, heads = save_prompt_classifier(folder)
    outputs = []
    for row in tokens_of(folder):
        with torch.no_grad():
            mean = backbone(input_ids=torch.tensor([row])).last_hidden_state[0].mean(dim=0)
            outputs.append(torch.cat([head(mean) for head in heads]).numpy())
    expected = PromptHeads.of(json.loads((folder / "config.json").read_text()), "m").columns(np.stack(outputs))
    made = PromptTaskComplexityClassifier(model_identifier=str(folder), max_seq_length=64).process(BATCH)
    assert made.get_columns() == ["text", *COLUMNS]
    for name in COLUMNS:
        column = made[name].to_pylist()
        assert column[-1] is None
        same = column[:-1] if isinstance(column[0], str) else pytest.approx(column[:-1], abs=2e-3)
        assert expected[name].to_pylist() == same
    with pytest.raises(PlanError, match="it has no single label to filter by"):
        PromptTaskComplexityClassifier(filter_by=["Open QA"])


def test_long_texts_are_cut_for_the_model_and_stay_whole_in_the_column(
    quality: tuple[str, list[list[float]]],
) -> None:
    text = TEXTS[4]

    def shares(text: str, **limits: Any) -> list[float]:
        stage = QualityClassifier(model_identifier=quality[0], score_field="shares", **limits)
        made = stage.process(DocumentBatch({"text": [text]}))
        assert made["text"].to_pylist() == [text]
        return list(made["shares"].to_pylist()[0])

    assert shares(text, max_chars=24) == pytest.approx(shares(text[:24]), abs=1e-5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(quality[0])
    words = tokenizer.tokenize(text)[:8]
    backbone_sees = tokenizer.convert_tokens_to_ids(["[CLS]", *words, "[SEP]"])
    batch = DocumentBatch({"input_ids": [backbone_sees]})
    stage = QualityClassifier(model_identifier=quality[0], score_field="shares", use_existing_tokens=True)
    assert shares(text, max_seq_length=10) == pytest.approx(stage.process(batch)["shares"].to_pylist()[0], abs=1e-5)


def test_tokens_that_are_there_already_are_used_without_their_padding(
    quality: tuple[str, list[list[float]]],
) -> None:
    folder, expected = quality
    rows = tokens_of(Path(folder))
    padded = [row + [0] * (64 - len(row)) for row in rows]
    mask = [[1] * len(row) + [0] * (64 - len(row)) for row in rows]
    batch = DocumentBatch({"ids": padded, "mask": mask, "text": TEXTS})
    stage = QualityClassifier(model_identifier=folder, score_field="shares", use_existing_tokens=["ids", "mask"])
    made = stage.process(batch)
    assert made.get_columns() == ["text", "quality_pred", "shares"]
    np.testing.assert_allclose(made["shares"].to_pylist(), expected, atol=1e-4)


def test_two_classifiers_share_the_tokens(quality: tuple[str, list[list[float]]]) -> None:
    one = QualityClassifier(model_identifier=quality[0], keep_tokens=True, max_seq_length=64)
    two = DomainClassifier(model_identifier=quality[0], use_existing_tokens=True)
    made = two.process(one.process(BATCH))
    assert made.get_columns() == ["text", "quality_pred", "domain_pred"]
    assert made["domain_pred"].to_pylist() == made["quality_pred"].to_pylist()


def test_tokens_of_another_vocabulary_are_refused(quality: tuple[str, list[list[float]]]) -> None:
    stage = QualityClassifier(model_identifier=quality[0], use_existing_tokens=True)
    with pytest.raises(ValueError, match=r"existing tokens are not those of the model .* there is a token 99999"):
        stage.process(DocumentBatch({"input_ids": [[2, 99999, 3]]}))
    with pytest.raises(ValueError, match="differ in length"):
        stage.process(DocumentBatch({"input_ids": [[2, 3]], "attention_mask": [[1]]}))


def test_a_batch_without_rows_gets_the_same_columns(
    quality: tuple[str, list[list[float]]], educational: tuple[str, list[float]]
) -> None:
    empty = DocumentBatch(pa.table({"text": pa.array([], pa.string())}))
    for stage in (
        QualityClassifier(model_identifier=quality[0], score_field="shares", filter_by=["High"]),
        FineWebEduClassifier(model_identifier=educational[0], filter_by=["low_quality"]),
    ):
        made, whole = stage.process(empty), stage.process(DocumentBatch({"text": ["a"]}))
        assert made.num_items == 0
        assert made.data.schema.types == whole.data.schema.types


def test_unknown_labels_are_refused_when_the_plan_is_made(quality: tuple[str, list[list[float]]]) -> None:
    for stage, message in (
        (
            QualityClassifier(model_identifier=quality[0], filter_by=["Hihg"]),
            "no label 'Hihg', only High, Medium, Low. Did",
        ),
        (FineWebEduClassifier(filter_by=["good"]), "no label 'good', only low_quality, high_quality"),
        (QualityClassifier(model_identifier=quality[0], filter_by=[]), "give a list of labels"),
        (QualityClassifier(filter_by="High"), "give a list of labels"),  # type: ignore[arg-type]
    ):
        with pytest.raises(PlanError, match=message):
            Pipeline("p", stages=[stage]).run(initial_tasks=[BATCH], progress="off")


def test_labels_of_a_model_that_is_not_here_are_checked_when_it_is_loaded(
    quality: tuple[str, list[list[float]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    stage = QualityClassifier(filter_by=["Best"])
    stage.decompose()  # nothing is known of its labels
    (tmp_path / "nvidia--quality-classifier-deberta").symlink_to(quality[0])
    monkeypatch.setenv("TAMIS_MODELS_DIR", str(tmp_path))
    with pytest.raises(PlanError, match="no label 'Best'"):
        stage.load("cpu")


def test_models_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=r"there is no model folder \./nowhere"):
        QualityClassifier(model_identifier="./nowhere").process(BATCH)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(ModelError, match="nvidia/domain-classifier: it is not on this machine, and the hub cannot be"):
        DomainClassifier(cache_dir=str(tmp_path)).process(BATCH)
    save_sequence_classifier(tmp_path / "two", outputs=2)
    with pytest.raises(ModelError, match="has 2 outputs, 1 are needed"):
        FineWebEduClassifier(model_identifier=str(tmp_path / "two")).process(BATCH)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_gives_the_same_whatever_the_tasks_and_workers(
    quality: tuple[str, list[list[float]]], tmp_path: Path, workers: int
) -> None:
    folder, expected = quality
    labels = [LABELS[int(np.argmax(shares))] for shares in expected]
    stage = QualityClassifier(model_identifier=folder, filter_by=[labels[0]], score_field="shares", max_seq_length=64)
    (tmp_path / "in").mkdir()
    for part in range(3):
        rows = [{"n": n, "text": text} for n, text in enumerate(TEXTS) if n % 3 == part]
        (tmp_path / "in" / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pipeline = Pipeline("p", stages=[JsonlReader(str(tmp_path / "in"), files_per_partition=1), stage])
    result = pipeline.run(LocalExecutor(workers=workers), run_dir=str(tmp_path / "run"), progress="off")
    kept = sorted(n for task in result for n in task.data["n"].to_pylist())
    assert kept == [n for n, label in enumerate(labels) if label == labels[0]]
    drops = result.drops()
    assert set(drops["reason"].to_pylist()) == {f"quality_pred is not {labels[0]}"}
    assert sorted(drops["score"].to_pylist()) == pytest.approx(
        sorted(
            shares[LABELS.index(labels[0])]
            for shares, label in zip(expected, labels, strict=True)
            if label != labels[0]
        ),
        abs=1e-4,
    )


def test_the_secret_is_written_nowhere(quality: tuple[str, list[list[float]]], tmp_path: Path) -> None:
    stage = QualityClassifier(model_identifier=quality[0], hf_token="hf_secret")
    assert "hf_secret" not in repr(stage) + repr(stage.decompose())
    assert stage.source == Model(quality[0], token="hf_secret")


def test_only_sensible_parameters_are_taken() -> None:
    with pytest.raises(ValueError, match="model_identifier names no model"):
        DistributedDataClassifier()
    with pytest.raises(ValueError, match="give True, or the names of two columns"):
        QualityClassifier(use_existing_tokens=["ids"])
    with pytest.raises(ValueError, match="model_inference_batch_size=0"):
        QualityClassifier(model_inference_batch_size=0)


def test_the_settings_of_the_model_go_to_the_stage_with_the_model() -> None:
    from tamis.stages.resources import Resources

    stage = QualityClassifier(autocast=False).with_(resources=Resources(gpus=0.25))
    tokens, model = stage.unfold()
    assert (tokens.resources.gpus, model.resources.gpus) == (0.0, 0.25)
    assert (stage.number_type, QualityClassifier().number_type) == ("float32", "auto")


def test_a_recipe_has_the_parameters_but_no_secret() -> None:
    stages: list[Any] = [
        JsonlReader("in"),
        QualityClassifier(filter_by=["High"], hf_token="hf_secret"),
        JsonlWriter("out"),
    ]
    written = dump_recipe(Pipeline("p", stages=stages))
    assert "hf_secret" not in written
    stage = load_recipe(written).to_pipeline().stages[1]
    assert isinstance(stage, QualityClassifier)
    assert stage.parameters() == stages[1].parameters()


def test_a_model_that_names_no_limit_has_that_of_its_backbone(
    quality: tuple[str, list[list[float]]], tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    shutil.copytree(quality[0], folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "model_max_length": 10**30}))
    stage = DistributedDataClassifier(model_identifier=str(folder), keep_tokens=True)
    made = stage.process(DocumentBatch({"text": ["a " * 1000]}))
    assert len(made["input_ids"].to_pylist()[0]) == 64  # the positions of the small backbone


@pytest.mark.parametrize(
    "stage",
    [
        QualityClassifier(),
        DomainClassifier(),
        MultilingualDomainClassifier(),
        ContentTypeClassifier(),
        FineWebEduClassifier(),
        FineWebMixtralEduClassifier(),
        FineWebNemotronEduClassifier(),
        PromptTaskComplexityClassifier(),
        AegisClassifier(),
        InstructionDataGuardClassifier(),
        FineMathClassifier(),
    ],
    ids=lambda stage: stage.name,
)
def test_the_models_that_stages_name_are_listed(stage: ClassifierStage) -> None:
    for model in stage.models():
        known = known_model(model.name)
        assert known is not None
        assert stage.name in known.stage


def test_a_row_whose_scores_are_not_numbers_is_set_aside_and_the_others_go_on(
    quality: tuple[str, list[list[float]]], tmp_path: Path
) -> None:
    folder = tmp_path / "m"
    shutil.copytree(quality[0], folder)
    rows = tokens_of(folder)
    tensors = load_file(folder / "model.safetensors")
    (odd,) = [n for n, text in enumerate(TEXTS) if "package" in text]
    broken = next(iter(set(rows[odd]) - {token for n, row in enumerate(rows) if n != odd for token in row}))
    tensors["model.embeddings.word_embeddings.weight"][broken] = float("inf")
    save_file(tensors, folder / "model.safetensors")
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    stages = [
        JsonlReader(str(tmp_path / "in.jsonl")),
        QualityClassifier(model_identifier=str(folder), max_seq_length=64),
    ]
    result = Pipeline("p", stages=stages).run(LocalExecutor(workers=0), run_dir=str(tmp_path / "run"), progress="off")
    (failure,) = result.failures
    assert "values of 'outputs' that are not numbers" in failure.message
    kept = [text for task in result for text in task.data["text"].to_pylist()]
    assert sorted(kept) == sorted(text for n, text in enumerate(TEXTS) if n != odd)
