"""Models on a real GPU: the vectors of the CPU, without padding, and memory that runs out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from small_encoders import KINDS, TEXTS, save_model  # noqa: E402

from tamis.models.encoder import Encoder  # noqa: E402
from tamis.models.model import Model  # noqa: E402
from tamis.models.token_batches import TokenBatch  # noqa: E402
from tamis.stages.resources import Resources  # noqa: E402
from tamis.stages.text.embedders import EmbeddingCreatorStage  # noqa: E402
from tamis.stages.text.models.model import ModelStage  # noqa: E402
from tamis.tasks import DocumentBatch  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no NVIDIA GPU")


def vectors(folder: Path, **settings: Any) -> Any:
    stage = EmbeddingCreatorStage(str(folder), normalize=True, **settings)
    return np.array(stage.process(DocumentBatch({"text": TEXTS}))["embeddings"].to_pylist())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_vectors_are_those_of_the_cpu(tmp_path: Path, kind: str, dtype: str) -> None:
    # Attention without padding wants heads of a size that is a multiple of 8.
    folder = save_model(
        tmp_path, kind, **({} if kind == "distilbert" else {"hidden_size": 64, "num_attention_heads": 4})
    )
    on_cpu = vectors(folder, resources=Resources(cpus=1))
    cosine = (vectors(folder, dtype=dtype) * on_cpu).sum(axis=1)
    assert cosine.min() > (0.999 if dtype == "auto" else 0.9999)


@pytest.mark.parametrize("kind", ["bert", "roberta", "qwen3"])
def test_rows_are_not_padded(tmp_path: Path, kind: str) -> None:
    folder = save_model(tmp_path, kind, hidden_size=64, num_attention_heads=4)
    assert not Encoder(Model(str(folder)), "cuda").is_padded


class Hungry(ModelStage):
    """Takes as much memory as the card has for more than some tokens."""

    def infer(self, tokens: TokenBatch) -> Mapping[str, Any]:
        if len(tokens.ids) > 100:
            torch.empty(2**50, dtype=torch.uint8, device="cuda")
        return {"tokens": tokens.offsets.diff()}


def test_batches_are_halved_until_they_fit(tmp_path: Path) -> None:
    stage = Hungry(str(save_model(tmp_path)))
    made = stage.process(DocumentBatch({"text": TEXTS * 20}))
    assert made["tokens"].null_count == 0
    assert stage.take_metrics()["batches_too_large"] > 0
