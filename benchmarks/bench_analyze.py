"""``tamis analyze --all`` against the cascade of the same filters, one core, from JSON lines to the end of the process.

    python benchmarks/bench_analyze.py [--input FILE.jsonl] [--megabytes 160] [--repeat 3]

Prints CPU seconds and megabytes per CPU second of each, start-up included, and the ratio to the cascade, which reads
the same file, drops at the first filter that a document fails, and writes what is left. Medians of runs that take
turns. Without an input, the sample data set is used, as often as needed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from tamis.quickstart import sample_files
from tamis.stages.io import JsonlReader
from tamis.tasks import DocumentBatch, EmptyTask

CASCADE = """
import sys
from tamis import LocalExecutor, Pipeline
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.statistics.measures import default_filters
source, out = sys.argv[1:]
stages = [JsonlReader(source), ScoreFilter(default_filters()), JsonlWriter(out + "/kept")]
Pipeline("cascade", stages=stages).run(LocalExecutor(1), run_dir=out + "/run", progress="off")
"""


def corpus(folder: Path, megabytes: int) -> Path:
    """The sample data set as JSON lines of about this size."""
    listing, reader = JsonlReader(sample_files(), on_error="quarantine").decompose()
    batches = [found for split in listing.process(EmptyTask()) for found in reader.process(split)]
    texts = [text for batch in batches if isinstance(batch, DocumentBatch) for text in batch.data["text"].to_pylist()]
    lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts).encode()
    path = folder / "corpus.jsonl"
    path.write_bytes(lines * max(round(megabytes * 1e6 / len(lines)), 1))
    return path


def cpu_seconds(command: list[str]) -> float:
    """User and system time of a process."""
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path)
    parser.add_argument("--megabytes", type=int, default=160)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    os.environ["TAMIS_KERNELS"] = "wait"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = arguments.input or corpus(folder, arguments.megabytes)
        megabytes = source.stat().st_size / 1e6
        analyze = [sys.executable, "-m", "tamis", "analyze", str(source), "--all", "--workers", "1", "--quiet"]
        ways = {
            "cascade, 29 filters": lambda out: [sys.executable, "-c", CASCADE, str(source), out],
            "analyze --all": lambda out: [*analyze, "--output", out],
            "analyze --all --no-languages": lambda out: [*analyze, "--no-languages", "--output", out],
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        for turn in range(arguments.repeat + 1):  # the first one warms up
            for way, command in ways.items():
                with tempfile.TemporaryDirectory(dir=folder) as out:
                    seconds = cpu_seconds(command(out))
                if turn:
                    times[way].append(seconds)
        cascade = median(times["cascade, 29 filters"])
        print(f"{megabytes:.0f} MB of JSON lines")
        for way, seconds_of in times.items():
            seconds = median(seconds_of)
            print(
                f"{way:<32}{seconds:>8.2f} s CPU {megabytes / seconds:>8.1f} MB/s {cascade / seconds:>8.2f} x cascade"
            )


if __name__ == "__main__":
    main()
