"""Locks on directories: on a local disk, on a store without locks, and on a disk without them."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from tamis.errors import PlanError
from tamis.stages.io import locks
from tamis.stages.io.locks import EXPIRES_S, Holder, acquire
from tamis.stages.io.paths import filesystem

numbers = itertools.count()


@pytest.fixture(params=["disk", "store", "disk without locks"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(locks, "_SETTLE_S", 0.02)
    if request.param == "store":
        return f"memory://locks{next(numbers)}/.lock"
    if request.param == "disk without locks":
        fcntl = pytest.importorskip("fcntl")

        def no_locks(*_: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", no_locks)
    return str(tmp_path / ".lock")


def held_by(path: str, **changes: object) -> None:
    """Leave a lock that a process of another machine took a moment ago, or one with these changes."""
    holder = replace(Holder.this_process("runs/a"), **{"host": "elsewhere", **changes})  # type: ignore[arg-type]  # by name
    fs, inner = filesystem(path)
    fs.pipe_file(inner, holder.encode())


def test_a_lock_is_held_by_one(path: str) -> None:
    lock = acquire(path, "runs/a")
    with pytest.raises(PlanError, match=rf"another run writes there: process {os.getpid()} on .* directory runs/a\."):
        acquire(path, "runs/b")
    assert not lock.is_lost()
    lock.release()
    lock.release()
    fs, inner = filesystem(path)
    assert not fs.exists(inner)
    acquire(path, "runs/b").release()


def test_the_lock_of_a_process_that_ended_is_taken_over(path: str) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    held_by(path, host=locks.socket.gethostname(), pid=ended.pid)
    lock = acquire(path, "runs/b")
    assert not lock.is_lost()
    lock.release()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(locks, "_SETTLE_S", 0.02)
    return f"memory://locks{next(numbers)}/.lock"


def test_a_lock_of_another_machine_holds_until_it_expires(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "RENEWED_S", 0.05)
    held_by(store)
    with pytest.raises(PlanError, match="on elsewhere since"):
        acquire(store, "runs/b")
    held_by(store, renewed=time.time() - EXPIRES_S - 1)
    acquire(store, "runs/b").release()
    held_by(store, renewed=time.time() + EXPIRES_S + 1)  # left by a machine whose clock was wrong
    acquire(store, "runs/b").release()


@pytest.mark.parametrize("hours", [-6, 6])
def test_a_holder_that_renews_its_lock_keeps_it_whatever_its_clock_says(
    store: str, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    monkeypatch.setattr(locks, "RENEWED_S", 0.1)
    lock = acquire(store, "runs/a")
    monkeypatch.setattr(time, "time", lambda: real() + 3600 * hours)
    with pytest.raises(PlanError, match="another run writes there"):
        acquire(store, "runs/b")
    assert not lock.is_lost()
    lock.release()


def test_a_lock_is_renewed_and_a_lost_one_is_noticed(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "RENEWED_S", 0.01)
    lock = acquire(store, "runs/a")
    fs, inner = filesystem(store)
    first = Holder.parse(fs.cat_file(inner))
    assert first is not None
    while fs.cat_file(inner) == first.encode():
        time.sleep(0.01)
    held_by(store)
    assert lock.is_lost()
    lock.release()
    assert b"elsewhere" in fs.cat_file(inner)  # the lock of another run stays


def test_of_two_that_create_a_lock_at_once_on_a_store_that_cannot_tell_one_has_it(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run writes its lock right after ours: the store keeps the last one, and we notice."""
    memory = fsspec.filesystem("memory")
    write = type(memory).pipe_file

    open_file = type(memory).open

    def refuse(self: object, path: str, mode: str = "rb", **settings: object) -> object:
        if mode == "xb":
            raise NotImplementedError
        return open_file(self, path, mode, **settings)

    def race(self: object, path: str, value: bytes, **settings: object) -> None:
        write(self, path, value, **settings)
        monkeypatch.setattr(type(memory), "pipe_file", write)
        held_by(store)

    monkeypatch.setattr(type(memory), "open", refuse)
    monkeypatch.setattr(type(memory), "pipe_file", race)
    with pytest.raises(PlanError, match="on elsewhere since"):
        acquire(store, "runs/a")
