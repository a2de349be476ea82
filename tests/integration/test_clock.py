"""A wall clock that jumps by hours, forwards and backwards, changes nothing about a run.

The clock of these runs jumps at every look at it, in the driver and in its workers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tamis.stages.io.card_files import CARD_FILES

JUMPING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    static unsigned long looks;
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    const char *hours = getenv("JUMPS");
    if (failed || clock != CLOCK_REALTIME || !hours) return failed;
    long jumps[8];
    int count = 0;
    for (char *end; count < 8; hours = end, count++) {
        jumps[count] = strtol(hours, &end, 10);
        if (end == hours) break;
    }
    now->tv_sec += 3600 * jumps[__sync_fetch_and_add(&looks, 1) % count];
    return 0;
}
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs LD_PRELOAD and a C compiler"
)

SCRIPT = """
import json, os, signal, sys, time
from pathlib import Path
from tamis import DocumentBatch, LocalExecutor, Pipeline, processing_stage
from tamis.stages.deduplication.exact import ExactDeduplication
from tamis.stages.io import JsonlReader, JsonlWriter

source, target, run_dir, substrate = sys.argv[1:]
looks = {time.time() // 1800 for _ in range(8)}

@processing_stage(name="work")
def work(task: DocumentBatch) -> DocumentBatch:
    numbers = task["n"].to_pylist()
    if Path(run_dir, "ledger").exists() and os.environ.get("KILLED") and 35 in numbers:
        os.kill(int(os.environ["DRIVER"]), signal.SIGKILL)
    if 13 in numbers:
        raise ValueError("13 is refused")
    return task.keep([n % 5 != 0 for n in numbers], "divisible by 5", score=numbers)

os.environ["DRIVER"] = str(os.getpid())
work = work if substrate == "threads" else work.with_(timeout_s=60)
stages = [JsonlReader(source, files_per_partition=1), work, ExactDeduplication(), JsonlWriter(target)]
executor = LocalExecutor(2, substrate)
result = Pipeline("clock", stages=stages).run(executor, run_dir=run_dir, progress="plain", traces=False)
print(json.dumps({"looks": len(looks), "before": result.summary.tasks_before}))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    for file in range(6):
        rows = [json.dumps({"n": n, "text": f"text {n}"}) for n in range(10 * file, 10 * file + 10)]
        (folder / f"{file}.jsonl").write_text("\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the wall clock jumps."""
    folder = tmp_path_factory.mktemp("clock")
    (folder / "clock.c").write_text(JUMPING)
    build = ["cc", "-shared", "-fPIC", "-o", str(folder / "clock.so"), str(folder / "clock.c"), "-ldl"]
    subprocess.run(build, check=True, capture_output=True)
    return {**os.environ, "LD_PRELOAD": str(folder / "clock.so"), "JUMPS": "0 6 -3 30 -50"}


def start(source: Path, folder: Path, substrate: str, environment: dict[str, str]) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-c", SCRIPT, str(source), str(folder / "out"), str(folder / "run"), substrate]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def written(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (folder / "out").glob("[!.]*") if p.name not in CARD_FILES}


def durations(value: Any, name: str = "") -> list[float]:
    """All numbers of seconds in a JSON value."""
    if isinstance(value, dict):
        return [s for key, inner in value.items() for s in durations(inner, str(key))]
    if isinstance(value, list):
        return [s for inner in value for s in durations(inner, name)]
    is_time = name == "t" or name.endswith(("_s", "seconds"))
    return [value] if is_time and isinstance(value, int | float) else []


def check(folder: Path) -> None:
    """Whether a run ended as it should have, and no duration is negative or in hours."""
    rows = [json.loads(line)["n"] for content in written(folder).values() for line in content.splitlines()]
    assert sorted(rows) == [n for n in range(60) if n % 5 and n != 13]
    summary = json.loads((folder / "run" / "run.json").read_text())
    samples = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    seconds = durations(summary) + durations(samples)
    assert len(seconds) > 10
    assert all(0 <= s < 120 for s in seconds)


def test_workers_are_neither_ended_nor_waited_for(source: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    code, told, said = start(source, tmp_path, "processes", environment)
    assert code == 0, said
    assert told["looks"] == 5  # it really jumps
    check(tmp_path)


def test_a_killed_run_is_continued(source: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    killed, _, _ = start(source, tmp_path, "threads", {**environment, "KILLED": "yes"})
    assert killed < 0
    code, told, said = start(source, tmp_path, "threads", environment)
    assert code == 0, said
    assert "is continued" in said
    check(tmp_path)
    again, finished, said = start(source, tmp_path, "threads", {**environment, "JUMPS": "-9000"})  # a year ago
    assert (again, finished["before"]) == (0, told["before"]), said
    assert "nothing to do" in said


def test_what_shows_runs_works(source: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    """The list of runs, the report and the drops of a run, seen by a clock that is a year behind or ahead."""
    code, _, said = start(source, tmp_path, "threads", environment)
    assert code == 0, said
    for hours in ("-9000", "9000"):
        for command in (["runs", "--dir", "."], ["report", "run"], ["drops", "run"], ["runs", "clean", "--dir", "."]):
            done = subprocess.run(
                [sys.executable, "-m", "tamis", *command],
                env={**environment, "JUMPS": hours},
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert not re.search(r"-\d[\d.]* *(s|min|h|days)\b", done.stdout), done.stdout
