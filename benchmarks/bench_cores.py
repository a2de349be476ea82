"""All the cores of a machine: how much faster a run gets with more workers, against separate processes.

    python benchmarks/bench_cores.py [--megabytes 2000] [--workers 1,8,16] [--blocks 8MiB,32MiB,64MiB] [--only all]

JSON lines are read, filtered (the rules of Gopher) and written, by more and more workers. The limit of the machine is
measured in the same run: as many processes as there are workers, each with one worker and its share of the data, do the
same without knowing of each other. What they lose against one process with all of the data is lost to memory, caches
and the disk, and no program can win it back. Prints seconds, how many times as fast as one worker, and the same as a
part of the limit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench_read_filter_write import sample_lines, write_one_file

WAYS = {"read": "r", "filters": "rf", "write": "rw", "all": "rfw"}


def stages_of(way: str, source: str, target: str, block: str) -> list[Any]:
    from tamis.stages.base import ProcessingStage
    from tamis.stages.io import JsonlReader, JsonlWriter
    from tamis.stages.text.sets import GopherQuality, GopherRepetition

    class Leave(ProcessingStage[Any, Any]):
        releases_gil = True
        makes_rows = "new"

        def process(self, task: Any) -> None:
            return None

    parts = WAYS[way]
    stages: list[Any] = [JsonlReader(source, blocksize=block)]
    stages += [GopherRepetition(), GopherQuality()] if "f" in parts else []
    return [*stages, JsonlWriter(target) if "w" in parts else Leave()]


def run(way: str, source: str, target: str, block: str, workers: int, small: str, substrate: Any) -> float:
    """Seconds of a run, after one over a little data by which everything is loaded."""
    from tamis.backends.local import LocalExecutor
    from tamis.pipeline import Pipeline

    for number, data in enumerate((small, source)):
        began = time.perf_counter()
        pipeline = Pipeline("bench", stages=stages_of(way, data, f"{target}/out-{number}", block))
        pipeline.run(LocalExecutor(workers, substrate), run_dir=f"{target}/run-{number}", progress="off")
        if number == 0:
            print("ready", flush=True)
            sys.stdin.readline()
    return time.perf_counter() - began


def measure(way: str, sources: list[Path], block: str, workers: int, substrate: str = "threads") -> float:
    """Seconds until processes that start at the same moment are done, one for each source."""
    small = sources[0].parent / "small.jsonl"
    with tempfile.TemporaryDirectory(dir=sources[0].parent) as folder:
        processes = []
        for number, source in enumerate(sources):
            target = f"{folder}/{number}"
            os.mkdir(target)
            command = [sys.executable, __file__, "--do", way, str(source), target, block, str(workers), str(small)]
            command.append(substrate)
            pipe = subprocess.PIPE
            processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise SystemExit(f"a run failed: {process.args}")
        began = time.perf_counter()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        if sum(process.wait() != 0 for process in processes):
            raise SystemExit("a run failed")
        return time.perf_counter() - began


def cut(path: Path, parts: int) -> list[Path]:
    """A file in parts of about the same size, at the ends of lines."""
    folder = path.parent / f"in-{parts}"
    folder.mkdir(exist_ok=True)
    found, size = [], path.stat().st_size
    with path.open("rb") as file:
        for number in range(parts):
            length = size * (number + 1) // parts - file.tell()
            found.append(folder / f"{number}.jsonl")
            found[-1].write_bytes(file.read(length) + file.readline())
    shutil.copy(path.parent / "small.jsonl", folder)
    return found


def main() -> None:
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--workers", default=",".join(str(n) for n in sorted({1, max(cores // 2, 1), cores})))
    parser.add_argument("--blocks", default="8MiB,32MiB,64MiB")
    parser.add_argument("--only", default=",".join(WAYS), help="of: " + ", ".join(WAYS))
    parser.add_argument("--folder", default=None, help="where the data are written")
    parser.add_argument("--no-limit", action="store_true", help="do not measure separate processes")
    parser.add_argument("--substrate", default="auto", help="auto, threads or processes")
    parser.add_argument("--do", nargs=7, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.do:
        way, source, target, block, workers, small, substrate = arguments.do
        run(way, source, target, block, int(workers), small, substrate)
        return
    counts = sorted(map(int, arguments.workers.split(",")))
    folder = Path(tempfile.mkdtemp(prefix="tamis-bench-", dir=arguments.folder))
    try:
        lines = sample_lines()
        write_one_file(folder / "small.jsonl", lines, 2)
        whole = folder / "one.jsonl"
        write_one_file(whole, lines, arguments.megabytes)
        parts = cut(whole, counts[-1])
        print(f"{arguments.megabytes} MB of JSON lines, {cores} cores; seconds with {arguments.workers} workers")
        for way in arguments.only.split(","):
            for block in arguments.blocks.split(","):
                taken = [measure(way, [whole], block, count, arguments.substrate) for count in counts]
                shown = " / ".join(f"{seconds:.2f}" for seconds in taken)
                text = f"{way:<8} {block:>6}   {shown}   {taken[0] / taken[-1]:.1f} times one"
                if not arguments.no_limit:
                    limit = measure(way, parts, block, 1)
                    text += f"   separate processes {limit:.2f}, {taken[0] / limit:.1f} times one: "
                    text += f"{limit / taken[-1]:.2f} of the limit"
                print(text, flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
