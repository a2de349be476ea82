"""Pictures made by a program: photographs in miniature, and what people do to a picture before they upload it again."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image, ImageDraw


def picture(seed: int, width: int = 160, height: int = 120) -> Image.Image:
    """Clouds of colour at all scales, as in photographs, with a few things in front of them."""
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, 3))
    for cells in (2, 4, 8, 16, 32):
        small = Image.fromarray(rng.integers(0, 256, (cells, cells, 3)).astype(np.uint8))
        total += np.asarray(small.resize((width, height), Image.Resampling.BICUBIC), float) / cells
    total -= total.min()
    image = Image.fromarray((total / total.max() * 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(3):
        left, top = rng.integers(0, width * 3 // 4), rng.integers(0, height * 3 // 4)
        box = [int(left), int(top), int(left + rng.integers(8, width // 3)), int(top + rng.integers(8, height // 3))]
        color = tuple(rng.integers(0, 256, 3).tolist())
        draw.ellipse(box, fill=color) if rng.random() < 0.5 else draw.rectangle(box, fill=color)
    return image


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The file that an image is saved as."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def variants(image: Image.Image) -> dict[str, bytes]:
    """The picture resized, compressed again, lighter, and with a small watermark."""
    marked = image.copy()
    ImageDraw.Draw(marked).text((image.width - 34, image.height - 14), "tamis", fill=(255, 255, 255))
    lighter = Image.fromarray(np.clip(np.asarray(image, float) * 1.1 + 5, 0, 255).astype(np.uint8))
    return {
        "resized": encoded(image.resize((image.width * 5 // 8, image.height * 5 // 8), Image.Resampling.BICUBIC)),
        "recompressed": encoded(image, "JPEG", quality=40),
        "lighter": encoded(lighter),
        "watermark": encoded(marked, "JPEG", quality=85),
    }
