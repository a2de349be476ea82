"""Small runs whose every row can be told apart, for tests of what a run remembers of a row."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.runs.result import RunResult
from tamis.stages.base import ProcessingStage
from tamis.tasks import DocumentBatch


class OddOnes(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A stage of a user's that returns fewer rows and does not say so."""

    name = "odd ones"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task.with_table(task.data.filter(pc.equal(pc.bit_wise_and(task.data["id"], 1), 1)))


class FailsOn(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Raises for rows with some ids, as long as the environment does not say that the cause is mended."""

    name = "fails"

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = list(ids)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        bad = [n for n in task.data["id"].to_pylist() if n in self.ids]
        if bad and "TEST_MENDED" not in os.environ:
            raise RuntimeError(f"cannot do {bad[0]}")
        return task


def rows_of(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Rows with ids; the text of each has as many words as its id says, modulo 10."""
    return [
        {"id": n, "text": " ".join(["Word"] * (n % 10 + 1)), "lang": "de" if n % 3 else "en"}
        for n in range(first, first + count)
    ]


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """A file with some rows: JSON lines, plain or compressed, or Parquet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=7)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines))
    else:
        path.write_bytes(lines)
    return path


def run_stages(folder: Path, stages: Sequence[ProcessingStage[Any, Any]], **settings: Any) -> RunResult:
    """Run some stages in this process, quietly."""
    executor = settings.pop("executor", None) or LocalExecutor(workers=0)
    return Pipeline("rows", stages=stages).run(executor, run_dir=folder / "run", progress="off", **settings)


def position_of(path: Path, number: int) -> int:
    """The byte where a row of a file of JSON lines starts."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return sum(len(line) for line in data.splitlines(keepends=True)[:number])


def written(folder: Path) -> list[dict[str, Any]]:
    """The rows of the JSON lines below a directory."""
    files = sorted(folder.rglob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]
