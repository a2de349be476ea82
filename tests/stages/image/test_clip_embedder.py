"""Embeddings of images are those of transformers, and what goes wrong is said."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file  # noqa: E402
from small_vision_models import DIM, SIDE, encoded, images, reference, save_clip, save_open_clip, save_open_clip_siglip  # noqa: E402

from tamis import LocalExecutor, Pipeline  # noqa: E402
from tamis.errors import ModelError  # noqa: E402
from tamis.models.image_encoder import ImageEncoder, ImageRows  # noqa: E402
from tamis.models.model import Model  # noqa: E402
from tamis.stages.image.embedders import ImageEmbeddingStage  # noqa: E402
from tamis.stages.resources import Resources  # noqa: E402
from tamis.tasks import ImageBatch  # noqa: E402

KINDS = ["clip", "clip vision", "clip tower", "siglip", "siglip vision"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    made = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp("models") / kind
        made[kind] = (folder, save_clip(folder, kind))
    return made


def vectors(batch: ImageBatch, folder: Path | str, **settings: Any) -> Any:
    made = ImageEmbeddingStage(str(folder), **settings).process(batch)
    return np.array(made["image_embedding"].to_pylist())


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_transformers(models: dict[str, tuple[Path, Any]], kind: str) -> None:
    folder, network = models[kind]
    expected = reference(network, kind, images())
    made = vectors(images(), folder)
    assert (made * expected).sum(axis=1).min() > 0.99999
    assert np.allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)
    others = made @ made.T - np.eye(len(made))
    assert others.max() < 0.9999  # the images are told apart


def test_vectors_do_not_depend_on_the_batch(models: dict[str, tuple[Path, Any]]) -> None:
    whole = vectors(images(11), models["clip"][0])
    cut = vectors(images(11), models["clip"][0], model_inference_batch_size=2)
    assert (whole * cut).sum(axis=1).min() > 0.99999


def test_a_folder_of_open_clip_gives_the_vectors_of_its_network(tmp_path: Path) -> None:
    network = save_open_clip(tmp_path)
    made = vectors(images(), tmp_path)
    mean, std = torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1), torch.tensor([0.2, 0.25, 0.3]).view(3, 1, 1)
    pixels = []
    for data in images()["image_bytes"].to_pylist():
        picture = Image.open(BytesIO(data)).convert("RGB")
        factor = SIDE / min(picture.size)
        width, height = (max(SIDE, int(side * factor + 1e-9)) for side in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BICUBIC)
        left, top = (width - SIDE) // 2, (height - SIDE) // 2
        cut = np.array(picture.crop((left, top, left + SIDE, top + SIDE)))
        pixels.append((torch.from_numpy(cut).permute(2, 0, 1) / 255 - mean) / std)
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(network.visual(torch.stack(pixels))).numpy()
    assert (made * expected).sum(axis=1).min() > 0.99999


def test_a_siglip_of_open_clip_gives_the_vectors_of_its_network(tmp_path: Path) -> None:
    network = save_open_clip_siglip(tmp_path)
    made = vectors(images(), tmp_path)
    pixels = []
    for data in images()["image_bytes"].to_pylist():
        picture = Image.open(BytesIO(data)).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        pixels.append((torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255 - 0.5) / 0.5)
    with torch.inference_mode():
        expected = torch.nn.functional.normalize(network(torch.stack(pixels))).numpy()
    assert np.abs(made - expected).max() < 1e-5


def test_an_open_clip_model_of_another_network_is_refused(tmp_path: Path) -> None:
    save_open_clip(tmp_path)
    config = json.loads((tmp_path / "open_clip_config.json").read_text())
    config["model_cfg"]["vision_cfg"] = {"timm_model_name": "vit_tiny_patch16_224"}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="vision_cfg has timm_model_name"):
        vectors(images(), tmp_path)


def test_weights_that_are_lacking_are_not_made_up(models: dict[str, tuple[Path, Any]], tmp_path: Path) -> None:
    for file in models["clip"][0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    weights.pop("visual_projection.weight")
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"lack 1 weights, such as visual_projection\.weight"):
        vectors(images(), tmp_path)


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_jpeg_decoded_at_a_smaller_scale_has_almost_the_same_vector(
    models: dict[str, tuple[Path, Any]], kind: str
) -> None:
    large = ImageBatch({"image_bytes": [encoded(n, 480, 640) for n in range(4)]})
    exact, scaled = (vectors(large, models[kind][0], exact_pixels=each) for each in (True, False))
    assert (exact != scaled).any()
    assert (exact * scaled).sum(axis=1).min() > 0.999


def test_rows_are_taken_from_pieces_as_from_a_whole() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 2, 2, 3)).astype(np.uint8)
    chunks = [
        pa.array([each.tobytes() for each in part], pa.binary(12)) for part in (pixels[:4], pixels[4:4], pixels[4:])
    ]
    rows = ImageRows.of(pa.chunked_array(chunks), 2, 2)
    for chosen in ([0, 1], [3, 4, 5], [4, 5, 6, 7, 8], list(range(9)), [8, 2, 3], [5]):
        assert np.array_equal(rows.take(np.array(chosen)).pixels, pixels[chosen])
        target = np.zeros((9, 2, 2, 3), np.uint8)
        rows.take(np.array(chosen)).write_into(target)
        assert np.array_equal(target[: len(chosen)], pixels[chosen])


def test_a_row_without_an_image_has_null(models: dict[str, tuple[Path, Any]]) -> None:
    batch = ImageBatch({"image_bytes": pa.array([None, encoded(1), None], pa.large_binary())})
    made = ImageEmbeddingStage(str(models["clip"][0])).process(batch)
    assert made["image_embedding"].is_valid().to_pylist() == [False, True, False]
    none = ImageEmbeddingStage(str(models["clip"][0])).process(batch.select([0]))
    assert none.data.schema.field("image_embedding").type == pa.list_(pa.float32(), DIM)


def test_pixels_set_by_hand_and_files_are_embedded_as_well(models: dict[str, tuple[Path, Any]], tmp_path: Path) -> None:
    from tamis.tasks import ImageObject

    (tmp_path / "a.png").write_bytes(encoded(3, form="PNG"))
    pixels = np.array(Image.open(tmp_path / "a.png").convert("RGB"))
    batch = ImageBatch([ImageObject(str(tmp_path / "a.png")), ImageObject(image_data=pixels)])
    one, other = vectors(batch, models["clip"][0])
    assert one @ other > 0.999999


def test_images_are_taken_off_if_wanted(models: dict[str, tuple[Path, Any]]) -> None:
    made = ImageEmbeddingStage(str(models["clip"][0]), remove_image_data=True).process(images())
    assert made.get_columns() == ["image_id", "image_embedding"]


def test_broken_images_are_set_aside_alone(models: dict[str, tuple[Path, Any]], tmp_path: Path) -> None:
    rows = images(6).data
    data = rows["image_bytes"].to_pylist()
    data[2] = data[0][: len(data[0]) // 2]
    data[4] = b"no image at all"
    batch = ImageBatch({"image_id": rows["image_id"], "image_bytes": data}).named("shard")
    result = Pipeline("embed", stages=[ImageEmbeddingStage(str(models["clip"][0]))]).run(
        LocalExecutor(1), initial_tasks=[batch], progress="off", run_dir=str(tmp_path / "run"), failure_budget=None
    )
    assert [row for task in result for row in task["image_id"].to_pylist()] == ["0", "1", "3", "5"]
    problems = {f"{failed.source}:{failed.position}": failed.message for failed in result.failures}
    assert set(problems) == {"shard:2", "shard:4"}
    assert all("cannot be" in problem for problem in problems.values())


def test_numbers_that_are_not_finite_fail(models: dict[str, tuple[Path, Any]], tmp_path: Path) -> None:
    for file in models["clip"][0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = load_file(tmp_path / "model.safetensors")
    weights["visual_projection.weight"][0, 0] = float("nan")
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(FloatingPointError, match="'image_embedding' that are not numbers, for 5 of 5 rows"):
        vectors(images(), tmp_path)


def test_a_pipeline_gives_the_same_vectors(models: dict[str, tuple[Path, Any]]) -> None:
    batches = [images(4).named("a"), images(3).named("b")]
    stage = ImageEmbeddingStage(str(models["siglip"][0]))
    result = Pipeline("embed", stages=[stage]).run(LocalExecutor(2), initial_tasks=batches, progress="off")
    made = [task["image_embedding"].to_pylist() for task in result]
    assert [len(each) for each in made] == [4, 3]
    assert np.allclose(np.concatenate(made[:1]), vectors(images(4), models["siglip"][0]), atol=1e-6)
    assert "image_bytes" in result[0].get_columns()
    assert not any(name.startswith("_") for name in result[0].get_columns())


def test_without_a_gpu_both_halves_share_a_worker(models: dict[str, tuple[Path, Any]]) -> None:
    pixels, inference = ImageEmbeddingStage(str(models["clip"][0]), num_gpus_per_worker=0.5).unfold()
    assert (pixels.resources.gpus, inference.resources.gpus) == (0, 0.5)
    assert inference.batch_rows == 512
    assert inference.without_gpu().batch_rows is None


def test_where_the_model_is_looked_for(models: dict[str, tuple[Path, Any]], tmp_path: Path) -> None:
    below = tmp_path / "openai" / "clip-vit-large-patch14"
    below.parent.mkdir()
    below.symlink_to(models["clip"][0])
    assert len(vectors(images(1), tmp_path)[0]) == DIM
    assert ImageEmbeddingStage(str(tmp_path), model="google/siglip-base-patch16-224").source.cache_dir == str(tmp_path)


def test_a_missing_model_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="there is no model folder"):
        ImageEmbeddingStage(model=str(tmp_path / "nothing")).process(images())
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="does not say what images it takes"):
        ImageEmbeddingStage(model=str(tmp_path / "empty")).process(images())
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError, match="`tamis models fetch organisation/none` fetches it"):
        ImageEmbeddingStage(str(tmp_path / "empty"), model="organisation/none").process(images())


def test_a_model_of_another_kind_is_refused(models: dict[str, tuple[Path, Any]], tmp_path: Path) -> None:
    for file in models["clip"][0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelError, match="is of the kind 'bert'"):
        vectors(images(), tmp_path)


def test_preprocessing_for_another_size_is_refused(models: dict[str, tuple[Path, Any]], tmp_path: Path) -> None:
    for file in models["clip"][0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "preprocessor_config.json").read_text())
    config |= {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="sees images of 48 x 48 pixels, but its preprocessing makes 32 x 32"):
        vectors(images(), tmp_path)


def test_batches_are_halved_when_memory_runs_out(
    models: dict[str, tuple[Path, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = ImageEncoder.__call__

    def hungry(encoder: ImageEncoder, rows: ImageRows) -> Any:
        if len(rows) > 3:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return compute(encoder, rows)

    expected = vectors(images(9), models["clip"][0])
    monkeypatch.setattr(ImageEncoder, "__call__", hungry)
    stage = ImageEmbeddingStage(str(models["clip"][0]))
    made = np.array(stage.process(images(9))["image_embedding"].to_pylist())
    assert (made * expected).sum(axis=1).min() > 0.99999
    assert stage.take_metrics()["batches_too_large"] == 2


def test_tokens_are_in_no_report(models: dict[str, tuple[Path, Any]]) -> None:
    stage = ImageEmbeddingStage(model=Model(str(models["clip"][0]), token="secret"), resources=Resources(cpus=2))
    assert stage.parameters()["model"].token is None


def test_decoding_errors_name_the_row(models: dict[str, tuple[Path, Any]]) -> None:
    batch = ImageBatch({"image_bytes": [encoded(0), b"broken"]}).named("x.tar")
    with pytest.raises(ValueError, match=r"x\.tar:1"):
        ImageEmbeddingStage(str(models["clip"][0])).process(batch)


def test_without_a_gpu_cpus_decode_for_the_model(models: dict[str, tuple[Path, Any]]) -> None:
    folder = models["clip"][0]
    stage = ImageEmbeddingStage(str(folder), decoder="gpu")
    assert [inner.name for inner in stage.decompose()] == ["image_embedding"]
    made = stage.process(images())
    assert np.array_equal(made["image_embedding"].to_pylist(), vectors(images(), folder))
    assert "_model_pixels" not in made.get_columns()
    with pytest.raises(ValueError, match="decoder='tpu'"):
        ImageEmbeddingStage(str(folder), decoder="tpu")
