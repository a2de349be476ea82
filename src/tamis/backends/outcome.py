"""What became of the tasks that a worker was given: what they made, or why they failed."""

from __future__ import annotations

import errno
import os
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tamis.backends.payload import Envelope
from tamis.errors import DataError, PlanError, TamisError
from tamis.printable import shortened
from tamis.runs.stats import GpuUse, StageStats
from tamis.stages.emit import Publish

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Failure", "Outcome", "cannot_travel", "failure_of", "is_of_items"]

_OF_THE_MACHINE = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE}

_OURS = os.sep + os.path.join("tamis", "backends") + os.sep


@dataclass(frozen=True)
class Failure:
    """Why a task could not be done.

    Args:
        stage: The stage that raised.
        error: The exception's type and message.
        kind: The exception's type.
        frames: The traceback, without tamis's own frames.
        permanent: Whether trying again is of no use (the same bytes fail again).
        died: Whether the worker died with it, or a call took too long.
        timed_out: Whether a call of an ``async`` stage took too long; the worker goes on.
        exception: The exception itself, where it can travel.
        of_items: Whether it may be the fault of single items: not if the pipeline is wrong, or a disk is full.
        transient: Whether the same call may succeed in a while.
    """

    stage: str
    error: str
    frames: str = ""
    permanent: bool = False
    died: bool = False
    exception: BaseException | None = None
    kind: str = ""
    timed_out: bool = False
    of_items: bool = True
    transient: bool = False


def cannot_travel(stage: str, error: Exception) -> Failure:
    """The failure of a task that cannot be sent from one process to another."""
    words = f"a task cannot be sent between processes: {type(error).__name__}: {error}"
    return Failure(stage, words, permanent=True, kind=type(error).__name__)


@dataclass
class Outcome:
    """What became of one task, or batch of tasks, in one group.

    Args:
        outputs: Tasks made, each addressed to a vertex (:data:`~tamis.plan.END` for the end of the pipeline).
        published: Files to publish.
        stats: What each vertex did.
        failure: Set if it failed; then nothing else counts.
        seconds: How long it took.
        drops: The rows that were dropped, for the run's drop ledger; larger ones are among the published files.
        peak_memory_bytes: Highest resident memory of the worker's process so far; 0 if the worker is a thread.
        gpus: What the worker's GPUs are doing, from time to time, if only the worker can read them.
    """

    outputs: list[Envelope] = field(default_factory=list)
    published: list[Publish] = field(default_factory=list)
    stats: dict[int, StageStats] = field(default_factory=dict)
    failure: Failure | None = None
    seconds: float = 0.0
    drops: pa.Table | None = None
    peak_memory_bytes: int = 0
    gpus: tuple[GpuUse, ...] = ()


def failure_of(stage: str, error: Exception) -> Failure:
    """What is passed on of an exception that a stage raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_ours(f.filename)]
    shown = shortened("".join(traceback.format_list(frames)))
    permanent = isinstance(error, DataError | PlanError)
    words = str(error) if isinstance(error, TamisError) else shortened(f"{type(error).__name__}: {error}")
    ours = error if isinstance(error, TamisError) else None
    return Failure(
        stage,
        words,
        shown,
        permanent,
        exception=ours,
        kind=type(error).__name__,
        of_items=is_of_items(error),
        transient=isinstance(error, ConnectionError | TimeoutError) or bool(getattr(error, "transient", False)),
    )


def is_of_items(error: BaseException) -> bool:
    """Whether an exception may be the fault of single items.

    Those of tamis name a mistake in the pipeline, or input that cannot be read where the reader is told to stop, unless
    they say that rows are at fault.
    """
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        return False
    return not isinstance(error, TamisError) or error.of_rows


def _is_ours(filename: str) -> bool:
    return _OURS in filename or filename.endswith(os.path.join("tamis", "stages", "base.py"))
