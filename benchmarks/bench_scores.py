"""What the histograms of scores cost: reading, 28 filters and writing, and the time spent on counting their scores.

    python benchmarks/bench_scores.py

The time spent on histograms is measured inside the same run, so that other programs on the machine do not blur it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from bench_read_filter_write import sample_lines, write_one_file

from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.runs.stats import StageStats
from tamis.stages.io.jsonl import JsonlReader
from tamis.stages.text.filters import ScoreFilter
from tamis.stages.text.filters.chain import Step
from tamis.stages.text.io.writer import JsonlWriter
from tamis.stages.text.statistics.measures import default_filters

MEGABYTES, FILTERS = 100, 28


def main() -> None:
    spent = 0.0

    def timed(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            nonlocal spent
            began = time.perf_counter()
            result = function(*arguments)
            spent += time.perf_counter() - began
            return result

        return call

    with tempfile.TemporaryDirectory() as folder:
        write_one_file(Path(folder, "data.jsonl"), sample_lines(), MEGABYTES)
        stages = [ScoreFilter(one) for one in default_filters()[:FILTERS]]
        pipeline = Pipeline(
            "scores", stages=[JsonlReader(f"{folder}/data.jsonl"), *stages, JsonlWriter(f"{folder}/out")]
        )
        Step.note, StageStats.add_scores = timed(Step.note), timed(StageStats.add_scores)  # type: ignore[method-assign]  # put in their place to be timed
        for number in range(3):
            spent, began = 0.0, time.perf_counter()
            result = pipeline.run(LocalExecutor(workers=0), run_dir=f"{folder}/run{number}", progress="off")
            total = time.perf_counter() - began
        read, kept = result.stages[1].rows_out, result.rows
        print(
            f"{read} documents, {kept} kept, {FILTERS} filters: {total:.2f} s, of which histograms {spent / total:.2%}"
        )


if __name__ == "__main__":
    main()
