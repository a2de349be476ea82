"""The runs below a directory: what became of each, and how to free the space they take."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from tamis.runs.directory import SCRATCH_NOTE, scratch_elsewhere
from tamis.runs.manifest import read_manifest
from tamis.runs.stats import DONE, DONE_WITH_FAILURES, FAILED, INTERRUPTED
from tamis.stages.io.locks import Holder, is_running
from tamis.stages.io.paths import (
    base_name,
    directory_bytes,
    filesystem,
    is_local,
    join,
    open_read,
    reading,
    remove_directory,
    remove_file,
)
from tamis.stages.io.retries import may_pass, with_retries

RUNNING: Final = "running"
"""The state of a run whose process is still there."""

KILLED: Final = "killed"
"""The state of a run whose process ended without writing a summary."""

_MARK: Final = "run.lock"
_SIGNS: Final = ("run.json", "ledger", _MARK)
_QUIET_S: Final = 24 * 3600
"""After how long without a change a run on another machine is taken to have been killed."""


@dataclass(frozen=True)
class PastRun:
    """One run directory.

    Args:
        path: The directory.
        state: As in :class:`tamis.runs.stats.RunSummary`; :data:`RUNNING` or :data:`KILLED` if there is no summary.
        started: When, as ISO 8601 in UTC; empty when not known.
        rows: Rows written; ``None`` when not known.
        nbytes: What the run takes on disk, in bytes.
        scratch_bytes: How much of that is data between stages, here or elsewhere, which only a running run needs.
        changed: When something in the directory last changed, in seconds since 1970.
    """

    path: str
    state: str
    started: str
    rows: int | None
    nbytes: int
    scratch_bytes: int
    changed: float

    def remove_scratch(self) -> int:
        """Remove the data between stages; returns how many bytes that frees. Nothing is removed from a running run."""
        if _state(self.path)[0] in (RUNNING, DONE, DONE_WITH_FAILURES):
            return 0
        self._remove_scratch_elsewhere()
        remove_directory(join(self.path, "scratch"))
        return self.scratch_bytes

    def _remove_scratch_elsewhere(self) -> None:
        elsewhere = scratch_elsewhere(self.path)
        if elsewhere:
            remove_directory(elsewhere)
            remove_file(join(self.path, SCRATCH_NOTE))

    def remove(self) -> int:
        """Remove the whole directory, unless the run is running; returns how many bytes that frees."""
        if _state(self.path)[0] == RUNNING:
            return 0
        self._remove_scratch_elsewhere()
        if is_local(self.path):
            shutil.rmtree(self.path)
        else:
            remove_directory(self.path)
        return self.nbytes


def find_runs(parent: str) -> list[PastRun]:
    """The runs directly below a directory, the newest last.

    Args:
        parent: A path or an fsspec address.

    >>> find_runs("no-such-directory")
    []
    """
    try:
        if is_local(parent):
            names = [entry.name for entry in os.scandir(parent) if entry.is_dir(follow_symlinks=False)]
        else:
            names = _folders(parent)
    except FileNotFoundError:
        return []
    paths = [join(parent, name) for name in names]
    found = [_past_run(path) for path in paths if is_run_directory(path)]
    return sorted(found, key=lambda run: (run.started, run.path))


def unfinished_run(parent: str, pipeline: str, fingerprint: str) -> str | None:
    """The newest run of a pipeline below a directory, if it has not come to its end and nothing has changed since.

    Args:
        parent: The directory.
        pipeline: The name of the pipeline.
        fingerprint: Equal for the same pipeline with the same parameters, code and addresses to read.
    """
    newest, found = "", None
    for entry in os.scandir(parent) if os.path.isdir(parent) else ():
        manifest = read_manifest(entry.path) if entry.is_dir(follow_symlinks=False) else {}
        starts = manifest.get("starts") or []
        if manifest.get("pipeline") == pipeline and starts and starts[-1].get("started", "") >= newest:
            newest, found = starts[-1]["started"], entry.path if starts[-1].get("fingerprint") == fingerprint else None
    unfinished = (KILLED, INTERRUPTED, FAILED)
    return found if found is not None and _state(found)[0] in unfinished else None


def _past_run(path: str) -> PastRun:
    state, started, rows = _state(path)
    sizes = list(_files(path))
    scratch = join(path, "scratch", "")
    changed = max((mtime for _, _, mtime in sizes), default=0.0) or os.path.getmtime(path)
    elsewhere = scratch_elsewhere(path)
    away = directory_bytes(elsewhere) if elsewhere else 0
    return PastRun(
        path,
        state,
        started or _moment(min((mtime for _, _, mtime in sizes), default=0.0) or os.path.getmtime(path)),
        rows,
        sum(size for _, size, _ in sizes) + away,
        sum(size for name, size, _ in sizes if name.startswith(scratch)) + away,
        changed,
    )


def is_run_directory(path: str) -> bool:
    """Whether a run has used a directory."""
    if is_local(path):
        return any(os.path.lexists(os.path.join(path, sign)) for sign in _SIGNS)
    fs, inner = filesystem(path)
    return with_retries(lambda: any(fs.exists(f"{inner}/{sign}") for sign in _SIGNS))


def run_state(path: str) -> str:
    """The state of a run: as in its summary, or :data:`RUNNING` or :data:`KILLED`."""
    return _state(path)[0]


def _state(path: str) -> tuple[str, str, int | None]:
    """State, start and written rows of a run."""
    mark = _read(join(path, _MARK))
    if mark and _is_running(path, mark):
        return RUNNING, str(mark.get("since", "")), None
    summary = _read(join(path, "run.json"))
    if not summary:
        return KILLED, str(mark.get("since", "")), None
    rows = summary.get("output_rows")
    return str(summary.get("state", "")), str(summary.get("started", "")), rows if isinstance(rows, int) else None


def _is_running(path: str, mark: dict[str, Any]) -> bool:
    if not is_local(path):
        holder = Holder.parse(json.dumps(mark).encode())
        return holder is not None and not (holder.has_ended() or holder.looks_old())
    if mark.get("host") != socket.gethostname() or not isinstance(mark.get("pid"), int) or os.name == "nt":
        changed = max((mtime for _, _, mtime in _files(path)), default=0.0)
        return abs(time.time() - changed) < _QUIET_S  # a change in the future: a clock was wrong
    return is_running(mark["pid"])


def _read(path: str) -> dict[str, Any]:
    """The mapping in a JSON file; empty if there is none."""
    try:
        value = json.loads(with_retries(lambda: _content(path)))
    except (OSError, ValueError) as error:
        if may_pass(error):
            raise
        return {}
    return value if isinstance(value, dict) else {}


def _content(path: str) -> bytes:
    with open_read(path) as file:
        return file.read()


def _folders(parent: str) -> list[str]:
    """The folders directly below an address."""
    fs, inner = filesystem(parent)
    fs.invalidate_cache()
    with reading(parent):
        found = with_retries(lambda: fs.ls(inner, detail=True) if fs.exists(inner) else [])
    return [base_name(entry["name"]) for entry in found if entry["type"] == "directory"]


def _files(directory: str) -> Iterator[tuple[str, int, float]]:
    """Path, size and time of the last change of every file below a directory."""
    if not is_local(directory):
        fs, inner = filesystem(directory)
        with reading(directory):
            found = with_retries(lambda: fs.find(inner, detail=True))
        for name, info in found.items():
            changed = info.get("LastModified") or info.get("mtime") or info.get("updated") or info.get("created")
            seconds = changed.timestamp() if isinstance(changed, datetime) else 0.0
            yield join(directory, name.removeprefix(inner).lstrip("/")), int(info["size"]), seconds
        return
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:  # the run removed it just now
                continue
            yield path, status.st_size, status.st_mtime


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
