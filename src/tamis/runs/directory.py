"""The run directory: what a run remembers.

manifest.json   what was run: recipe, code, versions, machine; one entry for each start
run.json        what happened, for programs
finished.json   digests by which the next start sees that there is nothing to do
report.html     the same, for people
plan.txt        what was planned
plan.json       the same, for programs: stages, parameters, branches, groups
scores.json     histograms of the scores that filters computed
metrics.jsonl   how the counts grew, about one sample per second
metrics-endpoint.txt  where Prometheus can read the metrics, while the run goes on
ledger/         the input, what is finished and which files it made: a segment for each start
outputs.jsonl   the tasks at the end of the pipeline; tables among them are in outputs/
quarantine/     rows that could not be read, and tasks that were given up
drops/          which rows were left out, by which stage, why, with which score: Parquet
scores/         the scores of all rows, if the run keeps them: Parquet
scratch/        data between stages, unless scratch.txt says where else it is kept; removed when the run is done
run.lock        which process uses the directory; removed when the run ends

A run directory on an object store has the same files, but for ``scratch/``, see :mod:`tamis.runs.mirror`.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import pickle
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tamis.errors import DataError, PlanError, TamisError, redacted
from tamis.runs.manifest import MANIFEST, boot_id, read_manifest
from tamis.runs.mirror import LOCK, Mirror
from tamis.runs.quarantine import quarantined_rows
from tamis.runs.set_aside import SetAsideTask, tasks_set_aside
from tamis.runs.stats import RunSummary
from tamis.stages.io.locks import Lock, acquire
from tamis.stages.io.paths import (
    absolute,
    base_name,
    cannot_write,
    is_local,
    join,
    make_directory,
    open_read,
    path_text,
    protocol,
    reading,
    remove_directory,
    remove_file,
)
from tamis.tasks import Task
from tamis.tasks.storage import check_trusted, pickled, read_task, write_whole

SCRATCH_NOTE = "scratch.txt"
"""The file that says where data between stages is kept, if elsewhere."""


@dataclass(frozen=True, slots=True)
class StoredOutput:
    """A task at the end of the pipeline that a worker has written to the run directory."""

    path: str


def kept_output(payload: Any) -> dict[str, str]:
    """How the record of a task at the end of the pipeline says where its data is."""
    if isinstance(payload, StoredOutput):
        return {"file": os.path.basename(payload.path)}
    return {"task": base64.b64encode(payload if isinstance(payload, bytes) else pickled(payload)).decode()}


def output_payload(entry: dict[str, Any]) -> StoredOutput | bytes:
    """The reverse of :func:`kept_output`."""
    return StoredOutput(entry["file"]) if "file" in entry else base64.b64decode(entry["task"])


class RunDirectory:
    """One run's files, in a directory that is made if it is not there. As a context manager it gives it up again.

    Args:
        path: The directory, on this machine.
        mirror: Where it is kept, if ``path`` is a working copy of one on an object store.
    """

    def __init__(self, path: str, mirror: Mirror | None = None) -> None:
        self.path = os.path.abspath(path)
        self.mirror = mirror
        self.address = self.path if mirror is None else redacted(mirror.address)
        self.scratch = os.path.join(self.path, "scratch")
        self.payloads = os.path.join(self.scratch, "payloads")
        self.staging = ""  # where records wait for the driver, on machines that do not see this directory
        self.keeper: Any = None  # keeps the scratch location alive, where it is in memory
        self.quarantine = os.path.join(self.path, "quarantine")
        self.outputs = os.path.join(self.path, "outputs")
        self.drops = os.path.join(self.path, "drops")
        self.scores = os.path.join(self.path, "scores")
        self.ledger = os.path.join(self.path, "ledger")

        self.run_id = ""
        self.replaced_run = ""  # the id of the run that is removed, to start over
        self.manifest: dict[str, Any] = {}  # of the earlier starts of the run, if it is continued
        self._lock: Lock | None = None
        self._is_new = False  # whether it was made for this run, with a name that no other has
        self._start = ""  # tells this start of a run on an object store from all others

    @classmethod
    def create(cls, name: str, path: str | os.PathLike[str] | None = None, *, fresh: bool = False) -> RunDirectory:
        """The directory of a run: the given one, or a new one below ``.tamis/runs`` named after the pipeline.

        Only one process gets it, also when several ask for it at the same moment. :meth:`release` gives it up.

        Args:
            name: The name of the pipeline.
            path: The directory, a path or an fsspec address. If it holds a run already, that run is continued.
            fresh: Whether to remove a run that the directory holds, and to start over.
        """
        text = None if path is None else path_text(path)
        if text is not None and protocol(text) in ("http", "https"):
            raise PlanError(f"{redacted(text)}: a web address cannot be written to, so it is not a run directory")
        try:
            return cls._made(name, text, fresh)
        except OSError as error:
            shown = text or os.path.join(".tamis", "runs")
            if isinstance(error, FileExistsError | NotADirectoryError):
                raise PlanError(f"the run directory {shown} cannot be made: {error.filename} is a file") from error
            raise cannot_write(shown, error, "the run directory cannot be made") from error

    @classmethod
    def _made(cls, name: str, path: str | None, fresh: bool) -> RunDirectory:
        is_new = path is None
        if path is None:
            path = _new_directory(os.path.join(".tamis", "runs"), name)
        mirror = None if is_local(path) else Mirror(path)
        directory = cls(absolute(path) if mirror is None else mirror.path, mirror)
        directory._is_new = is_new
        os.makedirs(directory.path, mode=0o777 if mirror is None else 0o700, exist_ok=True)
        try:
            check_trusted(directory.path)
        except DataError as e:
            raise PlanError(f"the run directory {e}") from e
        try:
            if mirror is not None:
                mirror.lock()
            directory._lock = acquire(os.path.join(directory.path, LOCK), directory.address)
            if mirror is not None:
                with reading(mirror.address):
                    mirror.fetch()
            directory._continue(fresh)
        except BaseException:
            directory.release()
            raise
        return directory

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Give up the directory. One on an object store gets everything that it does not have yet."""
        try:
            if self.mirror is not None:
                self.mirror.finish()
        except TamisError as problem:
            if error is None:
                raise
            error.add_note(f"  the record of the run is not complete: {problem}")
        finally:
            self.release()

    def clear(self) -> None:
        """Remove the run that the directory holds. Files of another origin stay."""
        self.remove_scratch()
        os.makedirs(os.path.join(self.path, "scratch"), exist_ok=True)
        for name in (self.ledger, self.drops, self.scores, self.quarantine, self.outputs):
            remove_directory(name)
        for name in ("manifest.json", "run.json", "report.html", "plan.txt", "plan.json", "outputs.jsonl"):
            remove_file(os.path.join(self.path, name))
        for name in ("metrics.jsonl", "scores.json", "finished.json"):
            remove_file(os.path.join(self.path, name))

    def _continue(self, fresh: bool) -> None:
        """Take over the identity of the run that the directory holds, if there is one."""
        self.manifest = read_manifest(self.path)
        if fresh:  # :meth:`clear` removes it once nothing else speaks against the new run
            self.replaced_run, self.manifest = self.manifest.get("run", ""), {}
        elif not self.manifest and any(
            os.path.exists(os.path.join(self.path, sign)) for sign in ("run.json", "ledger")
        ):
            raise PlanError(
                f"{self.path} holds a run that cannot be continued, since it has no manifest.json. Give another run "
                "directory, or start over with --fresh, run(fresh=True)"
            )
        self.run_id = self.manifest.get("run") or f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
        self._find_scratch()
        before = self.manifest.get("starts", [{}])[-1]
        if before.get("host") == socket.gethostname() and before.get("boot", "") not in ("", boot_id()):
            self._forget_scratch()  # after a power failure, files that were not forced to disk may be damaged
        elif self.mirror is not None and not self.mirror.has_scratch(self.scratch, before.get("scratch", "")):
            self._forget_scratch()  # another machine went on since
        if is_local(self.scratch):
            os.makedirs(self.scratch, exist_ok=True)
        remove_file(join(self.scratch, "stop"))  # of a start that the user stopped

    def _find_scratch(self) -> None:
        """Find data between stages that earlier starts of the run have left, also if it is kept elsewhere."""
        elsewhere = scratch_elsewhere(self.path)
        if elsewhere:
            self._scratch_is_at(elsewhere)

    def _forget_scratch(self) -> None:
        self.remove_scratch()
        self.scratch = os.path.join(self.path, "scratch")
        self.payloads = os.path.join(self.scratch, "payloads")

    def begin(self, start: dict[str, Any]) -> None:
        """Note that a start of the run uses the scratch directory, there and in what the manifest says of it."""
        if self.mirror is not None:
            self._start = start["scratch"] = secrets.token_hex(8)
            self.mirror.begin_scratch(self.scratch, self._start)

    def release(self) -> None:
        """Give up the directory: the run is over. Doing it again changes nothing.

        Of a run that was refused before it began, nothing stays.
        """
        if self._lock is not None:
            has_begun = os.path.exists(os.path.join(self.path, MANIFEST))
            if not has_begun:
                _remove_empty(self.scratch)
            self._lock.release()
            self._lock = None
            if not has_begun and self._is_new:
                _remove_empty(self.path)
        if self.mirror is not None:
            self.mirror.release()

    def keep_scratch_at(self, place: str) -> None:
        """Keep data between stages in a folder of its own elsewhere: below a local path or an fsspec address.

        A run that is continued goes on with the folder it has, if that is there.
        """
        if self.scratch.startswith(join(absolute(place), f"{os.path.basename(self.path)}-")):
            return
        self._scratch_is_at(join(absolute(place), f"{os.path.basename(self.path)}-{secrets.token_hex(4)}"))
        make_directory(self.scratch)
        if self.mirror is not None and self._start:
            self.mirror.begin_scratch(self.scratch, self._start)
        if redacted(self.scratch) == self.scratch:  # an address with a password in it is not written down
            self.write_text(SCRATCH_NOTE, self.scratch)

    def _scratch_is_at(self, place: str) -> None:
        self.scratch = place
        if is_local(place):
            self.payloads = os.path.join(place, "payloads")

    def keeps(self, path: str) -> bool:
        """Whether a file is the run's own, not output: part of its record, or data between stages."""
        return path.startswith(join(self.scratch, "")) or self.records(path)

    def records(self, path: str) -> bool:
        """Whether a file is part of the run's own record."""
        own = (self.quarantine, self.outputs, self.drops, self.scores)
        return any(path.startswith(f + os.sep) for f in own)

    def write_text(self, name: str, text: str) -> str:
        """Write a small file of the run, whole or not at all."""
        final = os.path.join(self.path, name)
        # Messages may quote broken text; half a surrogate pair must not cost the run its record.
        write_whole(final, text.encode("utf-8", "backslashreplace"))
        return final

    def write_summary(self, summary: RunSummary) -> None:
        """Write ``run.json``."""
        self.write_text("run.json", json.dumps(summary.to_dict(), indent=1, ensure_ascii=False))

    def quarantined(self, limit: int) -> list[dict[str, Any]]:
        """Up to ``limit`` rows of the quarantine."""
        rows: list[dict[str, Any]] = []
        names = sorted(os.listdir(self.quarantine)) if os.path.isdir(self.quarantine) else []
        for name in names:
            if name.startswith(".") or not name.endswith(".jsonl"):
                continue
            with Path(self.quarantine, name).open(encoding="utf-8", errors="replace") as file:
                for line in file:
                    if len(rows) >= limit:
                        return rows
                    rows.append(json.loads(line))
        for failed in quarantined_rows(self.quarantine):
            rows += itertools.islice(failed.entries(), limit - len(rows))
            if len(rows) >= limit:
                break
        return rows

    def tasks_set_aside(self) -> Iterator[SetAsideTask]:
        """The tasks that were given up, with the cause, in the order of the input."""
        return tasks_set_aside(self.quarantine)

    def remove_scratch(self) -> None:
        """Free the space of data between stages."""
        for place in {os.path.join(self.path, "scratch"), self.scratch}:
            if is_local(place) or self.keeper is None:
                remove_directory(place)
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self.path, SCRATCH_NOTE))
        self.keeper = None

    def output_count(self) -> int:
        """How many tasks are at the end of the pipeline."""
        try:
            with Path(self.path, "outputs.jsonl").open("rb") as file:
                return sum(1 for _ in file)
        except FileNotFoundError:
            return 0

    def output_tasks(self) -> Iterator[Task[Any]]:
        """The tasks at the end of the pipeline, in the order of the input, each read when it is asked for."""
        path = os.path.join(self.path, "outputs.jsonl")
        if not os.path.exists(path):
            return
        check_trusted(self.path)
        check_trusted(path)
        with Path(path).open(encoding="utf-8") as file:
            entries = sorted((json.loads(line) for line in file), key=lambda e: e["order"])
        for entry in entries:
            if "file" in entry:
                yield read_task(os.path.join(self.outputs, entry["file"]))
            else:
                yield pickle.loads(base64.b64decode(entry["task"]))


def scratch_elsewhere(path: str) -> str:
    """Where a run keeps data between stages, if not in its own directory; else empty."""
    try:
        with open_read(join(path, SCRATCH_NOTE)) as file:
            place = file.read().decode()
    except (OSError, ValueError):
        return ""
    # Only a folder that was made for this run is ever used or removed.
    return place if base_name(place).startswith(f"{base_name(path)}-") else ""


def _remove_empty(directory: str) -> None:
    """Remove a local directory if there is nothing in it."""
    if is_local(directory):
        with contextlib.suppress(OSError):
            os.rmdir(directory)


def _new_directory(parent: str, name: str) -> str:
    """Make a directory that no other run has, also when others start in the same second."""
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
