"""Rows of a batch that a stage left out on purpose, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tamis.tasks.table import TableTask

__all__ = ["NO_REASON", "Drop"]

NO_REASON = "no reason given"


@dataclass(frozen=True)
class Drop:
    """Rows of a batch that are left out on purpose.

    Args:
        batch: The batch as it came in.
        rows: Row numbers in it (integers), ascending.
        reason: Why, short: ``"word_count < 50"``. The same text for every row, so that reasons can be counted.
        scores: The score that led to it, one per row in ``rows``, if there is one.
        stage: For several stages that run as one, the position of the one that dropped the rows.
        originals: For duplicates, the names of the rows that are kept in their place, one per row in ``rows``.
    """

    batch: TableTask
    rows: np.ndarray[Any, Any]
    reason: str
    scores: pa.Array | None = None
    stage: int = 0
    originals: pa.Array | None = None
