"""The rows and tasks that a run set aside, read from its quarantine: the one place that knows its files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

_DETAILS: Final = frozenset(
    {"stage", "source", "position", "part", "error", "message", "traceback", "problem", "path", "line", "raw", "task"}
)
_SHOWN_CHARACTERS: Final = 4_000


def set_aside_rows(run_dir: str, limit: int, skip: int = 0) -> list[dict[str, Any]]:
    """Some of what was set aside: ``stage``, ``problem``, and where known ``source``, ``position``, ``raw`` and others.

    >>> set_aside_rows("no-such-run", 10)
    []
    """
    folder = os.path.join(run_dir, "quarantine")
    return list(islice(_rows(folder), skip, skip + limit))


def _rows(folder: str) -> Iterator[dict[str, Any]]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return
    for name in names:
        if name.startswith("."):
            continue
        path = os.path.join(folder, name)
        try:
            if name.endswith(".jsonl"):
                yield from _json_rows(path)
            elif name.endswith(".parquet"):
                yield from _parquet_rows(path)
        except (OSError, ValueError, AttributeError):  # a file that is being written, or is damaged
            continue


def _json_rows(path: str) -> Iterator[dict[str, Any]]:
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        for line in file:
            row = json.loads(line)
            if isinstance(row, dict):
                yield row


def _parquet_rows(path: str) -> Iterator[dict[str, Any]]:
    """Rows, with columns that say what went wrong beside those of the data. The file says what these are called."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        about = json.loads((file.schema_arrow.metadata or {}).get(b"tamis.quarantine", b"{}"))
        called = about.get("columns") or {name: name for name in _DETAILS}
        for batch in file.iter_batches(batch_size=64):
            for row in batch.to_pylist():
                yield _described(row, called)


def _described(row: Mapping[str, Any], called: Mapping[str, str]) -> dict[str, Any]:
    known = {name: row[column] for name, column in called.items() if row.get(column) is not None}
    data = {name: value for name, value in row.items() if name not in called.values() and value is not None}
    words = (str(known[name]) for name in ("error", "message") if known.get(name))
    known["problem"] = known.get("problem") or ": ".join(words)
    if data and "raw" not in known:
        known["raw"] = json.dumps(data, ensure_ascii=False, default=repr)[:_SHOWN_CHARACTERS]
    return known
