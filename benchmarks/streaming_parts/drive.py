"""Runs one job on one engine, in a process of its own and the engine's environment.

    python -m streaming_parts.drive ENGINE VARIANT JOB.json ANSWER.json

The clock runs from the call of the engine to its return: connecting to the cluster and starting workers is part of
it, importing modules is not.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

from streaming_parts.scenarios import Job


def main() -> None:
    engine, variant, job_file, answer_file = sys.argv[1:]
    job = Job(**json.loads(Path(job_file).read_text()))
    module = importlib.import_module(f"streaming_parts.engine_{engine}")
    before = time.process_time()
    began = time.monotonic()
    done = module.run(job, variant)
    ended = time.monotonic()
    answer = {"began": began, "ended": ended, "done": done, "driver_cpu_s": time.process_time() - before}
    Path(answer_file).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
