"""Read images and embed them with a vision transformer: how busy the GPU is kept, and what bounds the pipeline.

    python benchmarks/images_gpu.py [--images 8192] [--distinct 1024] [--workers 16] [--gpus 0.25] [--ways scaled,exact]
        [--quick] [--tiny] [--out FILE.json]

A CLIP of the shape of ViT-L/14 with random weights and JPEG files of 0.5 to 1 megapixel are made here and saved (as
many as ``--distinct``; the others are links to the same files). Then, in one run: Parquet files of JPEG bytes through
``ImageEmbeddingStage`` on the local executor, the stage's decoding alone on all cores, the model alone on squares that
are there already (with its share of the card's peak), and the plain loop of transformers (image processor and model,
32 and 256 at a time). Prints images per second, how busy the workers of the model were after warm-up (from 20 % to 95 %
of their calls), and ratios, each as soon as it is known. Needs tamis[models,image]; without a GPU it runs on CPUs.

``--ways`` names the pipelines that are measured: ``scaled`` (JPEG decoded at a smaller scale), ``exact``, ``processes``
(scaled, decoding in processes), and ``card`` (decoded by the card; needs torchvision). ``--quick`` is for fewer images
and without the plain loop, ``--tiny`` for a model of two small layers.
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
        with Path(os.environ["IMAGES_GPU_LOG"], f"{os.getpid()}-{id(self)}").open("a") as file:
            file.write(f"{began} {time.time()} {sum(task.num_items for task in tasks)}\n")
        yield from made


@dataclass(repr=False)
class LoggedEmbedding(ImageEmbeddingStage):
    """The stage under test, with that record."""

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        *pixels, _ = super().decompose()
        return [*pixels, LoggedInference(self)]


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


def make_images(folder: str, count: int, distinct: int, workers: int) -> None:
    """Parquet files of JPEG bytes: clouds of several scales with sharp edges; the later files are links to others."""
    random = np.random.default_rng(0)
    scenes = []
    for _ in range(min(8, 1 + distinct // 32)):
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
        data = list(pool.map(one, range(distinct)))
    for start in range(0, count, PER_FILE):
        path = Path(folder, f"{start:06d}.parquet")
        if start >= distinct:
            path.hardlink_to(Path(folder, f"{start % distinct:06d}.parquet"))
            continue
        column = pa.array(data[start : start + PER_FILE], pa.large_binary())
        pq.write_table(pa.table({"id": list(range(len(column))), "image_bytes": column}), path)


def images_of(folder: str, count: int) -> ImageBatch:
    """The first images as one batch."""
    paths = sorted(Path(folder).glob("*.parquet"))[: -(-count // PER_FILE)]
    return ImageBatch(pa.concat_tables([pq.read_table(path) for path in paths]).slice(0, count))


def run_pipeline(folder: str, count: int, arguments: argparse.Namespace, way: str) -> dict[str, Any]:
    """One run from files to files."""
    log = os.environ["IMAGES_GPU_LOG"] = tempfile.mkdtemp(dir=folder)
    stage = LoggedEmbedding(
        f"{folder}/model",
        num_gpus_per_worker=arguments.gpus,
        model_inference_batch_size=arguments.batch,
        remove_image_data=True,
        exact_pixels=way == "exact",
        decoder="gpu" if way == "card" else "cpu",
    )
    output = tempfile.mkdtemp(dir=folder)
    stages = [ParquetReader(f"{folder}/images", files_per_partition=1), stage, ParquetWriter(output, mode="overwrite")]
    began = time.time()
    executor = LocalExecutor(arguments.workers, "processes" if way == "processes" else "auto")
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


def decode_alone(folder: str, count: int, workers: int, *, exact: bool) -> float:
    """Images per second of decoding to squares on all cores, nothing else."""
    batch = images_of(f"{folder}/images", count)
    next(iter(batch.select([0]).squares(224, exact=exact)))
    began = time.time()
    for _ in batch.squares(224, exact=exact, threads=workers):
        pass
    return batch.num_items / (time.time() - began)


def model_alone(folder: str, count: int, sizes: tuple[int, ...]) -> list[float]:
    """Images per second of the model on squares that are in memory already, for several sizes of a batch."""
    device = best_device()
    encoder = ImageEncoder(Model(f"{folder}/model"), device)
    pixels = np.random.default_rng(0).integers(0, 256, (count, 224, 224, 3), dtype=np.uint8)
    rows = ImageRows((pixels,), np.ones(count, np.bool_))
    rates = []
    for size in sizes:
        runner = BatchRunner(lambda images: {"v": encoder(images)}, device, size, wants_tensors=False)
        runner(rows.take(np.arange(min(count, 2 * size))))
        began = time.time()
        runner(rows)
        rates.append(count / (time.time() - began))
    return rates


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
    data = images_of(f"{folder}/images", count)["image_bytes"].to_pylist()

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
    batch = images_of(f"{folder}/images", len(expected))
    made = ImageEmbeddingStage(f"{folder}/model", exact_pixels=exact, dtype="auto").process(batch)
    return float((np.array(made["image_embedding"].to_pylist()) * expected).sum(axis=1).min())


def report(arguments: argparse.Namespace, count: int) -> dict[str, Any]:
    """Measure everything, and print it."""
    distinct = min(count, -(-arguments.distinct // PER_FILE) * PER_FILE)
    found: dict[str, Any] = {"images": count, "workers": arguments.workers, "device": best_device()}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("images", "model"):
            os.mkdir(f"{folder}/{name}")
        config = make_model(f"{folder}/model", tiny=arguments.tiny)
        make_images(f"{folder}/images", count, distinct, arguments.workers)
        show_machine(found, operations(config))
        sizes = (arguments.batch, 32)
        found["model_alone"], found["model_alone_32"] = model_alone(folder, min(count, 2048), sizes)
        for name, size in zip(("model_alone", "model_alone_32"), sizes, strict=True):
            show_model(found[name], size, operations(config))
        for way in arguments.ways.split(","):
            if way != "card":
                found[f"decode_{way}"] = decode_alone(folder, distinct, arguments.workers, exact=way == "exact")
            found[f"pipeline_{way}"] = run_pipeline(folder, count, arguments, way)
            show_way(found, way)
        if not arguments.quick or arguments.tiny:
            few = min(distinct, 64 if arguments.tiny else 512)
            for size in (32, 256):
                found[f"plain_{size}"], expected = plain_loop(folder, few, min(size, few))
                say(f"plain loop of transformers, batches of {size}: {found[f'plain_{size}']:.0f} images/s")
            for way in arguments.ways.split(","):
                steady = found[f"pipeline_{way}"]["images_per_s_after_warm_up"]
                ratios = [f"{steady / found[f'plain_{size}']:.1f} ({size})" for size in (32, 256)]
                say(f"{way} / plain loop: {', '.join(ratios)}")
            for way in ("exact", "scaled"):
                found[f"cosine_{way}"] = agreement(folder, expected[:64], exact=way == "exact")
                say(f"{way}: least cosine with transformers {found[f'cosine_{way}']:.5f}")
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(found, indent=1))
    return found


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def card() -> str:
    """The name of the card, or "CPU"."""
    import torch

    return torch.cuda.get_device_name() if best_device() != "cpu" else "CPU"


def show_machine(found: dict[str, Any], work: float) -> None:
    """Print what is measured, and with what."""
    say(f"{found['images']} images of 0.5 to 1 megapixel, {found['workers']} cores, {card()}")
    say(f"JPEG decoder: {'simplejpeg' if importlib.util.find_spec('simplejpeg') else 'Pillow'}")
    say(f"the model needs {work / 1e9:.1f} GFLOP per image")


def show_model(rate: float, batch: int, work: float) -> None:
    """Print how fast the model alone is."""
    peak = next((peak for name, peak in PEAKS.items() if name in card()), None)
    share = f", {rate * work / peak:.0%} of the card's peak" if peak else ""
    say(f"model alone, batches of {batch}: {rate:.0f} images/s, {rate * work / 1e12:.1f} TFLOP/s{share}")


def show_way(found: dict[str, Any], way: str) -> None:
    """Print how fast a pipeline is, and what bounds it."""
    run, decode, model = found[f"pipeline_{way}"], found.get(f"decode_{way}"), found["model_alone"]
    steady, busy = run["images_per_s_after_warm_up"], run["busy"]
    bound = model if decode is None else min(decode, model)
    alone = "by the card" if decode is None else f"alone {decode:.0f} images/s on all cores"
    say(f"{way}: decoding {alone}")
    say(
        f"  pipeline: {steady:.0f} images/s after warm-up ({run['images_per_s']:.0f} with start-up), the model's "
        f"{run['model_workers']} workers busy {'-' if busy is None else f'{busy:.3f}'}; bound by "
        f"{'the model' if bound == model else 'decoding'}: {steady / bound:.2f} of it"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int)
    parser.add_argument("--distinct", type=int, default=1024, help="how many different images are made")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--gpus", type=float, default=0.25, help="the share of a GPU of one worker")
    parser.add_argument("--batch", type=int, default=128, help="images that the model is given at a time")
    parser.add_argument("--ways", default="scaled,exact", help="scaled, exact, processes, card")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    count = 2 * PER_FILE if arguments.quick and arguments.tiny else 2048 if arguments.quick else 8192
    report(arguments, arguments.images or count)


if __name__ == "__main__":
    main()
