"""Vectors from ONNX Runtime equal those from PyTorch."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
pytest.importorskip("transformers")

from small_encoders import TEXTS, save_model  # noqa: E402

from tamis.errors import ModelError  # noqa: E402
from tamis.models.model import Model  # noqa: E402
from tamis.models.onnx_encoder import OnnxEncoder  # noqa: E402
from tamis.models.sentence_layout import POOLINGS, SentenceLayout, Step  # noqa: E402
from tamis.models.token_batches import TokenBatch, TokenRows  # noqa: E402
from tamis.stages.text.embedders import EmbeddingCreatorStage  # noqa: E402
from tamis.tasks import DocumentBatch  # noqa: E402


def export(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write ``model.onnx`` beside the weights, by the exporter that needs no other package."""
    from torch.onnx._internal.torchscript_exporter import onnx_proto_utils
    from transformers import AutoModel

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.network(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    names = ["input_ids", "attention_mask"]
    axes = {name: {0: "rows", 1: "tokens"} for name in [*names, "last_hidden_state"]}
    sample = torch.ones(2, 5, dtype=torch.long)
    # It asks the package onnx for functions of the user's own, of which there are none here.
    monkeypatch.setattr(onnx_proto_utils, "_add_onnxscript_fn", lambda proto, _: proto)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            States(),
            (sample, sample),
            str(folder / "model.onnx"),
            input_names=names,
            output_names=["last_hidden_state"],
            dynamic_axes=axes,
            dynamo=False,
        )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_model(tmp_path / "model")
    export(tmp_path / "model", monkeypatch)
    return tmp_path / "model"


def test_vectors_are_those_of_pytorch(folder: Path) -> None:
    batch = DocumentBatch({"text": [*TEXTS, None]})
    by_torch = EmbeddingCreatorStage(str(folder), normalize=True).process(batch)["embeddings"].to_pylist()
    by_onnx = (
        EmbeddingCreatorStage(str(folder), normalize=True, backend="onnx").process(batch)["embeddings"].to_pylist()
    )
    assert by_torch.pop() is by_onnx.pop() is None
    assert np.array(by_onnx) == pytest.approx(np.array(by_torch), abs=1e-4)


def test_a_folder_with_nothing_else_is_run_by_it(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "onnx").mkdir()
    shutil.move(folder / "model.onnx", folder / "onnx" / "model.onnx")
    stage = EmbeddingCreatorStage(str(folder))
    assert stage.process(DocumentBatch({"text": ["a"]}))["embeddings"].null_count == 0
    assert not stage.wants_tensors


def test_poolings_and_steps_are_those_of_pytorch(folder: Path) -> None:
    from tamis.models.sentence_encoder import SentenceEncoder

    rng = np.random.default_rng(0)
    sizes = 32 * len(POOLINGS)
    dense = {
        "linear.weight": rng.normal(size=(8, sizes)).astype(np.float32),
        "linear.bias": rng.normal(size=8).astype(np.float32),
        "residual.weight": rng.normal(size=(8, sizes)).astype(np.float32),
    }
    norm = {"norm.weight": np.full(8, 2, np.float32), "norm.bias": np.arange(8, dtype=np.float32)}
    steps = (Step("dense", dense, "Tanh", has_residual=True), Step("norm", norm), Step("normalize"))
    layout = SentenceLayout(str(folder), POOLINGS, steps)
    lengths = np.array([4, 1, 9])
    rows = TokenRows(rng.integers(5, 200, 14).astype(np.int32), np.concatenate([[0], np.cumsum(lengths)]))
    by_torch = SentenceEncoder(Model(str(folder)), layout, "cpu")(TokenBatch.of(rows, "cpu"))
    assert OnnxEncoder(Model(str(folder)), layout)(rows) == pytest.approx(by_torch.numpy(), abs=1e-4)


def test_a_missing_or_damaged_file_is_a_clear_error(folder: Path) -> None:
    layout = SentenceLayout(str(folder))
    (folder / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"model\.onnx cannot be loaded"):
        OnnxEncoder(Model(str(folder)), layout)
    (folder / "model.onnx").unlink()
    with pytest.raises(ModelError, match="use backend='torch'"):
        OnnxEncoder(Model(str(folder)), layout)
