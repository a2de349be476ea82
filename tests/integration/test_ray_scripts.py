"""Scripts that start a Ray of their own: what a user sees of it, Ctrl-C, and that nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from ray_faults import wait_for

pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals are sent the POSIX way here")

SCRIPT = """
import sys, time
from pathlib import Path
import pyarrow as pa
from beside import shout
from tamis.backends.streaming import StreamingExecutor
from tamis.pipeline import Pipeline
from tamis.stages.base import ProcessingStage
from tamis.stages.function_decorators import processing_stage
from tamis.stages.io import JsonlReader, JsonlWriter
from tamis.tasks import DocumentBatch

SECONDS = float(sys.argv[1])

@processing_stage(name="slow")
def slow(task: DocumentBatch) -> DocumentBatch:
    Path("begun", Path(task._metadata["source_files"][0]).name).touch()
    time.sleep(SECONDS)
    print("a stage says hello")
    return DocumentBatch({"text": [shout(t) for t in task.data["text"].to_pylist()]})

stages = [JsonlReader("in", files_per_partition=1), slow, JsonlWriter("out")]
Pipeline("script", stages=stages).run(StreamingExecutor(num_cpus=2), run_dir="run", progress="plain")
"""


class Script:
    """The script in a process of its own, and the processes that it has started."""

    def __init__(self, folder: Path, seconds: float, files: int) -> None:
        self.folder = folder
        (folder / "in").mkdir()
        (folder / "begun").mkdir()
        for i in range(files):
            (folder / "in" / f"{i:03d}.jsonl").write_text(json.dumps({"text": f"text {i}"}) + "\n")
        (folder / "beside.py").write_text("def shout(text):\n    return text.upper()\n")
        (folder / "script.py").write_text(SCRIPT)
        environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
        self.process = subprocess.Popen(
            [sys.executable, "script.py", str(seconds)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=environment,
        )
        self.children: list[psutil.Process] = []

    def begun(self) -> int:
        return len(list((self.folder / "begun").iterdir()))

    def wait_until_busy(self) -> None:
        wait_for(lambda: self.process.poll() is not None or self.begun() >= 2, "the run did not start", 120)
        assert self.process.poll() is None, self.process.communicate()
        self.children = psutil.Process(self.process.pid).children(recursive=True)
        assert any("raylet" in p.name() for p in self.children)

    def left(self) -> list[str]:
        found = []
        for process in self.children:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.name())
        return found

    def state(self) -> str:
        return str(json.loads((self.folder / "run" / "run.json").read_text())["state"])

    def finished(self) -> list[str]:
        return [p.read_text() for p in (self.folder / "out").glob("*.jsonl")]


def test_a_script_runs_with_what_lies_beside_it_and_ends_its_cluster(tmp_path: Path) -> None:
    script = Script(tmp_path, 0.2, 12)
    script.wait_until_busy()
    out, errors = script.process.communicate(timeout=120)
    assert script.process.returncode == 0, errors
    assert sorted(script.finished()) == sorted(f'{{"text":"TEXT {i}"}}\n' for i in range(12))
    assert "a stage says hello" in out + errors
    for noise in ("Started a local Ray instance", "raylet", "gcs", "WARNING", "INFO"):
        assert noise not in out + errors
    wait_for(lambda: not script.left(), f"left behind: {script.left()}")


def test_the_first_ctrl_c_finishes_what_is_in_flight(tmp_path: Path) -> None:
    script = Script(tmp_path, 0.3, 400)
    script.wait_until_busy()
    os.killpg(script.process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    _, errors = script.process.communicate(timeout=120)
    assert script.process.returncode != 0
    assert "Stopping: finishing what is in flight" in errors
    assert "goes on where it stopped" in errors
    assert script.state() == "interrupted"
    assert 0 < len(script.finished()) == script.begun() < 400
    assert all(text.endswith("}\n") for text in script.finished())
    wait_for(lambda: not script.left(), f"left behind: {script.left()}")


def test_the_second_ctrl_c_stops_at_once_and_leaves_no_process(tmp_path: Path) -> None:
    script = Script(tmp_path, 60.0, 400)
    script.wait_until_busy()
    os.killpg(script.process.pid, signal.SIGINT)
    time.sleep(0.5)
    os.killpg(script.process.pid, signal.SIGINT)
    script.process.communicate(timeout=50)  # less than a task takes
    assert script.state() == "interrupted"
    assert script.finished() == []
    wait_for(lambda: not script.left(), f"left behind: {script.left()}")


def test_nothing_outlives_a_driver_that_is_killed(tmp_path: Path) -> None:
    script = Script(tmp_path, 0.5, 400)
    script.wait_until_busy()
    os.kill(script.process.pid, signal.SIGKILL)
    script.process.wait()
    # Ray's agents try to tell the cluster for a minute before they believe that it is gone: they are not waited for.
    wait_for(lambda: all("Agent" in name for name in script.left()), "the run outlived its driver")
    assert not [name for name in script.left() if "Agent" not in name]
