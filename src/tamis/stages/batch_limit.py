"""How much one call of a stage is given: a number of tasks, rows, bytes or tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tamis.errors import PlanError

if TYPE_CHECKING:
    from tamis.stages.base import ProcessingStage

__all__ = ["BatchLimit"]

Unit = Literal["tasks", "rows", "bytes", "tokens"]

_BYTES_PER_TOKEN = 16
"""Bytes of a table per token, more rather than less: tasks are collected by bytes, then cut by tokens in the worker."""


@dataclass(frozen=True)
class BatchLimit:
    """The most tasks, rows, bytes or tokens that one call of a stage is given. A larger row is given alone.

    >>> str(BatchLimit("rows", 4096)), str(BatchLimit("bytes", 64 * 2**20)), str(BatchLimit("tasks", 32))
    ('up to 4,096 rows at once', 'up to 64 MiB at once', 'up to 32 tasks at once')
    """

    unit: Unit
    most: int

    @classmethod
    def of(cls, stage: ProcessingStage[Any, Any]) -> BatchLimit | None:
        """The limit that a stage declares; ``None`` if each call is given one task."""
        if stage.batch_size == 1 and stage.batch_rows is stage.batch_bytes is stage.batch_tokens is None:
            return None
        declared: dict[str, tuple[Unit, int | None]] = {
            "batch_size": ("tasks", stage.batch_size if stage.batch_size != 1 else None),
            "batch_rows": ("rows", stage.batch_rows),
            "batch_bytes": ("bytes", stage.batch_bytes),
            "batch_tokens": ("tokens", stage.batch_tokens),
        }
        given = {name: (unit, most) for name, (unit, most) in declared.items() if most is not None}
        if len(given) > 1:
            raise PlanError(f"stage {stage.name!r} sets {' and '.join(given)}; set only one of them")
        for name, (unit, most) in given.items():
            if type(most) is not int or most < 1:
                raise PlanError(f"stage {stage.name!r}: {name}={most!r} must be a whole number, at least 1")
            return None if unit == "tasks" and not stage.supports_batch_processing() else cls(unit, most)
        return None

    @property
    def tasks(self) -> int | None:
        """The most tasks that are collected for a call."""
        return self.most if self.unit == "tasks" else None

    @property
    def rows(self) -> int | None:
        """The most rows that are collected for a call."""
        return self.most if self.unit == "rows" else None

    @property
    def nbytes(self) -> int | None:
        """The most bytes that are collected for a call. Tokens are estimated: they are counted in the worker."""
        if self.unit == "tokens":
            return self.most * _BYTES_PER_TOKEN
        return self.most if self.unit == "bytes" else None

    def __str__(self) -> str:
        if self.unit == "bytes":
            for size, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
                if self.most >= size:
                    return f"up to {self.most / size:.4g} {name} at once"
        return f"up to {self.most:,} {self.unit} at once"
