"""Heads on embeddings give what the published networks give, and rows are dropped by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import save_file  # noqa: E402
from small_vision_models import DIM, images, save_clip, save_open_clip  # noqa: E402
from torch import nn  # noqa: E402

from tamis import LocalExecutor, Pipeline  # noqa: E402
from tamis.errors import ModelError  # noqa: E402
from tamis.stages.image.embedders import ImageEmbeddingStage  # noqa: E402
from tamis.stages.image.filters import (  # noqa: E402
    ImageAestheticFilterStage,
    ImageNSFWFilterStage,
    ImageTextSimilarityFilter,
)
from tamis.stages.io import ParquetReader, ParquetWriter  # noqa: E402
from tamis.tasks import ImageBatch  # noqa: E402


class Aesthetic(nn.Module):
    """The published predictor."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(768, 1024),
            nn.Dropout(0.2),
            nn.Linear(1024, 128),
            nn.Dropout(0.2),
            nn.Linear(128, 64),
            nn.Dropout(0.1),
            nn.Linear(64, 16),
            nn.Linear(16, 1),
        )

    def forward(self, vectors: Any) -> Any:
        return self.layers(vectors)[:, 0]


class Detector(nn.Module):
    """The published detector, as it is converted to PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.Module()
        self.norm.register_buffer("mean", torch.randn(768) * 0.01)
        self.norm.register_buffer("variance", torch.rand(768) * 0.001 + 0.0005)
        widths = (768, 64, 512, 256, 1)
        for number in range(1, 5):
            self.add_module(f"linear_{number}", nn.Linear(widths[number - 1], widths[number]))

    def forward(self, vectors: Any) -> Any:
        values = (vectors - self.norm.mean) / self.norm.variance.sqrt()
        for number in range(1, 4):
            values = getattr(self, f"linear_{number}")(values).relu()
        return self.linear_4(values).sigmoid()[:, 0]


@pytest.fixture(scope="module")
def aesthetic(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Aesthetic]:
    torch.manual_seed(1)
    folder, network = tmp_path_factory.mktemp("aesthetic"), Aesthetic().eval()
    with torch.no_grad():
        network.layers[7].weight.mul_(20)
        network.layers[7].bias += 0.5 - float(np.median(expected(network, embedded())))
    save_file(network.state_dict(), folder / "model.safetensors")
    return folder, network


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Detector]:
    torch.manual_seed(2)
    folder, network = tmp_path_factory.mktemp("nsfw"), Detector().eval()
    with torch.no_grad():
        network.linear_4.weight.mul_(20)
        network.linear_4.bias -= float(np.median(torch.logit(torch.tensor(expected(network, embedded())))))
    save_file(network.state_dict(), folder / "clip_autokeras_binary_nsfw.safetensors")
    return folder, network


def embedded(rows: int = 60) -> ImageBatch:
    vectors = torch.nn.functional.normalize(torch.randn(rows, 768, generator=torch.Generator().manual_seed(3)))
    return ImageBatch({"id": list(range(rows)), "image_embedding": vectors.numpy().tolist()})


def expected(network: Any, batch: ImageBatch) -> Any:
    with torch.inference_mode():
        return network(torch.tensor(batch["image_embedding"].to_pylist())).numpy()


def test_aesthetic_scores_are_those_of_the_published_network(aesthetic: tuple[Path, Aesthetic]) -> None:
    scores = expected(aesthetic[1], embedded())
    made = ImageAestheticFilterStage(str(aesthetic[0]), score_threshold=-100).process(embedded())
    assert np.allclose(made["aesthetic_score"].to_numpy(), scores, atol=1e-5)


def test_images_with_the_threshold_and_more_are_kept(aesthetic: tuple[Path, Aesthetic]) -> None:
    scores = expected(aesthetic[1], embedded())
    made = ImageAestheticFilterStage(str(aesthetic[0])).process(embedded())
    assert 0 < made.num_items < 60
    assert made["id"].to_pylist() == np.flatnonzero(scores >= 0.5).tolist()
    (dropped,) = made.dropped
    assert dropped.reason == "aesthetic_score < 0.5"
    assert np.allclose(dropped.scores.to_numpy(), scores[scores < 0.5], atol=1e-5)


def test_nsfw_scores_are_those_of_the_published_network(detector: tuple[Path, Detector]) -> None:
    scores = expected(detector[1], embedded())
    made = ImageNSFWFilterStage(str(detector[0])).process(embedded())
    assert scores.min() < 0.3 < 0.7 < scores.max()
    assert made["id"].to_pylist() == np.flatnonzero(scores < 0.5).tolist()
    assert np.allclose(made["nsfw_score"].to_numpy(), scores[scores < 0.5], atol=1e-5)
    assert made.dropped[0].reason == "nsfw_score >= 0.5"


@pytest.mark.parametrize("style", ["model/dense_{}/kernel:0", "dense_{}.kernel"])
def test_weights_of_keras_give_the_same_scores(detector: tuple[Path, Detector], tmp_path: Path, style: str) -> None:
    network = detector[1]
    norm = "model/normalization/{}:0" if style.startswith("model") else "normalization.{}"
    tensors = {norm.format(name): getattr(network.norm, name)[None].contiguous() for name in ("mean", "variance")}
    for number in range(1, 5):
        name = style.format(number - 1).replace("dense_0", "dense")
        layer = getattr(network, f"linear_{number}")
        tensors[name] = layer.weight.T.contiguous()
        tensors[name.replace("kernel", "bias")] = layer.bias
    save_file({name: tensor.detach() for name, tensor in tensors.items()}, tmp_path / "keras.safetensors")
    made = ImageNSFWFilterStage(weights_path=str(tmp_path / "keras.safetensors"), score_threshold=2).process(embedded())
    assert np.allclose(made["nsfw_score"].to_numpy(), expected(network, embedded()), atol=1e-5)


def test_pickled_weights_are_read_only_if_allowed(detector: tuple[Path, Detector], tmp_path: Path) -> None:
    below = tmp_path / "laion" / "clip-autokeras-binary-nsfw"
    below.mkdir(parents=True)
    torch.save(detector[1].state_dict(), below / "clip_autokeras_binary_nsfw.pth")
    with pytest.raises(ModelError, match="is a pickled file, which could run any code"):
        ImageNSFWFilterStage(str(tmp_path)).process(embedded())
    made = ImageNSFWFilterStage(str(tmp_path), allow_pickle=True, score_threshold=2).process(embedded())
    assert np.allclose(made["nsfw_score"].to_numpy(), expected(detector[1], embedded()), atol=1e-5)


def test_embeddings_of_another_length_are_refused(aesthetic: tuple[Path, Aesthetic]) -> None:
    with pytest.raises(ModelError, match="have 2 numbers, and the weights take 768"):
        ImageAestheticFilterStage(str(aesthetic[0])).process(ImageBatch({"image_embedding": [[0.0, 1.0]]}))


def test_rows_without_an_embedding_are_dropped_with_that_reason(aesthetic: tuple[Path, Aesthetic]) -> None:
    vectors = [None, *embedded(2)["image_embedding"].to_pylist()]
    made = ImageAestheticFilterStage(str(aesthetic[0]), score_threshold=-9).process(
        ImageBatch({"image_embedding": vectors})
    )
    assert (made.num_items, made.dropped[0].reason) == (2, "no image_embedding")
    none = ImageAestheticFilterStage(str(aesthetic[0])).process(ImageBatch({"image_embedding": [None]}))
    assert none.num_items == 0


def test_missing_weights_say_where_they_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="LAION-AI/CLIP-based-NSFW-Detector on GitHub"):
        ImageNSFWFilterStage(str(tmp_path)).process(embedded(1))
    with pytest.raises(ModelError, match="there is no file of weights"):
        ImageNSFWFilterStage(weights_path=str(tmp_path / "none.safetensors")).process(embedded(1))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="`tamis models fetch ttj/sac-logos-ava1-l14-linearMSE` fetches it"):
        ImageAestheticFilterStage(str(tmp_path)).process(embedded(1))


def test_weights_of_another_network_are_refused(aesthetic: tuple[Path, Aesthetic], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"neither linear_1\.weight"):
        ImageNSFWFilterStage(weights_path=str(aesthetic[0] / "model.safetensors")).process(embedded(1))
    save_file({"a": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match="does not end in a layer with one output; it has a"):
        ImageAestheticFilterStage(str(tmp_path)).process(embedded(1))


def test_thresholds_can_be_changed_after_a_run(
    aesthetic: tuple[Path, Aesthetic], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    pq.write_table(embedded().data, "in.parquet")

    def pipeline(threshold: float, output: str) -> Pipeline:
        stage = ImageAestheticFilterStage(str(aesthetic[0]), score_threshold=threshold)
        return Pipeline("x", stages=[ParquetReader("in.parquet"), stage, ParquetWriter(output)])

    before = pipeline(0.5, "out")
    result = before.run(LocalExecutor(1), progress="off", run_dir="run")
    assert [drop["reason"] for drop in result.drops().to_pylist()][:1] == ["aesthetic_score < 0.5"]
    changed = before.rethreshold("run", pipeline(0.49, "changed"))
    scores = expected(aesthetic[1], embedded())
    rows = pq.read_table("changed/part-000000.parquet")
    assert rows["id"].to_pylist() == np.flatnonzero(scores >= 0.49).tolist()
    assert changed.newly_kept > 0


@pytest.mark.parametrize("kind", ["clip", "siglip", "open_clip"])
def test_similarity_is_the_cosine_of_both_towers(tmp_path: Path, kind: str) -> None:
    captions = ["the quick brown fox", "a package manager installs programs", "x", None, "the lazy dog " * 40]
    network = save_open_clip(tmp_path) if kind == "open_clip" else save_clip(tmp_path, kind)
    batch = ImageEmbeddingStage(str(tmp_path)).process(images()).with_column("caption", captions)
    made = ImageTextSimilarityFilter(str(tmp_path), min_score=-1).process(batch)
    assert made.dropped[0].reason == "no caption"
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = [caption for caption in captions if caption is not None]
    padding = {"padding": "max_length"} if kind == "siglip" else {"padding": True}
    given = tokenizer(texts, return_tensors="pt", truncation=True, max_length=64, **padding)
    with torch.inference_mode():
        if kind == "open_clip":
            vectors = torch.cat([network.text(row[mask.bool()][None]) for row, mask in _rows(given)])
        elif kind == "siglip":
            vectors = network.get_text_features(input_ids=given["input_ids"])
        else:
            vectors = network.get_text_features(input_ids=given["input_ids"], attention_mask=given["attention_mask"])
        vectors = vectors if isinstance(vectors, torch.Tensor) else vectors.pooler_output
    cosine = torch.nn.functional.normalize(vectors).numpy() * np.array(made["image_embedding"].to_pylist())
    assert vectors.shape[1] == (32 if kind == "siglip" else DIM)
    assert np.allclose(made["image_text_similarity"].to_numpy(), cosine.sum(axis=1), atol=1e-5)


def _rows(given: Any) -> Any:
    return zip(given["input_ids"], given["attention_mask"], strict=True)


def test_captions_that_do_not_fit_are_dropped(tmp_path: Path) -> None:
    save_clip(tmp_path)
    batch = ImageEmbeddingStage(str(tmp_path)).process(images()).with_column("caption", ["fox", "dog", "x", "a", "y"])
    scores = ImageTextSimilarityFilter(str(tmp_path), min_score=-1).process(batch)["image_text_similarity"].to_numpy()
    limit = float(np.median(scores))
    made = ImageTextSimilarityFilter(str(tmp_path), min_score=limit).process(batch)
    assert made.num_items == (scores >= limit).sum()
    assert made.dropped[0].reason == f"image_text_similarity < {limit:g}"


def test_similarity_with_embeddings_of_another_model_is_refused(tmp_path: Path) -> None:
    save_clip(tmp_path)
    batch = ImageBatch({"caption": ["fox"], "image_embedding": [[0.0, 1.0]]})
    with pytest.raises(ModelError, match="have 2 numbers, and those of captions have 24"):
        ImageTextSimilarityFilter(str(tmp_path)).process(batch)
