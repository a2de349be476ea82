"""A run directory on an object store: a working copy on this machine, and the store, which has the truth.

The driver works in the copy. With every commit, what has changed is uploaded: first the files that lines of the ledger
name (drops, quarantine, scores, outputs), then the segment of the ledger, then what was removed is removed. Only after
that do output files get their final names. Every object is replaced as a whole. So what a crash leaves on the store is
the run up to its last commit, and a start on any machine, which fetches it, goes on from there.

Data between stages is not uploaded: it stays in ``scratch/`` of the copy, or is where ``scratch=`` says.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from tamis.errors import PublishError, StorageError, redacted
from tamis.runs.ledger import segments
from tamis.stages.io.locks import RENEWED_S, Holder, Lock, acquire
from tamis.stages.io.paths import absolute, base_name, filesystem, is_local, join, reading, writing
from tamis.stages.io.retries import may_pass, with_retries
from tamis.tasks.base import digest
from tamis.tasks.storage import temporary_beside, write_whole

__all__ = ["LOCK", "SEGMENT_BYTES", "Mirror", "cache_folder", "local_run"]

T = TypeVar("T")

LOCK: Final = "run.lock"

SEGMENT_BYTES: Final = 2**20
"""A segment of the ledger is uploaded with every commit; one that is larger than this is followed by a new one."""

_NOTES: Final = ".store.json"
"""In the copy: what the store had when each file was fetched or uploaded."""

_START: Final = "start"
"""In the scratch directory: the start of the run that has used it last."""

_OFTEN: Final = ("manifest.json", "plan.txt", "plan.json", "scratch.txt")
_METRICS: Final = "metrics.jsonl"
_METRICS_S: Final = 10.0
"""How often the samples are uploaded, at most, in seconds."""

_AT_ONCE_BYTES: Final = 8 * 2**20
_THREADS: Final = 16


def cache_folder() -> str:
    """Where copies of run directories on object stores are kept: below ``TAMIS_CACHE_DIR`` or ``~/.cache/tamis``."""
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(os.environ.get("TAMIS_CACHE_DIR") or os.path.join(caches, "tamis"), "runs")


def local_run(run_dir: str) -> str:
    """A run directory on this machine with what a run has recorded: the given one, or a copy of one on a store.

    Args:
        run_dir: A path or an fsspec address. Nothing is changed there.
    """
    if is_local(run_dir):
        return run_dir
    working = Mirror(run_dir)
    copy = Mirror(run_dir, "read")
    os.makedirs(copy.path, mode=0o700, exist_ok=True)
    with reading(redacted(run_dir)):
        copy.fetch()
    copy.fetch_lock()
    scratch = os.path.join(copy.path, "scratch")
    if os.path.islink(scratch):
        os.unlink(scratch)
    if working.has_scratch(os.path.join(working.path, "scratch"), copy.last_start()):
        os.symlink(os.path.join(working.path, "scratch"), scratch)
    return copy.path


class Mirror:
    """A copy of a run directory on this machine, and its address.

    Args:
        address: The run directory, an fsspec address.
        use: ``"work"`` for the copy that a driver writes to, ``"read"`` for one that is only read.

    Attributes:
        path: The copy. Its last part is that of the address.
    """

    def __init__(self, address: str, use: str = "work") -> None:
        self.address = absolute(address)
        self.path = os.path.join(cache_folder(), f"{digest(self.address)}-{use}", base_name(self.address) or "run")
        self._fs, self._inner = filesystem(self.address)
        self._known: dict[str, Any] = {}
        self._uploaded: dict[str, list[int]] = {}  # time and size of files of the copy that the store has
        self._metrics_at = self._checked = time.monotonic()
        self._answered = self._gave_up = False
        self._lock: Lock | None = None

    # -- the lock ------------------------------------------------------------------------------------------------------

    def lock(self) -> None:
        """Take the run directory for this process; an error that names the holder if another has it."""
        self._lock = acquire(join(self.address, LOCK), self.address)

    def release(self) -> None:
        """Give it up. A lock that cannot be removed, since the store does not answer, is taken over by the next run."""
        if self._lock is not None:
            try:
                self._lock.release()
            except Exception as error:
                if not may_pass(error):
                    raise
            self._lock = None

    def _check_lock(self) -> None:
        """Refuse to write when another run has taken over. Asked as often as a lock is renewed."""
        if self._lock is not None and time.monotonic() - self._checked > RENEWED_S:
            if self._lock.is_lost():
                raise StorageError(
                    f"{redacted(self.address)}: another run has taken over this run directory, because this one did "
                    "not renew its lock in time. Nothing more is recorded"
                )
            self._checked = time.monotonic()

    def fetch_lock(self) -> None:
        """Make the copy say whether a process has the run directory."""
        found = self._read(LOCK)
        holder = None if found is None else Holder.parse(found)
        if found is not None and holder is not None and not (holder.has_ended() or holder.looks_old()):
            write_whole(os.path.join(self.path, LOCK), found)
        else:
            Path(self.path, LOCK).unlink(missing_ok=True)

    # -- from the store ------------------------------------------------------------------------------------------------

    def fetch(self) -> None:
        """Make the copy equal to what is on the store. What is the same already is not fetched again."""
        try:
            self._known = json.loads(Path(self.path, _NOTES).read_bytes())
        except (OSError, ValueError):
            self._known = {}
        present: set[str] = set()
        # What a line of the ledger names was uploaded before the line.
        for below in ("ledger", ""):
            found = {name: version for name, version in self._listed(below) if name not in present}
            present.update(found)
            stale = {name: version for name, version in found.items() if not self._is_same(name, version)}
            with ThreadPoolExecutor(_THREADS) as threads:
                list(threads.map(self._fetch, stale.keys(), stale.values()))
        for name in set(self._own_files()) - present:
            os.unlink(os.path.join(self.path, name))
        self._note(present)

    def _listed(self, below: str) -> Iterator[tuple[str, list[Any]]]:
        """Names and versions of the objects of the run."""

        def find() -> dict[str, Any]:
            self._fs.invalidate_cache()
            try:
                return dict(self._fs.find(f"{self._inner}/{below}".rstrip("/"), detail=True))
            except FileNotFoundError:
                return {}

        for path, info in self._tried(find).items():
            name = path.removeprefix(self._inner).lstrip("/")
            if _is_recorded(name):
                changed = next((str(info[c]) for c in ("ETag", "etag", "md5Hash", "mtime", "created") if c in info), "")
                yield name, [int(info["size"]), changed]

    def _is_same(self, name: str, version: list[Any]) -> bool:
        """Whether the copy has this version of a file, and it was not changed since."""
        known = self._known.get(name)
        if known is None or version[1] == "":
            return False
        return bool(known["store"] == version and known["copy"] == _state(self.path, name))

    def _fetch(self, name: str, version: list[Any]) -> None:
        final = os.path.join(self.path, name)
        try:
            with temporary_beside(final) as temporary:
                self._tried(lambda: self._fs.get_file(f"{self._inner}/{name}", temporary))
                os.replace(temporary, final)
        except FileNotFoundError:
            return  # it was removed just now
        self._known[name] = {"store": version, "copy": _state(self.path, name)}

    def _read(self, name: str) -> bytes | None:
        try:
            content: bytes = self._tried(lambda: self._fs.cat_file(f"{self._inner}/{name}"))
        except FileNotFoundError:
            return None
        return content

    def _note(self, names: Iterable[str]) -> None:
        """Write down what the copy has, for the next time."""
        known = {name: self._known[name] for name in sorted(names) if name in self._known}
        write_whole(os.path.join(self.path, _NOTES), json.dumps(known).encode())
        self._uploaded = {name: entry["copy"] for name, entry in known.items()}

    # -- to the store --------------------------------------------------------------------------------------------------

    def commit(self, paths: Iterable[str]) -> None:
        """Upload what has changed. When it returns, the store has it.

        Args:
            paths: Files of the copy that were written, changed or removed; others are left out.
        """
        names = [os.path.relpath(path, self.path).replace(os.sep, "/") for path in paths if is_local(path)]
        names = [name for name in names if _is_recorded(name) and not name.startswith("../")] + list(_OFTEN)
        if time.monotonic() - self._metrics_at > _METRICS_S:
            self._metrics_at = time.monotonic()
            names.append(_METRICS)
        try:
            self._upload(names)
        except StorageError as e:
            raise PublishError(f"{e}. The run is recorded there up to its last commit: the same command goes on") from e

    def finish(self) -> None:
        """Upload everything that has changed, and remove from the store what the copy does not have any more."""
        present = list(self._own_files())
        with writing(self.address):
            gone = {name for name, _ in self._listed("")} - set(present)
        self._uploaded.update({name: [] for name in gone})
        self._upload([*present, *gone])
        with writing(self.address):
            found = dict(self._listed(""))
        self._known = {name: {"store": version, "copy": _state(self.path, name)} for name, version in found.items()}
        self._note(found)

    def _upload(self, names: Iterable[str]) -> None:
        ledger = [f"ledger/{name}" for name in segments(os.path.join(self.path, "ledger"))]
        states = {name: _state(self.path, name) for name in dict.fromkeys([*names, *ledger])}
        changed = {n: state for n, state in states.items() if state is not None and state != self._uploaded.get(n)}
        with writing(self.address):
            self._check_lock()
            first = [name for name in changed if not name.startswith("ledger/")]
            with ThreadPoolExecutor(min(_THREADS, len(first)) or 1) as threads:
                list(threads.map(self._put, first))
            for name in sorted(changed.keys() - set(first)):  # the store never lacks a segment that is followed by one
                self._put(name)
            self._uploaded.update(changed)
            for name, state in states.items():
                if state is None and self._uploaded.pop(name, None) is not None:
                    self._remove(name)

    def _put(self, name: str) -> None:
        path = Path(self.path, name)
        if path.stat().st_size > _AT_ONCE_BYTES:
            self._tried(lambda: self._fs.put_file(str(path), f"{self._inner}/{name}"))
        else:
            content = path.read_bytes()
            self._tried(lambda: self._fs.pipe_file(f"{self._inner}/{name}", content))

    def _remove(self, name: str) -> None:
        def remove() -> None:
            try:
                self._fs.rm_file(f"{self._inner}/{name}")
            except FileNotFoundError:
                return

        self._tried(remove)

    def _tried(self, action: Callable[[], T]) -> T:
        """Do something on the store, with patience; but not once more after the store had no answer for too long."""
        try:
            done = with_retries(action, 0.0 if self._gave_up else None, known=self._answered)
        except FileNotFoundError:
            raise
        except Exception as error:
            self._gave_up = may_pass(error)
            raise
        self._answered = True
        return done

    def _own_files(self) -> Iterator[str]:
        """The files of the copy that belong on the store."""
        for folder, below, names in os.walk(self.path):
            relative = os.path.relpath(folder, self.path).replace(os.sep, "/")
            if relative == ".":
                below[:] = [name for name in below if name != "scratch"]
            for name in names:
                own = name if relative == "." else f"{relative}/{name}"
                if _is_recorded(own):
                    yield own

    # -- data between stages -------------------------------------------------------------------------------------------

    def last_start(self) -> str:
        """Tells the latest start of the run from all others; empty if there was none."""
        try:
            starts = json.loads(Path(self.path, "manifest.json").read_bytes())["starts"]
            return str(starts[-1].get("scratch", ""))
        except (OSError, ValueError, LookupError):
            return ""

    def has_scratch(self, scratch: str, start: str) -> bool:
        """Whether a scratch directory is the one that a start of the run has used, and no older one."""
        try:
            if is_local(scratch):
                return bool(start) and Path(scratch, _START).read_text(encoding="utf-8") == start
            fs, inner = filesystem(join(scratch, _START))
            return bool(start) and with_retries(lambda: fs.cat_file(inner)) == start.encode()
        except FileNotFoundError:
            return False

    def begin_scratch(self, scratch: str, start: str) -> None:
        """Note in a scratch directory that a start of the run uses it."""
        if is_local(scratch):
            write_whole(os.path.join(scratch, _START), start.encode())
            return
        fs, inner = filesystem(join(scratch, _START))
        with writing(scratch):
            with_retries(lambda: fs.pipe_file(inner, start.encode()))


def _is_recorded(name: str) -> bool:
    """Whether a file of a run directory is mirrored: not data between stages, nothing hidden or temporary."""
    is_file = bool(name) and not name.endswith("/")
    return is_file and not name.startswith("scratch/") and name != LOCK and not base_name(name).startswith(".")


def _state(path: str, name: str) -> list[int] | None:
    """Time of the last change and size of a file; ``None`` if there is none."""
    try:
        status = os.stat(os.path.join(path, name))
    except FileNotFoundError:
        return None
    return [status.st_mtime_ns, status.st_size] if stat.S_ISREG(status.st_mode) else None
