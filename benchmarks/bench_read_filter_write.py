"""Read, filter, write: peak memory against the size of the input, throughput against a plain loop.

    python benchmarks/bench_read_filter_write.py [--megabytes 256,512,1024,2048] [--files 20000] [--workers N]

The data are the documents of the quickstart's sample, repeated. The filter is trivial (texts of 200 characters and
more stay), so what is measured is reading, writing and the framework. Each run is a process of its own; the plain
loop does the same work without a framework, with the same libraries: Polars for JSON lines (which pyarrow reads but
does not write), pyarrow for Parquet. Prints peak memory, MB/s and the ratio to the plain loop.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCK = 32 * 2**20
MIN_CHARACTERS = 200


# -- the data ----------------------------------------------------------------------------------------------------------


def sample_lines() -> list[bytes]:
    from tamis.quickstart import sample_files
    from tamis.stages.io import JsonlReader
    from tamis.testing import run_stage

    rows = run_stage(JsonlReader(sample_files(), on_error="quarantine"), [])
    return [json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows]


def write_one_file(path: Path, lines: list[bytes], megabytes: int) -> None:
    block = b"".join(lines)
    with path.open("wb") as file:
        for _ in range(megabytes * 10**6 // len(block)):
            file.write(block)
        file.write(block[: block.rfind(b"\n", 0, megabytes * 10**6 % len(block)) + 1])


def write_many_files(folder: Path, lines: list[bytes], count: int, kilobytes: int) -> None:
    folder.mkdir()
    at = 0
    for number in range(count):
        rows, size = [], 0
        while size < 1000 * kilobytes and (not rows or size + len(lines[at]) < 1500 * kilobytes):
            rows.append(lines[at][: 1000 * kilobytes] if lines[at].endswith(b"\n") else lines[at])
            size += len(rows[-1])
            at = (at + 1) % len(lines)
        (folder / f"{number:06d}.jsonl").write_bytes(b"".join(r for r in rows if r.endswith(b"\n")) or lines[0])


def write_parquet(source: Path, target: Path) -> None:
    import polars as pl
    import pyarrow.parquet as pq

    writer = None
    for block in blocks(source):
        table = pl.read_ndjson(block).to_arrow()
        writer = writer or pq.ParquetWriter(target, table.schema, compression="zstd", use_dictionary=False)
        writer.write_table(table, row_group_size=10_000)
    if writer:
        writer.close()


# -- what is measured --------------------------------------------------------------------------------------------------


def run_tamis(source: str, target: str, workers: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    from tamis.backends.local import LocalExecutor
    from tamis.pipeline import Pipeline
    from tamis.stages.base import ProcessingStage
    from tamis.stages.io import JsonlReader, JsonlWriter, ParquetReader, ParquetWriter
    from tamis.tasks import DocumentBatch

    class LongEnough(ProcessingStage[DocumentBatch, DocumentBatch]):
        releases_gil = True

        def process(self, task: DocumentBatch) -> DocumentBatch:
            keep: pa.ChunkedArray = pc.greater_equal(pc.utf8_length(task.data["text"]), MIN_CHARACTERS)
            return task.with_table(task.data.filter(keep))

    parquet = source.endswith(".parquet")
    reader = ParquetReader(source) if parquet else JsonlReader(source)
    writer = ParquetWriter(target) if parquet else JsonlWriter(target)
    executor = LocalExecutor(int(workers) if workers else None)
    pipeline = Pipeline("bench", stages=[reader, LongEnough(), writer])
    result = pipeline.run(executor, run_dir=f"{target}-run", progress="off")
    report(result.summary.output_rows)


def run_plain(source: str, target: str, workers: str) -> None:
    if source.endswith(".parquet"):
        report(plain_parquet(source, target))
    else:
        import polars as pl

        long_enough = pl.col("text").str.len_chars() >= MIN_CHARACTERS
        rows = 0
        with Path(target).open("wb") as file:
            for block in blocks(Path(source)):
                kept = pl.read_ndjson(block).filter(long_enough)
                rows += len(kept)
                kept.write_ndjson(file)
        report(rows)


def blocks(source: Path) -> Any:
    if source.is_dir():
        for path in sorted(source.iterdir()):
            yield path.read_bytes()
        return
    with source.open("rb") as file:
        rest = b""
        while data := file.read(BLOCK):
            whole, _, rest_of_this = (rest + data).rpartition(b"\n")
            rest = rest_of_this
            yield whole
        if rest:
            yield rest


def plain_parquet(source: str, target: str) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    rows, writer = 0, None
    with pq.ParquetFile(source) as file:
        for number in range(file.num_row_groups):
            table = file.read_row_group(number)
            kept = table.filter(pc.greater_equal(pc.utf8_length(table["text"]), MIN_CHARACTERS))
            rows += kept.num_rows
            writer = writer or pq.ParquetWriter(target, kept.schema, compression="zstd", use_dictionary=False)
            writer.write_table(pa.Table.from_batches(kept.to_batches()))
    if writer:
        writer.close()
    return rows


def report(rows: int) -> None:
    """What the parent reads: rows and peak memory in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage() would count the parent's memory at the time of the fork
        peak = 1024 * int(next(x for x in status.read_text().splitlines() if x.startswith("VmHWM")).split()[1])
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"rows": rows, "peak": peak}))


# -- the measurement ---------------------------------------------------------------------------------------------------


def measure(way: Callable[..., None], source: Path, workers: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        command = [sys.executable, __file__, "--do", way.__name__, str(source), f"{folder}/out", workers]
        began = time.perf_counter()
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return {"seconds": time.perf_counter() - began, **json.loads(answer)}


def show(name: str, source: Path, nbytes: int, workers: str) -> None:
    plain, ours = measure(run_plain, source, workers), measure(run_tamis, source, workers)
    assert plain["rows"] == ours["rows"], f"{name}: {plain['rows']} rows by the plain loop, {ours['rows']} by tamis"
    print(
        f"{name:<28}{nbytes / 1e6:>8.0f} MB   peak {ours['peak'] / 1e6:>6.0f} MB   "
        f"{nbytes / 1e6 / ours['seconds']:>6.0f} MB/s   plain {nbytes / 1e6 / plain['seconds']:>6.0f} MB/s "
        f"(peak {plain['peak'] / 1e6:.0f} MB)   ratio {plain['seconds'] / ours['seconds']:.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", default="256,512,1024,2048")
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--workers", default="")
    parser.add_argument("--do", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.do:
        way, *rest = arguments.do
        {"run_tamis": run_tamis, "run_plain": run_plain}[way](*rest)
        return
    lines = sample_lines()
    folder = Path(tempfile.mkdtemp(prefix="tamis-bench-"))
    try:
        for megabytes in map(int, arguments.megabytes.split(",")):
            path = folder / "one.jsonl"
            write_one_file(path, lines, megabytes)
            show("one JSON lines file", path, path.stat().st_size, arguments.workers)
        short = [line for line in lines if len(line) < 8000]
        write_many_files(folder / "many", short, arguments.files, 10)
        nbytes = sum(p.stat().st_size for p in (folder / "many").iterdir())
        show(f"{arguments.files:,} JSON lines files", folder / "many", nbytes, arguments.workers)
        write_parquet(folder / "one.jsonl", folder / "one.parquet")
        nbytes = (folder / "one.jsonl").stat().st_size
        show("one Parquet file (as JSON)", folder / "one.parquet", nbytes, arguments.workers)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
