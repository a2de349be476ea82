"""What a stage may hand out beside its result.

``process`` returns (or yields) tasks. A stage that has more to say yields one of these among them:

    Emit      a task for another port than the main one (a branch)
    Drop      rows left out on purpose, and why
    BadRows   rows that could not be read, for the quarantine
    Publish   a file that becomes output once the task is done
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tamis.tasks.drop import Drop

if TYPE_CHECKING:
    import pyarrow as pa

    from tamis.tasks import Task

__all__ = ["DROPPED", "MAIN", "BadRow", "BadRows", "Drop", "Emit", "Publish"]

MAIN = "out"
"""The port that leads to the next stage."""

DROPPED = "dropped"
"""The port of rows that a filter left out; see :class:`tamis.stages.flow.Dropped`."""


@dataclass(frozen=True)
class Emit:
    """A task for the named port."""

    port: str
    task: Task[Any]


@dataclass(frozen=True)
class BadRow:
    """One row that could not be read: where it was, why, and its bytes."""

    path: str
    line: int | None
    byte: int | None
    problem: str
    raw: bytes = b""


@dataclass(frozen=True)
class BadRows:
    """Rows that could not be read, for the quarantine."""

    rows: Sequence[BadRow] = field(default_factory=tuple)


@dataclass(frozen=True)
class Publish:
    """A finished file under a temporary name, to be renamed once the task's record is in the ledger.

    Args:
        temporary: Where it is now. Equal to ``final`` where a store has no rename (then writing it was atomic).
        final: The name under which it is output.
        rows: Rows in it.
        nbytes: Its size.
        storage_options: For the fsspec file system.
        needs_sync: Whether its data must be forced to disk before the ledger names it.
        output: The output directory it belongs to; empty for files of the run directory.
        schema: The schema of its rows, where all files of the output must have the same.
        beside: Whether it is a file beside the output, such as an index: it is not counted as output.
    """

    temporary: str
    final: str
    rows: int
    nbytes: int
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    needs_sync: bool = False
    output: str = ""
    schema: pa.Schema | None = None
    beside: bool = False
