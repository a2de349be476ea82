"""What publishing a file costs the driver, and how a run that writes many files scales with its workers.

    python benchmarks/publication.py [--files 2000] [--input-mb 200] [--blocksize 8MiB] [--workers 1,2,4]

First, files that are written already are published: by the journal of a run, and by a plain loop that appends a line to
a log, forces it to disk and renames the file. Both in one run, in milliseconds of the driver's thread per file. The aim
is less than 0.5 ms.

Then JSON lines are read, filtered and written, with one output file for each block, by more and more workers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from pathlib import Path

from tamis.backends.local import LocalExecutor
from tamis.backends.payload import enclose
from tamis.pipeline import Pipeline
from tamis.runs.directory import RunDirectory
from tamis.runs.journal import RunJournal
from tamis.stages.emit import Publish
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import ScoreFilter, WordCountFilter
from tamis.tasks import FileGroup


def written_files(folder: Path, count: int) -> list[Publish]:
    """Files as workers leave them."""
    folder.mkdir()
    found = []
    for number in range(count):
        temporary = folder / f".part-{number:06d}.tmp"
        temporary.write_bytes(b"x" * 4096)
        found.append(Publish(str(temporary), str(folder / f"part-{number:06d}"), 10, 4096, needs_sync=True))
    os.sync()
    return found


def plain_loop(folder: Path, count: int) -> float:
    """Milliseconds per file: one line in a log, fsync, rename."""
    files = written_files(folder / "plain", count)
    with (folder / "log").open("ab") as log:
        began = time.perf_counter()
        for item in files:
            log.write(json.dumps({"path": item.final, "rows": item.rows}).encode() + b"\n")
            log.flush()
            os.fsync(log.fileno())
            os.replace(item.temporary, item.final)
        return 1000 * (time.perf_counter() - began) / count


def journal(folder: Path, count: int) -> tuple[float, float, float]:
    """Milliseconds per file: in which the driver waits, in which it computes, and until all files have their names."""
    files = written_files(folder / "journal", count)
    directory = RunDirectory.create("publication", str(folder / "run"))
    books = RunJournal(directory)
    outputs = [enclose(FileGroup([item.final], order=(n,)), -1) for n, item in enumerate(files)]
    began, began_cpu = time.perf_counter(), time.thread_time()
    for number, (item, output) in enumerate(zip(files, outputs, strict=True)):
        books.record("JsonlReader", [f"{number:016x}"], [item])
        books.output(output)
    waited, computed = time.perf_counter() - began, time.thread_time() - began_cpu
    books.flush()
    total = time.perf_counter() - began
    books.close()
    return 1000 * waited / count, 1000 * computed / count, 1000 * total / count


def write_input(path: Path, nbytes: int) -> None:
    """JSON lines of texts of very different lengths."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(5000)]
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < nbytes:
            rows = ({"id": n, "text": " ".join(rng.choices(words, k=rng.randint(20, 600)))} for n in range(200))
            file.writelines(json.dumps(row) + "\n" for row in rows)


def one_run(source: Path, folder: Path, blocksize: str, workers: int) -> tuple[float, int]:
    """Seconds and output files."""
    stages = [
        JsonlReader(str(source), blocksize=blocksize),
        ScoreFilter(WordCountFilter(min_words=100)),
        JsonlWriter(str(folder / f"out-{workers}")),
    ]
    began = time.perf_counter()
    result = Pipeline("publication", stages=stages).run(
        LocalExecutor(workers), run_dir=str(folder / f"run-{workers}"), progress="off"
    )
    return time.perf_counter() - began, result.summary.output_files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--input-mb", type=int, default=200)
    parser.add_argument("--blocksize", default="8MiB")
    parser.add_argument("--workers", default="", help="numbers of workers; by default 1, 2, 4, ... up to the cores")
    parser.add_argument("--folder", default=None, help="a folder on the disk to measure; a temporary one by default")
    arguments = parser.parse_args()
    cores = os.cpu_count() or 1
    doubled = [2**n for n in range(cores.bit_length()) if 2**n < cores]
    counts = [int(n) for n in arguments.workers.split(",")] if arguments.workers else [*doubled, cores]
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        plain, (waits, computes, total) = plain_loop(folder, arguments.files), journal(folder, arguments.files)
        print(f"publishing {arguments.files} files{'ms per file':>20}")
        print(f"{'log, fsync and rename in a plain loop':<42}{plain:>8.3f}")
        print(f"{'journal: the driver is busy':<42}{waits:>8.3f}   {plain / waits:.1f} times less")
        print(f"{'journal: CPU time of the driver':<42}{computes:>8.3f}")
        print(f"{'journal: until all files have their names':<42}{total:>8.3f}")
        source = folder / "in.jsonl"
        write_input(source, arguments.input_mb * 10**6)
        one_run(source, folder / "warm", arguments.blocksize, counts[0])  # kernels are compiled, the input is cached
        first = 0.0
        for workers in counts:
            seconds, files = one_run(source, folder, arguments.blocksize, workers)
            first = first or seconds
            print(
                f"{files} files of {arguments.blocksize}, {workers} workers: {seconds:.2f} s, {first / seconds:.2f} x"
            )


if __name__ == "__main__":
    main()
