"""Memory of a run on Ray, for an input and one ten times as large.

    python benchmarks/ray_memory.py [--megabytes 240] [--times 10]

Reads JSON lines, doubles the text in one stage, shortens it in the next (unfused, so that all data passes through the
object store), writes JSON lines. Prints the highest memory of the driver, of the largest worker and of all workers
together (private memory, without what is shared), the most that was in the object store, and whether anything was
spilled to disk; then the ratio of the large input to the small one. The aim is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

LINE = {"text": "All that is gold does not glitter, and what was written once is read a thousand times. " * 12}
FILE_BYTES = 4_000_000


def write_input(folder: str, megabytes: int) -> int:
    """Files of 4 MB; returns how many bytes they have."""
    lines = FILE_BYTES // len(json.dumps(LINE))
    total = 0
    for number in range(max(1, megabytes * 1_000_000 // FILE_BYTES)):
        rows = [json.dumps({"id": number * lines + n, **LINE}) for n in range(lines)]
        total += Path(folder, f"{number:05d}.jsonl").write_text("\n".join(rows) + "\n")
    return total


class Watch:
    """Looks at the memory of this process and of Ray's workers ten times a second."""

    def __init__(self) -> None:
        self.driver = self.largest = self.workers = self.store = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        import psutil

        here = psutil.Process()
        while not self._stop.wait(0.1):
            sizes = []
            for process in here.children(recursive=True):
                try:
                    if process.name().startswith("ray::RayWorker"):
                        sizes.append(process.memory_full_info().uss)
                except psutil.Error:
                    continue
            self.driver = max(self.driver, here.memory_full_info().uss)
            self.largest = max([self.largest, *sizes])
            self.workers = max(self.workers, sum(sizes))
            self.store = max(self.store, store().object_store_bytes_used)


def store() -> Any:
    """What Ray says of the object store of this machine."""
    from ray._private import internal_api

    return internal_api.get_memory_info_reply(internal_api.get_state_from_address()).store_stats


def measure(megabytes: int) -> dict[str, Any]:
    """One run."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import ray

    from tamis.backends.streaming import StreamingExecutor
    from tamis.pipeline import Pipeline
    from tamis.stages.function_decorators import processing_stage
    from tamis.stages.io import JsonlReader, JsonlWriter
    from tamis.tasks import DocumentBatch

    @processing_stage(name="double")
    def double(task: DocumentBatch) -> DocumentBatch:
        text = task.data["text"]
        return task.with_table(
            task.data.set_column(1, "text", pc.binary_join_element_wise(text, text, pa.scalar(" ", text.type)))
        )

    @processing_stage(name="shorten")
    def shorten(task: DocumentBatch) -> DocumentBatch:
        return task.with_table(task.data.set_column(1, "text", pc.utf8_slice_codeunits(task.data["text"], 0, 100)))

    with tempfile.TemporaryDirectory() as folder:
        for name in ("in", "out"):
            os.mkdir(f"{folder}/{name}")
        total = write_input(f"{folder}/in", megabytes)
        ray.init(address="local", include_dashboard=False, logging_level="ERROR", object_store_memory=400_000_000)
        stages = [JsonlReader(f"{folder}/in", files_per_partition=1), double, shorten, JsonlWriter(f"{folder}/out")]
        with Watch() as watch:
            result = Pipeline("memory", stages=stages).run(
                StreamingExecutor(fuse=False), run_dir=f"{folder}/run", progress="off"
            )
        moved = store().spilled_bytes_total
        ray.shutdown()
    return {
        "input": total,
        "rows": result.summary.output_rows,
        "driver": watch.driver,
        "largest worker": watch.largest,
        "all workers": watch.workers,
        "object store": watch.store,
        "spilled": moved,
        "seconds": result.summary.seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=240)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.megabytes)))
        return
    found = []
    for megabytes in (arguments.megabytes, arguments.megabytes * arguments.times):
        command = [sys.executable, __file__, "--one", "--megabytes", str(megabytes)]
        answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found.append(json.loads(answer.stdout.splitlines()[-1]))
    small, large = found
    print(f"{'':16} {'small':>10} {'large':>10} {'ratio':>8}")
    for name in ("input", "driver", "largest worker", "all workers", "object store", "spilled"):
        ratio = f"{large[name] / small[name]:.2f}" if small[name] else "-"
        print(f"{name:16} {small[name] / 1e6:>7.0f} MB {large[name] / 1e6:>7.0f} MB {ratio:>8}")


if __name__ == "__main__":
    main()
