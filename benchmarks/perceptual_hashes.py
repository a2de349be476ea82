"""Perceptual hashes: images per second beside imagehash with the same bits, and how many copies are found.

    python benchmarks/perceptual_hashes.py --images FOLDER [--most 500]

The folder has pictures (JPEG, PNG), of which the largest of each folder or, with ``--all``, every one is taken. One
core, files in memory: decoding and hashing, and hashing alone of decoded pixels, against ``imagehash`` on the same
images. Then each picture is resized to half its size, compressed again as JPEG of quality 40, made 10 % lighter, and
marked with a small text. Recall is the share of these that are within some bits of the picture they were made of;
precision is the share of all pairs of hashes within these bits that are of the same picture.
"""

from __future__ import annotations

import argparse
import io
import random
import time
from collections.abc import Callable
from pathlib import Path

import imagehash
import numpy as np
import pyarrow as pa
from PIL import Image, ImageDraw, ImageFont

from tamis.kernels.hamming import hamming_distances, similar_pairs
from tamis.kernels.image_hashes import image_hash
from tamis.stages.image.deduplication import PerceptualHash
from tamis.tasks import ImageBatch

PEERS = {"phash": imagehash.phash, "dhash": imagehash.dhash}


def chosen(folder: Path, every: bool, most: int) -> list[Path]:
    """The files to take."""
    found = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in (".jpg", ".jpeg", ".png")]
    if not every:
        largest = {path.parent: path for path in sorted(found, key=lambda path: path.stat().st_size)}
        found = sorted(largest.values())
    random.Random(0).shuffle(found)
    return found[:most]


def saved(image: Image.Image, quality: int = 90) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return file.getvalue()


def copies(image: Image.Image) -> dict[str, bytes]:
    """What becomes of a picture."""
    marked = image.copy()
    size = max(8, image.width // 40)
    place = (image.width - 8 * size, image.height - 2 * size)
    ImageDraw.Draw(marked).text(place, "example.org", fill=(255, 255, 255), font=ImageFont.load_default(size))
    lighter = np.clip(np.asarray(image, np.float32) * 1.1, 0, 255).astype(np.uint8)
    half = (max(1, image.width // 2), max(1, image.height // 2))
    return {
        "half the size": saved(image.resize(half, Image.Resampling.BICUBIC)),
        "JPEG 40": saved(image, 40),
        "10 % lighter": saved(Image.fromarray(lighter)),
        "watermark": saved(marked),
    }


def busy(work: Callable[[], object]) -> float:
    """Seconds of a core."""
    began = time.process_time()
    work()
    return time.process_time() - began


def speed(contents: list[bytes]) -> None:
    """Images per second of a core, whole and without decoding."""
    batch = ImageBatch({"image_bytes": pa.array(contents, pa.large_binary())})
    decoded = [np.array(pixels) for pixels in batch.pixels()]
    pictures = [Image.fromarray(pixels) for pixels in decoded]
    for kind, peer in PEERS.items():
        stage = PerceptualHash((kind,))
        image_hash(decoded[0], kind)  # type: ignore[arg-type]  # one of the kinds
        ours = stage.process(batch)[kind].to_pylist()
        theirs = [int(str(peer(picture)), 16) for picture in pictures]
        whole = busy(lambda stage=stage: stage.process(batch))  # type: ignore[misc]  # called at once
        peer_whole = busy(lambda peer=peer: [peer(Image.open(io.BytesIO(data))) for data in contents])  # type: ignore[misc]
        alone = busy(lambda kind=kind: [image_hash(pixels, kind) for pixels in decoded])  # type: ignore[misc]
        peer_alone = busy(lambda peer=peer: [peer(picture) for picture in pictures])  # type: ignore[misc]
        scaled = PerceptualHash((kind,), exact=False)
        bits = hamming_distances(scaled.process(batch)[kind].to_numpy(), np.array(ours, np.uint64))
        scaled_whole = busy(lambda scaled=scaled: scaled.process(batch))  # type: ignore[misc]  # called at once
        count = len(contents)
        print(
            f"{kind}: {count / whole:.0f} images/s, imagehash {count / peer_whole:.0f} ({peer_whole / whole:.1f} x); "
            f"without decoding {count / alone:.0f}, imagehash {count / peer_alone:.0f} ({peer_alone / alone:.1f} x); "
            f"same bits: {ours == theirs}"
        )
        print(
            f"{kind}, exact=False: {count / scaled_whole:.0f} images/s ({peer_whole / scaled_whole:.1f} x imagehash); "
            f"bits that differ: {bits.mean():.2f} on average, {np.mean(bits > 0):.1%} of images, at most {bits.max()}"
        )


def quality(contents: list[bytes]) -> None:
    """How many copies are found, and how many pairs are of the same picture."""
    names = ["original"]
    encoded: list[bytes] = []
    for data in contents:
        made = copies(Image.open(io.BytesIO(data)).convert("RGB"))
        names = ["original", *made]
        encoded += [data, *made.values()]
    hashed = PerceptualHash(tuple(PEERS)).process(ImageBatch({"image_bytes": pa.array(encoded, pa.large_binary())}))
    for kind in PEERS:
        hashes = hashed[kind].to_numpy()
        left, right, bits = similar_pairs(hashes, 10)
        same = left // len(names) == right // len(names)
        of_original = same & (left % len(names) == 0)
        for most in (2, 4, 6, 8, 10):
            found = [(of_original & (right % len(names) == n) & (bits <= most)).sum() for n in range(1, len(names))]
            recall = ", ".join(f"{name} {n / len(contents):.1%}" for name, n in zip(names[1:], found, strict=True))
            precision = same[bits <= most].mean()
            others = (~same & (bits <= most)).sum()
            print(f"{kind}, {most:2d} bits: {recall}; precision {precision:.2%}, {others:,} other pairs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, type=Path)
    parser.add_argument("--all", action="store_true", help="every file, not the largest of each folder")
    parser.add_argument("--most", type=int, default=500)
    options = parser.parse_args()
    contents = [path.read_bytes() for path in chosen(options.images, options.all, options.most)]
    sizes = [Image.open(io.BytesIO(data)).size for data in contents]
    megapixels = sum(width * height for width, height in sizes) / 1e6 / len(sizes)
    print(f"{len(contents)} pictures of {megapixels:.2f} megapixels")
    speed(contents[:100])
    quality(contents)


if __name__ == "__main__":
    main()
