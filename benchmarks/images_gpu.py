"""Read images and embed them with a vision transformer: how busy the GPU is kept, and what bounds the pipeline.

    python benchmarks/images_gpu.py [--images 8192] [--workers 16] [--gpus 0.25] [--quick] [--tiny] [--out FILE.json]

A CLIP of the shape of ViT-L/14 with random weights and JPEG files of 0.5 to 1 megapixel are made here and saved. Then,
in one run: Parquet files of JPEG bytes through ``ImageEmbeddingStage`` on the local executor (with JPEG decoded
exactly, and at a smaller scale), the stage's decoding alone on all cores, the model alone on squares that are there
already (with its share of the card's peak), and the plain loop of transformers (image processor and model, 32 and 256
at a time). Prints images per second, how busy the workers of the model were after warm-up (from 20 % to 95 % of their
calls), and ratios. Needs tamis[models,image]; without a GPU it runs on CPUs. ``--quick`` is for fewer images,
``--tiny`` for a model of two small layers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tamis.backends.local import LocalExecutor
from tamis.models.batch_runner import BatchRunner
from tamis.models.encoder import best_device
from tamis.models.image_encoder import ImageEncoder, ImageRows
from tamis.models.model import Model
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.image.embedders import ImageEmbeddingStage
from tamis.stages.image.embedders.clip_embedder import _ImageInference
from tamis.stages.io import ParquetReader, ParquetWriter
from tamis.tasks import ImageBatch

PER_FILE = 64
PEAKS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40": 181e12, "B200": 2250e12}
"""Operations per second with dense 16-bit matrices, as the makers of the cards state."""


class LoggedInference(_ImageInference):
    """The stage with the model, with a record of when it worked."""

    def process_batch(self, tasks: list[ImageBatch]) -> Iterator[ImageBatch]:
        began = time.time()
        made = list(super().process_batch(tasks))
        with Path(os.environ["IMAGES_GPU_LOG"], str(os.getpid())).open("a") as file:
            file.write(f"{began} {time.time()} {sum(task.num_items for task in tasks)}\n")
        yield from made


@dataclass(repr=False)
class LoggedEmbedding(ImageEmbeddingStage):
    """The stage under test, with that record."""

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        pixels, _ = super().decompose()
        return [pixels, LoggedInference(self)]


def make_model(folder: str, *, tiny: bool) -> Any:
    """Save a vision tower with random weights and its preprocessing; returns its configuration."""
    import torch
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    shape: dict[str, Any] = {"image_size": 224, "patch_size": 14, "projection_dim": 768}
    if tiny:
        shape |= {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
        shape |= {"patch_size": 32}
    else:
        shape |= {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    config = CLIPVisionConfig(**shape)
    with torch.device(best_device()):
        torch.manual_seed(0)
        network = CLIPVisionModelWithProjection(config)
    network.to("cpu").save_pretrained(folder)
    size = {"height": 224, "width": 224}
    settings = {"size": {"shortest_edge": 224}, "crop_size": size, "do_center_crop": True, "resample": 3}
    settings |= {"image_processor_type": "CLIPImageProcessor", "do_resize": True, "do_convert_rgb": True}
    Path(folder, "preprocessor_config.json").write_text(json.dumps(settings))
    return config


def operations(config: Any) -> float:
    """Multiplications and additions of one image."""
    width, inner, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    tokens = (config.image_size // config.patch_size) ** 2 + 1
    per_layer = tokens * (4 * width * width + 2 * width * inner) + 2 * tokens * tokens * width
    patches = (tokens - 1) * 3 * config.patch_size**2 * width
    return 2.0 * (layers * per_layer + patches + width * config.projection_dim)


def make_images(folder: str, count: int, workers: int) -> None:
    """Parquet files of JPEG bytes: clouds of several scales with sharp edges, no two the same."""
    random = np.random.default_rng(0)
    scenes = []
    for _ in range(8):
        scene = np.zeros((1024, 1280, 3), np.float32)
        for size, strength in ((8, 90), (40, 60), (160, 25), (640, 10)):
            noise = random.normal(128, strength, (size, size * 5 // 4, 3)).clip(0, 255).astype(np.uint8)
            scene += np.asarray(Image.fromarray(noise).resize((1280, 1024), Image.Resampling.BICUBIC), np.float32) - 128
        scene[random.integers(0, 600) :][:300, random.integers(0, 800) :][:, :300] += random.uniform(-90, 90, 3)
        scenes.append(np.clip(scene + 128, 0, 255).astype(np.uint8))

    def one(number: int) -> bytes:
        own = np.random.default_rng(number)
        height, width = int(own.integers(640, 900)), int(own.integers(800, 1200))
        scene = scenes[number % len(scenes)]
        top, left = int(own.integers(0, 1024 - height + 1)), int(own.integers(0, 1280 - width + 1))
        file = BytesIO()
        Image.fromarray(scene[top : top + height, left : left + width]).save(file, "JPEG", quality=85)
        return file.getvalue()

    with ThreadPoolExecutor(workers) as pool:
        data = list(pool.map(one, range(count)))
    for start in range(0, count, PER_FILE):
        part = pa.table({"id": list(range(start, start + len(data[start : start + PER_FILE])))})
        column = pa.array(data[start : start + PER_FILE], pa.large_binary())
        pq.write_table(part.append_column("image_bytes", column), Path(folder, f"{start:06d}.parquet"))


def images_of(folder: str) -> ImageBatch:
    """All images as one batch."""
    return ImageBatch(pa.concat_tables([pq.read_table(path) for path in sorted(Path(folder).glob("*.parquet"))]))


def run_pipeline(
    folder: str, count: int, arguments: argparse.Namespace, *, exact: bool, processes: bool = False
) -> dict[str, Any]:
    """One run from files to files."""
    log = os.environ["IMAGES_GPU_LOG"] = tempfile.mkdtemp(dir=folder)
    stage = LoggedEmbedding(
        f"{folder}/model",
        num_gpus_per_worker=arguments.gpus,
        model_inference_batch_size=arguments.batch,
        remove_image_data=True,
        exact_pixels=exact,
    )
    output = tempfile.mkdtemp(dir=folder)
    stages = [ParquetReader(f"{folder}/images", files_per_partition=1), stage, ParquetWriter(output, mode="overwrite")]
    began = time.time()
    executor = LocalExecutor(arguments.workers, "processes" if processes else "auto")
    result = Pipeline("embed", stages=stages).run(
        executor, run_dir=tempfile.mkdtemp(dir=folder) + "/run", progress="off"
    )
    seconds = time.time() - began
    if result.summary.output_rows != count:
        raise RuntimeError(f"{count - result.summary.output_rows} rows are missing")
    spans = [
        (float(first), float(last), int(rows), file.name)
        for file in Path(log).iterdir()
        for first, last, rows in (line.split() for line in file.read_text().splitlines())
    ]
    ends = sorted(last for _, last, _, _ in spans)
    start, end = ends[int(0.2 * len(ends))], ends[max(0, int(0.95 * len(ends)) - 1)]
    window = max(end - start, 1e-9)
    workers = len({name for *_, name in spans})
    worked = sum(max(0.0, min(last, end) - max(first, start)) for first, last, _, _ in spans)
    embedded = sum(rows for _, last, rows, _ in spans if start < last <= end)
    steady = embedded / window if embedded else count / seconds
    return {
        "images_per_s": count / seconds,
        "images_per_s_after_warm_up": steady,
        "model_workers": workers,
        "busy": worked / (window * workers) if embedded else None,
    }


def decode_alone(folder: str, workers: int, *, exact: bool) -> float:
    """Images per second of decoding to squares on all cores, nothing else."""
    batch = images_of(f"{folder}/images")
    next(iter(batch.select([0]).squares(224, exact=exact)))
    began = time.time()
    for _ in batch.squares(224, exact=exact, threads=workers):
        pass
    return batch.num_items / (time.time() - began)


def model_alone(folder: str, count: int, batch_size: int) -> float:
    """Images per second of the model on squares that are in memory already."""
    device = best_device()
    encoder = ImageEncoder(Model(f"{folder}/model"), device)
    pixels = np.random.default_rng(0).integers(0, 256, (count, 224, 224, 3), dtype=np.uint8)
    rows = ImageRows(pixels, np.ones(count, np.bool_))
    runner = BatchRunner(lambda images: {"v": encoder(images)}, device, batch_size, wants_tensors=False)
    runner(rows.take(np.arange(min(count, 2 * batch_size))))
    began = time.time()
    runner(rows)
    return count / (time.time() - began)


def plain_loop(folder: str, count: int, batch_size: int) -> tuple[float, Any]:
    """Images per second of the image processor and the model of transformers, one batch after the other."""
    import torch
    from transformers import CLIPVisionModelWithProjection
    from transformers.utils import is_torchvision_available

    device = best_device()
    if is_torchvision_available():
        from transformers import CLIPImageProcessor as Processor
    else:
        from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil as Processor
    processor: Any = Processor.from_pretrained(f"{folder}/model")
    numbers = torch.bfloat16 if device != "cpu" else torch.float32
    network: Any = CLIPVisionModelWithProjection.from_pretrained(f"{folder}/model", dtype=numbers).to(device).eval()
    data = images_of(f"{folder}/images").select(np.arange(count))["image_bytes"].to_pylist()

    def embed(part: list[bytes]) -> Any:
        given = processor(images=[Image.open(BytesIO(each)).convert("RGB") for each in part], return_tensors="pt")
        vectors = network(pixel_values=given["pixel_values"].to(device, numbers)).image_embeds.float()
        return (vectors / vectors.norm(dim=1, keepdim=True)).cpu()

    with torch.inference_mode():
        embed(data[:batch_size])
        began = time.time()
        made = torch.cat([embed(data[start : start + batch_size]) for start in range(0, count, batch_size)])
    return count / (time.time() - began), made.numpy()


def agreement(folder: str, expected: Any, *, exact: bool) -> float:
    """The least cosine of the stage's vectors with those of the plain loop."""
    batch = images_of(f"{folder}/images").select(np.arange(len(expected)))
    made = ImageEmbeddingStage(f"{folder}/model", exact_pixels=exact, dtype="auto").process(batch)
    return float((np.array(made["image_embedding"].to_pylist()) * expected).sum(axis=1).min())


def report(arguments: argparse.Namespace, count: int) -> dict[str, Any]:
    """Measure everything, and print it."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("images", "model"):
            os.mkdir(f"{folder}/{name}")
        config = make_model(f"{folder}/model", tiny=arguments.tiny)
        make_images(f"{folder}/images", count, arguments.workers)
        few = min(count, 64 if arguments.tiny else 256 if arguments.quick else 512)
        found: dict[str, Any] = {"images": count, "workers": arguments.workers, "device": best_device()}
        for exact in (True, False):
            name = "exact" if exact else "scaled"
            found[f"decode_{name}"] = decode_alone(folder, arguments.workers, exact=exact)
            found[f"pipeline_{name}"] = run_pipeline(folder, count, arguments, exact=exact)
        if not arguments.tiny:
            found["pipeline_processes"] = run_pipeline(folder, count, arguments, exact=False, processes=True)
        found["model_alone"] = model_alone(folder, min(count, 4096), arguments.batch)
        found["model_alone_32"] = model_alone(folder, min(count, 4096), 32)
        for size in (32, 256):
            found[f"plain_{size}"], expected = plain_loop(folder, few, min(size, few))
        for exact in (True, False):
            found[f"cosine_{'exact' if exact else 'scaled'}"] = agreement(folder, expected[:64], exact=exact)
    show(found, operations(config))
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(found, indent=1))
    return found


def show(found: dict[str, Any], work: float) -> None:
    """Print what was measured."""
    import torch

    card = torch.cuda.get_device_name() if found["device"] != "cpu" else "CPU"
    peak = next((peak for name, peak in PEAKS.items() if name in card), None)
    print(f"{found['images']} images of 0.5 to 1 megapixel, {found['workers']} cores, {card}")
    print(f"JPEG decoder: {'simplejpeg' if importlib.util.find_spec('simplejpeg') else 'Pillow'}")
    print(f"the model needs {work / 1e9:.1f} GFLOP per image")
    for name, label in (("model_alone", "large batches"), ("model_alone_32", "batches of 32")):
        rate = found[name]
        share = f", {rate * work / peak:.0%} of the card's peak" if peak else ""
        print(f"model alone, {label}: {rate:.0f} images/s, {rate * work / 1e12:.1f} TFLOP/s{share}")
    for name in ("exact", "scaled"):
        run, decode = found[f"pipeline_{name}"], found[f"decode_{name}"]
        steady, busy = run["images_per_s_after_warm_up"], run["busy"]
        print(f"JPEG decoded {name}: decoding alone {decode:.0f} images/s on all cores")
        bound = "decoding" if decode < found["model_alone"] else "the model"
        print(
            f"  pipeline: {steady:.0f} images/s after warm-up ({run['images_per_s']:.0f} with start-up), the model's "
            f"{run['model_workers']} workers busy {'-' if busy is None else f'{busy:.3f}'}; bound by {bound}: "
            f"{steady / min(decode, found['model_alone']):.2f} of it"
        )
        print(f"  least cosine with transformers: {found[f'cosine_{name}']:.5f}")
        for size in (32, 256):
            print(f"  pipeline / plain loop with batches of {size}: {steady / found[f'plain_{size}']:.1f}")
    if "pipeline_processes" in found:
        run = found["pipeline_processes"]
        print(f"scaled, decoding in processes: {run['images_per_s_after_warm_up']:.0f} images/s, busy {run['busy']}")
    print(f"plain loop of transformers: {found['plain_32']:.0f} images/s (32), {found['plain_256']:.0f} images/s (256)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=8192)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--gpus", type=float, default=0.25, help="the share of a GPU of one worker")
    parser.add_argument("--batch", type=int, default=128, help="images that the model is given at a time")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    count = 2 * PER_FILE if arguments.quick and arguments.tiny else 2048 if arguments.quick else arguments.images
    report(arguments, count)


if __name__ == "__main__":
    main()
