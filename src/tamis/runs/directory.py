"""The run directory: what a run remembers.

run.json        what happened, for programs
report.html     the same, for people
plan.txt        what was planned
ledger/         what is finished and which files it made
outputs.jsonl   the tasks at the end of the pipeline; tables among them are in outputs/
quarantine/     rows that could not be read, and tasks that were given up
drops/          which rows were left out, by which stage, why, with which score: Parquet
scratch/        data between stages; removed when the run is done
running.json    which process uses the directory; removed when the run ends
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tamis.errors import PlanError
from tamis.runs.past_runs import mark_running
from tamis.runs.set_aside import SetAsideTask, tasks_set_aside
from tamis.runs.stats import RunSummary
from tamis.tasks import Task
from tamis.tasks.storage import read_task


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """A task at the end of the pipeline that a worker has set down in the run directory."""

    path: str


class RunDirectory:
    """One run's files.

    Args:
        path: Where; made if it is not there.
    """

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.scratch = os.path.join(self.path, "scratch")
        self.quarantine = os.path.join(self.path, "quarantine")
        self.outputs = os.path.join(self.path, "outputs")
        self.drops = os.path.join(self.path, "drops")
        self.ledger = os.path.join(self.path, "ledger")

    @classmethod
    def create(cls, name: str, path: str | None = None) -> RunDirectory:
        """Make a directory for a new run: the given one, or one below ``.tamis/runs`` named after the pipeline."""
        if path is not None and "://" in path:
            raise PlanError(f"{path}: the run directory must be on this machine")
        try:
            return cls._made(name, path)
        except OSError as error:
            raise PlanError(f"the run directory {path or '.tamis/runs'} cannot be made: {error}") from error

    @classmethod
    def _made(cls, name: str, path: str | None) -> RunDirectory:
        if path is None:
            path = _claim(os.path.join(".tamis", "runs"), name)
        elif any(os.path.exists(os.path.join(path, sign)) for sign in ("run.json", "ledger")):
            raise PlanError(f"{path} already holds a run. Give another run directory, or remove it first")
        directory = cls(path)
        os.makedirs(directory.scratch, exist_ok=True)
        try:
            mark_running(directory.path)
        except FileExistsError as error:
            raise PlanError(f"{path}: another run uses this directory. Give another run directory") from error
        return directory

    def keeps(self, path: str) -> bool:
        """Whether a file is part of the run's own record, not output."""
        return any(path.startswith(f + os.sep) for f in (self.scratch, self.quarantine, self.outputs, self.drops))

    def write_text(self, name: str, text: str) -> str:
        """Write a small file of the run, whole or not at all."""
        final = os.path.join(self.path, name)
        temporary = f"{final}.tmp"
        # Messages may quote broken text; half a surrogate pair must not cost the run its record.
        Path(temporary).write_bytes(text.encode("utf-8", "backslashreplace"))
        os.replace(temporary, final)
        return final

    def write_summary(self, summary: RunSummary) -> None:
        """Write ``run.json``."""
        self.write_text("run.json", json.dumps(summary.to_dict(), indent=1, ensure_ascii=False))

    def read_summary(self) -> RunSummary:
        """Read ``run.json``."""
        path = os.path.join(self.path, "run.json")
        if not os.path.exists(path):
            raise PlanError(f"{self.path} holds no run: there is no run.json in it")
        return RunSummary.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))

    def quarantined(self, limit: int) -> list[dict[str, Any]]:
        """Up to ``limit`` rows of the quarantine."""
        rows: list[dict[str, Any]] = []
        names = sorted(os.listdir(self.quarantine)) if os.path.isdir(self.quarantine) else []
        for name in names:
            if name.startswith(".") or not name.endswith(".jsonl"):
                continue
            with Path(self.quarantine, name).open(encoding="utf-8") as file:
                for line in file:
                    if len(rows) >= limit:
                        return rows
                    rows.append(json.loads(line))
        return rows

    def tasks_set_aside(self) -> Iterator[SetAsideTask]:
        """The tasks that were given up, with the cause, in the order of the input."""
        return tasks_set_aside(self.quarantine)

    def remove_scratch(self) -> None:
        """Free the space of data between stages."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def output_tasks(self) -> Iterator[Task[Any]]:
        """The tasks at the end of the pipeline, in the order of the input, each read when it is asked for."""
        path = os.path.join(self.path, "outputs.jsonl")
        if not os.path.exists(path):
            return
        with Path(path).open(encoding="utf-8") as file:
            entries = sorted((json.loads(line) for line in file), key=lambda e: e["order"])
        for entry in entries:
            if "file" in entry:
                yield read_task(os.path.join(self.outputs, entry["file"]))
            else:
                yield pickle.loads(base64.b64decode(entry["task"]))


def _claim(parent: str, name: str) -> str:
    """Make a directory of this run's own, also when others start in the same second."""
    os.makedirs(parent, exist_ok=True)
    clean = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[:60] or "run"
    stem = os.path.join(parent, f"{clean}-{datetime.now():%Y%m%d-%H%M%S}")
    for number in itertools.count():
        path = f"{stem}-{number}" if number else stem
        try:
            os.mkdir(path)
        except FileExistsError:
            continue
        return path
    raise AssertionError("there is always another number")
