"""Classifiers in the published layouts: their numbers are those of a forward pass written here, or transformers'."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from small_models import (
    PROMPT,
    SMALL,
    batch_of,
    save_labelled,
    save_prompt_classifier,
    save_sequence_classifier,
    tokens_of,
)

from tamis.errors import ModelError
from tamis.models.classification import RowScorer, load_classifier, load_heads, load_sequence_classifier
from tamis.models.model import Model
from tamis.models.prompt_complexity import COLUMNS, PromptHeads
from tamis.models.published import build_backbone, labels_of


def states_of(backbone: Any, rows: list[list[int]]) -> list[torch.Tensor]:
    """The hidden states of each row by itself."""
    with torch.no_grad():
        return [backbone(input_ids=torch.tensor([row])).last_hidden_state[0] for row in rows]


def test_a_published_classifier_is_a_linear_layer_on_the_first_token(tmp_path: Path) -> None:
    backbone, head = save_labelled(tmp_path / "m", ["High", "Medium", "Low"])
    rows = tokens_of(tmp_path / "m")
    made = load_classifier(Model(str(tmp_path / "m")), "cpu")(batch_of(rows))
    with torch.no_grad():
        expected = torch.stack([head(states[0]) for states in states_of(backbone, rows)])
    torch.testing.assert_close(made, expected, atol=2e-5, rtol=1e-4)
    assert len({tuple(row) for row in made.round(decimals=3).tolist()}) == len(rows)  # texts make a difference


def test_the_backbone_may_be_of_another_kind(tmp_path: Path) -> None:
    bert = transformers.BertModel(transformers.BertConfig(vocab_size=300, **SMALL, max_position_embeddings=80)).eval()
    (tmp_path / "tokenizer").mkdir()
    backbone, head = save_labelled(tmp_path / "m", ["a", "b"], base=bert)
    rows = [[2, 8, 9, 3], [2, 3]]
    made = load_classifier(Model(str(tmp_path / "m")), "cpu")(batch_of(rows))
    with torch.no_grad():
        expected = torch.stack([head(states[0]) for states in states_of(backbone, rows)])
    torch.testing.assert_close(made, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("kind", "is_known"),
    [("Bert", True), ("Roberta", True), ("DistilBert", True), ("DebertaV2", True), ("Llama", False)],
)
def test_a_sequence_classifier_computes_what_transformers_does(tmp_path: Path, kind: str, is_known: bool) -> None:
    network = save_sequence_classifier(tmp_path / "m", kind, outputs=2)
    rows = tokens_of(tmp_path / "m")
    scorer = load_sequence_classifier(Model(str(tmp_path / "m")), "cpu")
    assert isinstance(scorer, RowScorer) == is_known  # others run as a whole, over padded rows
    with torch.no_grad():
        expected = torch.cat([network(input_ids=torch.tensor([row])).logits for row in rows])
    torch.testing.assert_close(scorer(batch_of(rows)), expected, atol=5e-5, rtol=1e-4)


def test_a_classifier_that_padding_would_change_is_given_each_row_by_itself(tmp_path: Path) -> None:
    network = save_sequence_classifier(tmp_path / "m", "Llama", outputs=2)
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "pad_token_id": None}))
    rows = tokens_of(tmp_path / "m")
    scorer = load_sequence_classifier(Model(str(tmp_path / "m")), "cpu")
    network.config.pad_token_id = None
    with torch.no_grad():
        expected = torch.cat([network(input_ids=torch.tensor([row])).logits for row in rows])
    torch.testing.assert_close(scorer(batch_of(rows)), expected, atol=5e-5, rtol=1e-4)


def test_a_head_that_is_missing_is_not_made_up(tmp_path: Path) -> None:
    save_sequence_classifier(tmp_path / "m", outputs=1)
    path = tmp_path / "m" / "model.safetensors"
    save_file({name: x for name, x in load_file(path).items() if "classifier" not in name}, path, {"format": "pt"})
    with pytest.raises(ModelError, match=r"its files lack 2 weights, such as classifier\.bias"):
        load_sequence_classifier(Model(str(tmp_path / "m")), "cpu")


def test_threads_share_a_model_on_a_cpu_until_its_files_change(tmp_path: Path) -> None:
    save_labelled(tmp_path / "m", ["a", "b"])
    model = Model(str(tmp_path / "m"))
    one, two = load_classifier(model, "cpu"), load_classifier(model, "cpu")
    assert one is two
    (tmp_path / "m" / "new.txt").write_text("x")
    os.utime(tmp_path / "m" / "config.json", (2e9, 2e9))
    assert load_classifier(model, "cpu") is not one


def test_heads_stand_on_the_mean_of_the_states(tmp_path: Path) -> None:
    backbone, heads = save_prompt_classifier(tmp_path / "m")
    rows = tokens_of(tmp_path / "m")
    made = load_heads(Model(str(tmp_path / "m")), [head.out_features for head in heads], "cpu")(batch_of(rows))
    with torch.no_grad():
        means = [states.mean(dim=0) for states in states_of(backbone, rows)]
        expected = torch.stack([torch.cat([head(mean) for head in heads]) for mean in means])
    torch.testing.assert_close(made, expected, atol=2e-5, rtol=1e-4)


def test_the_columns_for_prompts_follow_the_definitions_of_the_card() -> None:
    rng = np.random.default_rng(0)
    sizes = PROMPT["target_sizes"]
    outputs = rng.normal(scale=2.0, size=(50, sum(sizes.values()))).astype(np.float32)
    made = {name: column.to_pylist() for name, column in PromptHeads.of(PROMPT, "m").columns(outputs).items()}
    assert tuple(made) == COLUMNS
    assert {"NA"} < set(made["task_type_2"])
    assert 0 in made["number_of_few_shots"] or min(made["number_of_few_shots"]) >= 0.05
    for number, row in enumerate(outputs):
        start, scores = 0, {}
        for target, size in sizes.items():
            shares = torch.softmax(torch.tensor(row[start : start + size]), dim=0).double().numpy()
            start += size
            if target == "task_type":
                first, second = np.argsort(-shares)[:2]
                assert made["task_type_1"][number] == f"Type {first}"
                assert made["task_type_2"][number] == (f"Type {second}" if round(shares[second], 3) >= 0.1 else "NA")
                assert made["task_type_prob"][number] == pytest.approx(round(shares[first], 3), abs=1.1e-3)
                continue
            score = float(shares @ np.array(PROMPT["weights_map"][target])) / PROMPT["divisor_map"][target]
            scores[target] = 0.0 if target == "number_of_few_shots" and score < 0.05 else score
            assert made[target][number] == pytest.approx(scores[target], abs=1.1e-4)
        whole = (
            0.35 * scores["creativity_scope"]
            + 0.25 * scores["reasoning"]
            + 0.15 * scores["constraint_ct"]
            + 0.15 * scores["domain_knowledge"]
            + 0.05 * scores["contextual_knowledge"]
            + 0.05 * scores["number_of_few_shots"]
        )
        assert made["prompt_complexity_score"][number] == pytest.approx(whole, abs=2e-4)


def test_the_backbones_of_the_published_classifiers_are_known(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with torch.device("meta"):  # only shapes: nothing is computed and no memory is taken
        for name, parameters in (
            ("microsoft/DeBERTa-v3-base", 183_831_552),
            ("microsoft/mdeberta-v3-base", 278_218_752),
        ):
            backbone = build_backbone({"base_model": name}, Model(str(tmp_path)))
            assert sum(parameter.numel() for parameter in backbone.parameters()) == parameters


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"id2label": {"0": "a", "2": "b"}}, "not numbered from 0"),
        ({"label2id": {"a": "x"}}, "have no numbers"),
        ({}, "names no labels"),
    ],
)
def test_labels_that_make_no_sense_are_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        labels_of(config, "m")


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    save_labelled(folder, ["a", "b"])
    model, config = Model(str(folder)), json.loads((folder / "config.json").read_text())

    def written(**changed: Any) -> None:
        (folder / "config.json").write_text(json.dumps({**config, **changed}))

    written(id2label={"0": "a", "1": "b", "2": "c"})
    with pytest.raises(ModelError, match=r"its tensor fc\.bias has the shape \(2,\), but its config"):
        load_classifier(model, "cpu")
    written(base_model=None)
    with pytest.raises(ModelError, match="has no base_model"):
        load_classifier(model, "cpu")
    written()
    with pytest.raises(ModelError, match=r"has no tensor backbone\.embeddings.* and \d+ more: its files belong"):
        load_heads(model, [2], "cpu")
    (folder / "model.safetensors").write_bytes(b"\x10")
    with pytest.raises(ModelError, match="damaged or cut off"):
        load_classifier(model, "cpu")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="no weights as safetensors"):
        load_classifier(model, "cpu")
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"has no config\.json"):
        load_classifier(model, "cpu")


def test_a_backbone_that_cannot_be_reached_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_labelled(tmp_path / "m", ["a", "b"], config={"base_model": "organisation/backbone"})
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match=r"needs the configuration of its backbone: the model organisation/backbone"):
        load_classifier(Model(str(tmp_path / "m")), "cpu")
