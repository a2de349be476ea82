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

from tamis.stages.io.card_files import CARD_FILES

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")

SCRIPT = """
import os, sys, time
from tamis import DocumentBatch, LocalExecutor, Pipeline, processing_stage
from tamis.stages.io import JsonlReader, JsonlWriter

source, target, run_dir = sys.argv[1:]

@processing_stage(name="slow")
def slow(task: DocumentBatch) -> DocumentBatch:
    time.sleep(float(os.environ["SECONDS"]))
    return task

stages = [JsonlReader(source, files_per_partition=1), slow, JsonlWriter(target, compression="zst")]
result = Pipeline("killed", stages=stages).run(LocalExecutor(2, "threads"), run_dir=run_dir, progress="off")
print(result.summary.tasks_before, result.stage("slow").tasks_in)
"""


def published(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name[0] != "." and p.name not in CARD_FILES}


@pytest.mark.parametrize("same_directory", [True, False])
def test_output_of_a_killed_run_is_whole_and_is_completed_by_the_next(tmp_path: Path, same_directory: bool) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number in range(40):
        rows = [json.dumps({"text": f"{number} {i} " * 50}) for i in range(50)]
        (source / f"{number:02d}.jsonl").write_text("\n".join(rows) + "\n")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def start(target: str, run: str, seconds: float) -> subprocess.Popen[str]:
        arguments = [str(source), str(tmp_path / target), str(tmp_path / run)]
        env = {**os.environ, "SECONDS": str(seconds)}
        return subprocess.Popen([sys.executable, str(script), *arguments], env=env, stdout=subprocess.PIPE, text=True)

    assert start("whole", "run-whole", 0).communicate(timeout=60)[0].split() == ["0", "40"]
    whole = published(tmp_path / "whole")
    assert len(whole) == 40

    killed = start("out", "run-killed", 0.2)
    deadline = time.monotonic() + 60
    while not (tmp_path / "out").exists() or len(published(tmp_path / "out")) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    part = published(tmp_path / "out")
    assert 5 <= len(part) < 40
    assert part.items() <= whole.items()  # every file that has its name is complete
    ledger = (tmp_path / "run-killed" / "ledger" / "000001.jsonl").read_text()
    assert all(name in ledger for name in part)  # and is named by the ledger

    before, all_tasks = start("out", "run-killed" if same_directory else "again", 0).communicate(timeout=60)[0].split()
    assert published(tmp_path / "out") == whole
    assert int(all_tasks) == 40
    assert int(before) >= len(part) if same_directory else int(before) == 0
