"""Decode JPEG files into squares of 224 pixels: images per second of a core beside Pillow, OpenCV and torchvision.

    python benchmarks/image_decoding.py [--images FOLDER] [--size 224] [--workers 2,16] [--torchvision-python PYTHON]

The images are the JPEG files of a folder, cut from its largest to about a megapixel; without one, made pictures of a
megapixel. All are in memory. Each way is measured in a process of its own, on one core, as processor time: decoding,
the shorter side to 224 pixels, and the square from the middle as RGB. tamis is measured exactly (the bits of Pillow)
and with JPEG decoded at a smaller scale first (``exact=False``). Peers are measured as they are mostly called, and,
where they can, told to decode at a smaller scale as well: Pillow by ``draft``, OpenCV by ``IMREAD_REDUCED_COLOR``. The
limit is libjpeg-turbo at an eighth: what unpacking a JPEG takes without making a picture of it. Prints images per
second of a core, the ratios to the fastest peer of each kind, and how far squares are from Pillow's (mean difference of
8 bits).

``--torchvision-python`` names an interpreter with torchvision; it decodes and resizes, with antialiasing, there.

Then, with ``--workers``, how many times as fast that many processes and that many threads of one process are as one.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"  # read when the libraries start their threads

MADE, MEGAPIXEL = 24, (1152, 864)
SECONDS = 2.0


def made_pictures() -> list[bytes]:
    """Pictures with detail at many scales, as JPEG of a megapixel."""
    from PIL import Image

    rng, found = np.random.default_rng(0), []
    width, height = MEGAPIXEL
    for _ in range(MADE):
        picture = np.zeros((height, width, 3), np.float32)
        for scale in (2, 8, 32, 128):
            noise = rng.normal(128, 12 * math.log2(scale), (height // scale + 1, width // scale + 1, 3))
            small = Image.fromarray(noise.clip(0, 255).astype(np.uint8))
            picture += np.asarray(small.resize(MEGAPIXEL, Image.Resampling.BICUBIC), np.float32) - 128
        file = io.BytesIO()
        Image.fromarray((picture + 120).clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        found.append(file.getvalue())
    return found


def pictures_of(folder: Path) -> list[bytes]:
    """The JPEG files of a folder; larger ones are made smaller, to about a megapixel."""
    from PIL import Image

    found = []
    for path in sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")):
        image = Image.open(path)
        share = math.sqrt(MEGAPIXEL[0] * MEGAPIXEL[1] / (image.width * image.height))
        if share >= 1:
            found.append(path.read_bytes())
            continue
        file = io.BytesIO()
        size = (round(image.width * share), round(image.height * share))
        image.convert("RGB").resize(size, Image.Resampling.LANCZOS).save(file, "JPEG", quality=90)
        found.append(file.getvalue())
    return found


Work = Callable[[list[bytes], int], list[np.ndarray]]


def with_tamis(data: list[bytes], size: int, exact: bool = False, threads: int = 1) -> list[np.ndarray]:
    import pyarrow as pa

    from tamis.tasks import ImageBatch

    batch = ImageBatch(pa.table({"image_bytes": pa.array(data, pa.large_binary())}))
    return list(batch.squares(size, exact=exact, threads=threads))


def with_pillow(data: list[bytes], size: int, scaled: bool = False) -> list[np.ndarray]:
    from PIL import Image

    squares = []
    for each in data:
        image = Image.open(io.BytesIO(each))
        whole = image.size
        if scaled:
            image.draft("RGB", (size, size))
        image = image.convert("RGB").resize(covering(whole, size), Image.Resampling.BICUBIC)
        left, top = (image.width - size) // 2, (image.height - size) // 2
        squares.append(np.asarray(image.crop((left, top, left + size, top + size))))
    return squares


def with_opencv(data: list[bytes], size: int, scaled: bool = False) -> list[np.ndarray]:
    import cv2

    cv2.setNumThreads(1)
    flags = {1: cv2.IMREAD_COLOR, 2: cv2.IMREAD_REDUCED_COLOR_2, 4: cv2.IMREAD_REDUCED_COLOR_4}
    flags[8] = cv2.IMREAD_REDUCED_COLOR_8
    squares = []
    for each in data:
        flag = flags[1]
        if scaled:
            from PIL import Image

            shorter = min(Image.open(io.BytesIO(each)).size)
            flag = flags[max(scale for scale in flags if scale == 1 or shorter // scale >= size)]
        pixels = cv2.imdecode(np.frombuffer(each, np.uint8), flag)
        width, height = covering(pixels.shape[1::-1], size)
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
        left, top = (width - size) // 2, (height - size) // 2
        squares.append(cv2.cvtColor(pixels[top : top + size, left : left + size], cv2.COLOR_BGR2RGB))
    return squares


def with_torchvision(data: list[bytes], size: int) -> list[np.ndarray]:
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg
    from torchvision.transforms.v2 import functional

    torch.set_num_threads(1)
    squares = []
    for each in data:
        pixels = decode_jpeg(torch.frombuffer(bytearray(each), dtype=torch.uint8), ImageReadMode.RGB)
        kind = functional.InterpolationMode.BICUBIC
        pixels = functional.resize(pixels, [size], interpolation=kind, antialias=True)
        squares.append(functional.center_crop(pixels, [size, size]).permute(1, 2, 0).numpy())
    return squares


def covering(whole: tuple[int, int], size: int) -> tuple[int, int]:
    """The size of a picture whose shorter side has a number of pixels."""
    width, height = whole
    return (size, int(size * height / width)) if width <= height else (int(size * width / height), size)


def at_an_eighth(data: list[bytes], size: int) -> list[np.ndarray]:
    import simplejpeg

    return [simplejpeg.decode_jpeg(each, min_height=1, min_width=1)[:size, :size] for each in data]


WAYS: dict[str, tuple[Work, dict[str, Any]]] = {
    "tamis, exact": (with_tamis, {"exact": True}),
    "tamis, exact=False": (with_tamis, {}),
    "Pillow": (with_pillow, {}),
    "Pillow with draft": (with_pillow, {"scaled": True}),
    "OpenCV": (with_opencv, {}),
    "OpenCV, reduced": (with_opencv, {"scaled": True}),
    "torchvision": (with_torchvision, {}),
    "limit": (at_an_eighth, {}),
}


def measure(way: str, file: str, size: int) -> dict[str, Any]:
    """Images per second of processor time, the best of several rounds, and the squares."""
    data = pickle.loads(Path(file).read_bytes())
    work, settings = WAYS[way]
    squares = work(data, size, **settings)
    best, began = math.inf, time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        start = time.process_time()
        work(data, size, **settings)
        best = min(best, time.process_time() - start)
    return {"rate": len(data) / best, "squares": [square.reshape(-1).tolist() for square in squares[:4]]}


def many(way: str, file: str, size: int, workers: int, rounds: int) -> float:
    """Images per second by the clock of several processes, which decode the same images again and again."""
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(_rounds, [(way, file, size, 1)] * workers))
        began = time.perf_counter()
        count = sum(pool.map(_rounds, [(way, file, size, rounds)] * workers))
        return count / (time.perf_counter() - began)


def _rounds(job: tuple[str, str, int, int]) -> int:
    way, file, size, rounds = job
    data = pickle.loads(Path(file).read_bytes())
    work, settings = WAYS[way]
    for _ in range(rounds):
        work(data, size, **settings)
    return rounds * len(data)


def threaded(file: str, size: int, threads: int, rounds: int) -> float:
    """The same of one process with several threads."""
    data = pickle.loads(Path(file).read_bytes()) * max(1, threads // 2)
    with_tamis(data, size, threads=threads)
    began = time.perf_counter()
    for _ in range(rounds):
        with_tamis(data, size, threads=threads)
    return rounds * len(data) / (time.perf_counter() - began)


def difference(squares: list[list[int]], others: list[list[int]]) -> float:
    """The mean absolute difference of the pixels of several pictures."""
    pairs = zip(squares, others, strict=True)
    return float(np.mean([np.abs(np.subtract(one, other)).mean() for one, other in pairs]))


def main() -> None:
    """Measure all ways, and print ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", help="numbers of workers, as in 2,16")
    parser.add_argument("--torchvision-python", default=sys.executable)
    parser.add_argument("--one", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(*arguments.one, arguments.size)))
        return

    data = pictures_of(arguments.images) if arguments.images else made_pictures()
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder, "images"))
        Path(file).write_bytes(pickle.dumps(data))
        found = {}
        for way in WAYS:
            python = arguments.torchvision_python if way == "torchvision" else sys.executable
            command = [python, __file__, "--one", way, file, "--size", str(arguments.size)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{way}: not measured ({done.stderr.strip().splitlines()[-1]})")
                continue
            found[way] = json.loads(done.stdout)
        exact = found["Pillow"]["squares"]
        usual = max(found[way]["rate"] for way in ("Pillow", "OpenCV", "torchvision") if way in found)
        reduced = max(found[way]["rate"] for way in ("Pillow with draft", "OpenCV, reduced"))
        print(f"{len(data)} JPEG files, {sum(map(len, data)) / len(data) / 1e3:.0f} kB on average; one core\n")
        print("                   images/s   to the fastest peer   to the fastest, reduced   difference from Pillow")
        for way, each in found.items():
            rate = each["rate"]
            print(f"{way:<18} {rate:>8.0f} {rate / usual:>21.2f} {rate / reduced:>25.2f}", end="")
            print("" if way == "limit" else f"{difference(each['squares'], exact):>25.2f}")
        for workers in [int(n) for n in (arguments.workers or "").split(",") if n]:
            rounds = max(2, int(SECONDS * found["tamis, exact=False"]["rate"] / len(data)))
            one = many("tamis, exact=False", file, arguments.size, 1, rounds)
            several = many("tamis, exact=False", file, arguments.size, workers, rounds)
            print(f"\n{workers} processes: {several / one:.2f} x one ({several:.0f} images/s)", end="")
            one_thread = threaded(file, arguments.size, 1, rounds)
            print(f"; {workers} threads: {threaded(file, arguments.size, workers, rounds) / one_thread:.2f} x one")


if __name__ == "__main__":
    main()
