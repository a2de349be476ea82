"""What a run on Ray costs beyond its work: start-up, and a thousand tiny tasks through three stages.

    python benchmarks/ray_overhead.py [--tasks 1000] [--engines streaming,streaming-unfused,ray-data,xenna]

Each engine runs the same pipeline of three empty stages in a process of its own, on a Ray that is running already: once
with one task (that is its start-up) and once with all of them; the difference is what the tasks cost. Beside it the
limit: the same number of plain calls of Ray actors, three for each task, one after the other through three actors, as
many in flight as there are tasks. Last, the quickstart on a Ray that it starts itself.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from typing import Any

ENGINES = ("streaming", "streaming-unfused", "ray-data", "xenna", "plain-actors")


def executor_of(engine: str) -> Any:
    """The executor of a name."""
    if engine == "ray-data":
        from tamis.backends.ray_data import RayDataExecutor

        return RayDataExecutor(fuse=False)
    if engine == "xenna":
        from tamis.backends.xenna import XennaExecutor

        return XennaExecutor()
    from tamis.backends.streaming import StreamingExecutor

    return StreamingExecutor(fuse=engine == "streaming")


def run_tamis(engine: str, tasks: int) -> float:
    """Seconds of one run of three empty stages."""
    from tamis.pipeline import Pipeline
    from tamis.stages.function_decorators import processing_stage
    from tamis.tasks import DocumentBatch

    @processing_stage(name="same")
    def same(task: DocumentBatch) -> DocumentBatch:
        return task

    given = [DocumentBatch({"n": [n]}) for n in range(tasks)]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        result = Pipeline("tiny", stages=[same, same, same]).run(
            executor_of(engine), given, run_dir=f"{folder}/run", progress="off", drop_ledger=False
        )
        seconds = time.perf_counter() - began
    assert result.summary.stages[-1].tasks_out == tasks, "a task is missing"
    return seconds


def run_plain(tasks: int) -> float:
    """Seconds of three actor calls for each task."""
    import ray

    @ray.remote(num_cpus=0)
    class Same:
        def process(self, task: Any) -> Any:
            return task

    began = time.perf_counter()
    first, second, third = (Same.remote() for _ in range(3))
    ray.get([third.process.remote(second.process.remote(first.process.remote(n))) for n in range(tasks)])
    return time.perf_counter() - began


def measure(engine: str, tasks: int) -> dict[str, float]:
    """Start-up and tasks of one engine, in this process."""
    import ray

    ray.init(
        address="local", include_dashboard=False, logging_level="ERROR", log_to_driver=False, object_store_memory=2**29
    )
    time.sleep(5)  # a cluster that has been running for a while
    run = run_plain if engine == "plain-actors" else lambda n: run_tamis(engine, n)
    run(1)  # what a process imports once is not what a run costs
    start_up = min(run(1) for _ in range(2))
    total = run(tasks)
    ray.shutdown()
    return {"start_up_s": start_up, "tasks_s": max(0.0, total - start_up), "total_s": total}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.tasks)))
        return
    found = {}
    for engine in arguments.engines.split(","):
        command = [sys.executable, __file__, "--one", engine, "--tasks", str(arguments.tasks)]
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        found[engine] = json.loads(answer.stdout.splitlines()[-1])
    print(f"{arguments.tasks:,} tiny tasks through three stages, on a running Ray")
    print(f"{'':20} {'start-up':>9} {'tasks':>9} {'ms a task and stage':>20}")
    for engine, seconds in found.items():
        each = 1000 * seconds["tasks_s"] / (3 * arguments.tasks)
        print(f"{engine:20} {seconds['start_up_s']:>7.2f} s {seconds['tasks_s']:>7.2f} s {each:>20.2f}")
    ours = found.get("streaming-unfused") or found.get("streaming")
    if ours:
        for engine in found.keys() - {"streaming", "streaming-unfused"}:
            print(f"{engine} / streaming, total: {found[engine]['total_s'] / ours['total_s']:.1f}")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tamis", "quickstart", "--executor", "streaming", "--output", folder, "-q"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    print(f"quickstart on a Ray of its own: {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
