"""The ledger: the one place where work becomes output.

Workers write files under private names; the driver adds lines that name them, commits, then renames. A file is output
only if a committed line names it. Lines are JSON, in numbered segments; each start of the driver begins a new one.
Segments are appended to and never changed, so the ledger is safe on network file systems and can be read by eye. What
a crash cut off, or a disk damaged, is recognised: the last line of each commit holds a checksum of the lines before it.

Files of the run directory itself are named ``run:/drops/...``, so that the directory can be moved or copied.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import xxhash

_COMMIT = b'{"commit":'
_OWN = b'"run:/'


class Ledger:
    """Append-only record of finished work.

    Args:
        directory: The directory of the segments, in the run directory.
        segment_bytes: A segment that is larger than this is followed by a new one; without a limit by default.

    Attributes:
        segment: The number of the segment that is written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(folder)
    ...     ledger.append({"task": "a", "files": ["x"]})
    ...     ledger.commit()
    ...     ledger.append({"task": "b", "files": []})
    ...     list(Ledger.read(folder))
    ...     ledger.close()
    [{'task': 'a', 'files': ['x']}]
    """

    def __init__(self, directory: str, segment_bytes: int | None = None) -> None:
        os.makedirs(directory, exist_ok=True)
        self._directory, self._segment_bytes = directory, segment_bytes
        self.segment = max((int(n[:6]) for n in segments(directory)), default=0)
        self._open()
        self._pending: list[bytes] = []
        self._commits = 0
        self._own = own_prefix(directory)

    def _open(self) -> None:
        self.segment += 1
        self._file = open(os.path.join(self._directory, f"{self.segment:06d}.jsonl"), "xb")  # noqa: PTH123, SIM115 - held open

    def append(self, line: dict[str, Any]) -> None:
        """Add a line. It counts once :meth:`commit` has returned."""
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
        self._pending.append(text.replace(self._own, _OWN) + b"\n")

    def commit(self) -> None:
        """Write the lines added so far and force them to disk, all at once."""
        if self._pending:
            if self._segment_bytes is not None and self._file.tell() > self._segment_bytes:
                self._file.close()
                self._open()
            self._commits += 1
            lines = b"".join(self._pending)
            self._pending.clear()
            self._file.write(lines + b'%b%d,"check":"%b"}\n' % (_COMMIT, self._commits, _checksum(lines)))
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Commit and close the segment."""
        self.commit()
        self._file.close()

    @staticmethod
    def read(directory: str, damaged: Callable[[str], object] = lambda _: None) -> Iterator[dict[str, Any]]:
        """All committed lines, oldest first.

        Args:
            directory: The directory of the segments.
            damaged: Called with a message for each commit whose checksum is wrong. Its lines are left out. A commit
                that a crash cut off at the end of a segment is left out without a message.
        """
        for name in segments(directory):
            for _, line in committed_lines(os.path.join(directory, name), damaged):
                yield json.loads(line)


def own_prefix(directory: str) -> bytes:
    """How the path of a file in the run directory begins, in JSON.

    Args:
        directory: The directory of the segments.
    """
    own = os.path.dirname(os.path.abspath(directory)) + os.sep
    return json.dumps(own, ensure_ascii=False).encode("utf-8", "backslashreplace")[:-1]


def located(line: bytes, own: bytes) -> bytes:
    """A line with the paths that files of the run directory have now.

    Args:
        line: The line, as it is in the segment.
        own: What :func:`own_prefix` gives.
    """
    return line.replace(_OWN, own) if _OWN in line else line


def segments(directory: str) -> list[str]:
    """The names of the segments, oldest first."""
    names = os.listdir(directory) if os.path.isdir(directory) else []
    return sorted(n for n in names if n.endswith(".jsonl") and n[:6].isdecimal())


def committed_lines(path: str, damaged: Callable[[str], object]) -> Iterator[tuple[tuple[int, int], bytes]]:
    """The committed lines of one segment, with the position and the length that each has there."""
    own = own_prefix(os.path.dirname(path))
    with Path(path).open("rb") as file:
        start, at, lines = 0, 0, []
        for line in file:
            if not line.endswith(b"\n"):
                return  # a crash cut it off
            at += len(line)
            if not line.startswith(_COMMIT):
                lines.append(line)
                continue
            if line.rpartition(b'"check":"')[2] == _checksum(b"".join(lines)) + b'"}\n':
                for one in lines:
                    yield (start, len(one)), located(one, own)
                    start += len(one)
            else:
                damaged(
                    f"{path}: the bytes from {start} to {at} are damaged. The tasks recorded there are processed again"
                )
            start, lines = at, []


def _checksum(lines: bytes) -> bytes:
    return xxhash.xxh3_64_hexdigest(lines).encode()
