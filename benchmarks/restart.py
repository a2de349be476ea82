"""What it costs to start a run again: one that is finished, and one whose input has one more file.

    python benchmarks/restart.py [--files 100000] [--folder DIR]

Many small files are curated, one task each. Then the same script is started again, as a process of its own: with
nothing to do, and with one new file. Beside it stands a plain loop that lists the input and the output and asks for the
size and time of every file: less than that cannot tell that nothing has changed. The aim is less than 3 s for the
finished run of 100,000 tasks. CPU time is shown as well, for machines that others use, too. With ``--folder`` the files
stay there and are used the next time.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUN = """
import sys
from tamis import LocalExecutor, Pipeline
from tamis.stages.io import JsonlReader, JsonlWriter
folder = sys.argv[1]
stages = [JsonlReader(f"{folder}/in", files_per_partition=1), JsonlWriter(f"{folder}/out")]
result = Pipeline("restart", stages=stages).run(LocalExecutor(), run_dir=f"{folder}/run", progress="off")
print(result.summary.tasks_before, result.rows, len(result))
"""


def started(folder: Path) -> float:
    """Seconds that one start of the script takes."""
    began, cpu = time.perf_counter(), cpu_of_children()
    done = subprocess.run([sys.executable, "-c", RUN, str(folder)], check=True, capture_output=True, text=True)
    cpu = cpu_of_children() - cpu
    print(f"  tasks before, rows, output tasks: {done.stdout.strip()}; CPU time {cpu:.2f} s")
    return time.perf_counter() - began


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def plain_listing(folder: Path) -> float:
    """Seconds to ask for every file of the input and of the output."""
    began = time.perf_counter()
    for name in ("in", "out"):
        with os.scandir(folder / name) as entries:
            for entry in entries:
                entry.stat()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        if not (folder / "in").exists():
            (folder / "in").mkdir(parents=True)
            for number in range(given.files):
                Path(folder, "in", f"{number:06d}.jsonl").write_text('{"text": "one small document"}\n')
        print("first start, or what earlier ones left to do")
        first = started(folder)
        print(f"  {first:.1f} s, {1000 * first / given.files:.2f} ms per task")
        for _ in range(2):
            plain = plain_listing(folder)
            print("nothing to do")
            again = started(folder)
            print(f"  {again:.2f} s, {again / plain:.1f} x a plain listing ({plain:.2f} s)")
        with tempfile.NamedTemporaryFile("w", dir=folder / "in", suffix=".jsonl", delete=False) as new:
            new.write('{"text": "one more"}\n')
        print("one file more")
        more = started(folder)
        print(f"  {more:.1f} s, {1000 * more / given.files:.2f} ms per task that was finished before")


if __name__ == "__main__":
    main()
