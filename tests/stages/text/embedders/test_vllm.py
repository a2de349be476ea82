"""What is handed to vLLM and what becomes of its answers. The package itself needs a GPU: it is stood in for here."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from small_encoders import save_model

from tamis.errors import MissingExtraError
from tamis.stages.text.embedders import VLLMEmbeddingModelStage
from tamis.stages.text.models.tokenizer import TokenizerStage
from tamis.tasks import DocumentBatch


class Engine:
    """Answers as vLLM does; the vector of a prompt is its length, twice."""

    made: Engine

    def __init__(self, **settings: Any) -> None:
        Engine.made, self.settings, self.calls = self, settings, []
        limits = SimpleNamespace(max_model_len=16, get_hidden_size=lambda: 2)
        self.llm_engine = SimpleNamespace(model_config=limits)

    def embed(self, prompts: list[Any], **settings: Any) -> list[Any]:
        self.calls.append((prompts, settings))
        sizes = [len(prompt if isinstance(prompt, str) else prompt["prompt_token_ids"]) for prompt in prompts]
        return [SimpleNamespace(outputs=SimpleNamespace(embedding=[float(size)] * 2)) for size in sizes]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    module = ModuleType("vllm")
    module.LLM = Engine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", module)
    return str(save_model(tmp_path))


TEXTS = ["a b", None, "", "a " * 50]


def test_tokens_go_in_and_vectors_come_out_in_the_order_of_the_rows(folder: str) -> None:
    stage = VLLMEmbeddingModelStage(folder, model_inference_batch_size=2)
    made = stage.process(DocumentBatch({"text": TEXTS, "id": [0, 1, 2, 3]}))
    assert made["embeddings"].to_pylist() == [[4, 4], None, [2, 2], [16, 16]]
    assert made["embeddings"].type == pa.list_(pa.float32(), 2)
    assert made.get_columns() == ["text", "id", "embeddings"]
    tokens = TokenizerStage(folder, max_seq_length=16).process(DocumentBatch({"text": TEXTS}))["input_ids"].to_pylist()
    given = [prompt["prompt_token_ids"] for prompts, _ in Engine.made.calls for prompt in prompts]
    assert given == [row for row in tokens if row]
    assert [len(prompts) for prompts, _ in Engine.made.calls] == [2, 1]
    assert Engine.made.settings == {"model": folder, "runner": "pooling", "disable_log_stats": True}
    assert stage.take_metrics()["truncated_texts"] == 1


def test_texts_go_in_if_vllm_is_to_tokenise(folder: str) -> None:
    stage = VLLMEmbeddingModelStage(
        folder,
        {"task": "embed"},
        pretokenize=False,
        max_chars=10,
        metadata_fields=["id"],
        embedding_output_dtype="float16",
    )
    made = stage.process(DocumentBatch({"text": TEXTS, "id": [0, 1, 2, 3]}))
    assert made["embeddings"].to_pylist() == [[3, 3], None, None, [10, 10]]
    assert made["embeddings"].type == pa.list_(pa.float16(), 2)
    assert made.get_columns() == ["id", "embeddings"]
    assert Engine.made.calls == [(["a b", "a a a a a "], {"use_tqdm": False, "truncate_prompt_tokens": -1})]
    assert "runner" not in Engine.made.settings


def test_a_batch_without_texts_has_a_column_of_the_same_type(folder: str) -> None:
    made = VLLMEmbeddingModelStage(folder).process(DocumentBatch({"text": pa.nulls(2, pa.string())}))
    assert made["embeddings"].to_pylist() == [None, None]
    assert made["embeddings"].type == pa.list_(pa.float32(), 2)


def test_a_vector_that_is_not_finite_is_an_error(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SimpleNamespace(outputs=SimpleNamespace(embedding=[np.nan, 1.0]))
    monkeypatch.setattr(Engine, "embed", lambda self, prompts, **_: [answer for _ in prompts])
    with pytest.raises(FloatingPointError, match="not numbers, for 1 of 1 rows"):
        VLLMEmbeddingModelStage(folder).process(DocumentBatch({"text": ["a"]}))


def test_the_missing_package_is_named(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingExtraError, match="needs the package 'vllm'"):
        VLLMEmbeddingModelStage(folder).process(DocumentBatch({"text": ["a"]}))
