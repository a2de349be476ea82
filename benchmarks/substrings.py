"""Substring deduplication of one core, against a suffix array of the whole corpus, on 1 x, 4 x and 16 x the data.

    python benchmarks/substrings.py [--input CORPUS.parquet] [--peer-python PYTHON] [--megabytes 128]

The peer sorts all suffixes with ``pydivsufsort`` where the given Python has it (``pip install pydivsufsort``), else with
NumPy, and marks what occurred before. Both must leave the same bytes. Prints MB of text per second of processor time,
the ratio, peak memory of each process, and by which power of the size the time grows. Without an input, documents are
made: random sentences, of which some are repeated.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

os.environ.setdefault("TAMIS_KERNELS", "wait")

FACTORS = (1, 4, 16)
ROWS_PER_FILE = 4096
PEER = Path(__file__).parent / "peers" / "suffix_array.py"
BETWEEN = b"\xff"


def made_texts(megabytes: float) -> list[str]:
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(20_000)]
    sentences = [" ".join(chance.choices(words, k=40)) + ". " for _ in range(1000)]
    texts, size = [], 0
    while size < megabytes * 1e6:
        parts = [
            chance.choice(sentences) if chance.random() < 0.1 else " ".join(chance.choices(words, k=40)) + ". "
            for _ in range(12)
        ]
        texts.append("".join(parts))
        size += len(texts[-1])
    return texts


def peak_bytes() -> int:
    """The most memory that this process had. The figure of ``getrusage`` can be that of the process that started it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def run_tamis(folder: str, min_bytes: int, memory_budget: str) -> dict[str, Any]:
    """In this process, without workers, so that all processor time and memory is counted."""
    from tamis.backends.local import LocalExecutor
    from tamis.pipeline import Pipeline
    from tamis.stages.deduplication.substrings import SubstringDeduplication
    from tamis.stages.io import ParquetReader
    from tamis.testing import run_stage

    stage = SubstringDeduplication(min_bytes=min_bytes, memory_budget=memory_budget)
    run_stage(stage, [{"text": "a" * 1000}, {"text": "b" * 1000}])  # imports and kernels
    with tempfile.TemporaryDirectory() as run_dir:
        began, clock = time.process_time(), time.perf_counter()
        pipeline = Pipeline("substrings", stages=[ParquetReader(folder), stage])
        result = pipeline.run(LocalExecutor(workers=0), run_dir=f"{run_dir}/run", progress="off")
        seconds, wall = time.process_time() - began, time.perf_counter() - clock
        peak = peak_bytes()
        documents = [text.encode() for task in result for text in task.data["text"].to_pylist() if text]
    return {
        "seconds": seconds,
        "wall": wall,
        "peak_bytes": peak,
        "left": sum(map(len, documents)),
        "digest": hashlib.sha256(BETWEEN.join(documents)).hexdigest(),
        "stages": {stats.name: round(stats.seconds, 2) for stats in result.summary.stages},
    }


def in_process(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def write_corpus(texts: list[str], folder: Path) -> int:
    (folder / "parquet").mkdir(parents=True)
    for number, at in enumerate(range(0, len(texts), ROWS_PER_FILE)):
        table = pa.table({"text": pa.array(texts[at : at + ROWS_PER_FILE], pa.large_string())})
        pq.write_table(table, folder / "parquet" / f"{number:05d}.parquet")
    encoded = BETWEEN.join(text.encode() for text in texts)
    (folder / "documents").write_bytes(encoded)
    return len(encoded) - len(texts) + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--megabytes", type=float, default=128, help="of the largest of the three sizes")
    parser.add_argument("--min-bytes", type=int, default=200)
    parser.add_argument("--memory-budget", default="256MiB")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--one", metavar="FOLDER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(run_tamis(given.one, given.min_bytes, given.memory_budget)))
        return
    if given.input:
        table = pq.read_table(given.input, columns=["text"])
        texts = [text for text in table["text"].to_pylist() if text]
    else:
        texts = made_texts(given.megabytes)
    texts = texts[: max(1, round(len(texts) * given.megabytes * 1e6 / sum(len(text.encode()) for text in texts)))]
    times: dict[str, list[tuple[int, float]]] = {"tamis": [], "suffix array": []}
    print(f"spans of {given.min_bytes} bytes, memory_budget={given.memory_budget}, one core")
    for factor in FACTORS:
        some = texts[:: FACTORS[-1] // factor]
        with tempfile.TemporaryDirectory() as place:
            size = write_corpus(some, Path(place))
            own = [sys.executable, __file__, "--one", f"{place}/parquet", "--min-bytes", str(given.min_bytes)]
            runs = {"tamis": in_process([*own, "--memory-budget", given.memory_budget])}
            if not given.no_peer:
                command = [given.peer_python, str(PEER), f"{place}/documents", str(given.min_bytes)]
                runs["suffix array"] = in_process(command)
        ours = runs["tamis"]
        for name, run in runs.items():
            times[name].append((size, run["seconds"]))
            print(
                f"{factor:3} x {size / 1e6:7.1f} MB  {name:12} {size / 1e6 / run['seconds']:6.1f} MB/s "
                f"peak {run['peak_bytes'] / 1e6:7.0f} MB ({run['peak_bytes'] / size:5.1f} x the text)  "
                f"{1 - run['left'] / size:.1%} removed" + (f"  ({run['how']})" if "how" in run else "")
            )
            if run["digest"] != ours["digest"]:
                raise SystemExit(f"{name} leaves other bytes than tamis: {run['left']:,}, not {ours['left']:,}")
        if "suffix array" in runs:
            print(f"      ratio: {runs['suffix array']['seconds'] / ours['seconds']:.1f} x as fast")
        print(f"      {ours['stages']}")
    for name, found in times.items():
        if found:
            (small, first), (large, last) = found[0], found[-1]
            print(
                f"{name}: time grows with the {math.log(last / first) / math.log(large / small):.2f}th power of the size"
            )


if __name__ == "__main__":
    main()
