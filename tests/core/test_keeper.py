"""However the process that started a node ends, all processes of the node end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tamis.core import keeper

# A hard case: a child that ignores SIGTERM, and a grandchild in another process group.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
with open(sys.argv[1], "w") as told:
    told.write(f"{os.getpid()} {child.pid}\\n")
time.sleep(600)
"""


def command(told: Path, parent: str = "", scratch: str = "") -> list[str]:
    keep = [sys.executable, "-I", "-S", keeper.__file__, parent or str(os.getpid()), "0.2", scratch]
    return [*keep, sys.executable, "-c", STUBBORN, str(told)]


def pids_in(told: Path) -> list[int]:
    deadline = time.monotonic() + 30
    while not (told.exists() and told.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return [int(pid) for pid in told.read_text().split()]


def wait_until_gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(os.path.exists(f"/proc/{pid}") for pid in pids)


@pytest.fixture
def told(tmp_path: Path) -> Path:
    return tmp_path / "pids"


def test_sigterm_ends_all_processes(told: Path) -> None:
    process = subprocess.Popen(command(told), start_new_session=True)
    pids = pids_in(told)
    process.terminate()
    assert process.wait(30) == 0
    assert wait_until_gone(pids)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_death_of_the_parent_ends_all_processes(told: Path, how: signal.Signals) -> None:
    script = (
        f"import os, subprocess, time; c = {command(told, 'PARENT')!r}; c[c.index('PARENT')] = str(os.getpid())\n"
        "subprocess.Popen(c, start_new_session=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    pids = pids_in(told)
    parent.send_signal(how)
    parent.wait(30)
    assert wait_until_gone(pids)


def test_the_exit_code_of_the_command_is_returned(told: Path) -> None:
    keep = command(told)[:7]
    assert subprocess.run([*keep, sys.executable, "-c", "raise SystemExit(3)"], check=False).returncode == 3


def test_a_session_can_be_ended_without_its_keeper(told: Path) -> None:
    process = subprocess.Popen(command(told), start_new_session=True)
    pids = pids_in(told)
    process.kill()
    process.wait(30)
    keeper.kill_session(process.pid)
    assert wait_until_gone(pids)
