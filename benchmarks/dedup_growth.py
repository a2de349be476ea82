"""Deduplication of more and more data: time and memory.

    python benchmarks/dedup_growth.py --input CORPUS.parquet [--megabytes 50] [--times 1,4,16] [--memory 64MiB]

The documents of CORPUS that are mostly ASCII, and copies of them in which letters are replaced by others, another
replacement for each copy. So the documents of different copies are not alike, and within each copy as many are
duplicates as in the first: the data grow and the share of duplicates stays the same.

Prints CPU time and wall clock for each size, the exponent by which CPU time grows from one size to the next (1: linear)
as it is and without start-up, which is measured on one document; and the peak memory of all processes of a run: what
they allocated, and with it the pages of mapped files, which the system takes back when it needs them. The first row is
the start-up: what Python and the libraries take.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from peers.environments import worker

_EVERY_S = 0.02
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)


@dataclass(frozen=True)
class Measured:
    """One run. Memory in bytes: allocated, and with pages of mapped files."""

    megabytes: float
    wall: float
    cpu: float
    allocated: int
    resident: int
    removed: int
    rows: int


def ascii_documents(path: str, megabytes: float) -> list[bytes]:
    """Documents of which at most one byte of fifty is not ASCII, so many megabytes of them."""
    column = pq.read_table(path, columns=["text"])["text"]
    bytes_, characters = pc.binary_length(column), pc.utf8_length(column)
    column = column.filter(pc.less_equal(pc.subtract(bytes_, characters), pc.divide(bytes_, 50)))
    documents, size = [], 0
    for text in column.to_pylist():
        if size >= megabytes * 1e6:
            break
        documents.append(text.encode())
        size += len(documents[-1])
    return documents


def replacement(copy: int) -> bytes:
    """The table of a replacement of letters; none for the first copy."""
    table = np.arange(256, dtype=np.uint8)
    if copy:
        shuffled = np.random.default_rng(copy).permutation(26)
        table[_LETTERS], table[_LETTERS - 32] = _LETTERS[shuffled], _LETTERS[shuffled] - 32
    return table.tobytes()


def write_copies(documents: list[bytes], folder: Path, first: int, stop: int) -> None:
    for copy in range(first, stop):
        table = replacement(copy)
        texts = pa.array([text.translate(table) for text in documents], pa.binary()).cast(pa.large_string())
        pq.write_table(
            pa.table({"text": texts}), folder / f"{copy:03d}.parquet", compression="zstd", row_group_size=5_000
        )


def measure(way: str, folder: Path, megabytes: float, workers: int, memory: str) -> Measured:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=folder.parent) as output:
        command = [sys.executable, worker("tamis_dedup.py"), way, str(folder), f"{output}/out", str(workers), memory]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "TAMIS_KERNELS": "wait"})
        allocated = resident = 0
        while process.poll() is None:
            now = memory_of_tree(process.pid)
            allocated, resident = max(allocated, now[0]), max(resident, now[1])
            time.sleep(_EVERY_S)
        wall = time.perf_counter() - began
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    answer = json.loads(lines[-1])
    return Measured(megabytes, wall, cpu, allocated, resident, answer["removed"], answer["rows"])


def memory_of_tree(process: int) -> tuple[int, int]:
    """Memory that a process and its children take now: allocated, and with pages of mapped files."""
    allocated = resident = 0
    waiting = [process]
    while waiting:
        folder = Path(f"/proc/{waiting.pop()}")
        try:
            lines = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            for children in folder.glob("task/*/children"):
                waiting += map(int, children.read_text().split())
            allocated += sum(1024 * int(lines[name].split()[0]) for name in ("RssAnon", "RssShmem"))
            resident += 1024 * int(lines["VmRSS"].split()[0])
        except (OSError, KeyError):  # ended meanwhile
            continue
    return allocated, resident


def show(way: str, runs: list[Measured], memory: str) -> None:
    print(f"\n{way}, memory_budget={memory}")
    heads = ("MB", "rows", "removed", "CPU s", "wall s", "MB/s CPU", "exponent", "no start", "allocated", "with files")
    print("".join(f"{head:>11}" for head in heads))
    for number, run in enumerate(runs):
        grown = number > 1
        exponent = f"{growth(runs[number - 1], run):.3f}" if grown else ""
        bare = f"{growth(runs[number - 1], run, runs[0].cpu):.3f}" if grown else ""
        cells = (
            *(f"{run.megabytes:,.0f}", f"{run.rows:,}", f"{100 * run.removed / run.rows:.2f} %"),
            *(f"{run.cpu:.1f}", f"{run.wall:.1f}", f"{run.megabytes / run.cpu:.1f}", exponent, bare),
            *(f"{run.allocated / 2**20:,.0f} MiB", f"{run.resident / 2**20:,.0f} MiB"),
        )
        print("".join(f"{cell:>11}" for cell in cells))
    if len(runs) > 2:
        walls = math.log(runs[-1].wall / runs[1].wall) / math.log(runs[-1].megabytes / runs[1].megabytes)
        print(
            f"exponent over all: CPU time {growth(runs[1], runs[-1]):.3f}, without start-up "
            f"{growth(runs[1], runs[-1], runs[0].cpu):.3f}, wall clock {walls:.3f}"
        )


def growth(smaller: Measured, larger: Measured, start: float = 0.0) -> float:
    """The exponent by which CPU time grows; without so many seconds of start-up."""
    return math.log((larger.cpu - start) / (smaller.cpu - start)) / math.log(larger.megabytes / smaller.megabytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, help="a Parquet file with a column text")
    parser.add_argument("--megabytes", type=float, default=50, help="of text in one copy")
    parser.add_argument("--times", default="1,4,16", help="numbers of copies")
    parser.add_argument("--ways", default="fuzzy,exact,copy", help="of fuzzy, exact and copy (read and write only)")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--memory", default="64MiB", help="memory budget of the stage and of the executor, each")
    parser.add_argument("--folder", help="where the data are written; a temporary folder by default")
    given = parser.parse_args()
    times = [int(number) for number in given.times.split(",")]
    documents = ascii_documents(given.input, given.megabytes)
    megabytes = sum(map(len, documents)) / 1e6
    runs: dict[str, list[Measured]] = {way: [] for way in given.ways.split(",")}
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder, single = Path(name, "data"), Path(name, "single")
        folder.mkdir()
        single.mkdir()
        write_copies(documents[:1], single, 0, 1)
        for way, measured in runs.items():
            measured.append(measure(way, single, len(documents[0]) / 1e6, given.workers, given.memory))
        written = 0
        for count in times:
            write_copies(documents, folder, written, count)
            written = count
            for way, measured in runs.items():
                measured.append(measure(way, folder, count * megabytes, given.workers, given.memory))
                print(f"{way}, {measured[-1].megabytes:,.0f} MB: {measured[-1].cpu:.1f} s of CPU time", flush=True)
    for way, measured in runs.items():
        show(way, measured, given.memory)


if __name__ == "__main__":
    main()
