"""Layers in fewer steps compute what the network of transformers computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from small_encoders import save_model  # noqa: E402

from tamis.models.encoder import Encoder, _position_padding  # noqa: E402
from tamis.models.fused_layers import FusedLayers  # noqa: E402
from tamis.models.model import Model  # noqa: E402
from tamis.models.token_batches import TokenBatch, TokenRows  # noqa: E402


def batch() -> TokenBatch:
    lengths = np.array([7, 1, 30, 2])
    ids = np.random.default_rng(1).integers(5, 60, lengths.sum()).astype(np.int32)
    return TokenBatch.of(TokenRows(ids, np.concatenate([[0], np.cumsum(lengths)])), "cpu")


@pytest.mark.parametrize(("kind", "more"), [("bert", {}), ("roberta", {}), ("bert", {"hidden_act": "relu"})])
def test_states_are_those_of_the_network(tmp_path: Path, kind: str, more: dict[str, Any]) -> None:
    encoder = Encoder(Model(str(save_model(tmp_path, kind, **more))), "cpu")
    expected = encoder(batch())
    plain = transformers.AutoModel.from_pretrained(tmp_path).eval()  # its weights are not packed
    with torch.inference_mode():
        found = FusedLayers(plain, _position_padding(plain))(batch())
    assert torch.allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["distilbert", "qwen3", "modernbert"])
def test_a_network_that_is_built_otherwise_is_refused(tmp_path: Path, kind: str) -> None:
    plain = transformers.AutoModel.from_pretrained(save_model(tmp_path, kind))
    with pytest.raises(AttributeError):
        FusedLayers(plain)


def test_on_a_cpu_the_layers_of_transformers_are_used(tmp_path: Path) -> None:
    assert not Encoder(Model(str(save_model(tmp_path))), "cpu").is_fused
