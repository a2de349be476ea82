"""Descriptors without a model: near-duplicates are close, other pictures are not, and the bits are always the same."""

from __future__ import annotations

import hashlib
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

Image = pytest.importorskip("PIL.Image")

from tamis import LocalExecutor, Pipeline  # noqa: E402
from tamis.kernels.image_descriptor import DESCRIPTOR_DIM, describe  # noqa: E402
from tamis.stages.image.embedders import ImageDescriptorStage  # noqa: E402
from tamis.tasks import ImageBatch  # noqa: E402


def picture(seed: int, width: int = 320, height: int = 240) -> Any:
    """Blobs and stripes of random places and colours."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    made = np.stack([x / width * random.uniform(0, 200), y / height * random.uniform(0, 200), x * 0 + 60], axis=2)
    for _ in range(8):
        distance = ((y - random.uniform(0, height)) / height) ** 2 + ((x - random.uniform(0, width)) / width) ** 2
        made += (distance < random.uniform(0.001, 0.05))[:, :, None] * random.uniform(-180, 180, 3)
    made += (np.sin(x / random.uniform(5, 40) + y / random.uniform(5, 40)) * random.uniform(0, 40))[:, :, None]
    return Image.fromarray(np.clip(made, 0, 255).astype(np.uint8))


def encoded(image: Any, **settings: Any) -> bytes:
    file = BytesIO()
    image.save(file, "JPEG", **settings)
    return file.getvalue()


def vectors(data: list[bytes | None]) -> Any:
    made = ImageDescriptorStage().process(ImageBatch({"image_bytes": pa.array(data, pa.large_binary())}))
    return np.array(made["image_embedding"].to_pylist())


def test_copies_are_closer_than_other_pictures() -> None:
    originals = [picture(seed) for seed in range(12)]
    own = vectors([encoded(image, quality=92) for image in originals])
    others = (own @ own.T)[np.triu_indices(len(own), 1)]
    copies = {
        "smaller": [image.resize((120, 90)) for image in originals],
        "cut": [image.crop((12, 9, 308, 231)) for image in originals],
        "brighter": [image.point(lambda value: min(255, int(value * 1.1))) for image in originals],
    }
    for name, changed in copies.items():
        cosines = (own * vectors([encoded(image, quality=40) for image in changed])).sum(axis=1)
        assert cosines.min() > others.max(), name
        assert cosines.min() > 0.9, name


def test_vectors_have_length_one_and_a_row_without_an_image_null() -> None:
    batch = ImageBatch({"image_bytes": pa.array([encoded(picture(0)), None], pa.large_binary())})
    column = ImageDescriptorStage().process(batch)["image_embedding"]
    assert column.type == pa.list_(pa.float32(), DESCRIPTOR_DIM)
    assert column.is_valid().to_pylist() == [True, False]
    assert np.linalg.norm(column[0].as_py()) == pytest.approx(1, abs=1e-6)
    assert ImageDescriptorStage().process(batch.select([1]))["image_embedding"].to_pylist() == [None]


def test_the_bits_do_not_depend_on_the_machine_or_the_batch() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (70, 64, 64, 3)).astype(np.uint8)
    pixels[1] = 128
    whole = describe(pixels)
    assert np.array_equal(whole[40:45], describe(pixels[40:45]))
    assert hashlib.sha256(whole.astype("<f4").tobytes()).hexdigest()[:16] == "3f05f9967e2d8576"


def test_a_broken_image_is_set_aside_alone() -> None:
    batch = ImageBatch({"image_bytes": [encoded(picture(0)), b"broken", encoded(picture(1))]}).named("shard")
    result = Pipeline("describe", stages=[ImageDescriptorStage()]).run(
        LocalExecutor(1), initial_tasks=[batch], progress="off", failure_budget=None
    )
    assert [task.num_items for task in result] == [2]
    assert [(failed.source, failed.position) for failed in result.failures] == [("shard", 1)]
