"""Classifiers on a real GPU say what they say on a CPU, within 16 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tamis.core import host
from tamis.models.model import Model

pytestmark = pytest.mark.skipif(not host.gpus(), reason="this machine has no NVIDIA GPU")

torch = pytest.importorskip("torch")
small_models = pytest.importorskip("small_models")


def batches(folder: Path) -> tuple[Any, Any]:
    """The rows of the texts, on the CPU and on the GPU."""
    rows = small_models.tokens_of(folder)
    return small_models.batch_of(rows), small_models.batch_of(rows, "cuda")


@pytest.mark.parametrize(("dtype", "tolerance"), [("auto", 0.3), ("float32", 0.01)])
@pytest.mark.parametrize("kind", ["published", "Bert", "Roberta", "DebertaV2", "Llama"])
def test_scores_on_a_gpu_are_those_of_the_cpu(tmp_path: Path, kind: str, dtype: str, tolerance: float) -> None:
    from tamis.models.classification import load_classifier

    if kind == "published":
        small_models.save_labelled(tmp_path / "m", ["a", "b"])
    else:
        small_models.save_sequence_classifier(tmp_path / "m", kind, outputs=2)
    on_cpu, on_gpu = batches(tmp_path / "m")
    model = Model(str(tmp_path / "m"))
    expected = load_classifier(model, "cpu")(on_cpu)
    made = load_classifier(model, "cuda", dtype)(on_gpu).cpu()
    assert made.dtype == torch.float32
    assert (made - expected).abs().max() < tolerance * expected.abs().max()


def test_guards_run_on_a_gpu(tmp_path: Path) -> None:
    from tamis.models.guard import load_answerer, load_state_judge

    small_models.save_language_model(tmp_path / "base")
    small_models.save_adapter(tmp_path / "adapter")
    small_models.save_judge(tmp_path / "judge")
    base, adapter, judge = (Model(str(tmp_path / name)) for name in ("base", "adapter", "judge"))
    on_cpu, on_gpu = batches(tmp_path / "base")
    one = load_answerer(base, adapter, "cpu")
    other = load_answerer(base, adapter, "cuda", "float32")
    one.max_new_tokens = other.max_new_tokens = 4
    assert other(on_gpu) == one(on_cpu)
    expected = load_state_judge(base, adapter, judge, "cpu")(on_cpu)
    made = load_state_judge(base, adapter, judge, "cuda")(on_gpu).cpu()
    assert (made - expected).abs().max() < 0.1
