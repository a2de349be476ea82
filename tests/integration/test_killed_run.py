"""A run whose driver is killed, really killed, leaves no half-written output; the same command again completes it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")

SCRIPT = """
import sys, time
from tamis import DocumentBatch, LocalExecutor, Pipeline, processing_stage
from tamis.stages.io import JsonlReader, JsonlWriter

source, target, run_dir, seconds = sys.argv[1:]

@processing_stage(name="slow")
def slow(task: DocumentBatch) -> DocumentBatch:
    time.sleep(float(seconds))
    return task

stages = [JsonlReader(source, files_per_partition=1), slow, JsonlWriter(target, compression="zst")]
Pipeline("killed", stages=stages).run(LocalExecutor(2, "threads"), run_dir=run_dir, progress="off")
"""


def published(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.startswith(".")}


def test_output_of_a_killed_run_is_whole_and_is_completed_by_the_next(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number in range(40):
        rows = [json.dumps({"text": f"{number} {i} " * 50}) for i in range(50)]
        (source / f"{number:02d}.jsonl").write_text("\n".join(rows) + "\n")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def start(target: str, run: str, seconds: float) -> subprocess.Popen[bytes]:
        arguments = [str(source), str(tmp_path / target), str(tmp_path / run), str(seconds)]
        return subprocess.Popen([sys.executable, str(script), *arguments])

    assert start("whole", "run-whole", 0).wait(timeout=60) == 0
    whole = published(tmp_path / "whole")
    assert len(whole) == 40

    killed = start("out", "run-killed", 0.2)
    deadline = time.monotonic() + 60
    while not (tmp_path / "out").exists() or len(published(tmp_path / "out")) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    part = published(tmp_path / "out")
    assert 5 <= len(part) < 40
    assert part.items() <= whole.items()  # every file that has its name is complete
    ledger = (tmp_path / "run-killed" / "ledger" / "000001.jsonl").read_text()
    assert all(name in ledger for name in part)  # and is named by the ledger

    assert start("out", "run-again", 0).wait(timeout=60) == 0
    assert published(tmp_path / "out") == whole
