"""Disks that are full or read-only, files of others: the run says so in a sentence and keeps what record it can."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
from pathlib import Path
from tamis.backends.local import LocalExecutor
from tamis.errors import TamisError
from tamis.pipeline import Pipeline
from tamis.stages.io import JsonlReader, JsonlWriter

output, run_dir, workers = sys.argv[1:]
try:
    Pipeline("p", stages=[JsonlReader("in.jsonl", blocksize="64KiB"), JsonlWriter(output)]).run(
        LocalExecutor(workers=int(workers)), run_dir=run_dir, progress="off")
except TamisError as e:
    print(type(e).__name__, e, *getattr(e, "__notes__", ()))
"""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for a file system of 256 KiB, and input that is larger."""
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text('{"text": "%s"}\n' % ("x" * 1000) * 1000)
    Path("disk").mkdir()
    return tmp_path / "disk"


def without_rights(output: str, run_dir: str) -> str:
    """Run without the rights of root, as a user who owns the files; what was printed."""
    command = ["unshare", "--user"] if os.geteuid() == 0 else []
    if command and subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("root has all rights, and cannot give them up here")
    done = subprocess.run(
        [*command, sys.executable, "-c", SCRIPT, output, run_dir, "0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
def test_directories_and_files_without_permission(disk: Path) -> None:
    disk.chmod(0o555)
    said = without_rights("disk/out", "run")
    assert "disk/out: this directory cannot be made: writing there is not permitted" in said
    said = without_rights("out", "disk/run")
    assert "disk/run: the run directory cannot be made: writing there is not permitted" in said
    Path("closed").mkdir(0o555)
    said = without_rights("closed", "run")
    assert said.startswith("StorageError ")
    assert "closed" in said
    assert "not permitted" in said
    Path("in.jsonl").chmod(0)
    said = without_rights("out", "run")
    assert "in.jsonl: reading it is not permitted" in said


def run_on(disk: Path, options: str, output: str, run_dir: str, workers: int = 0) -> str:
    """Run with a small file system mounted, which only this process sees; what was printed."""
    mount = f'mount -t tmpfs -o {options} tmpfs {disk} && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    try:
        subprocess.run([*command, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a file system can only be mounted by an ordinary user on Linux, where that is allowed")
    done = subprocess.run(
        [*command, sys.executable, "-c", SCRIPT, output, run_dir, str(workers)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.parametrize("workers", [0, 2])
def test_a_full_output_disk(disk: Path, workers: int) -> None:
    said = run_on(disk, "size=256k", "disk/out", "run", workers)
    assert said.startswith("StorageError ")
    assert ": this cannot be written: the disk is full" in said
    assert "disk/out/part-0000" in said
    assert "the disk is full" in Path("run/run.json").read_text()
    assert Path("run/report.html").exists()


def test_a_full_run_directory(disk: Path) -> None:
    said = run_on(disk, "size=12k", "out", "disk/run")
    assert "the disk is full" in said
    assert "disk/run" in said


def test_a_read_only_output_disk(disk: Path) -> None:
    said = run_on(disk, "size=256k,ro", "disk/out", "run")
    assert "disk/out: this directory cannot be made: the file system is read-only" in said


def test_a_read_only_run_directory(disk: Path) -> None:
    said = run_on(disk, "size=256k,ro", "out", "disk/run")
    assert "disk/run: the run directory cannot be made: the file system is read-only" in said
