"""Deduplicates Parquet files, or copies them: Parquet to Parquet.

    python tamis_dedup.py WAY FOLDER OUTPUT WORKERS [MEMORY]

WAY is ``copy`` (read and write), ``exact``, ``fuzzy`` (24 characters, the default) or ``words`` (n-grams of five words
of texts in lower case without punctuation, as datatrove has them). MEMORY is the budget of the stage and of the
executor. Prints rows, and seconds by stage, as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

from tamis import LocalExecutor, Pipeline
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.deduplication.fuzzy import FuzzyDeduplication
from tamis.stages.io import ParquetReader, ParquetWriter


def stages_for(way: str, memory: str) -> list[Any]:
    if way == "copy":
        return []
    if way == "exact":
        return [ExactDeduplication(memory_budget=memory)]
    if way == "words":
        normalize = ("lower", "whitespace", "punctuation")
        return [FuzzyDeduplication(word_ngrams=5, normalize=normalize, memory_budget=memory)]
    return [FuzzyDeduplication(memory_budget=memory)]


def run(way: str, folder: str, output: str, workers: str, memory: str = "") -> dict[str, Any]:
    stages = [ParquetReader(folder), *stages_for(way, memory or "2GiB"), ParquetWriter(output)]
    executor = LocalExecutor(int(workers), memory_budget=memory or None)
    with tempfile.TemporaryDirectory(dir=output.rpartition("/")[0]) as runs:
        began = time.perf_counter()
        result = Pipeline("deduplicate", stages).run(executor, run_dir=f"{runs}/run", progress="off")
        seconds = time.perf_counter() - began
    rows = [stage.rows_out for stage in result.stages if stage.name == "ParquetReader"]
    dropped = sum(sum(stage.dropped.values()) for stage in result.stages)
    by_stage = {stage.name: stage.seconds for stage in result.stages if stage.seconds}
    return {"seconds": seconds, "rows": rows[0], "removed": dropped, "stages": by_stage}


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:])))
