"""What the framework costs per task: empty tasks through three stages, against a bare loop over the same stages.

    python benchmarks/bench_overhead.py [--tasks 10000]

Prints milliseconds of wall time per task for each way of running, fused and not, start-up included, and the same for
a loop that just calls the stages. The aim is less than 0.2 ms a task on threads.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.tasks import EmptyTask, Task


class Pass(ProcessingStage[Task[Any], Task[Any]]):
    """Hands its task on."""

    releases_gil = True

    def process(self, task: Task[Any]) -> Task[Any]:
        return task


def bare_loop(tasks: int) -> float:
    stages = [Pass(), Pass(), Pass()]
    began = time.perf_counter()
    for _ in range(tasks):
        task: Task[Any] = EmptyTask()
        for stage in stages:
            task = stage.process(task)
    return time.perf_counter() - began


def framework(tasks: int, workers: int, substrate: Any, fuse: bool) -> float:
    stages = [Pass().with_(name=f"stage {i}") for i in range(3)]
    initial = [EmptyTask() for _ in range(tasks)]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        executor = LocalExecutor(workers, substrate, fuse=fuse)
        result = Pipeline("empty", stages=stages).run(executor, initial, run_dir=f"{folder}/run", progress="off")
        seconds = time.perf_counter() - began
        assert len(result) == tasks
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=10_000)
    tasks = parser.parse_args().tasks
    bare = bare_loop(tasks)
    print(f"{'way':<28}{'ms per task':>14}")
    print(f"{'bare loop':<28}{1000 * bare / tasks:>14.4f}")
    for workers, substrate in ((0, "inline"), (1, "threads"), (2, "threads"), (8, "threads"), (2, "processes")):
        for fuse in (True, False):
            seconds = framework(tasks, workers, substrate, fuse)
            way = f"{substrate} {workers or ''} {'fused' if fuse else 'three groups'}"
            print(f"{way:<28}{1000 * seconds / tasks:>14.4f}")


if __name__ == "__main__":
    main()
