"""k-means on a GPU: the time of an iteration beside that of the matrix product alone.

    python benchmarks/kmeans_gpu.py [--vectors 2000000] [--dimensions 384] [--clusters 1000] [--device cuda]

Vectors of length one around random centres. The product is that of all vectors with all centres, in blocks that fit,
with numbers of 32 bits (without TF32) and with numbers of 16 bits. The iterations are those of one fit after the first
one, which adds all vectors. It needs NumPy and torch alone, and prints each figure as soon as it is known.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tamis.kernels.centroids import Centroids
from tamis.kernels.kmeans import ClusterSums, KMeans
from tamis.kernels.products import TorchProducts

BLOCK = TorchProducts.rows_at_once


def make_vectors(count: int, dimensions: int, clusters: int, device: str) -> NDArray[np.float32]:
    generator = torch.Generator(device).manual_seed(0)
    centres = torch.randn(clusters, dimensions, generator=generator, device=device)
    homes = torch.randint(clusters, (count,), generator=generator, device=device)
    made = torch.empty(count, dimensions)
    for start in range(0, count, BLOCK):
        some = centres[homes[start : start + BLOCK]]
        some = some + 1.5 * torch.randn(some.shape, generator=generator, device=device)
        made[start : start + BLOCK].copy_(torch.nn.functional.normalize(some))
    found: NDArray[np.float32] = made.numpy()
    return found


def milliseconds(work: Callable[[], object], wait: Callable[[], None]) -> float:
    """The median time of three calls, after one to warm up."""
    times = []
    for _ in range(4):
        wait()
        began = time.perf_counter()
        work()
        wait()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times[1:])


def of_products(vectors: Any, centres: Any, wait: Callable[[], None]) -> tuple[float, float]:
    """How long the product of all vectors and all centres takes, with numbers of 32 and of 16 bits."""
    blocks = vectors.split(BLOCK)
    low, low_centres = [block.half() for block in blocks], centres.half()
    product = milliseconds(lambda: [block @ centres.T for block in blocks], wait)
    return product, milliseconds(lambda: [block @ low_centres.T for block in low], wait)


def iterations(kmeans: KMeans, vectors: NDArray[np.float32], device: str) -> list[float]:
    """How long each iteration of a fit took but the first: an iteration asks once how good the clusters are."""
    ends: list[float] = []
    asked = ClusterSums.between

    def between(sums: ClusterSums) -> float:
        ends.append(time.perf_counter())
        return asked(sums)

    ClusterSums.between = between  # type: ignore  # to know when
    try:
        kmeans.fit(vectors, f"torch:{device}")
    finally:
        ClusterSums.between = asked  # type: ignore  # as above
    return [1000 * float(took) for took in np.diff(ends)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=2_000_000)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    device, began = arguments.device, time.perf_counter()
    wait = torch.cuda.synchronize if device.startswith("cuda") else (lambda: None)

    def say(text: str) -> None:
        print(f"{time.perf_counter() - began:5.1f} s  {text}", flush=True)

    say(f"{arguments.vectors:,} x {arguments.dimensions}, {arguments.clusters:,} clusters, {device}")
    vectors = make_vectors(arguments.vectors, arguments.dimensions, arguments.clusters, device)
    first = Centroids(vectors[: arguments.clusters].copy(), f"torch:{device}")  # from here on, products have 32 bits
    held = first.products.hold(vectors)
    product, half = of_products(held, held[: arguments.clusters].clone(), wait)
    say(f"product alone: 32 bits {product:.1f} ms, 16 bits {half:.1f} ms")
    nearest = milliseconds(lambda: first.nearest(vectors, held, 1.001), wait)
    way = "in one pass" if getattr(first.products, "finds_in_one_pass", False) else "by products"
    say(f"nearest centres of all vectors, {way}: {nearest:.1f} ms")
    some = vectors[:20_000]
    same = np.array_equal(first.nearest(some, held[: len(some)], 1.001), Centroids(first.vectors).nearest(some))
    say(f"the same clusters as on CPUs: {same}")
    kmeans = KMeans(arguments.clusters, init="random", max_iter=1 + arguments.iterations, tol=0)
    times = iterations(kmeans, vectors, device)
    say("iterations of a fit: " + ", ".join(f"{took:.1f}" for took in times) + " ms")
    middle = statistics.median(times)
    say(f"an iteration takes {middle:.1f} ms: {middle / product:.2f} times the product with 32 bits (aim: 2)")
    say(f"  and {middle / half:.2f} times that with 16 bits")


if __name__ == "__main__":
    main()
