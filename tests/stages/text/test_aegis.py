"""Safety labels and poisoned instruction data, with a small Llama, a small adapter and a small judge."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
import transformers
from small_models import TEXTS, batch_of, save_adapter, save_judge, save_language_model

from tamis import Pipeline
from tamis.errors import PlanError
from tamis.models.guard import load_answerer, load_state_judge
from tamis.models.model import Model
from tamis.models.tokenizers import load_tokenizer
from tamis.stages.text.classifiers import AegisClassifier, InstructionDataGuardClassifier
from tamis.stages.text.classifiers.aegis_prompt import AEGIS_CATEGORIES, AegisPrompt, find_policy, label_of
from tamis.tasks import DocumentBatch

BATCH = DocumentBatch({"text": [*TEXTS, None]})
POLICY = "\n".join(f"{key}: {name}.\nShould not\n- {name}." for key, name in AEGIS_CATEGORIES.items())
CARD = f"# Model\n\n```\n<BEGIN UNSAFE CONTENT CATEGORIES>\n{POLICY}\n<END UNSAFE CONTENT CATEGORIES>\n```\n"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The parameters that name small models in the place of the published ones."""
    path = tmp_path_factory.mktemp("models")
    save_language_model(path / "base")
    save_adapter(path / "adapter")
    (path / "adapter" / "README.md").write_text(CARD)
    names = {"base_model_identifier": str(path / "base"), "aegis_variant": str(path / "adapter")}
    save_judge(path / "judge")
    outputs = torch.logit(torch.tensor(scores_of(path / "judge", names)))
    save_judge(path / "judge", shift=-float(outputs.median()) - 1e-3)  # so that it finds some texts poisoned
    return names


def scores_of(judge: Path, names: dict[str, Any]) -> list[float]:
    """What a judge says of each text."""
    base, adapter = (Model(names[name]) for name in ("base_model_identifier", "aegis_variant"))
    column = load_tokenizer(base.name).encode_column(pa.array(TEXTS), add_special_tokens=True)
    scores: list[float] = load_state_judge(base, adapter, Model(str(judge)), "cpu")(batch_of(column.to_pylist()))[
        :, 0
    ].tolist()
    return scores


def test_each_text_gets_the_answer_to_its_prompt(folders: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    base, adapter = Model(folders["base_model_identifier"]), Model(folders["aegis_variant"])
    answerer = load_answerer(base, adapter, "cpu")  # the stage uses the same
    monkeypatch.setattr(answerer, "max_new_tokens", 12)
    stage = AegisClassifier(**folders, keep_raw_output=True, keep_aegis_prompt_field=True, aegis_prompt_field="asked")
    made = stage.process(BATCH)
    assert made.get_columns() == ["text", "asked", "aegis_pred", "_aegis_raw_pred"]
    prompt = AegisPrompt(POLICY)
    assert made["asked"].to_pylist() == [*map(prompt.around, TEXTS), None]
    tokenizer = transformers.AutoTokenizer.from_pretrained(base.name)
    for text, answer in zip(TEXTS[:2], made["_aegis_raw_pred"].to_pylist(), strict=False):
        ids = torch.tensor([tokenizer(prompt.around(text))["input_ids"]])
        with torch.no_grad():
            expected = answerer.network.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)[0][
                ids.shape[1] :
            ]
        assert answer == tokenizer.decode(expected, skip_special_tokens=True)
    assert made["aegis_pred"].to_pylist() == ["unknown"] * len(TEXTS) + [None]  # it was never trained


@pytest.mark.parametrize(
    ("answer", "label"),
    [
        ("safe", "safe"),
        (" safe\n", "safe"),
        ("unsafe\nO13", "O13"),
        ("unsafe\n O7 \nmore", "O7"),
        ("unsafe\nO9, O1", "O9"),
        ("unsafe\nO14", "unknown"),
        ("unsafe", "unknown"),
        ("safe or unsafe", "unknown"),
        ("", "unknown"),
    ],
)
def test_answers_as_labels(answer: str, label: str) -> None:
    assert label_of(answer) == label


def test_labels_come_from_answers_and_filter_rows(folders: dict[str, Any]) -> None:
    answers = ["unsafe\nO3", "safe", "safe", "?", "unsafe\nO1", "safe"]
    stage = AegisClassifier(**folders, filter_by=["safe", "O3"])
    stage.load("cpu")
    made = stage.finish(BATCH, {"outputs": pa.array([*answers, None])})
    assert made["aegis_pred"].to_pylist() == ["O3", "safe", "safe", "safe"]
    (drop,) = made.dropped
    assert (drop.rows.tolist(), drop.reason) == ([3, 4, 6], "aegis_pred is not safe or O3")


def test_a_long_text_is_cut_and_the_question_stays_whole(folders: dict[str, Any]) -> None:
    tokenizer = load_tokenizer(folders["base_model_identifier"])
    prompt = AegisPrompt("O1: Violence.")
    long = "a package manager upgrades 日本語 programs " * 200
    frame = int(tokenizer.count_tokens(pa.array([prompt.around("")]), add_special_tokens=True)[0])
    limit = frame + 50
    prompts, tokens, cut = prompt.prompts(pa.array(["short", long, None, ""]), tokenizer, limit)
    assert cut == 1
    assert prompts.to_pylist()[0] == prompt.around("short")
    assert prompts.to_pylist()[2:] == [None, prompt.around("")]
    middle = prompts.to_pylist()[1]
    assert middle.endswith(prompt.after)
    text = middle.removeprefix(prompt.before).removesuffix(prompt.after)
    assert long.startswith(text)
    lengths = [None if row is None else len(row) for row in tokens.to_pylist()]
    assert limit - 25 <= lengths[1] <= limit
    assert lengths[2] is None
    assert (
        tokens.to_pylist()[0]
        == transformers.AutoTokenizer.from_pretrained(folders["base_model_identifier"])(prompt.around("short"))[
            "input_ids"
        ]
    )
    assert prompt.prompts(pa.array([long]), tokenizer, 10**6, max_chars=7)[0].to_pylist() == [prompt.around(long[:7])]
    with pytest.raises(ValueError, match=f"without a text has {frame} tokens, the model can have 9"):
        prompt.prompts(pa.array(["a"]), tokenizer, 9)


def test_the_policy_is_that_of_the_card(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "README.md").write_text(CARD.replace("<BEGIN", "&lt;BEGIN"))
    with caplog.at_level(logging.WARNING):
        assert find_policy(Model(str(tmp_path))) == POLICY
        assert caplog.text == ""
        (tmp_path / "README.md").write_text("# Model")
        own = find_policy(Model(str(tmp_path)))
    assert "has no safety policy" in caplog.text
    assert all(f"{key}: {name}.\n" in own for key, name in AEGIS_CATEGORIES.items())


def test_a_policy_of_ones_own(folders: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "policy.txt").write_text("O1: Spam.\n")
    stage = AegisClassifier(**folders, policy_file=str(tmp_path / "policy.txt"), keep_aegis_prompt_field=True)
    made = stage.decompose()[0].process(DocumentBatch({"text": ["x"]}))
    assert isinstance(made, DocumentBatch)
    assert "CATEGORIES>\nO1: Spam.\n<END" in made["_aegis_prompt"].to_pylist()[0]
    with pytest.raises(PlanError, match=r"there is no policy_file .*none\.txt"):
        AegisClassifier(**folders, policy_file=str(tmp_path / "none.txt")).decompose()


def test_what_cannot_be_is_refused_when_the_plan_is_made(folders: dict[str, Any]) -> None:
    stage = AegisClassifier(**folders, filter_by=["O99"])
    with pytest.raises(PlanError, match="it has no label 'O99', only unknown, safe, O1"):
        Pipeline("p", stages=[stage]).run(initial_tasks=[BATCH], progress="off")
    with pytest.raises(PlanError, match="tokens of the text cannot be used"):
        AegisClassifier(**folders, use_existing_tokens=True)
    guard = InstructionDataGuardClassifier(**folders, filter_by=["clean"])  # type: ignore[list-item]
    with pytest.raises(PlanError, match="it has no label 'clean', only True, False"):
        guard.decompose()


def test_poisoned_rows_are_told_by_their_score(folders: dict[str, Any]) -> None:
    judge = str(Path(folders["aegis_variant"]).parent / "judge")
    expected = scores_of(Path(judge), folders)
    stage = InstructionDataGuardClassifier(model_identifier=judge, **folders)
    made = stage.process(BATCH)
    assert made.get_columns() == ["text", "is_poisoned", "instruction_data_guard_poisoning_score"]
    assert made["instruction_data_guard_poisoning_score"].to_pylist()[:-1] == pytest.approx(expected, abs=1e-4)
    assert made["is_poisoned"].to_pylist() == [*(score >= 0.5 for score in expected), None]
    assert len(set(made["is_poisoned"].to_pylist())) == 3  # true, false and null
    kept = InstructionDataGuardClassifier(model_identifier=judge, **folders, filter_by=[False]).process(BATCH)
    (drop,) = kept.dropped
    assert kept["is_poisoned"].to_pylist() == [False] * sum(score < 0.5 for score in expected)
    assert drop.reason == "is_poisoned is not False"
