"""Watches one Ray node: starts it, and ends all its processes on SIGTERM or when the script that started it is gone.

A script that is killed cannot clean up after itself, so :mod:`tamis.core.node` runs this file in a new session, with
the standard library only, and this process watches its parent's id. Ray's processes, and the processes that stages
start, stay in this session, whatever process group they are in.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL_S = 0.1


def keep(parent: int, grace_s: float, scratch: str, command: list[str]) -> int:
    """Run a command until it ends, SIGTERM arrives, or the parent is gone; leave none of its processes running.

    Args:
        parent: Id of the parent process.
        grace_s: How long the command may take to end by itself before it is killed.
        scratch: Directory that is removed if the parent is gone; empty for none.
        command: What to run.
    """
    terminated = False

    def terminate(*_: object) -> None:
        nonlocal terminated
        terminated = True

    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a closed terminal does not matter, only the parent's end
    ray = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while not terminated and os.getppid() == parent and ray.poll() is None:
        time.sleep(POLL_S)
    ended_here = ray.poll() is None
    if ended_here:
        ray.terminate()
    deadline = time.monotonic() + grace_s
    while ray.poll() is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    kill_session(os.getpid())
    code = ray.wait()
    if scratch and os.getppid() != parent:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0 if ended_here else code or 1


def kill_session(leader: int) -> None:
    """Kill all processes of a session except its leader, until none is left."""
    deadline = time.monotonic() + 10
    while pids := _members(leader):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            return  # a process that waits for a disk in the kernel cannot be killed
        time.sleep(0.02)


def _members(leader: int) -> list[int]:
    """The living processes of a session, without its leader."""
    if not os.path.isdir("/proc/self"):
        return _members_by_ps(leader)
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != leader:
            try:
                # pid (name) state ppid pgrp session ...; a name may have spaces and brackets in it
                state, _, _, session = (
                    Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2].split()[:4]
                )
            except (OSError, ValueError):
                continue  # it ended just now
            if int(session) == leader and state not in "ZX":
                found.append(int(name))
    return found


def _members_by_ps(leader: int) -> list[int]:
    listed = subprocess.run(["ps", "-axo", "pid=,stat="], capture_output=True, text=True, check=False).stdout
    found = []
    for line in listed.splitlines():
        pid, state = line.split()[:2]
        try:
            if int(pid) != leader and not state.startswith("Z") and os.getsid(int(pid)) == leader:
                found.append(int(pid))
        except OSError:
            continue  # it ended just now, or belongs to another user
    return found


if __name__ == "__main__":
    sys.exit(keep(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]))
