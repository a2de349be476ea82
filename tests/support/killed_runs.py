"""Starts :mod:`resume_script`, kills it in the middle, and starts it again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
from ray_faults import wait_for
from resume_script import FILES, ROWS, run

SCRIPT = Path(__file__).parent / "resume_script.py"


class KilledRun:
    """A run that is killed and continued.

    Args:
        folder: Where input, output and notes are: all machines see it.
        private: Where the run directory is.
        address: The cluster's.
        shuffle: Whether rows are shuffled before they are written.
    """

    def __init__(self, folder: Path, private: Path, address: str, shuffle: bool = False) -> None:
        self.folder, self.private, self.address, self.shuffle = folder, private, address, shuffle
        (folder / "in").mkdir()
        self.notes = folder / "notes"
        self.notes.mkdir()
        for file in range(FILES):
            rows = [json.dumps({"n": n, "text": f"text {n}"}) for n in range(ROWS * file, ROWS * (file + 1))]
            (folder / "in" / f"{file}.jsonl").write_text("\n".join(rows) + "\n")
        if shuffle:
            (self.notes / "shuffle").touch()

    def places(self, name: str) -> list[str]:
        """The arguments of the script."""
        places = [self.folder / "in", self.folder / f"out-{name}", self.private / f"run-{name}", self.notes]
        return [str(place) for place in places]

    def start(self, executor: str, name: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "RAY_ADDRESS": self.address}
        command = [sys.executable, str(SCRIPT), *self.places(name), executor]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def output(self, name: str) -> dict[str, bytes]:
        return {p.name: p.read_bytes() for p in (self.folder / f"out-{name}").glob("part-*")}

    def processed(self) -> Counter[int]:
        """How often each file was processed, by the number of its first row; the notes are removed."""
        notes = [p for p in self.notes.iterdir() if "-" in p.name]
        for note in notes:
            note.unlink()
        return Counter(int(note.name.split("-")[0]) for note in notes)

    def finished(self, process: subprocess.Popen[str]) -> int:
        """How many tasks earlier starts had finished."""
        printed, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors[-3000:]
        return int(printed)

    def kill(self, executor: str, at_least: int = 2) -> int:
        """Start the run, kill its driver when some tasks are in the ledger; returns how many files have their names."""
        (self.notes / "hold").touch()
        process = self.start(executor, "killed")
        try:
            wait_for(lambda: process.poll() is not None or self._recorded() >= at_least, "no task is recorded")
            assert process.poll() is None, process.communicate()
        finally:
            process.kill()
            process.communicate()
        workers = {int(note.name.split()[1]) for note in self.notes.glob("process *")} - {os.getpid()}
        wait_for(lambda: not any(map(psutil.pid_exists, workers)), "workers outlive their driver", 60)
        (self.notes / "hold").unlink()
        return len(self.output("killed"))

    def check(self, executor: str) -> None:
        """Kill and continue a run, and compare with one that was not killed."""
        run(*self.places("whole"), "local")
        whole = self.output("whole")
        assert len(whole) > 1
        assert self.processed() == dict.fromkeys(range(0, FILES * ROWS, ROWS), 1)
        done = self.kill(executor)
        before = self.processed()
        assert self.output("killed").items() <= whole.items()
        # Data on its way to a shuffle is in the memory of machines here, and ends with the driver.
        known = 0 if self.shuffle else max(done, 2)
        assert self.finished(self.start(executor, "killed")) >= known
        assert self.output("killed") == whole
        after = self.processed()
        assert after.keys() | before.keys() == set(range(0, FILES * ROWS, ROWS))
        assert after.total() <= FILES - known  # what was finished is not done again
        shutil.rmtree(self.private / "run-killed")

    def _recorded(self) -> int:
        """Tasks of the stage that the ledger names, in commits that are complete."""
        found = 0
        for segment in (self.private / "run-killed" / "ledger").glob("*.jsonl"):
            records = segment.read_text().rpartition('{"commit"')[0]
            found += records.count('"waits"')
        return found
