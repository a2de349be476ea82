"""Runs workers, on cores of their own, and reads what they print."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers.environments import worker

__all__ = ["CORES", "Ran", "run_worker"]

CORES = sorted(os.sched_getaffinity(0))
MARK = "TAMIS_BENCHMARK_RUN"
"""The environment variable by which a worker's processes are known."""


@dataclass(frozen=True)
class Ran:
    """A worker's run: its answer, wall clock of the whole process, CPU seconds of it and its children."""

    answer: dict[str, Any]
    wall: float
    cpu: float


def run_worker(
    python: str, script: str, *arguments: object, cores: list[int] = CORES, environment: dict[str, str] | None = None
) -> Ran:
    """Run a worker on these cores and read the JSON on its last line."""
    command = [python, worker(script), *map(str, arguments)]
    mark = uuid.uuid4().hex
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # nobody's users set that
    settings = {**inherited, "TAMIS_KERNELS": "wait", "PYTHONHASHSEED": "0", MARK: mark, **(environment or {})}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:  # some workers leave things where they are
        done = subprocess.run(
            command,
            env=settings,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    end_what_is_left(mark)
    if done.returncode:
        raise RuntimeError(f"{script} {' '.join(map(str, arguments))}: {done.stderr.strip()[-1500:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Ran(json.loads(done.stdout.strip().splitlines()[-1]), wall, cpu)


def end_what_is_left(mark: str) -> None:
    """End processes that outlive the worker that started them: Xenna 0.2 leaves some, which would use the cores."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:  # ended meanwhile, or another user's
            continue
