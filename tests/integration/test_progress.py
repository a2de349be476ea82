"""The progress of a real run: it moves before a long task is done."""

from __future__ import annotations

import gzip
import json
import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.runs.progress import NoProgress
from tamis.runs.stats import Snapshot
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import JsonlReader, ParquetReader
from tamis.tasks import DocumentBatch


class Fractions(NoProgress):
    """Makes a file once a share between 0 and 1 is shown."""

    def __init__(self, shown: Path) -> None:
        self.shown = shown

    def update(self, snapshot: Snapshot) -> None:
        if snapshot.fraction is not None and 0 < snapshot.fraction < 1:
            self.shown.touch()


@pytest.mark.parametrize("substrate", ["threads", "processes"])
@pytest.mark.parametrize("batches", ["one batch", "many batches"])
def test_progress_moves_within_a_task(tmp_path: Path, substrate: Any, batches: str) -> None:
    rng = random.Random(0)
    texts = [rng.randbytes(400).hex() for _ in range(400)]
    reader: ParquetReader | JsonlReader
    if batches == "one batch":
        pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
        reader = ParquetReader(str(tmp_path / "a.parquet"))
    else:  # a compressed file cannot be split: it is one task, read in blocks
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
        reader = JsonlReader(str(tmp_path / "a.jsonl.gz"), blocksize="40kB")
    shown = tmp_path / "shown"

    @processing_stage(name="waits")
    def waits(task: DocumentBatch) -> DocumentBatch:
        deadline = time.monotonic() + 60
        while not shown.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        return task

    executor = LocalExecutor(workers=1, substrate=substrate)
    pipeline = Pipeline("p", stages=[reader, waits])
    result = pipeline.run(executor, run_dir=str(tmp_path / "run"), progress=Fractions(shown))
    assert result.stage(type(reader).__name__).tasks_in == 1
    assert (result.rows, shown.exists()) == (400, True)


def test_progress_moves_within_a_task_in_the_calling_thread(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"text": random.Random(n).randbytes(400).hex()}) + "\n" for n in range(400))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.encode()))

    @processing_stage(name="waits")
    def waits(task: DocumentBatch) -> DocumentBatch:
        time.sleep(0.15)  # progress is not shown more often
        return task

    reader = JsonlReader(str(tmp_path / "a.jsonl.gz"), blocksize="40kB")
    shown = tmp_path / "shown"
    result = Pipeline("p", stages=[reader, waits]).run(
        LocalExecutor(workers=0), run_dir=str(tmp_path / "run"), progress=Fractions(shown)
    )
    assert result.stage("JsonlReader").tasks_in == 1
    assert (result.rows, shown.exists()) == (400, True)
