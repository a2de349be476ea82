"""All pairs of 64-bit hashes within 4 bits, against the binary indexes of faiss.

    python benchmarks/hamming.py --faiss-python PYTHON [--count 10_000_000] [--queries 100_000] [--threads 2]

The hashes are random, and one in ten has a planted neighbour 1 to 6 bits away. Each way is a process of its own, with
the same hashes and the same number of threads. tamis finds all pairs; faiss is asked for the neighbours of some of the
hashes in an index of all of them (``range_search``), and the time of all of them is extrapolated from that: building
the index, which is measured, and as many times the search as there are hashes for each query. ``IndexBinaryMultiHash``
has three tables of 21 bits with one flip, which find every pair within 4 bits. Pairs of the queries must be the same in
all ways, and those of 50 hashes the same as found by comparing these with all.

Black images: the same number of hashes, half of them equal to one, and a tenth of them within 2 bits of it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

DISTANCE = 4

TAMIS = """
import json, sys, time
import numpy as np
from tamis.kernels.hamming import Choices, similar_pairs
folder, threads, queries, distance = sys.argv[1], *map(int, sys.argv[2:5])
hashes = np.load(f"{folder}/hashes.npy")
similar_pairs(hashes[:1000], distance)
open("/proc/self/clear_refs", "w").write("5")  # forget the peak so far

def memory(field):
    for line in open("/proc/self/status"):
        if line.startswith(field):
            return int(line.split()[1]) * 1024

before, began, busy = memory("VmRSS"), time.perf_counter(), time.process_time()
distinct, first = np.unique(hashes, return_index=True)
left, right, bits = similar_pairs(distinct, distance, threads)
seconds, busy, peak = time.perf_counter() - began, time.process_time() - busy, memory("VmHWM") - before
left, right = first[left], first[right]
wanted = (left < queries) | (right < queries)
np.save(f"{folder}/tamis.npy", np.sort(np.stack([left, right])[:, wanted], axis=0))
print(json.dumps({"seconds": seconds, "busy": busy, "bytes": peak, "pairs": len(left),
                  "choices": len(Choices.of(len(distinct), distance).all)}))
"""

FAISS = """
import json, sys, time
import numpy as np, faiss
folder, threads, queries, distance, kind = sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5]
faiss.omp_set_num_threads(threads)
hashes = np.load(f"{folder}/hashes.npy").view(np.uint8).reshape(-1, 8)
began = time.perf_counter()
if kind == "flat":
    index = faiss.IndexBinaryFlat(64)
else:
    index = faiss.IndexBinaryMultiHash(64, 3, 21)
    index.nflip = 1
index.add(hashes)
built = time.perf_counter() - began
began = time.perf_counter()
limits, distances, found = index.range_search(hashes[:queries], distance + 1)
searched = time.perf_counter() - began
query = np.repeat(np.arange(queries), np.diff(limits.astype(np.int64)))
other = found != query
pairs = np.stack([query[other], found[other].astype(np.int64)])
np.save(f"{folder}/{kind}.npy", np.sort(pairs, axis=0))
print(json.dumps({"built": built, "searched": searched}))
"""


def write_hashes(path: Path, count: int) -> None:
    """Different random hashes, of which one in ten has a neighbour."""
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**64, count, np.uint64)
    copies, originals = rng.permutation(count)[: count // 10], rng.integers(0, count, count // 10)
    near = hashes[originals]
    for flip in range(6):
        flipped = near ^ (np.uint64(1) << rng.integers(0, 64, len(near), np.uint64))
        near = np.where(flip < rng.integers(1, 7, len(near)), flipped, near)
    hashes[copies] = near
    np.save(path, rng.permutation(np.unique(hashes)))


def write_black(path: Path, count: int) -> None:
    """Hashes of which half are zero, and a tenth have up to two bits."""
    rng = np.random.default_rng(1)
    hashes = rng.integers(0, 2**64, count, np.uint64)
    hashes[: count // 2] = 0
    few = np.zeros(count // 10, np.uint64)
    for _ in range(2):
        few |= np.uint64(1) << rng.integers(0, 64, len(few), np.uint64)
    hashes[count // 2 : count // 2 + len(few)] = few
    np.save(path, rng.permutation(hashes))


def run(python: str, code: str, *arguments: object) -> dict[str, float]:
    """What a way prints."""
    command = [python, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def pair_set(path: Path) -> set[tuple[int, int]]:
    """The pairs that a way wrote."""
    return set(map(tuple, np.load(path).T.tolist()))


def brute(hashes: np.ndarray, row: int) -> set[tuple[int, int]]:
    """The pairs of one hash, found by comparing it with all."""
    ones = np.array([value.bit_count() for value in range(256)], np.uint8)
    bits = ones[(hashes ^ hashes[row]).view(np.uint8)].reshape(-1, 8).sum(axis=1)
    return {(min(row, at), max(row, at)) for at in np.flatnonzero(bits <= DISTANCE).tolist() if at != row}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faiss-python", required=True, help="a Python that has faiss-cpu")
    parser.add_argument("--count", type=lambda text: int(text.replace("_", "")), default=10_000_000)
    parser.add_argument("--queries", type=lambda text: int(text.replace("_", "")), default=100_000)
    parser.add_argument("--flat-queries", type=lambda text: int(text.replace("_", "")), default=500)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    count, threads = options.count, options.threads
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_hashes(folder / "hashes.npy", count)
        ours = run(sys.executable, TAMIS, folder, threads, options.queries, DISTANCE)
        print(f"{count:,} hashes, all pairs within {DISTANCE} bits, {threads} threads")
        count = len(np.load(folder / "hashes.npy"))
        print(f"tamis                 {told(ours)}, {ours['choices']:.0f} choices of blocks")
        mine = pair_set(folder / "tamis.npy")
        for kind, label, queries in (
            ("multihash", "IndexBinaryMultiHash", options.queries),
            ("flat", "IndexBinaryFlat", options.flat_queries),
        ):
            theirs = run(options.faiss_python, FAISS, folder, threads, queries, DISTANCE, kind)
            whole = theirs["built"] + theirs["searched"] * count / queries
            same = pair_set(folder / f"{kind}.npy") == {pair for pair in mine if pair[0] < queries}
            print(
                f"{label:21s} {whole:8.1f} s, extrapolated: {theirs['built']:.1f} s to build, "
                f"{theirs['searched']:.2f} s for {queries:,} queries; {whole / ours['seconds']:.1f} x tamis; "
                f"same pairs: {same}"
            )
        hashes = np.load(folder / "hashes.npy")
        near = {row: {pair for pair in mine if row in pair} for row in range(50)}
        right = all(brute(hashes, row) == pairs for row, pairs in near.items())
        print(f"exact for 50 hashes compared with all: {right}")
        write_black(folder / "hashes.npy", count)
        print(f"black images          {told(run(sys.executable, TAMIS, folder, threads, 0, DISTANCE))}")


def told(figures: dict[str, float]) -> str:
    """What a run of tamis took."""
    return (
        f"{figures['seconds']:8.1f} s  ({figures['busy']:.1f} s of cores, {figures['pairs']:,.0f} pairs, "
        f"{figures['bytes'] / 1e9:.2f} GB)"
    )


if __name__ == "__main__":
    main()
