"""All measures of pixels together, beside decoding alone, and beside the same measures written with OpenCV and NumPy.

    python benchmarks/image_filters.py [--images FOLDER] [--watermarks]

The images are JPEG and PNG files in a folder; without one, 24 made pictures of a megapixel. All of it runs on one core.
Prints, in milliseconds per image: decoding to 512 pixels on the longer side; the native kernel with all measures; the
same measures with OpenCV and NumPy, which must give (nearly) the same numbers; the whole stage ``Score`` with nine
filters of pixels; and the ratios.

``--watermarks`` puts watermarks of five kinds, white and half transparent, on each image, and prints how many of them,
and how many of the images without, ``TextInImageFilter(max_text_share=0.002)`` drops.
"""

from __future__ import annotations

import argparse
import io
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("TAMIS_KERNELS", "wait")

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tamis.stages.image.filters import TextInImageFilter
from tamis.stages.image.filters import pixel_filters as filters
from tamis.stages.image.filters.measures import MEASURED_SIDE, ImageMeasures
from tamis.stages.text.filters import Score
from tamis.tasks import ImageBatch

REPEATS = 5
MADE = 24
KINDS = ("corner", "centre", "diagonal", "tiled", "logo")
Pixels = NDArray[np.uint8]


def made_pictures() -> list[bytes]:
    """Photograph-like pictures: noise at many scales, as JPEG of a megapixel."""
    rng, found = np.random.default_rng(0), []
    for _ in range(MADE):
        picture = np.zeros((864, 1152, 3), np.float32)
        for scale in (2, 8, 32, 128):
            noise = rng.normal(0, 12 * math.log2(scale), (864 // scale + 1, 1152 // scale + 1, 3)).astype(np.float32)
            picture += cv2.resize(noise, (1152, 864), interpolation=cv2.INTER_CUBIC)
        file = io.BytesIO()
        Image.fromarray((picture + 120).clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        found.append(file.getvalue())
    return found


def measured_by_opencv(pixels: Pixels) -> dict[str, float]:
    """The measures as one writes them with OpenCV and NumPy."""
    height, width = pixels.shape[:2]
    gray = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)
    mean, deviation = cv2.meanStdDev(gray)
    shares = cv2.calcHist([gray], [0], None, [256], [0, 256]).ravel() / gray.size
    shares = shares[shares > 0]
    inner = (slice(1, -1), slice(1, -1))
    laplacian = cv2.Laplacian(gray, cv2.CV_16S)[inner]
    mask = cv2.filter2D(gray, cv2.CV_16S, np.array([[1, -2, 1], [-2, 4, -2], [1, -2, 1]]))[inner]
    channels = cv2.split(pixels)
    spread = cv2.subtract(cv2.max(cv2.max(*channels[:2]), channels[2]), cv2.min(cv2.min(*channels[:2]), channels[2]))
    spreads = cv2.calcHist([spread], [0], None, [256], [0, 256]).ravel().cumsum()
    colors = cv2.calcHist([pixels], [0, 1, 2], None, [16] * 3, [0, 256] * 3).ravel()
    whole = cv2.cvtColor(pixels, cv2.COLOR_RGB2RGBA).view(np.uint32)[..., 0]
    equal = np.count_nonzero(whole[:, 1:] == whole[:, :-1]) + np.count_nonzero(whole[1:] == whole[:-1])
    r, g, b = (each.astype(np.float32) for each in channels)
    rg, yb = (cv2.meanStdDev(each) for each in (r - g, (r + g) * 0.5 - b))
    means, deviations = ([float(each[i][0, 0]) for each in (rg, yb)] for i in (0, 1))
    top, bottom = (uniform_rows(lines) for lines in (pixels, pixels[::-1]))
    left, right = (uniform_rows(lines.swapaxes(0, 1)) for lines in (pixels, pixels[:, ::-1]))
    return {
        "brightness": float(mean[0, 0]),
        "contrast": float(deviation[0, 0]),
        "entropy": float(-(shares * np.log2(shares)).sum()),
        "sharpness": float(cv2.meanStdDev(laplacian)[1][0, 0] ** 2),
        "noise": float(abs(mask).mean()) * math.sqrt(math.pi / 2) / 6,
        "colorfulness": math.hypot(*deviations) + 0.3 * math.hypot(*means),
        "color_spread": float(np.searchsorted(spreads, math.ceil(0.99 * gray.size))),
        "border_share": 1 - max(height - top - bottom, 0) * max(width - left - right, 0) / (height * width),
        "flatness": float(
            equal / (2 * height * width - height - width) * np.partition(colors, -16)[-16:].sum() / gray.size
        ),
    }


def uniform_rows(pixels: Pixels) -> int:
    if (np.ptp(pixels[0], axis=0) > 16).any():  # as in most pictures
        return 0
    high = np.maximum.accumulate(pixels.max(axis=1).astype(int))
    low = np.minimum.accumulate(pixels.min(axis=1).astype(int))
    return int(((high - low).max(axis=1) <= 16).sum())


def measured_by_tamis(pixels: Pixels) -> dict[str, float]:
    measures = ImageMeasures.of(pixels)
    return {make.measure: getattr(measures, make.measure) for make in all_filters()}


def all_filters() -> list[type[filters.MeasuredImageFilter]]:
    return [getattr(filters, name) for name in filters.__all__]


def milliseconds(work: Callable[[], object], images: int) -> float:
    """Processor time per image, the best of some repeats."""
    best = math.inf
    for _ in range(REPEATS):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return 1000 * best / images


def with_watermark(image: Image.Image, kind: str, chance: random.Random) -> Image.Image:
    """White text or a logo over a picture, of which 30 to 70 % shows through."""
    width, height = image.size
    layer = Image.new("L", image.size)
    draw, size = ImageDraw.Draw(layer), int(width * chance.uniform(0.035, 0.07))
    text = chance.choice(["(c) Photo Agency", "SAMPLE", "stockphotos.com", "PREVIEW COPY", "J. Miller 2019"])
    font = ImageFont.load_default(size if kind in ("corner", "tiled") else int(1.7 * size))
    long = draw.textlength(text, font=font)
    if kind == "corner":
        draw.text((0.97 * width - long, height - 1.6 * size), text, 255, font)
    elif kind == "tiled":
        for y in range(0, height, 3 * size):
            for x in range(-width // 4, width, int(1.3 * long)):
                draw.text((x + y // 3 % 97, y), text, 255, font)
    elif kind == "logo":
        radius = int(0.09 * width)
        x, y = width - radius - 20, height - radius - 20
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), outline=255, width=max(3, radius // 12))
        draw.polygon(
            [(x, y - radius // 2), (x - radius // 2, y + radius // 3), (x + radius // 2, y + radius // 3)], 255
        )
    else:
        draw.text(((width - long) / 2, height / 2 - size), text, 255, font)
    turn = {"diagonal": 30, "tiled": 20}.get(kind, 0)
    alpha = np.asarray(layer.rotate(turn, Image.Resampling.BICUBIC), float)[..., None] / 255 * chance.uniform(0.3, 0.7)
    return Image.fromarray((np.asarray(image) * (1 - alpha) + 255 * alpha).round().astype(np.uint8))


def find_watermarks(images: list[bytes]) -> Iterator[str]:
    detector, chance = TextInImageFilter(max_text_share=0.002), random.Random(1)
    detector.load_model()
    plain = [Image.fromarray(pixels) for pixels in ImageBatch({"image_bytes": images}).pixels(max_side=1024)]

    def dropped(pictures: list[Image.Image]) -> int:
        found = 0
        for picture in pictures:
            file = io.BytesIO()
            picture.save(file, "JPEG", quality=88)
            found += not detector.keep_document(detector.score_image(np.asarray(Image.open(file))))
        return found

    false = dropped(plain)
    yield f"without a watermark: {false} of {len(plain)} dropped"
    for kind in KINDS:
        right = dropped([with_watermark(picture, kind, chance) for picture in plain])
        yield f"{kind:9} recall {right / len(plain):.2f}, precision {right / max(right + false, 1):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, help="a folder of JPEG and PNG files")
    parser.add_argument("--watermarks", action="store_true", help="how many watermarks are found, by their text")
    given = parser.parse_args()
    cv2.setNumThreads(1)
    files = sorted(each for each in given.images.rglob("*") if each.suffix in (".jpg", ".png")) if given.images else []
    images = [file.read_bytes() for file in files] or made_pictures()
    batch = ImageBatch({"image_bytes": images})
    decoded = list(batch.pixels(max_side=MEASURED_SIDE))
    for pixels in decoded:
        ours, theirs = measured_by_tamis(pixels), measured_by_opencv(pixels)
        for name, value in ours.items():
            assert math.isclose(value, theirs[name], rel_tol=0.02, abs_tol=0.02), (name, value, theirs[name])
    stage = Score([make() for make in all_filters()], [make.name for make in all_filters()])
    count = len(images)
    decode = milliseconds(lambda: [None for _ in batch.pixels(max_side=MEASURED_SIDE)], count)
    kernel = milliseconds(lambda: [measured_by_tamis(pixels) for pixels in decoded], count)
    opencv = milliseconds(lambda: [measured_by_opencv(pixels) for pixels in decoded], count)
    whole = milliseconds(lambda: stage.process(batch), count)
    print(
        f"{count} images, {np.mean([p.shape[0] * p.shape[1] for p in decoded]) / 1000:.0f} thousand pixels as measured"
    )
    print(f"decode alone          {decode:7.2f} ms per image")
    print(f"9 measures, tamis     {kernel:7.2f} ms per image")
    print(f"9 measures, OpenCV    {opencv:7.2f} ms per image: {opencv / kernel:.1f} x the time of tamis")
    print(f"decode and 9 filters  {whole:7.2f} ms per image: {whole / decode:.2f} x decoding alone")
    if given.watermarks:
        for line in find_watermarks(images):
            print(line, flush=True)


if __name__ == "__main__":
    main()
