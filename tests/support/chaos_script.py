"""A run with fan-out, a branch and a shuffle, to be killed: INPUT OUTPUT RUN_DIR EXECUTOR [all]."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from tamis import DocumentBatch, LocalExecutor, Pipeline, processing_stage
from tamis.runs.histograms import read_scores
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.deduplication.fuzzy import FuzzyDeduplication
from tamis.stages.deduplication.semantic import SemanticDeduplication
from tamis.stages.flow import Route
from tamis.stages.io import JsonlReader, JsonlWriter, ParquetWriter
from tamis.stages.text.columns import DropColumns
from tamis.stages.text.embedders import HashedEmbeddingStage

DEDUPLICATIONS: dict[str, list[Any]] = {
    "exact": [ExactDeduplication()],
    "all": [
        ExactDeduplication(),
        FuzzyDeduplication(char_ngrams=6, num_bands=10, verify=0.8),
        HashedEmbeddingStage(dim=64),
        SemanticDeduplication(n_clusters=6, eps=0.01, partitions=3, refine_rounds=1),
        DropColumns(["embeddings"]),
    ],
}


@processing_stage(name="thirds", fans_out=True)
def thirds(task: DocumentBatch) -> list[DocumentBatch]:
    time.sleep(0.02)
    return [task.select(range(start, task.num_items, 3)) for start in range(3)]


@processing_stage(name="mark")
def mark(task: DocumentBatch) -> DocumentBatch:
    time.sleep(0.01)
    numbers = task["n"].to_pylist()
    marked = task.with_column("half", ["a" if n % 2 else "b" for n in numbers])
    return marked.keep([n % 7 != 0 for n in numbers], "divisible by 7", score=numbers)


def main() -> None:
    source, target, run_dir, name = sys.argv[1:5]
    kind = (sys.argv[5:] or ["exact"])[0]
    branches = {"a": [JsonlWriter(f"{target}/a", shard_bytes="2KiB")], "b": [ParquetWriter(f"{target}/b")]}
    stages = [
        JsonlReader(source, files_per_partition=1),
        thirds,
        mark,
        *DEDUPLICATIONS[kind],
        thirds.with_(name="again"),
        Route("half", branches),
    ]
    if name == "streaming":
        from tamis.backends.streaming import StreamingExecutor

        executor = StreamingExecutor()
    else:
        executor = LocalExecutor(2, name)
    result = Pipeline("chaos", stages=stages).run(executor, run_dir=run_dir, progress="off")
    counts = {
        s.name: [s.rows_in, s.rows_out, s.dropped, s.quarantined, s.files] for s in result.stages if not s.internal
    }
    drops = result.drops().drop_columns(["source"]).to_pylist()
    scores = {s: {name: h.to_dict() for name, h in known.items()} for s, known in read_scores(run_dir).items()}
    told = {"counts": counts, "drops": drops, "scores": scores, "before": result.summary.tasks_before}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
