"""Vectors of static models are those of the libraries that publish them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from tamis.errors import MissingExtraError, ModelError
from tamis.models import static
from tamis.stages.text.embedders import StaticEmbeddingStage
from tamis.stages.vectors import vectors_of
from tamis.tasks import DocumentBatch

TEXTS = [
    "The city council met on Tuesday.",
    "",
    None,
    "Größe, 日本語 \U0001f600 and\nlines",
    "one two three " * 300,
    "zwei",
    "...",
]


def embedded(stage: StaticEmbeddingStage, texts: list[str | None] = TEXTS) -> tuple[np.ndarray, np.ndarray]:
    return vectors_of(stage.process(DocumentBatch({"text": texts})).data["embeddings"], "embeddings")


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)


def save_model2vec(folder: Path, **changes: object) -> str:
    """A small model in the layout of model2vec."""
    from model2vec import StaticModel

    words = ["[UNK]", "the", "city", "council", "met", "one", "two", "three", "zwei", "lines", "and", "\U0001f600"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    vectors = np.random.default_rng(1).standard_normal((len(words), 24)).astype(np.float32)
    StaticModel(vectors, tokenizer, **changes).save_pretrained(folder)
    return str(folder)


def test_wordllama_gives_the_vectors_of_the_library() -> None:
    import wordllama

    library = wordllama.WordLlama.load(cache_dir=os.path.dirname(wordllama.__file__), disable_download=True)
    vectors, missing = embedded(StaticEmbeddingStage())
    assert missing.tolist() == [text in ("", None) for text in TEXTS]
    expected = library.embed([text for text in TEXTS if text], norm=True)
    assert cosines(vectors[~missing], expected).min() > 0.99999
    assert np.allclose(np.linalg.norm(vectors[~missing], axis=1), 1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"normalize": True},
        {"max_length": 5},
        {"max_length": None},
        {"weights": np.linspace(0.1, 2, 12).astype(np.float32)},
        {"weights": np.linspace(0.1, 2, 12).astype(np.float32), "token_mapping": np.arange(12)[::-1].copy()},
    ],
    ids=str,
)
def test_model2vec_gives_the_vectors_of_the_library(tmp_path: Path, changes: dict[str, object]) -> None:
    from model2vec import StaticModel

    folder = save_model2vec(tmp_path, **changes)
    expected = StaticModel.from_pretrained(folder).encode([text or "" for text in TEXTS], normalize=True)
    vectors, missing = embedded(StaticEmbeddingStage(folder))
    assert missing.tolist() == (~expected.any(axis=1)).tolist()
    assert cosines(vectors[~missing], expected[~missing]).min() > 0.99999


def test_vectors_that_are_not_scaled_are_means(tmp_path: Path) -> None:
    from model2vec import StaticModel

    folder = save_model2vec(tmp_path)
    vectors, _ = embedded(StaticEmbeddingStage(folder, normalize=False))
    assert np.allclose(vectors, StaticModel.from_pretrained(folder).encode([t or "" for t in TEXTS]), atol=1e-6)


def test_a_static_embedding_of_sentence_transformers(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    save_model2vec(tmp_path / "source")
    tokenizer = Tokenizer.from_file(str(tmp_path / "source" / "tokenizer.json"))
    weights = np.random.default_rng(2).standard_normal((12, 8)).astype(np.float32)
    library = SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu", similarity_fn_name="cosine"
    )
    library.save(str(tmp_path / "model"))
    texts = ["the city met", "one two unheard"]  # the unknown word counts, other than with model2vec
    vectors, missing = embedded(StaticEmbeddingStage(str(tmp_path / "model")), texts)
    assert not missing.any()
    assert cosines(vectors, library.encode(texts)).min() > 0.99999


def test_the_first_entries_alone() -> None:
    whole, _ = embedded(StaticEmbeddingStage(normalize=False), ["a small text"])
    first, _ = embedded(StaticEmbeddingStage(dim=64, normalize=False), ["a small text"])
    assert first.tolist() == whole[:, :64].tolist()
    with pytest.raises(ValueError, match="not between 1 and 256"):
        embedded(StaticEmbeddingStage(dim=300))


def test_a_limit_of_tokens(tmp_path: Path) -> None:
    folder = save_model2vec(tmp_path)
    texts = ["one two three city", "one two"]
    limited, _ = embedded(StaticEmbeddingStage(folder, max_seq_length=2), texts)
    assert limited[0].tolist() == limited[1].tolist()


def test_folders_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no model folder"):
        StaticEmbeddingStage(str(tmp_path / "missing")).setup()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"has no static vectors: there is no model.safetensors"):
        StaticEmbeddingStage(str(tmp_path / "empty")).setup()


def test_damaged_models(tmp_path: Path) -> None:
    folder = Path(save_model2vec(tmp_path / "whole"))
    shutil.copytree(folder, cut := tmp_path / "cut")
    weights = (folder / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(weights[:-10])
    with pytest.raises(ModelError, match="damaged or cut off"):
        StaticEmbeddingStage(str(cut)).setup()
    shutil.copytree(folder, more := tmp_path / "more")
    described = json.loads((more / "tokenizer.json").read_text())
    described["model"]["vocab"]["surplus"] = 12
    (more / "tokenizer.json").write_text(json.dumps(described))
    with pytest.raises(ModelError, match="12 vectors for 13 tokens"):
        StaticEmbeddingStage(str(more)).setup()


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"static-embeddings"):
        StaticEmbeddingStage().setup()


def test_parameters_that_cannot_be() -> None:
    for wrong in ({"dim": 0}, {"max_seq_length": 0}):
        with pytest.raises(ValueError, match="must be at least 1"):
            StaticEmbeddingStage(**wrong)
    with pytest.raises(ValueError, match="the column with the text"):
        StaticEmbeddingStage(embedding_field="text")
