"""The ledger: the one place where work becomes output.

Workers write files under private names; the driver appends a record that names them, then renames. A file is output
only if a record names it. Records are JSON lines in numbered segments, one segment per start of the driver. Segments
are appended to and never changed, so the ledger is safe on network file systems and can be read by eye.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any


class Ledger:
    """Append-only record of finished work.

    Attributes:
        segment: The number of the segment that is written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger(folder)
    ...     ledger.append({"task": "a", "files": ["x"]})
    ...     ledger.commit()
    ...     ledger.close()
    ...     list(Ledger.read(folder))
    [{'task': 'a', 'files': ['x']}]
    """

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self.segment = 1 + max((int(n[:6]) for n in _segments(directory)), default=0)
        self._file = open(os.path.join(directory, f"{self.segment:06d}.jsonl"), "xb")  # noqa: PTH123, SIM115 - held open
        self._pending: list[bytes] = []

    def append(self, record: dict[str, Any]) -> None:
        """Add a record. It counts once :meth:`commit` has returned."""
        self._pending.append(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")

    def commit(self) -> None:
        """Write the records added so far and force them to disk, all at once."""
        if self._pending:
            self._file.write(b"".join(self._pending))
            self._pending.clear()
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Commit and close the segment."""
        self.commit()
        self._file.close()

    @staticmethod
    def read(directory: str) -> Iterator[dict[str, Any]]:
        """All records, oldest first. A last line that a crash cut off is left out."""
        for name in _segments(directory):
            with open(os.path.join(directory, name), "rb") as file:  # noqa: PTH123 - plain open is enough
                for line in file:
                    if line.endswith(b"\n"):
                        yield json.loads(line)


def _segments(directory: str) -> list[str]:
    return sorted(n for n in os.listdir(directory) if n.endswith(".jsonl"))
