"""Embeddings of images on a real GPU are those of the CPU, also when memory runs out, and from a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("PIL")

from small_vision_models import images, save_clip, save_open_clip  # noqa: E402

from tamis import LocalExecutor, Pipeline  # noqa: E402
from tamis.models.image_encoder import ImageEncoder, ImageRows  # noqa: E402
from tamis.models.model import Model  # noqa: E402
from tamis.stages.image.embedders import ImageEmbeddingStage  # noqa: E402
from tamis.stages.image.filters import ImageTextSimilarityFilter  # noqa: E402
from tamis.stages.resources import Resources  # noqa: E402
from tamis.tasks import ImageBatch  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no NVIDIA GPU")


def saved(folder: Path, kind: str) -> str:
    if kind == "open_clip":
        save_open_clip(folder)
    else:
        save_clip(folder, kind)
    return str(folder)


def vectors(batch: ImageBatch, folder: str, **settings: Any) -> Any:
    return np.array(ImageEmbeddingStage(folder, **settings).process(batch)["image_embedding"].to_pylist())


def on_cpu(batch: ImageBatch, folder: str) -> Any:
    encoder = ImageEncoder(Model(folder), "cpu")
    squares = np.stack(list(batch.squares(encoder.preprocessing.height)))
    if not encoder.preprocessing.is_square_crop:
        squares = np.stack([encoder.preprocessing.fitted(pixels) for pixels in batch.pixels()])
    return encoder(ImageRows(squares, np.ones(len(squares), np.bool_))).numpy()


@pytest.mark.parametrize(("dtype", "least"), [("auto", 0.999), ("float16", 0.999), ("float32", 0.9999)])
@pytest.mark.parametrize("kind", ["clip", "siglip", "open_clip"])
def test_vectors_are_those_of_the_cpu(tmp_path: Path, kind: str, dtype: str, least: float) -> None:
    folder = saved(tmp_path, kind)
    made = vectors(images(), folder, dtype=dtype)
    assert (made * on_cpu(images(), folder)).sum(axis=1).min() > least


def test_many_batches_in_flight_do_not_mix(tmp_path: Path) -> None:
    folder = saved(tmp_path, "clip")
    few = images(7)
    many = ImageBatch.concat([few] * 40)
    made = vectors(many, folder, dtype="float32", model_inference_batch_size=16)
    assert (made * np.tile(on_cpu(few, folder), (40, 1))).sum(axis=1).min() > 0.9999


def test_a_pipeline_embeds_on_the_gpu(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m", "clip")
    stage = ImageEmbeddingStage(folder, num_gpus_per_worker=0.5)
    result = Pipeline("embed", stages=[stage]).run(
        LocalExecutor(2), initial_tasks=[images(5).named("a"), images(3).named("b")], progress="off"
    )
    made = np.concatenate([np.array(task["image_embedding"].to_pylist()) for task in result])
    expected = on_cpu(images(5), folder)
    assert (made * np.concatenate([expected, expected[:3]])).sum(axis=1).min() > 0.999


def test_batches_are_halved_until_they_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = saved(tmp_path, "clip")
    compute = ImageEncoder.__call__

    def hungry(encoder: ImageEncoder, rows: ImageRows) -> Any:
        if len(rows) > 3:
            torch.empty(2**50, dtype=torch.uint8, device="cuda")
        return compute(encoder, rows)

    monkeypatch.setattr(ImageEncoder, "__call__", hungry)
    stage = ImageEmbeddingStage(folder)
    assert stage.process(images(9))["image_embedding"].null_count == 0
    assert stage.take_metrics()["batches_too_large"] > 0


@pytest.mark.parametrize("kind", ["clip", "siglip", "open_clip"])
def test_similarity_is_that_of_the_cpu(tmp_path: Path, kind: str) -> None:
    folder = saved(tmp_path, kind)
    batch = images().with_column("image_embedding", on_cpu(images(), folder).tolist())
    batch = batch.with_column("caption", ["the lazy dog", "x", "a package manager", "fox", "two x"])
    expected = ImageTextSimilarityFilter(folder, min_score=-1, resources=Resources(cpus=1)).process(batch)
    made = ImageTextSimilarityFilter(folder, min_score=-1).process(batch)
    difference = made["image_text_similarity"].to_numpy() - expected["image_text_similarity"].to_numpy()
    assert np.abs(difference).max() < 0.02
