"""What the records of a run cost: the ledger of finished tasks, and the drop ledger, beside 28 filters.

    python benchmarks/bench_ledger.py [--input data.jsonl] [--repeat 15] [--workers 2]

Shares are measured inside the runs, in CPU time of all threads, so that other programs on the machine do not blur them.
The ledger is recording, committing and publishing; the drop ledger is collecting the names and scores of dropped rows
and writing them. As a check, runs with and without the drop ledger take turns: their difference includes the examples
of dropped rows that the report reads from the source.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench_read_filter_write import sample_lines, write_one_file

from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.runs.drops import DropLog
from tamis.runs.journal import RunJournal
from tamis.runs.result import RunResult
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetReader
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.statistics.measures import default_filters

MEGABYTES, FILTERS = 200, 28


@dataclass
class Spent:
    """CPU seconds in some functions, over all threads."""

    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._lock, self._inside = threading.Lock(), threading.local()

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time added up; calls inside a call count once."""

        def call(*arguments: Any, **named: Any) -> Any:
            if getattr(self._inside, "call", False):
                return function(*arguments, **named)
            self._inside.call, began = True, time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self._inside.call = False
                with self._lock:
                    self.seconds += time.thread_time() - began

        return call


def run(source: str, folder: str, workers: int, *, drop_ledger: bool) -> tuple[float, RunResult]:
    """The CPU seconds of a run, and the run."""
    reader: Any = ParquetReader(source) if source.endswith(".parquet") else JsonlReader(source)
    filters = [ScoreFilter(one) for one in default_filters()[:FILTERS]]
    pipeline = Pipeline("ledger", stages=[reader, *filters, JsonlWriter(f"{folder}/out")])
    began = time.process_time()
    result = pipeline.run(
        LocalExecutor(workers, "threads"), run_dir=f"{folder}/run", progress="off", drop_ledger=drop_ledger
    )
    return time.process_time() - began, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", help="JSON lines or Parquet with a column text; else the sample data, repeated")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    ledger, drops = Spent(), Spent()
    for name in ("fed", "record", "flush", "_commit"):
        setattr(RunJournal, name, ledger.timed(getattr(RunJournal, name)))
    for owner, name in ((DropLog, "add"), (DropLog, "table"), (RunJournal, "_write_drops")):
        setattr(owner, name, drops.timed(getattr(owner, name)))
    with tempfile.TemporaryDirectory() as folder:
        source = arguments.input
        if source is None:
            source = f"{folder}/data.jsonl"
            write_one_file(Path(source), sample_lines(), MEGABYTES)
        times: dict[bool, list[float]] = {True: [], False: []}
        ledger_shares: list[float] = []
        drop_shares: list[float] = []
        for number in range(arguments.repeat + 1):
            for drop_ledger in (False, True) if number % 2 else (True, False):
                ledger.seconds = drops.seconds = 0.0
                with tempfile.TemporaryDirectory(dir=folder) as place:
                    seconds, result = run(source, place, arguments.workers, drop_ledger=drop_ledger)
                    if drop_ledger:
                        dropped = sum(stage.rows_dropped for stage in result.stages)
                        nbytes = sum(p.stat().st_size for p in Path(place, "run", "drops").iterdir())
                if number:  # the first ones load everything
                    times[drop_ledger].append(seconds)
                    if drop_ledger:
                        drop_shares.append(drops.seconds / seconds)
                    else:
                        ledger_shares.append(ledger.seconds / seconds)
        without, with_drops = min(times[False]), min(times[True])  # other programs only add to CPU times
        print(f"{result.stages[1].rows_out} documents, {dropped} dropped, {FILTERS} filters, {without:.2f} s of CPU")
        print(f"ledger: {median(ledger_shares):.2%} of the run")
        print(f"drop ledger: {median(drop_shares):.2%}, {nbytes / max(1, dropped):.1f} bytes per dropped row")
        print(f"a run with it takes {with_drops / without - 1:+.2%}")


if __name__ == "__main__":
    main()
