"""Runs over images for tests of pages: sample images in Parquet, some dropped, some duplicates, some hostile."""

from __future__ import annotations

import io
import itertools
import struct
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.quickstart import sample_images
from tamis.runs.result import RunResult
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.io import ParquetReader, ParquetWriter
from tamis.tasks import DocumentBatch

EVIL = '<script>document.title="broken"</script><img src=x onerror=\'document.title="broken"\'>"&'

PAGE = b"<!doctype html><script>document.title='broken'</script>"
DRAWING = b'<svg xmlns="http://www.w3.org/2000/svg"><script>document.title="broken"</script></svg>'


def samples() -> dict[str, bytes]:
    """The sample images by their id, as their files are."""
    found = {}
    for path in sample_images():
        with tarfile.open(path) as shard:
            for member in shard:
                key, _, ending = member.name.partition(".")
                if ending not in ("json", "txt"):
                    found[key] = shard.extractfile(member).read()  # type: ignore[union-attr]  # they are files
    return found


def bomb(width: int = 100_000, height: int = 100_000) -> bytes:
    """A PNG of a few bytes that says it has ten billion pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    data = zlib.compress(b"\0" * 1000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@dataclass
class DropDark(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drops what is small, as a file, and what its id says is hostile."""

    least: int = 3_000
    name: str = "small"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        sizes = [len(value) for value in task["image_bytes"].to_pylist()]
        return task.keep(pa.array([size >= self.least for size in sizes]), reason="file_bytes < 3000", score=sizes)


def parquet_of_images(path: Path, evil: bool = False) -> dict[str, bytes]:
    """A Parquet file with the sample images, and with hostile ones among them if wanted."""
    images = {key: data for key, data in samples().items() if data}
    if evil:
        images = {"page": PAGE, "svg": DRAWING, "bomb": bomb(), EVIL: _tiny(), **images}
    rows = {
        "image_id": list(images),
        "image_bytes": list(images.values()),
        "caption": [f"{key} {EVIL}" for key in images],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(rows), path, row_group_size=16)
    return images


def image_run(folder: Path, run_dir: Path, evil: bool = False) -> RunResult:
    """A run that drops small files and exact duplicates of the sample images."""
    parquet_of_images(folder / "data" / "images.parquet", evil)
    stages = [
        ParquetReader(str(folder / "data")),
        DropDark(),
        ExactDeduplication(text_field="image_bytes"),
        ParquetWriter(str(folder / "out")),
    ]
    return Pipeline("images", stages=stages).run(LocalExecutor(workers=0), run_dir=str(run_dir), progress="off")


def save_image_models(folder: Path) -> None:
    """A small CLIP with vectors of 768 numbers, and the two heads on them, with weights by chance.

    They are in the layout of those that are published, so that they can be used in their place.
    """
    import small_vision_models
    import torch
    from safetensors.torch import save_file

    usual, small_vision_models.DIM = small_vision_models.DIM, 768
    try:
        small_vision_models.save_clip(folder / "openai" / "clip-vit-large-patch14")
    finally:
        small_vision_models.DIM = usual
    torch.manual_seed(0)
    widths, tensors = (768, 1024, 128, 64, 16, 1), {}
    for place, (before, after) in enumerate(itertools.pairwise(widths)):
        number = (0, 2, 4, 6, 7)[place]
        tensors[f"layers.{number}.weight"] = torch.randn(after, before) * 0.2
        tensors[f"layers.{number}.bias"] = torch.zeros(after)
    aesthetic = folder / "ttj" / "sac-logos-ava1-l14-linearMSE"
    aesthetic.mkdir(parents=True)
    save_file(tensors, aesthetic / "model.safetensors")
    tensors = {"norm.mean": torch.zeros(768), "norm.variance": torch.full((768,), 1 / 768)}
    for number, (before, after) in enumerate(itertools.pairwise((768, 64, 512, 256, 1)), 1):
        tensors[f"linear_{number}.weight"] = torch.randn(after, before) / before**0.5
        tensors[f"linear_{number}.bias"] = torch.zeros(after)
    detector = folder / "laion" / "clip-autokeras-binary-nsfw"
    detector.mkdir(parents=True)
    save_file(tensors, detector / "clip_autokeras_binary_nsfw.safetensors")


def _tiny() -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(out, "PNG")
    return out.getvalue()
