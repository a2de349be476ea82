"""Embeddings equal those of sentence-transformers and transformers, for many kinds of models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")
pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.numpy")
sentence_transformers = pytest.importorskip("sentence_transformers")

from small_encoders import KINDS, TEXTS, save_model  # noqa: E402

from tamis import LocalExecutor, Pipeline  # noqa: E402
from tamis.errors import ModelError  # noqa: E402
from tamis.models.tokenizers import load_tokenizer  # noqa: E402
from tamis.stages.io import JsonlReader, ParquetWriter  # noqa: E402
from tamis.stages.text.embedders import (  # noqa: E402
    EmbeddingCreatorStage,
    EmbeddingModelStage,
    SentenceTransformerEmbeddingModelStage,
)
from tamis.stages.text.models.tokenizer import TokenizerStage  # noqa: E402
from tamis.tasks import DocumentBatch  # noqa: E402


def vectors_of(stage: EmbeddingCreatorStage, texts: list[str | None] = TEXTS) -> NDArray[np.float32]:  # type: ignore[assignment]
    column = stage.process(DocumentBatch({"text": texts}))["embeddings"]
    assert pa.types.is_fixed_size_list(column.type)
    assert column.type.value_type == pa.float32()
    return np.array(column.to_pylist(), np.float32)


def least_cosine(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(axis=1) / lengths).min())


def save_sentence_model(folder: Path, kind: str, pooling: str | tuple[str, ...], *, dense: bool = False) -> Path:
    from sentence_transformers.sentence_transformer import modules

    save_model(folder, kind)
    transformer = modules.Transformer(str(folder))
    steps = [transformer, modules.Pooling(32, pooling_mode=pooling)]
    if dense:
        steps.append(modules.Dense(32, 16))
    sentence_transformers.SentenceTransformer(modules=[*steps, modules.Normalize()], device="cpu").save(str(folder))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_sentence_transformers(tmp_path: Path, kind: str) -> None:
    pooling = "lasttoken" if kind == "qwen3" else "mean"
    folder = save_sentence_model(tmp_path / kind, kind, pooling)
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    found = vectors_of(EmbeddingCreatorStage(str(folder)))
    assert least_cosine(found, expected) > 0.99999
    assert found == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "pooling", ["cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ("cls", "mean")]
)
def test_every_pooling_and_a_dense_layer(tmp_path: Path, pooling: str | tuple[str, ...]) -> None:
    folder = save_sentence_model(tmp_path, "bert", pooling, dense=isinstance(pooling, str))
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    assert vectors_of(EmbeddingCreatorStage(str(folder))) == pytest.approx(expected, abs=1e-4)


def test_folders_of_earlier_versions(tmp_path: Path) -> None:
    """The transformer in a folder of its own, the limit beside it, the pooling as truth values."""
    old = tmp_path
    save_model(old / "0_Transformer", "bert")
    (old / "0_Transformer" / "sentence_bert_config.json").write_text('{"max_seq_length": 20, "do_lower_case": false}')
    (old / "1_Pooling").mkdir()
    (old / "1_Pooling" / "config.json").write_text(
        '{"word_embedding_dimension": 32, "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}'
    )
    steps = [
        {"idx": 0, "name": "0", "path": "0_Transformer", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
    ]
    (old / "modules.json").write_text(json.dumps(steps))
    stage = EmbeddingCreatorStage(str(old))
    expected = sentence_transformers.SentenceTransformer(str(old), device="cpu").encode(TEXTS)
    assert vectors_of(stage) == pytest.approx(expected, abs=1e-4)
    assert stage.take_metrics()["truncated_texts"] > 0


def test_the_default_prompt_is_put_before_each_text(tmp_path: Path) -> None:
    folder = save_sentence_model(tmp_path, "bert", "mean")
    settings = folder / "config_sentence_transformers.json"
    named = {
        **json.loads(settings.read_text()),
        "prompts": {"document": "lazy dog: "},
        "default_prompt_name": "document",
    }
    settings.write_text(json.dumps(named))
    reference = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    with_prompt = vectors_of(EmbeddingCreatorStage(str(folder)))
    assert with_prompt == pytest.approx(reference.encode(TEXTS), abs=1e-4)
    without = vectors_of(EmbeddingCreatorStage(str(folder), prompt=""))
    assert without == pytest.approx(reference.encode(TEXTS, prompt=""), abs=1e-4)
    assert abs(with_prompt - without).max() > 0.01


@pytest.mark.parametrize(
    "settings",
    [
        {"tokenizer_class": "BertTokenizer", "do_lower_case": False},
        {"tokenizer_class": "BertTokenizer", "strip_accents": False},
        {"truncation_side": "left"},
    ],
    ids=str,
)
def test_settings_beside_the_vocabulary_count(tmp_path: Path, settings: dict[str, object]) -> None:
    folder = save_sentence_model(tmp_path, "bert", "mean")
    plain = vectors_of(EmbeddingCreatorStage(str(folder)))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    found = vectors_of(EmbeddingCreatorStage(str(folder)))
    assert found == pytest.approx(expected, abs=1e-4)
    assert abs(found - plain).max() > 0.001


def test_lower_case_is_that_of_sentence_transformers(tmp_path: Path) -> None:
    folder = save_sentence_model(tmp_path, "roberta", "mean")
    path = folder / "sentence_bert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "do_lower_case": True}))
    texts: list[str | None] = ["İSTANBUL ΣΑΣ", "Plain"]
    expected = sentence_transformers.SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert vectors_of(EmbeddingCreatorStage(str(folder)), texts) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("kind", "pooling"), [("bert", "mean_pooling"), ("qwen3", "last_token"), ("roberta", "cls")])
def test_a_plain_transformer_with_the_pooling_given(tmp_path: Path, kind: str, pooling: str) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = str(save_model(tmp_path, kind))
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    expected = []
    with torch.inference_mode():
        for text in TEXTS:  # one by one, so without padding
            given = tokenizer(text, return_tensors="pt", truncation=True, max_length=64)
            hidden = network(input_ids=given["input_ids"]).last_hidden_state[0]
            vector = {"mean_pooling": hidden.mean(0), "last_token": hidden[-1], "cls": hidden[0]}[pooling]
            expected.append((vector / vector.norm()).numpy())
    stage = EmbeddingCreatorStage(folder, use_sentence_transformer=False, embedding_pooling=pooling)
    assert vectors_of(stage) == pytest.approx(np.array(expected), abs=1e-4)


def test_a_folder_without_modules_gets_the_mean_as_in_sentence_transformers(tmp_path: Path) -> None:
    folder = str(save_model(tmp_path, "bert"))
    reference = sentence_transformers.SentenceTransformer(folder, device="cpu")
    plain, normal = vectors_of(EmbeddingCreatorStage(folder)), vectors_of(EmbeddingCreatorStage(folder, normalize=True))
    assert plain == pytest.approx(reference.encode(TEXTS), abs=1e-4)
    assert np.linalg.norm(normal, axis=1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-5)


def test_16_bits_for_linear_layers_keep_the_direction(tmp_path: Path) -> None:
    folder = str(save_sentence_model(tmp_path, "bert", "mean"))
    exact, quick = (vectors_of(EmbeddingCreatorStage(folder, dtype=dtype)) for dtype in ("float32", "bfloat16"))
    assert 0.999 < least_cosine(exact, quick) < 0.9999999


def test_vectors_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    folder = str(save_sentence_model(tmp_path, "bert", "mean"))
    expected = vectors_of(EmbeddingCreatorStage(folder))
    for few in (
        EmbeddingCreatorStage(folder, batch_tokens=1),
        EmbeddingCreatorStage(folder, model_inference_batch_size=2),
    ):
        assert least_cosine(vectors_of(few), expected) > 0.99999
    turned = vectors_of(EmbeddingCreatorStage(folder), TEXTS[::-1])
    assert least_cosine(turned[::-1], expected) > 0.99999


def test_nulls_have_a_null_and_empty_texts_a_vector(tmp_path: Path) -> None:
    folder = str(save_sentence_model(tmp_path, "bert", "mean"))
    found = EmbeddingCreatorStage(folder).process(DocumentBatch({"text": [None, "", "a"]}))["embeddings"]
    assert found.is_null().to_pylist() == [True, False, False]
    nothing = EmbeddingCreatorStage(folder).process(DocumentBatch({"text": pa.array([None], pa.string())}))[
        "embeddings"
    ]
    assert nothing.to_pylist() == [None]
    assert nothing.type == found.type


def test_tokens_that_are_there_already_are_used(tmp_path: Path) -> None:
    folder = str(save_sentence_model(tmp_path, "bert", "mean"))
    tokens = TokenizerStage(folder).process(DocumentBatch({"text": TEXTS}))
    for stage in (SentenceTransformerEmbeddingModelStage(folder), EmbeddingModelStage(folder)):
        made = stage.process(tokens)
        assert np.array(made["embeddings"].to_pylist()) == pytest.approx(
            vectors_of(EmbeddingCreatorStage(folder)), abs=1e-4
        )
        assert made.get_columns() == ["text", "embeddings"]


def test_code_of_a_model_runs_only_if_it_is_trusted(tmp_path: Path) -> None:
    """Issue 13: there was no way to say so."""
    save_model(tmp_path / "own", "bert")
    expected = vectors_of(EmbeddingCreatorStage(str(tmp_path / "own")))
    config = json.loads((tmp_path / "own" / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig", "AutoModel": "own.OwnModel"}}
    (tmp_path / "own" / "config.json").write_text(json.dumps(config))
    (tmp_path / "own" / "own.py").write_text(
        "from transformers import BertConfig, BertModel\n\n\n"
        "class OwnConfig(BertConfig):\n    model_type = 'own'\n\n\n"
        "class OwnModel(BertModel):\n    config_class = OwnConfig\n"
    )
    with pytest.raises(ModelError, match="trust_remote_code"):
        vectors_of(EmbeddingCreatorStage(str(tmp_path / "own")))
    trusted = EmbeddingCreatorStage(str(tmp_path / "own"), transformers_init_kwargs={"trust_remote_code": True})
    assert least_cosine(vectors_of(trusted), expected) > 0.9999


def test_steps_that_tamis_does_not_have_are_named(tmp_path: Path) -> None:
    folder = save_sentence_model(tmp_path, "bert", "mean")
    steps = [*json.loads((folder / "modules.json").read_text()), {"idx": 3, "path": "3_CNN", "type": "models.CNN"}]
    (folder / "modules.json").write_text(json.dumps(steps))
    with pytest.raises(ModelError, match="a step 'CNN'"):
        vectors_of(EmbeddingCreatorStage(str(folder)))


def test_rows_whose_vector_is_not_finite_are_set_aside(tmp_path: Path) -> None:
    folder = save_sentence_model(tmp_path / "model", "bert", "mean")
    weights = safetensors.load_file(folder / "model.safetensors")
    tokenizer = load_tokenizer(str(folder))
    (token,) = tokenizer.encode_column(pa.array(["42"])).to_pylist()[0]
    weights["embeddings.word_embeddings.weight"][token] = np.nan
    safetensors.save_file(weights, folder / "model.safetensors")
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    stages = [JsonlReader(str(rows)), EmbeddingCreatorStage(str(folder)), ParquetWriter(str(tmp_path / "out"))]
    result = Pipeline("embed", stages=stages).run(
        LocalExecutor(2), run_dir=str(tmp_path / "run"), progress="off", failure_budget=1
    )
    (failed,) = result.failures
    assert "not numbers" in str(failed)
    written = pq.read_table(next((tmp_path / "out").glob("*.parquet")))
    assert written["text"].to_pylist() == [text for text in TEXTS if "42" not in text]


def test_a_mistake_in_a_parameter_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="only 'trust_remote_code' and 'revision' have an effect"):
        EmbeddingCreatorStage("a/b", transformers_init_kwargs={"torch_dtype": "float16"})
    with pytest.raises(ValueError, match="pooling 'median'"):
        EmbeddingCreatorStage("a", embedding_pooling="median")
    with pytest.raises(ValueError, match="batch_tokens=0"):
        EmbeddingCreatorStage("a", batch_tokens=0)
    with pytest.raises(ValueError, match="give 'auto', 'torch' or 'onnx'"):
        EmbeddingCreatorStage("a", backend="tensorflow")  # type: ignore[arg-type]
    assert "secret" not in repr(EmbeddingCreatorStage("a", hf_token="secret"))
