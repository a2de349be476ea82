"""Perplexity under a causal language model: the loss that transformers computes for each document alone."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from small_encoders import TEXTS, save_tokenizer  # noqa: E402

from tamis import LocalExecutor, Pipeline  # noqa: E402
from tamis.errors import ModelError, PlanError  # noqa: E402
from tamis.stages.io import JsonlReader, JsonlWriter  # noqa: E402
from tamis.stages.text.causal_perplexity import CausalPerplexity  # noqa: E402
from tamis.tasks import DocumentBatch  # noqa: E402


def save_causal_model(folder: Path, kind: str) -> str:
    from transformers import AutoConfig, AutoModelForCausalLM

    size = save_tokenizer(folder, "roberta")  # with a token before and after each text
    sizes = {"vocab_size": size, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    more = {"max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 1}
    if kind != "gpt2":
        more |= {"intermediate_size": 64, "num_key_value_heads": 2}
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, **more))
    for weights in network.parameters():
        weights.data += 0.1 * torch.randn_like(weights)
    network.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_causal_model(tmp_path_factory.mktemp("causal"), request.param)


def losses_of(folder: str, texts: list[str], max_length: int) -> list[float]:
    """The mean loss of each text, as transformers computes it."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network, tokenizer = AutoModelForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    found = []
    for text in texts:
        ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=max_length)["input_ids"]
        with torch.no_grad():
            found.append(float(network(input_ids=ids, labels=ids).loss))
    return found


@pytest.mark.parametrize("batch_tokens", [None, 40])
def test_the_loss_is_that_of_transformers(folder: str, batch_tokens: int | None) -> None:
    stage = CausalPerplexity(folder, loss_field="loss", batch_tokens=batch_tokens, max_seq_length=64)
    made = stage.process(DocumentBatch({"text": [*TEXTS, None]})).data.to_pydict()
    expected = losses_of(folder, TEXTS, 64)
    assert made["loss"] == [*(pytest.approx(loss, rel=1e-4) for loss in expected), None]
    assert made["perplexity"] == [*(pytest.approx(math.exp(loss), rel=1e-3) for loss in expected), None]
    assert list(made) == ["text", "perplexity", "loss"]


def test_documents_are_kept_within_bounds(folder: str) -> None:
    texts = TEXTS[:4]
    scores = sorted(math.exp(loss) for loss in losses_of(folder, texts, 64))
    low, high = (scores[0] + scores[1]) / 2, (scores[2] + scores[3]) / 2
    stage = CausalPerplexity(folder, min_perplexity=low, max_perplexity=high, max_seq_length=64)
    made = stage.process(DocumentBatch({"text": [*texts, None]}))
    assert sorted(made["perplexity"].to_pylist()) == [pytest.approx(score, rel=1e-3) for score in scores[1:3]]
    assert [(drop.reason, len(drop.rows)) for drop in made.dropped] == [
        ("too short for a perplexity", 1),
        (f"perplexity > {high:g}", 1),
        (f"perplexity < {low:g}", 1),
    ]


def test_it_runs_in_a_pipeline(folder: str, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    stages = [JsonlReader(str(source)), CausalPerplexity(folder, max_seq_length=64), JsonlWriter(str(tmp_path / "out"))]
    Pipeline("p", stages=stages).run(LocalExecutor(2), run_dir=str(tmp_path / "run"), progress="off")
    (written,) = (tmp_path / "out").glob("*.jsonl")
    rows = [json.loads(line) for line in written.read_text(encoding="utf-8").splitlines()]
    expected = [math.exp(loss) for loss in losses_of(folder, TEXTS, 64)]
    assert [row["perplexity"] for row in rows] == [pytest.approx(each, rel=1e-3) for each in expected]


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(PlanError, match="no perplexity is at least 5 and at most 2"):
        CausalPerplexity("model", min_perplexity=5, max_perplexity=2)
    with pytest.raises(PlanError, match="dtype='int8'"):
        CausalPerplexity("model", dtype="int8").load("cpu")
    with pytest.raises(ModelError, match=r"there is no model folder \./nowhere"):
        CausalPerplexity("./nowhere").fetch()
