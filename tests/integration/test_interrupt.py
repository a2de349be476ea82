"""Ctrl-C, really pressed: a signal to a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent the POSIX way here")

SCRIPT = """
import sys, time
from pathlib import Path
from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.stages.function_decorators import processing_stage
from tamis.tasks import DocumentBatch

seconds, substrate = float(sys.argv[3]), sys.argv[4]

@processing_stage(name="slow")
def slow(task: DocumentBatch) -> DocumentBatch:
    Path(sys.argv[2], str(task.data["n"][0])).touch()
    time.sleep(seconds)
    return task

Path(sys.argv[2]).mkdir()
initial = [DocumentBatch({"n": [i]}) for i in range(400)]
executor = LocalExecutor(workers=0 if substrate == "inline" else 2, substrate=substrate)
Pipeline("slow", stages=[slow]).run(executor, initial, run_dir=sys.argv[1], progress="plain")
"""

FOREVER = 3600.0


def start(tmp_path: Path, seconds: float, substrate: str) -> subprocess.Popen[str]:
    """Start a run of 400 tasks that take so long each, and wait until some have begun."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "run"), str(tmp_path / "begun"), str(seconds), substrate]
    with (tmp_path / "errors").open("w") as errors:
        process = subprocess.Popen(command, stderr=errors, text=True, start_new_session=True)
    wait_for(lambda: begun(tmp_path) or process.poll() is not None, "the run does not start")
    assert process.poll() is None, told(tmp_path)
    return process


def begun(tmp_path: Path) -> int:
    return len(list((tmp_path / "begun").iterdir())) if (tmp_path / "begun").exists() else 0


def told(tmp_path: Path) -> str:
    return (tmp_path / "errors").read_text()


def wait_for(condition: Callable[[], object], what: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def interrupt(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group, workers included


@pytest.mark.parametrize("substrate", ["inline", "threads", "processes"])
def test_the_first_ctrl_c_finishes_what_is_in_flight(tmp_path: Path, substrate: str) -> None:
    process = start(tmp_path, 0.05, substrate)
    wait_for(lambda: begun(tmp_path) > 4, "no more tasks are begun")
    interrupt(process)
    assert process.wait(timeout=120) != 0
    assert told(tmp_path).count("Stopping: finishing what is in flight") == 1
    assert "The same command goes on where it stopped" in told(tmp_path)
    summary = json.loads((tmp_path / "run" / "run.json").read_text())
    assert summary["state"] == "interrupted"
    finished = len((tmp_path / "run" / "outputs.jsonl").read_text().splitlines())
    assert 0 < begun(tmp_path) == finished < 400
    assert len(list((tmp_path / "run" / "outputs").iterdir())) == finished


@pytest.mark.parametrize("substrate", ["inline", "threads", "processes"])
def test_the_second_ctrl_c_ends_a_hanging_stage_and_leaves_no_process(tmp_path: Path, substrate: str) -> None:
    process = start(tmp_path, FOREVER, substrate)
    interrupt(process)
    wait_for(lambda: "Press Ctrl-C again to stop at once" in told(tmp_path), "the first Ctrl-C says nothing")
    interrupt(process)
    assert process.wait(timeout=120) != 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "interrupted"
    wait_for(lambda: not is_alive(process.pid), "a process is left")


@pytest.mark.parametrize("way_to_notice", ["the kernel", "the pipe"])
def test_workers_in_a_long_task_end_when_the_driver_is_killed(
    tmp_path: Path, way_to_notice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way_to_notice == "the pipe":  # as where the kernel does not help
        monkeypatch.setenv("PYTHONPATH", f"{without_prctl(tmp_path)}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    process = start(tmp_path, FOREVER, "processes")
    workers = psutil.Process(process.pid).children()
    assert workers
    assert all(os.getpgid(worker.pid) == process.pid for worker in workers)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not is_alive(process.pid), "a worker process outlives its driver")


def without_prctl(tmp_path: Path) -> Path:
    """A directory that makes our worker, and nothing else, find that it does not run on Linux."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    patch = (
        "import sys, types\n"
        "if sys.orig_argv[-1].endswith('substrates.worker'):\n"
        "    import tamis.backends.pipes\n"
        "    tamis.backends.pipes.sys = types.SimpleNamespace(platform='unknown')\n"
    )
    (folder / "sitecustomize.py").write_text(patch)
    return folder


def is_alive(group: int) -> bool:
    """Whether a process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
