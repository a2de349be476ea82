"""How far ``tamis plan --estimate`` is from the run that follows: time, memory and size of the output.

    python benchmarks/bench_estimate.py [--text FILE.parquet] [--megabytes 600] [--repeat 3] [--only NAME]

Three pipelines: the quickstart on its sample, repeated; the 28 filters of the recipe ``english``; exact deduplication.
The last two read the column ``text`` of a Parquet file, repeated, with a number before each text that makes a third of
the documents duplicates. Prints estimate divided by measurement, of each repetition and the median; 1 is exact.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tamis.pipeline.recipe import load_recipe
from tamis.quickstart import quickstart_pipeline, sample_files

FILE_BYTES = 48_000_000


def write_lines(folder: Path, lines: Iterator[bytes], nbytes: int) -> None:
    """Write lines to files of equal size, as much as asked for."""
    folder.mkdir()
    written = 0
    for number in range(-(-nbytes // FILE_BYTES)):
        with (folder / f"{number:04d}.jsonl").open("wb") as file:
            for line in lines:
                file.write(line)
                written += len(line)
                if file.tell() >= FILE_BYTES or written >= nbytes:
                    break


def sample_lines() -> Iterator[bytes]:
    """The lines of the quickstart's sample, without end. A number makes those of each round different."""
    files = []
    for path in map(Path, sample_files()):
        with pa.input_stream(str(path), compression="detect") as file:
            files.append([line + b"\n" for line in file.read().split(b"\n") if line])
    number = 0
    while True:
        number += 1
        for lines in files:
            for line in lines:
                yield line.replace(b'"text": "', f'"text": "{number} '.encode(), 1)


def document_lines(path: Path) -> Iterator[bytes]:
    """Documents without end: every second one of a round comes again in the next."""
    texts = pq.read_table(path, columns=["text"]).column("text").to_pylist()
    number = 0
    while True:
        number += 1
        for i, text in enumerate(texts):
            yield json.dumps({"text": f"{number if i % 2 else number // 2} {text}"}).encode() + b"\n"


def recipes(text: Path | None, folder: Path) -> dict[str, str]:
    """The recipes by their names."""
    found = {"quickstart": quickstart_pipeline(str(folder / "quickstart-out")).to_recipe()}
    if text is not None:
        found["28 filters"] = Path(load_recipe("english").source).read_text(encoding="utf-8")
        found["deduplication"] = "stages:\n  - JsonlReader: {file_paths: x}\n  - ExactDeduplication\n"
        found["deduplication"] += "  - JsonlWriter: {path: x, mode: overwrite}\n"
    return found


def write_input(name: str, folder: Path, text: Path, nbytes: int) -> None:
    """Write the input of a pipeline, unless it is there.

    In a process of its own: the highest memory of a process that a large one starts is that of the large one.
    """
    source = folder / ("sample" if name == "quickstart" else "documents")
    if not source.exists():
        for other in folder.glob("[sd][ao]*"):
            shutil.rmtree(other)
        process = multiprocessing.get_context("spawn").Process(target=_write, args=(source, text, nbytes))
        process.start()
        process.join()


def _write(source: Path, text: Path, nbytes: int) -> None:
    write_lines(source, sample_lines() if source.name == "sample" else document_lines(text), nbytes)


def command(*arguments: str) -> dict[str, Any]:
    """Run the command in a process of its own; return what it prints as JSON."""
    done = subprocess.run([sys.executable, "-m", "tamis", *arguments], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr)
    values: dict[str, Any] = json.loads(done.stdout)
    return values


def compare(name: str, recipe: str, folder: Path) -> dict[str, float]:
    """Estimate a run, do it, and return estimate divided by measurement."""
    path = folder / "recipe.yaml"
    path.write_text(recipe, encoding="utf-8")
    source = folder / ("sample" if name == "quickstart" else "documents")
    where = ["--input", str(source), "--output", str(folder / f"out {name}")]
    if name == "28 filters":
        where += ["--set", "3.mode=overwrite"]
    estimate = command("plan", str(path), "--estimate", "--json", *where)
    run = command("run", str(path), "--fresh", "--quiet", "--json", "--run-dir", str(folder / "run"), *where)
    low, high = estimate["seconds_range"]
    print(
        f"  {name}: {estimate['input_bytes'] / 1e6:.0f} MB, sample {estimate['sample_bytes'] / 1e6:.0f} MB in "
        f"{estimate['sample_seconds']:.1f} s; estimate {estimate['seconds']:.1f} s ({low:.1f} to {high:.1f}), "
        f"run {run['seconds']:.1f} s",
        flush=True,
    )
    return {
        "time": estimate["seconds"] / run["seconds"],
        "memory": estimate["memory_bytes"] / run["peak_memory_bytes"],
        "output": estimate["output_bytes"] / run["output_bytes"],
        "rows": estimate["output_rows"] / run["output_rows"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--megabytes", type=int, default=600)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = recipes(arguments.text, Path(folder))
        for name, recipe in found.items():
            if arguments.only in (None, name):
                write_input(name, Path(folder), arguments.text, arguments.megabytes * 10**6)
                ratios = [compare(name, recipe, Path(folder)) for _ in range(arguments.repeat)]
                for what in ratios[0]:
                    values = [r[what] for r in ratios]
                    shown = " ".join(f"{v:.2f}" for v in values)
                    print(f"{name:<16}{what:<10}{median(values):>6.2f}   ({shown})", flush=True)


if __name__ == "__main__":
    main()
