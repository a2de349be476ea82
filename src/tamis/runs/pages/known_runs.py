"""The runs that ``tamis ui`` shows: those directly below a folder, or a single one."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tamis.runs.past_runs import is_run_directory, run_state


@dataclass(frozen=True)
class RunEntry:
    """One run in the list.

    Args:
        name: The name of its directory.
        path: Its directory.
        state: Its state.
        pipeline: The name of the pipeline, where it is known.
        started: When, as ISO 8601 in UTC; empty when not known.
        seconds: How long it took; ``None`` when not known.
        rows: Rows written; ``None`` when not known.
    """

    name: str
    path: str
    state: str
    pipeline: str = ""
    started: str = ""
    seconds: float | None = None
    rows: int | None = None


class KnownRuns:
    """Finds run directories. A name is only ever looked up among those that are there: it is never made into a path.

    Args:
        target: A run directory, or a folder of them.
    """

    def __init__(self, target: str) -> None:
        self._target = os.path.abspath(target)
        self.is_single = is_run_directory(self._target)
        self._ended: dict[str, tuple[tuple[int, int], RunEntry]] = {}  # runs that change no more, by path

    @property
    def place(self) -> str:
        """The run directory or folder."""
        return self._target

    def paths(self) -> dict[str, str]:
        """The directory of each run, by its name."""
        if self.is_single:
            return {os.path.basename(self._target): self._target}
        try:
            with os.scandir(self._target) as entries:
                found = {e.name: e.path for e in entries if e.is_dir(follow_symlinks=False)}
        except OSError:
            return {}
        return {name: path for name, path in sorted(found.items()) if is_run_directory(path)}

    def entries(self) -> list[RunEntry]:
        """All runs, the newest first."""
        found = [self._entry(name, path) for name, path in self.paths().items()]
        return sorted(found, key=lambda entry: (entry.started, entry.name), reverse=True)

    def _entry(self, name: str, path: str) -> RunEntry:
        """A run. The summary of one that has ended is only read again when it was written again."""
        version = _version(path)
        known = self._ended.get(path)
        if known is not None and known[0] == version:
            return known[1]
        entry = _read_entry(name, path)
        if version is not None:
            self._ended[path] = (version, entry)
        return entry


def _version(path: str) -> tuple[int, int] | None:
    """Size and time of the summary of a run that has ended; ``None`` if it has not."""
    if os.path.lexists(os.path.join(path, "run.lock")):
        return None
    try:
        status = os.stat(os.path.join(path, "run.json"))
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _read_entry(name: str, path: str) -> RunEntry:
    state = run_state(path)
    summary = _mapping(path, "run.json")
    plan_name = str(_mapping(path, "plan.json").get("name", "")) if not summary else ""
    seconds, rows = summary.get("seconds"), summary.get("output_rows")
    return RunEntry(
        name,
        path,
        state,
        str(summary.get("pipeline") or plan_name),
        str(summary.get("started") or _mapping(path, "run.lock").get("since") or ""),
        float(seconds) if isinstance(seconds, int | float) else None,
        rows if isinstance(rows, int) else None,
    )


def _mapping(path: str, name: str) -> dict[str, Any]:
    try:
        value = json.loads(Path(path, name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
