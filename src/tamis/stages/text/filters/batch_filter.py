"""Filters that score whole rows instead of a column of text: images, and whatever else a row may hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from tamis.stages.text.filters.base import ThresholdFilter
from tamis.tasks import TableTask

__all__ = ["BatchCriterion", "BatchFilter", "BatchScores"]


class BatchFilter(ThresholdFilter):
    """A filter that is given rows, not texts. Several of the same kind in a chain score a batch together.

    Attributes:
        score_type: The type of its scores.
        releases_gil: Whether scoring leaves Python's lock to others most of the time.
    """

    score_type: ClassVar[pa.DataType] = pa.float64()
    releases_gil: bool = False

    @property
    def scores_columns(self) -> bool:
        return False

    def score_document(self, text: str) -> Any:
        raise TypeError(f"{type(self).__name__} scores rows, not texts: give it to ScoreFilter")

    def is_scored_with(self, other: BatchFilter) -> bool:
        """Whether :meth:`score_batch` of this filter can score by the other filter as well."""
        return False

    def more_columns(self) -> Mapping[str, pa.DataType]:
        """The columns that it writes besides its score, and their types."""
        return {}

    def score_batch(self, batch: TableTask, criteria: Sequence[BatchCriterion]) -> list[BatchScores]:
        """Score the rows of a batch by several filters: this one, and others that are scored with it."""
        raise NotImplementedError(f"{type(self).__name__} has no score_batch()")


@dataclass(frozen=True, eq=False)
class BatchCriterion:
    """A filter, whether rows are dropped by its score, and whether those are kept instead that it would drop."""

    filter: BatchFilter
    decides: bool = True
    invert: bool = False

    def drops(self, score: Any) -> bool:
        """Whether a row with this score is dropped."""
        return self.decides and bool(self.filter.keep_document(score)) == self.invert


@dataclass(frozen=True, eq=False)
class BatchScores:
    """The scores of the rows of a batch by one filter, null for rows that an earlier one drops, and its columns."""

    scores: pa.Array
    more: Mapping[str, pa.Array] = field(default_factory=dict)
