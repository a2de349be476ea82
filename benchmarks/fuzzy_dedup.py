"""Deduplication end to end on one core, Parquet to Parquet: tamis against datatrove, and against reading and writing.

    python benchmarks/fuzzy_dedup.py --input CORPUS.parquet [--megabytes 16] [--repetitions 3]
        [--datatrove-python PYTHON]

Fuzzy: read, signatures, buckets, components, removal, write. tamis and datatrove have the same bands and rows (20 of
13) on the same files: the first megabytes of text of CORPUS, on which datatrove takes minutes. datatrove has n-grams of
five words; tamis has 24 characters, its default, and five words of texts in lower case without punctuation. Exact:
``ExactDeduplication`` against the same reader and writer without it.

Each run is a process on one core, start-up included; repetitions alternate, and ratios are those of medians. CPU time
is the better measure where other processes use the machine.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from peers.environments import datatrove_python
from peers.running import CORES, Ran, run_worker

BANDS, ROWS, WORDS = 20, 13, 5
FILES = 4


def write_files(table: pa.Table, folder: Path) -> float:
    """Write documents to some files; return megabytes of text."""
    folder.mkdir()
    # Ids are texts: datatrove's writer leaves out an id of 0, and stops at the next one.
    ids = pa.array([str(number) for number in range(table.num_rows)])
    table = pa.table({"id": ids, "text": table["text"]})
    step = -(-table.num_rows // FILES)
    for number in range(FILES):
        part = table.slice(number * step, step)
        pq.write_table(part, folder / f"{number}.parquet", compression="zstd", row_group_size=5_000)
    return float(pc.sum(pc.binary_length(table["text"])).as_py()) / 1e6


def first_megabytes(table: pa.Table, megabytes: float) -> pa.Table:
    ends = pc.cumulative_sum(pc.binary_length(table["text"]).cast(pa.int64()))
    return table.slice(0, pc.sum(pc.less_equal(ends, int(megabytes * 1e6)).cast(pa.int64())).as_py())


def tamis(way: str, folder: Path) -> Ran:
    with tempfile.TemporaryDirectory(dir=folder.parent) as output:
        return run_worker(sys.executable, "tamis_dedup.py", way, folder, f"{output}/out", 1, cores=CORES[:1])


def datatrove(python: str, folder: Path, tokenizer: str) -> Ran:
    with tempfile.TemporaryDirectory(dir=folder.parent) as output:
        arguments = (folder, f"{output}/out", BANDS, ROWS, WORDS, tokenizer)
        return run_worker(python, "datatrove_dedup.py", "run", *arguments, cores=CORES[:1])


def alternate(ways: dict[str, Callable[[], Ran]], repetitions: int) -> dict[str, list[Ran]]:
    """Run each way so often, in turns."""
    runs: dict[str, list[Ran]] = defaultdict(list)
    for _ in range(repetitions):
        for name, way in ways.items():
            runs[name].append(way())
    return runs


def show(title: str, megabytes: dict[str, float], runs: dict[str, list[Ran]], base: str) -> None:
    """Times, megabytes per second, and how many times as long as one of them it takes per megabyte."""
    print(f"\n{title}")
    print(f"{'':<36}{'MB':>8}{'wall s':>9}{'CPU s':>9}{'MB/s CPU':>10}{'wall, x':>10}{'CPU, x':>10}{'removed':>9}")
    cost = {
        name: [
            statistics.median(values) / megabytes[name] for values in zip(*((r.wall, r.cpu) for r in some), strict=True)
        ]
        for name, some in runs.items()
    }
    for name, some in runs.items():
        wall, cpu = (one * megabytes[name] for one in cost[name])
        ratios = [per / reference for per, reference in zip(cost[name], cost[base], strict=True)]
        answer = some[0].answer
        removed = answer["removed"]
        count = removed if isinstance(removed, int) else sum(map(len, removed.values()))
        print(
            f"{name:<36}{megabytes[name]:>8.1f}{wall:>9.2f}{cpu:>9.2f}{1 / cost[name][1]:>10.2f}"
            f"{ratios[0]:>10.2f}{ratios[1]:>10.2f}{count:>9,}"
        )


def show_stages(runs: list[Ran], megabytes: float) -> None:
    """Where the time of tamis goes."""
    print(f"\n{'by stage, seconds of the wall clock':<44}{'s':>8}{'MB/s':>10}")
    for name in runs[0].answer["stages"]:
        seconds = statistics.median(run.answer["stages"][name] for run in runs)
        print(f"{name:<44}{seconds:>8.3f}{megabytes / seconds:>10.0f}")


def show_hashing(folder: Path, megabytes: float, repetitions: int) -> None:
    """CPU time of signatures and banding: the kernels alone, and the step of the stage that writes what it made."""
    from tamis.kernels.minhash import MinHash, band_hashes
    from tamis.stages.base import WorkerMetadata
    from tamis.stages.deduplication.fuzzy import FuzzyDeduplication
    from tamis.tasks import DocumentBatch

    batches = [DocumentBatch(pq.read_table(path)) for path in sorted(folder.glob("*.parquet"))]
    minhash, stage = MinHash(), FuzzyDeduplication().decompose()[0]
    minhash.signatures(pa.array(["a first use loads the kernels"]))
    kernels, steps = [], []
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            stage.setup(WorkerMetadata(scratch=scratch))
            began = time.process_time()
            for batch in batches:
                band_hashes(minhash.signatures(batch.data["text"]), BANDS)
            kernels.append(time.process_time() - began)
            began = time.process_time()
            for number, batch in enumerate(batches):
                batch.order = (number,)
                for _ in stage.process(batch):
                    pass
            steps.append(time.process_time() - began)
    kernel, step = (statistics.median(seconds) for seconds in (kernels, steps))
    print(f"\nsignatures and banding: {megabytes / kernel:.0f} MB/s of CPU time")
    print(f"the same with rows, documents and buckets written: {megabytes / step:.0f} MB/s ({step / kernel:.2f} x)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, help="a Parquet file with a column text")
    parser.add_argument("--megabytes", type=float, default=16, help="of text, for the comparison with datatrove")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--datatrove-python", help="an interpreter that has datatrove")
    parser.add_argument("--datatrove-tokenizers", default="split,default")
    parser.add_argument("--without-datatrove", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = pq.read_table(given.input)
        whole = write_files(table, folder / "whole")
        part = write_files(first_megabytes(table, given.megabytes), folder / "part")
        ways: dict[str, Callable[[], Ran]] = {
            "read and write": lambda: tamis("copy", folder / "whole"),
            "exact": lambda: tamis("exact", folder / "whole"),
            "fuzzy, 24 characters": lambda: tamis("fuzzy", folder / "whole"),
            "fuzzy, 5 words": lambda: tamis("words", folder / "whole"),
        }
        runs = alternate(ways, given.repetitions)
        show("tamis, times what reading and writing takes", dict.fromkeys(ways, whole), runs, "read and write")
        show_stages(runs["fuzzy, 24 characters"], whole)
        show_hashing(folder / "whole", whole, given.repetitions)
        if given.without_datatrove:
            return
        python = datatrove_python(given.datatrove_python)
        write_files(table.slice(0, FILES), folder / "few")
        ways_on: dict[str, Callable[[Path], Ran]] = {
            "tamis, 24 characters": lambda files: tamis("fuzzy", files),
            "tamis, 5 words": lambda files: tamis("words", files),
        }
        for tokenizer in given.datatrove_tokenizers.split(","):
            way = functools.partial(datatrove, python, tokenizer=tokenizer)
            ways_on[f"datatrove, 5 words, {tokenizer}"] = way
        peers = {name: functools.partial(way, folder / "part") for name, way in ways_on.items()}
        starts = {name: way(folder / "few").cpu for name, way in ways_on.items()}
        beside = alternate(peers, max(1, given.repetitions - 1))
        title = "times what tamis takes with 24 characters, start-up included"
        show(title, dict.fromkeys(peers, part), beside, "tamis, 24 characters")
        show_without_start(beside, starts, part, "tamis, 24 characters")


def show_without_start(runs: dict[str, list[Ran]], starts: dict[str, float], megabytes: float, base: str) -> None:
    """The same without what each takes for a handful of documents."""
    net = {name: statistics.median(run.cpu for run in some) - starts[name] for name, some in runs.items()}
    print(f"\n{'without start-up':<36}{'start, CPU s':>14}{'rest, CPU s':>14}{'MB/s':>9}{'CPU, x':>9}")
    for name, seconds in net.items():
        print(f"{name:<36}{starts[name]:>14.2f}{seconds:>14.2f}{megabytes / seconds:>9.2f}{seconds / net[base]:>9.2f}")


if __name__ == "__main__":
    main()
