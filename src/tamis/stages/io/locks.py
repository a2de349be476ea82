"""A lock on a directory, so that only one run writes there at a time.

On a local disk the lock is the operating system's (``flock``): it ends with the process that holds it, however that
ends. Where there is no such lock (an object store, a file system without ``flock``, Windows) it is a small object that
names its holder and that the holder renews every 30 seconds. It may be taken over from a process of the same machine
that no longer runs, and from any holder that has not renewed it for 10 minutes. Since clocks differ and jump, a lock
that looks that old is watched for a minute first: a holder that renews it keeps it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import secrets
import socket
import threading
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from tamis.errors import PlanError, redacted
from tamis.stages.io.paths import base_name, filesystem, is_local, parent, writing
from tamis.stages.io.retries import with_retries

__all__ = ["Lock", "acquire", "is_running"]

_LOG = logging.getLogger("tamis")

RENEWED_S = 30.0
"""How often the holder of a lock object renews it, in seconds."""

EXPIRES_S = 600.0
"""After how many seconds without renewal another run may take a lock object over."""

_SETTLE_S = 1.0
"""How long to wait before looking whether another run created the same lock object at the same moment, in seconds."""

_RELEASE_S = 10.0
"""For how many seconds the holder tries to remove a lock object. One that stays can be taken over, see above."""

_NO_FLOCK = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


@dataclass(frozen=True)
class Holder:
    """The run that holds a lock.

    Args:
        pid, host: Its process and machine.
        since: When it took the lock, as ISO 8601 in UTC.
        run_dir: Its run directory.
        token: Tells this lock from any other.
        renewed: When it was last renewed, in seconds since 1970.
    """

    pid: int
    host: str
    since: str
    run_dir: str
    token: str
    renewed: float

    @classmethod
    def this_process(cls, run_dir: str) -> Holder:
        """The holder that this process is."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(os.getpid(), socket.gethostname(), since, redacted(run_dir), secrets.token_hex(8), time.time())

    @classmethod
    def parse(cls, data: bytes) -> Holder | None:
        """The holder that a lock's content names; ``None`` if it does not name one (yet)."""
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError):
            return None

    def encode(self) -> bytes:
        """The content of the lock."""
        return json.dumps(asdict(self)).encode() + b"\n"

    def has_ended(self) -> bool:
        """Whether it is known that its process has ended."""
        return self.host == socket.gethostname() and os.name == "posix" and not is_running(self.pid)

    def looks_old(self) -> bool:
        """Whether it was not renewed for too long, if all clocks were right."""
        return abs(time.time() - self.renewed) > EXPIRES_S


def acquire(path: str, run_dir: str, storage_options: dict[str, Any] | None = None) -> Lock:
    """Take the lock at a path; :class:`PlanError` that names the holder if another run has it.

    Args:
        path: The lock's file; the directory it is in must exist.
        run_dir: The run directory of this run, for the message that another run gets.
        storage_options: For the fsspec file system.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lock = acquire(f"{folder}/.lock", "runs/a")
    ...     try: acquire(f"{folder}/.lock", "runs/b")
    ...     except PlanError as e: print("runs/a" in str(e))
    ...     lock.release()
    ...     acquire(f"{folder}/.lock", "runs/b").release()
    True
    """
    holder = Holder.this_process(run_dir)
    if is_local(path) and os.name == "posix":
        with writing(path):
            lock = _flock(path, holder)
        if lock is not None:
            return lock
    return LockObject(path, holder, dict(storage_options or {}))


def _flock(path: str, holder: Holder) -> Lock | None:
    """Take the operating system's lock; ``None`` where the file system has none."""
    import fcntl

    while True:
        created = True
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            created = False
            try:
                file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:  # the earlier holder removed it just now
                continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = Holder.parse(os.pread(file, 4096, 0))
            os.close(file)
            raise _held(path, found) from None
        except OSError as e:
            os.close(file)
            if created:
                os.unlink(path)
            if e.errno in _NO_FLOCK:
                return None
            raise
        if _is_file_at(file, path):
            os.ftruncate(file, 0)
            os.pwrite(file, holder.encode(), 0)
            return FileLock(path, file)
        os.close(file)  # it was removed between opening and locking it


def _is_file_at(file: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _held(path: str, holder: Holder | None) -> PlanError:
    directory = redacted(parent(path))
    if holder is None:
        return PlanError(
            f"{directory}: another run has just started to write there. Choose another directory. If none does, remove "
            f"{redacted(path)}"
        )
    return PlanError(
        f"{directory}: another run writes there: process {holder.pid} on {holder.host} since {holder.since}, run "
        f"directory {holder.run_dir}. Wait until it is done, or choose another directory"
    )


class FileLock:
    """A lock of the operating system: the path and the descriptor of its file."""

    def __init__(self, path: str, file: int) -> None:
        self._path, self._file = path, file

    def is_lost(self) -> bool:
        """Whether another run has taken it over: the operating system does not allow that."""
        return False

    def release(self) -> None:
        """Give it up. Doing it again changes nothing."""
        if self._file >= 0:
            with contextlib.suppress(OSError):  # removed with its directory, or the disk is read-only by now
                os.unlink(self._path)
            os.close(self._file)
            self._file = -1


class LockObject:
    """A lock that is a small object with an expiry, for stores that have no locks of their own."""

    def __init__(self, path: str, holder: Holder, storage_options: dict[str, Any]) -> None:
        self._path, self._holder = path, holder
        self._fs, self._inner = filesystem(path, storage_options)
        with writing(path):
            with_retries(self._take)
        self._released, self._lost = threading.Event(), False
        self._renewal = threading.Thread(target=self._renew, name=f"tamis-lock-{base_name(path)}", daemon=True)
        self._renewal.start()

    def _take(self) -> None:
        found = self._read()
        if found is not None:
            holder = Holder.parse(found)
            if holder is not None and holder.token == self._holder.token:
                return  # the store took it, but its answer was lost
            if holder is None or not (holder.has_ended() or (holder.looks_old() and self._stays(found))):
                raise _held(self._path, holder)
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(self._inner)
        alone = self._create()
        if alone and found is None:
            return
        time.sleep(_SETTLE_S)
        mine = Holder.parse(self._read() or b"")
        if mine is None or mine.token != self._holder.token:
            raise _held(self._path, mine)

    def _stays(self, content: bytes) -> bool:
        """Whether no one renews the object for as long as two renewals take."""
        watched_s = 2 * RENEWED_S
        _LOG.warning("the lock %s seems to be left over; watching it for %g s", redacted(self._path), watched_s)
        deadline = time.monotonic() + watched_s
        while time.monotonic() < deadline:
            time.sleep(watched_s / 20)
            if self._read() != content:
                return False
        return True

    def _create(self) -> bool:
        """Write the object; return whether the store made sure that there was none."""
        try:
            with self._fs.open(self._inner, "xb") as file:
                file.write(self._holder.encode())
            return True
        except FileExistsError:
            if self._is_mine():  # the store took it, but its answer was lost
                return True
            raise _held(self._path, Holder.parse(self._read() or b"")) from None
        except (ValueError, NotImplementedError):  # the store cannot create exclusively
            self._fs.pipe_file(self._inner, self._holder.encode())
            return False

    def _read(self) -> bytes | None:
        self._fs.invalidate_cache()
        try:
            data: bytes = self._fs.cat_file(self._inner)
        except FileNotFoundError:
            return None
        return data

    def _renew(self) -> None:
        while not self._released.wait(RENEWED_S) and not self._lost:
            try:
                self._lost = not self._is_mine()
                if not self._lost:
                    self._holder = replace(self._holder, renewed=time.time())
                    self._fs.pipe_file(self._inner, self._holder.encode())
            except Exception:  # noqa: BLE001 - a store may raise anything, and the next attempt may succeed
                _LOG.warning("the lock %s could not be renewed; trying again", redacted(self._path), exc_info=True)

    def _is_mine(self) -> bool:
        found = Holder.parse(self._read() or b"")
        return found is not None and found.token == self._holder.token

    def is_lost(self) -> bool:
        """Whether another run has taken it over."""
        return self._lost or not with_retries(self._is_mine, known=True)

    def release(self) -> None:
        """Give it up. Doing it again changes nothing."""
        if self._released.is_set():
            return
        self._released.set()
        with contextlib.suppress(FileNotFoundError):
            with_retries(lambda: self._fs.rm_file(self._inner) if self._is_mine() else None, _RELEASE_S)


Lock: TypeAlias = FileLock | LockObject
"""A lock that is held."""


def is_running(pid: int) -> bool:
    """Whether a process of this machine is running."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is another user's
        return True
    return True
