"""Semantic deduplication: time, memory and recall, beside scikit-learn and faiss.

    python benchmarks/semantic.py [--rows 1000000] [--memory 2GiB] [--peer-python PYTHON]

Vectors of 384 numbers around 2,000 topics of 40 fields, spread over a few directions of their own as embeddings are;
one in ten is a paraphrase of another (a cosine of about 0.995), one in twenty an exact copy.

All do the same: a row is removed if the cosine with a row before it is at least ``1 - eps``. tamis reads Parquet files
and writes the ids that stay; it runs with and without comparing across the borders of clusters. The peers read one
array, cluster with ``MiniBatchKMeans`` or ``faiss.Kmeans`` and compare in blocks within clusters, with as many clusters
as tamis begins with, the root of the number of rows. Recall is counted on rows that are chosen at random and compared
with all rows before them: which share of those with a similar one was removed. ``PYTHON`` has scikit-learn and faiss:

    python3.11 -m venv peers && peers/bin/pip install numpy scikit-learn faiss-cpu
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DIMENSIONS = 384


@dataclass(frozen=True)
class Measured:
    """One program: seconds by the clock and of all cores, and the largest memory in bytes."""

    wall: float
    cpu: float
    memory: int
    printed: str


def vectors_of(rows: int, seed: int = 1) -> np.ndarray:
    """The vectors, with copies and paraphrases."""
    rng = np.random.default_rng(seed)
    fields = rng.normal(size=(40, DIMENSIONS))
    topics = (fields[rng.integers(0, 40, 2000)] + rng.normal(size=(2000, DIMENSIONS))).astype(np.float32)
    directions = rng.normal(size=(2000, 24, DIMENSIONS)).astype(np.float32) * 0.35
    weights = 1 / np.arange(1, 2001) ** 0.7
    topic = rng.choice(2000, rows, p=weights / weights.sum())
    vectors = np.empty((rows, DIMENSIONS), np.float32)
    by_topic = np.argsort(topic, kind="stable")
    edges = np.searchsorted(topic[by_topic], np.arange(2001))
    for number in range(2000):
        own = by_topic[edges[number] : edges[number + 1]]
        places = rng.normal(size=(len(own), 24)).astype(np.float32)
        noise = rng.normal(size=(len(own), DIMENSIONS)).astype(np.float32) * 0.15
        vectors[own] = topics[number] + places @ directions[number] + noise
    lengths = np.linalg.norm(vectors, axis=1)[:, None]
    vectors /= lengths
    for share, spread in ((10, 0.1 / math.sqrt(DIMENSIONS)), (20, 0.0)):
        source, target = rng.integers(0, rows, (2, rows // share))
        noise = rng.normal(size=(len(source), DIMENSIONS)).astype(np.float32) * np.float32(spread)
        vectors[target] = vectors[source] + noise
    return vectors / np.linalg.norm(vectors, axis=1)[:, None]


def measured(command: list[str]) -> Measured:
    """Run a program."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, env={**os.environ, "TAMIS_KERNELS": "wait"})
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        out.seek(0)
        printed = out.read()
    if status:
        raise SystemExit(f"{' '.join(command)}: exit status {status}\n{printed}")
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, printed)


def dedup(source: str, target: str, eps: float, memory: str, borders: bool) -> None:
    """What one run of tamis does."""
    from tamis import LocalExecutor, Pipeline
    from tamis.stages.deduplication.semantic import SemanticDeduplication
    from tamis.stages.io import ParquetReader, ParquetWriter

    stage = SemanticDeduplication(eps=eps, keep="lowest:id", compare_with="all", borders=borders, memory_budget=memory)
    pipeline = Pipeline("semantic", [ParquetReader(source), stage, ParquetWriter(f"{target}/out", fields=["id"])])
    result = pipeline.run(LocalExecutor(), run_dir=f"{target}/run", progress="off")
    custom = {name: value for stats in result.stages for name, value in stats.custom.items()}
    seconds = {stats.name.rpartition("(")[2].rstrip(")"): round(stats.seconds, 1) for stats in result.stages}
    wanted = ("fit", "assign", "compare")
    print(json.dumps({**custom, "seconds": {name: seconds[name] for name in wanted if name in seconds}}))


def start_up() -> None:
    """What importing takes."""
    import tamis.stages.deduplication.semantic
    import tamis.stages.io  # noqa: F401 - the import is what is measured


def similar_before(vectors: np.ndarray, chosen: np.ndarray, eps: float) -> np.ndarray:
    """Which of some rows have a similar one before them: each is compared with all."""
    has_similar = np.zeros(len(chosen), np.bool_)
    numbers = np.arange(len(vectors))
    for start in range(0, len(vectors), 16384):
        products = vectors[chosen] @ vectors[start : start + 16384].T
        products[numbers[start : start + 16384] >= chosen[:, None]] = -1
        has_similar |= products.max(axis=1) >= 1 - eps
    return has_similar


def make(folder: str, rows: int, eps: float) -> None:
    """Write the vectors, and which of some rows have a similar one before them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    vectors = vectors_of(rows)
    np.save(f"{folder}/vectors.npy", vectors)
    Path(folder, "in").mkdir()
    for start in range(0, len(vectors), 100_000):
        some = vectors[start : start + 100_000]
        column = pa.FixedSizeListArray.from_arrays(pa.array(some.reshape(-1)), DIMENSIONS)
        table = pa.table({"id": np.arange(start, start + len(some)), "embeddings": column})
        path = f"{folder}/in/{start // 100_000:04d}.parquet"
        pq.write_table(table, path, row_group_size=20_000, compression="NONE", use_dictionary=False)
    chosen = np.sort(np.random.default_rng(0).choice(len(vectors), min(2000, len(vectors)), replace=False))
    np.save(f"{folder}/wanted.npy", chosen[similar_before(vectors, chosen, eps)])


def compare(arguments: argparse.Namespace) -> None:
    import pyarrow.parquet as pq

    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        # In another process: what this one takes counts as memory of those that it starts.
        measured([sys.executable, __file__, "--worker", "make", folder, str(arguments.rows), str(arguments.eps)])
        wanted = np.load(f"{folder}/wanted.npy")
        cores, size = len(os.sched_getaffinity(0)), 4 * DIMENSIONS * arguments.rows
        print(
            f"{arguments.rows:,} vectors of {DIMENSIONS}, {size / 2**20:,.0f} MiB, eps {arguments.eps}, {cores} cores"
        )
        print(f"{len(wanted):,} of 2,000 rows have a similar one before them\n", flush=True)
        idle = measured([sys.executable, __file__, "--worker", "idle"])
        runs: dict[str, Measured] = {}
        removed: dict[str, np.ndarray] = {}
        for name, borders in (("tamis", "1"), ("tamis, no borders", "0")):
            target = f"{folder}/{borders}"
            given = [f"{folder}/in", target, str(arguments.eps), arguments.memory, borders]
            runs[name] = measured([sys.executable, __file__, "--worker", "dedup", *given])
            kept = np.concatenate([pq.read_table(p)["id"].to_numpy() for p in Path(target, "out").glob("*.parquet")])
            removed[name] = np.setdiff1d(np.arange(arguments.rows), kept)
            subprocess.run(["rm", "-rf", target], check=True)
        clusters = str(round(math.sqrt(arguments.rows)))
        for peer in ("faiss", "sklearn") if arguments.peer_python else ():
            script, target = str(Path(__file__).with_name("peers") / "semantic_peers.py"), f"{folder}/{peer}.npy"
            given = [peer, f"{folder}/vectors.npy", clusters, str(arguments.eps), target]
            runs[peer] = measured([arguments.peer_python, script, *given])
            removed[peer] = np.load(target)
    ours = runs["tamis"]
    print(f"{'':20} {'seconds':>9} {'of cores':>9} {'x tamis':>8} {'memory':>10} {'removed':>10} {'recall':>7}")
    for name, run in runs.items():
        recall = np.isin(wanted, removed[name]).mean() if len(wanted) else 1.0
        print(f"{name:20} {run.wall:9.1f} {run.cpu:9.1f} {run.cpu / ours.cpu:8.2f} {run.memory / 2**20:6,.0f} MiB "
              f"{len(removed[name]):10,} {recall:7.4f}")  # fmt: skip
    print(f"{'start-up of tamis':20} {idle.wall:9.1f} {idle.cpu:9.1f} {'':8} {idle.memory / 2**20:6,.0f} MiB")
    for name in runs:
        print(f"\n{name}: {runs[name].printed.strip()}")
    print(f"\nbudget {arguments.memory}: tamis took {(ours.memory - idle.memory) / 2**20:,.0f} MiB beside its start-up")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--eps", type=float, default=0.02)
    parser.add_argument("--memory", default="2GiB")
    parser.add_argument("--peer-python")
    parser.add_argument("--folder", help="where the data are made; the system's temporary directory by default")
    parser.add_argument("--worker", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker == ["idle"]:
        start_up()
    elif arguments.worker and arguments.worker[0] == "make":
        make(arguments.worker[1], int(arguments.worker[2]), float(arguments.worker[3]))
    elif arguments.worker:
        source, target, eps, memory, borders = arguments.worker[1:]
        dedup(source, target, float(eps), memory, borders == "1")
    else:
        compare(arguments)


if __name__ == "__main__":
    main()
