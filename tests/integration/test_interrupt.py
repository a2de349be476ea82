"""Ctrl-C, really pressed: a signal to a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent the POSIX way here")

SCRIPT = """
import sys, time
from pathlib import Path
from tamis.backends.local import LocalExecutor
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage, processing_stage
from tamis.tasks import DocumentBatch, EmptyTask

class Make(ProcessingStage[EmptyTask, DocumentBatch]):
    def process(self, task) -> list[DocumentBatch]:
        return [DocumentBatch({"n": [i]}) for i in range(400)]

seconds = float(sys.argv[3])

@processing_stage(name="slow")
def slow(task: DocumentBatch) -> DocumentBatch:
    Path(sys.argv[2], str(task.data["n"][0])).touch()
    time.sleep(seconds)
    return task

Path(sys.argv[2]).mkdir()
initial = [DocumentBatch({"n": [i]}) for i in range(400)]
executor = LocalExecutor(workers=2, substrate=sys.argv[4])
Pipeline("slow", stages=[slow]).run(executor, initial, run_dir=sys.argv[1], progress="plain")
"""


def start(tmp_path: Path, seconds: float, substrate: str) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "run"), str(tmp_path / "begun"), str(seconds), substrate]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists() or not list((tmp_path / "begun").iterdir()):
        assert time.monotonic() < deadline, "the run did not start"
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("substrate", ["threads", "processes"])
def test_the_first_ctrl_c_finishes_what_is_in_flight(tmp_path: Path, substrate: str) -> None:
    process = start(tmp_path, 0.05, substrate)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group, workers included
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "Stopping: finishing what is in flight" in errors
    assert "starts from the beginning and replaces them" in errors
    summary = json.loads((tmp_path / "run" / "run.json").read_text())
    assert summary["state"] == "interrupted"
    begun = len(list((tmp_path / "begun").iterdir()))
    finished = len((tmp_path / "run" / "outputs.jsonl").read_text().splitlines())
    assert 0 < begun == finished < 400
    assert len(list((tmp_path / "run" / "outputs").iterdir())) == finished


@pytest.mark.parametrize("substrate", ["threads", "processes"])
def test_the_second_ctrl_c_stops_at_once_and_leaves_no_process(tmp_path: Path, substrate: str) -> None:
    process = start(tmp_path, 3.0, substrate)
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.5)
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert time.monotonic() - began < 15
    assert json.loads((tmp_path / "run" / "run.json").read_text())["state"] == "interrupted"
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_workers_end_when_the_driver_is_killed(tmp_path: Path) -> None:
    process = start(tmp_path, 0.5, "processes")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 20
    while is_alive(process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_alive(process.pid), "a worker process outlived its driver"


def is_alive(group: int) -> bool:
    """Whether a process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
