"""Tasks that could not be done: how that is told, and how they are set aside."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tamis.backends.payload import Envelope, decode_payload
from tamis.backends.runner import Failure, quarantine_file
from tamis.errors import StageError, TamisError, WorkerDiedError
from tamis.tasks import FileGroup
from tamis.tasks.storage import format_order


def stage_error(batch: list[Envelope], failure: Failure, attempts: int) -> Exception:
    """What a user is told of a task that cannot be done."""
    tried = "" if attempts == 1 else f", tried {attempts} times"
    of_files = _shown_files(source_files(batch[0]))
    where = f"stage {failure.stage!r}, task {format_order(batch[0].order)}{of_files}{tried}"
    if isinstance(failure.exception, TamisError):
        failure.exception.add_note(f"  in {where}")
        return failure.exception
    kind = WorkerDiedError if failure.died else StageError
    error = kind(f"{where}: {failure.error}")
    if failure.frames:
        error.add_note(failure.frames.rstrip())
    return error


def setup_error(failure: Failure, attempts: int) -> Exception:
    """What a user is told of a stage that cannot be set up."""
    if isinstance(failure.exception, TamisError):
        failure.exception.add_note(f"  in setup() of stage {failure.stage!r}")
        return failure.exception
    error = StageError(
        f"stage {failure.stage!r} could not be set up, tried in {attempts} workers one after the other: {failure.error}"
    )
    if failure.frames:
        error.add_note(failure.frames.rstrip())
    return error


def set_aside(batch: list[Envelope], failure: Failure, quarantine: str) -> list[str]:
    """Write to the quarantine which tasks were given up and why; return a path for the data of each of them."""
    paths = []
    os.makedirs(quarantine, exist_ok=True)
    for envelope in batch:
        record = quarantine_file(quarantine, failure.stage, envelope.task_id)
        data = record.removesuffix(".jsonl") + ".task"
        files = source_files(envelope)
        entry: dict[str, Any] = {
            "stage": failure.stage,
            "task": envelope.task_id,
            "place": format_order(envelope.order),
            "path": files[0] if files else "",
            "files": files,
            "rows": envelope.rows,
            "problem": f"set aside after {envelope.deaths + envelope.attempt} tries: {failure.error}",
            "data": os.path.basename(data),
        }
        temporary = f"{record}.tmp"
        Path(temporary).write_text(json.dumps(entry, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(temporary, record)
        paths.append(data)
    return paths


def source_files(envelope: Envelope) -> list[str]:
    """The input files, where the task is a group of files, or is known to be made of one."""
    while envelope.maker is not None:
        envelope = envelope.maker.batch[0]
    if envelope.nbytes > 2**20 or not isinstance(envelope.payload, FileGroup | bytes):
        return []
    task = decode_payload(envelope.payload)
    return list(task.data) if isinstance(task, FileGroup) else []


def _shown_files(files: list[str]) -> str:
    if not files:
        return ""
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return f" ({files[0]}{more})"
