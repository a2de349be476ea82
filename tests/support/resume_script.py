"""A run on Ray that is killed and continued: resume_script.py INPUT OUTPUT RUN_DIR NOTES EXECUTOR.

Prints how many tasks earlier starts had finished. Stages note in the folder NOTES which files they have processed.
While it holds a file ``hold``, the later half of the input waits.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from tamis import DocumentBatch, LocalExecutor, Pipeline, ProcessingStage
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.stages.mixing import GlobalShuffle

FILES, ROWS = 8, 10


class Waits(ProcessingStage[DocumentBatch, DocumentBatch]):
    name = "waits"

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def process(self, task: DocumentBatch) -> DocumentBatch:
        first = task["n"][0].as_py()
        Path(self.folder, f"process {os.getpid()}").touch()
        while first >= ROWS * FILES // 2 and Path(self.folder, "hold").exists():
            time.sleep(0.05)
        Path(self.folder, f"{first:03d}-{time.monotonic_ns()}").touch()
        return task.keep([n % 3 != 0 for n in task["n"].to_pylist()], "divisible by 3")


def executor_of(name: str) -> Any:
    if name == "streaming":
        from tamis.backends.streaming import StreamingExecutor

        return StreamingExecutor()
    if name == "ray_data":
        from tamis.backends.ray_data import RayDataExecutor

        return RayDataExecutor()
    if name == "xenna":
        from tamis.backends.xenna import XennaExecutor

        return XennaExecutor()
    return LocalExecutor(0)


def run(source: str, target: str, run_dir: str, notes: str, name: str) -> int:
    """Run it; returns how many tasks earlier starts had finished."""
    stages: list[Any] = [JsonlReader(source, files_per_partition=1), Waits(notes), JsonlWriter(target)]
    if Path(notes, "shuffle").exists():
        stages.insert(2, GlobalShuffle(partitions=2))
    result = Pipeline("resumed", stages=stages).run(executor_of(name), run_dir=run_dir, progress="off")
    return result.summary.tasks_before


if __name__ == "__main__":
    sys.stdout.write(f"{run(*sys.argv[1:])}\n")
