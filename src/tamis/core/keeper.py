"""Keeps one Ray node: starts it, and ends all its processes when told to, or when the process that asked is gone.

Run as a file by :mod:`tamis.core.node`, in a session of its own, with the standard library only. It is there because a
script that is killed cannot clean up after itself: its parent's id is all that this process has to watch. Ray's
processes, and what stages start in them, stay in this session, whatever process group they are in.
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
    """Run a command until it ends, SIGTERM comes, or the parent is gone; leave no process of it running.

    Args:
        parent: Id of the process that must live.
        grace_s: How long the command may take to end by itself before it is killed.
        scratch: Directory that is removed if the parent is gone; empty for none.
        command: What to run.
    """
    told = False

    def tell(*_: object) -> None:
        nonlocal told
        told = True

    signal.signal(signal.SIGTERM, tell)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of a terminal that is closed: the parent's end is what counts
    ray = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while not told and os.getppid() == parent and ray.poll() is None:
        time.sleep(POLL_S)
    asked = ray.poll() is None
    if asked:
        ray.terminate()
    deadline = time.monotonic() + grace_s
    while ray.poll() is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    kill_session(os.getpid())
    code = ray.wait()
    if scratch and os.getppid() != parent:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0 if asked else code or 1


def kill_session(leader: int) -> None:
    """Kill every process of a session but its leader, and go on until none is left."""
    deadline = time.monotonic() + 10
    while pids := _members(leader):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            return  # in the kernel, waiting for a disk: it cannot be ended
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
            continue  # it ended just now, or is none of ours
    return found


if __name__ == "__main__":
    sys.exit(keep(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]))
