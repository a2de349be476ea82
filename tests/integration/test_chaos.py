"""The driver or a worker is killed at a random moment, again and again; the run ends as if nothing had happened.

``make chaos`` does this 50 times on each executor.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")

ROUNDS = int(os.environ.get("TAMIS_CHAOS_ROUNDS", "1"))
SCRIPT = Path(__file__).parents[1] / "support" / "chaos_script.py"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chaos")
    for file in range(30):
        rows = [{"n": 40 * file + row, "text": f"text {(40 * file + row) % 900}"} for row in range(40)]
        (folder / f"{file:02d}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


@dataclass
class Start:
    """Starts the script in a folder."""

    source: Path
    executor: str
    environment: dict[str, str]
    options: tuple[str, ...] = ()

    def __call__(self, folder: Path) -> subprocess.Popen[str]:
        arguments = [str(self.source), str(folder / "out"), str(folder / "run"), self.executor, *self.options]
        environment = {**os.environ, **self.environment}
        command = [sys.executable, str(SCRIPT), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def output(folder: Path) -> dict[str, bytes]:
    files = [p for p in (folder / "out").rglob("part-*") if p.is_file()]  # data cards say which run wrote them
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def finished(process: subprocess.Popen[str], timeout_s: float = 300) -> dict[str, Any]:
    printed, errors = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, errors[-3000:]
    told: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return told


def kill_driver(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def kill_child(process: subprocess.Popen[str]) -> None:
    """Kill a worker process of the driver, if it has one; the run itself goes on."""
    workers = psutil.Process(process.pid).children(recursive=True)
    if workers:
        random.choice(workers).kill()


def torment(start: Start, folder: Path, rng: random.Random, kill_worker: Callable[[Any], None]) -> None:
    """Run to the end once in peace, then several times with kills, and compare."""
    began = time.monotonic()
    expected = finished(start(folder / "peace"))
    whole_s = time.monotonic() - began
    wanted = output(folder / "peace")
    assert len(wanted) > 50
    for number in range(ROUNDS):
        here = folder / f"round-{number}"
        kills = 0
        while True:
            process = start(here)
            if kills == 3:
                break
            try:
                process.wait(timeout=rng.uniform(0.3, 1.0) * whole_s)
                break
            except subprocess.TimeoutExpired:
                kills += 1
            if (number, kills) == (0, 1) or rng.random() < 0.5:  # a single round kills the driver, too
                kill_driver(process)
            else:
                kill_worker(process)
                break  # the run goes on by itself
        found = finished(process)
        assert {**found, "before": 0} == expected, f"round {number}, after {kills} kills"
        assert output(here) == wanted, f"round {number}, after {kills} kills"
        shutil.rmtree(here)


@pytest.mark.parametrize(("substrate", "deduplication"), [("threads", "all"), ("processes", "exact")])
def test_a_local_run_ends_the_same_whatever_is_killed(
    source: Path, tmp_path: Path, substrate: str, deduplication: str
) -> None:
    torment(Start(source, substrate, {}, (deduplication,)), tmp_path, random.Random(substrate), kill_child)


def test_a_streaming_run_ends_the_same_whatever_is_killed(source: Path, tmp_path: Path, ray_cluster: Any) -> None:
    import ray
    from ray_faults import worker_processes

    def kill_actor(process: subprocess.Popen[str]) -> None:
        if actors := worker_processes():
            random.choice(actors).kill()

    address = ray.get_runtime_context().gcs_address
    torment(Start(source, "streaming", {"RAY_ADDRESS": address}), tmp_path, random.Random(1), kill_actor)
