"""Deduplication with all the cores of a machine, against one, and against separate processes.

    python benchmarks/dedup_cores.py documents.parquet [--megabytes 2000] [--workers 1,16] [--kinds fuzzy,exact]

The documents are copied until there are enough, with other letters in each copy (a permutation of the alphabet), so
that the copies are not duplicates of each other. They are read from Parquet, deduplicated and written to Parquet. The
limit of the machine is measured in the same run: as many processes as workers, each with one worker and its share of
the files, do the same work without knowing of each other. Prints seconds, how many times as fast as one worker that is,
and its part of the limit.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import string
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FILES = 64


def write_copies(documents: str, folder: Path, megabytes: int) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    texts = pq.read_table(documents, columns=["text"]).column("text").drop_null().cast(pa.large_string())
    texts = pa.concat_arrays(texts.chunks)
    wanted = megabytes * 10**6 // FILES
    lengths = pc.cumulative_sum(pc.binary_length(texts))
    most = max(1, pc.sum(pc.less(lengths, wanted)).as_py())
    for number in range(FILES):
        start = (number * 7919) % max(1, len(texts) - most)
        part = pa.concat_arrays([texts.slice(start, most)])
        letters = random.Random(number).sample(string.ascii_letters, len(string.ascii_letters))
        table = bytes.maketrans(string.ascii_letters.encode(), "".join(letters).encode())
        _, offsets, data = part.buffers()
        other = pa.py_buffer(data.to_pybytes().translate(table))
        array = pa.Array.from_buffers(pa.large_string(), len(part), [None, offsets, other])
        pq.write_table(pa.table({"text": array}), folder / f"{number:03d}.parquet", compression="lz4")


def run(kind: str, files: list[str], target: str, workers: int) -> None:
    from tamis.backends.local import LocalExecutor
    from tamis.pipeline import Pipeline
    from tamis.stages.deduplication.exact import ExactDeduplication
    from tamis.stages.deduplication.fuzzy import FuzzyDeduplication
    from tamis.stages.io import ParquetReader, ParquetWriter

    stage = FuzzyDeduplication() if kind == "fuzzy" else ExactDeduplication()
    for number, some in enumerate((files[:1], files)):  # the first loads everything
        stages = [
            ParquetReader(some, files_per_partition=1),
            stage,
            ParquetWriter(f"{target}/out-{number}", write_kwargs={"compression": "lz4"}),
        ]
        began = time.perf_counter()
        result = Pipeline("bench", stages).run(
            LocalExecutor(workers), run_dir=f"{target}/run-{number}", progress="off", data_card=False
        )
        if number == 0:
            print("ready", flush=True)
            sys.stdin.readline()
    print(time.perf_counter() - began, result.summary.output_rows, flush=True)


def measure(kind: str, shares: list[list[str]], workers: int, folder: Path) -> float:
    """Seconds until processes that start at the same moment are done, one for each share of the files."""
    with tempfile.TemporaryDirectory(dir=folder) as target:
        processes = []
        for number, files in enumerate(shares):
            command = [sys.executable, __file__, "--do", kind, f"{target}/{number}", str(workers), *files]
            pipe = subprocess.PIPE
            processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline().strip() != "ready":
                raise SystemExit("a run failed")
        began = time.perf_counter()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        codes = [process.wait() for process in processes]
        if any(codes):
            raise SystemExit("a run failed")
        return time.perf_counter() - began


def main() -> None:
    if sys.argv[1:2] == ["--do"]:
        run(sys.argv[2], sys.argv[5:], sys.argv[3], int(sys.argv[4]))
        return
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", help="a Parquet file with a column text")
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--workers", default=f"1,{cores}")
    parser.add_argument("--kinds", default="fuzzy,exact")
    parser.add_argument("--folder", default=None, help="where the data are written")
    arguments = parser.parse_args()
    counts = sorted(map(int, arguments.workers.split(",")))
    folder = Path(tempfile.mkdtemp(prefix="tamis-bench-", dir=arguments.folder))
    try:
        (folder / "in").mkdir()
        write_copies(arguments.documents, folder / "in", arguments.megabytes)
        files = sorted(str(path) for path in (folder / "in").iterdir())
        print(f"{arguments.megabytes} MB of text, {cores} cores")
        for kind in arguments.kinds.split(","):
            taken = {count: measure(kind, [files], count, folder) for count in counts}
            limit = measure(kind, [files[n :: counts[-1]] for n in range(counts[-1])], 1, folder)
            most, one = taken[counts[-1]], taken[counts[0]]
            shown = ", ".join(f"{count} workers {seconds:.2f} s" for count, seconds in taken.items())
            print(
                f"{kind}: {shown}: {one / most:.1f} times one; separate processes {limit:.2f} s, "
                f"{one / limit:.1f} times one: {limit / most:.2f} of the limit",
                flush=True,
            )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
