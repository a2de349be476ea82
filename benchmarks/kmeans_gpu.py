"""k-means on a GPU: the time of an iteration beside that of the matrix product alone, and of faiss where it is there.

    python benchmarks/kmeans_gpu.py [--vectors 2000000] [--dimensions 384] [--clusters 1000]

Vectors of length one around random centres. An iteration is the difference of fits with many and with few iterations,
which are made to go on to the end; the product is that of all vectors with all centres, with numbers of 32 bits and
without TF32, in blocks that fit.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from tamis.kernels.kmeans import KMeans

BLOCK = 32768


def make_vectors(count: int, dimensions: int, clusters: int) -> NDArray[np.float32]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator = torch.Generator(device).manual_seed(0)
    centres = torch.randn(clusters, dimensions, generator=generator, device=device)
    homes = torch.randint(clusters, (count,), generator=generator, device=device)
    made = torch.empty(count, dimensions)
    for start in range(0, count, BLOCK):
        some = centres[homes[start : start + BLOCK]]
        some = some + 1.5 * torch.randn(some.shape, generator=generator, device=device)
        made[start : start + BLOCK] = torch.nn.functional.normalize(some).cpu()
    found: NDArray[np.float32] = made.numpy()
    return found


def seconds_of(work: Callable[[], object]) -> float:
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=2_000_000)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--iterations", type=int, default=10)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "torch:cpu"
    vectors = make_vectors(arguments.vectors, arguments.dimensions, arguments.clusters)

    def fit(iterations: int) -> float:
        began = time.perf_counter()
        made = KMeans(arguments.clusters, init="random", max_iter=iterations, tol=0).fit(vectors, device)
        if made.iterations < iterations:
            raise SystemExit(f"it ended after {made.iterations} iterations")
        return time.perf_counter() - began

    fit(2)
    few = fit(2)
    iteration = (fit(2 + arguments.iterations) - few) / arguments.iterations
    held = torch.from_numpy(vectors).to(device.removeprefix("torch:"))
    centres = held[: arguments.clusters].clone()
    torch.backends.cuda.matmul.allow_tf32 = False
    blocks = [held[start : start + BLOCK] for start in range(0, len(held), BLOCK)]
    product = seconds_of(lambda: [block @ centres.T for block in blocks])
    low = [block.half() for block in blocks]
    half = seconds_of(lambda: [block @ centres.half().T for block in low])
    print(f"{arguments.vectors:,} x {arguments.dimensions}, {arguments.clusters:,} clusters, {device}")
    print(f"  start and 2 iterations {few:.2f} s; a further iteration {1000 * iteration:.1f} ms")
    print(f"  product alone: 32 bits {1000 * product:.1f} ms, 16 bits {1000 * half:.1f} ms")
    print(f"  an iteration takes {iteration / product:.2f} times the product with 32 bits")


if __name__ == "__main__":
    main()
