"""Filters whose scores the kernel computes: all of them in one pass over the texts."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.kernels.heuristics import Check, run_checks
from tamis.kernels.utf8 import Utf8
from tamis.stages.text.filters.base import NOT_NEGATIVE, ThresholdFilter

__all__ = ["Criterion", "Measured", "MeasuredFilter", "Ratio", "measure"]

_SLICE_BYTES = 1 << 17
"""While the kernel is not compiled yet: how much text is scored in Python before the kernel is tried again."""


@dataclass(frozen=True)
class Ratio:
    """A score made of what the kernel counts in a text.

    Args:
        numerator: What is counted: one of :mod:`tamis.kernels.measures`.
        denominator: What that is divided by; without it the score is the count.
        empty: The score where the denominator is zero.
        highest: The highest score there is.
    """

    numerator: int
    denominator: int | None = None
    empty: float = 0.0
    highest: float = math.inf


class MeasuredFilter(ThresholdFilter):
    """A filter whose score is a :class:`Ratio`. Such filters are run together, in one pass over the texts.

    ``score_document`` is the definition. It also serves as long as the kernel is not compiled.

    Attributes:
        measured: How the score is made, where that does not depend on parameters; else there is a :meth:`ratio`.
    """

    score_range = NOT_NEGATIVE
    measured: ClassVar[Ratio | None] = None

    def ratio(self) -> Ratio | None:
        """How the score is made; ``None`` where the kernel cannot do what the parameters ask for."""
        return self.measured

    @property
    def scores_columns(self) -> bool:
        ways = ("ratio", "measured")
        return any(self._has_column_form("score_document", way, MeasuredFilter) for way in ways) and bool(self.ratio())

    @property
    def decides_by_bounds(self) -> bool:
        """Whether the decision, too, is what the base class makes it."""
        cls = type(self)
        return cls.keep_scores is ThresholdFilter.keep_scores and cls.keep_document is ThresholdFilter.keep_document

    def score_column(self, column: pa.ChunkedArray) -> NDArray[Any]:
        return measure(column, [Criterion(self, decides=False)]).scores_of(0)


@dataclass(frozen=True, eq=False)
class Criterion:
    """A filter to apply to texts. Unless it ``decides``, a text is only scored; ``invert`` keeps what the filter would
    drop, and drops the rest.
    """

    filter: MeasuredFilter
    decides: bool
    invert: bool = False

    @functools.cached_property
    def check(self) -> Check:
        """The criterion in the form that the kernel takes."""
        ratio = self.filter.ratio()
        assert ratio is not None
        parts = (ratio.numerator, ratio.denominator, ratio.empty, ratio.highest)
        if not self.decides:
            return Check(*parts)
        low, high = self.filter.bounds()
        return Check(*parts, -np.inf if low is None else low, np.inf if high is None else high, self.invert)

    def apply(self, text: str) -> tuple[float, bool]:
        """The score of a text and whether it is kept, by the filter's own definition."""
        score: Any = self.filter.score_document(text)
        return score, not self.decides or self.filter.keep_document(score) != self.invert


@dataclass(frozen=True)
class Measured:
    """The result of applying criteria to texts, one after the other.

    Args:
        criteria: The criteria.
        rows: The row of each text in its table, ascending.
        scores: For each criterion the scores, of the texts that passed all earlier ones.
        failed: For each text, the number of the criterion that it failed; -1 if it failed none.
    """

    criteria: Sequence[Criterion]
    rows: NDArray[np.int64]
    scores: NDArray[np.float64]
    failed: NDArray[np.int64]

    def scores_of(self, criterion: int, rows: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """The scores by one criterion, of some rows that passed all earlier ones: integers where the filter counts."""
        scores: NDArray[Any] = self.scores[criterion] if rows is None else self.scores[criterion][self._places(rows)]
        return scores.astype(np.int64) if self.criteria[criterion].check.denominator is None else scores

    def raw_scores_of(self, criterion: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """The scores by one criterion as floating-point numbers; nothing is copied if no row was left out before."""
        whole: NDArray[np.float64] = self.scores[criterion]
        return whole if len(rows) == len(whole) else whole[self._places(rows)]

    def failed_by(self, rows: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
        """Which of some rows failed, by criterion: their places among these rows, ascending."""
        failed = self.failed[self._places(rows)]
        order = np.argsort(failed, kind="stable")
        ends = np.cumsum(np.bincount(failed + 1, minlength=len(self.criteria) + 1)).tolist()
        return {n: order[ends[n] : ends[n + 1]] for n in range(len(self.criteria)) if ends[n] < ends[n + 1]}

    def _places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(self.rows) and self.rows[-1] == len(self.rows) - 1:
            return rows  # nothing was left out
        return np.searchsorted(self.rows, rows)


def measure(column: pa.ChunkedArray, criteria: Sequence[Criterion], rows: NDArray[np.int64] | None = None) -> Measured:
    """Apply criteria to texts, or to some of them (ascending rows), each to those that passed all earlier ones."""
    rows = np.arange(len(column)) if rows is None else rows
    checks = [criterion.check for criterion in criteria]
    if column.num_chunks == 1 and len(rows):
        whole = run_checks(Utf8.from_arrow(column.chunk(0)), rows, checks)
        if whole is not None:
            return Measured(criteria, rows, whole.scores, whole.failed)
    scores, failed = np.zeros((len(criteria), len(rows))), np.empty(len(rows), np.int64)
    begin = first = 0
    for chunk in column.chunks:
        end = begin + int(np.searchsorted(rows[begin:], first + len(chunk)))
        texts, places = Utf8.from_arrow(chunk), rows[begin:end] - first
        while begin < end:
            checked = run_checks(texts, places, checks)
            if checked is not None:
                scores[:, begin:end], failed[begin:end] = checked.scores, checked.failed
                begin = end
                break
            done = _measure_slice(texts, places, criteria, scores[:, begin:end], failed[begin:end])
            begin, places = begin + done, places[done:]
        first += len(chunk)
    return Measured(criteria, rows, scores, failed)


def _measure_slice(
    texts: Utf8,
    rows: NDArray[np.int64],
    criteria: Sequence[Criterion],
    scores: NDArray[np.float64],
    failed: NDArray[np.int64],
) -> int:
    """Apply the plain definitions to the first of the texts; gives to how many."""
    nbytes = 0
    for i, row in enumerate(rows):
        start, end = texts.offsets[row], texts.offsets[row + 1]
        text = texts.data[start:end].tobytes().decode("utf-8", "replace")  # what a file calls text may not be
        failed[i] = -1
        for number, criterion in enumerate(criteria):
            scores[number, i], is_kept = criterion.apply(text)
            if not is_kept:
                failed[i] = number
                break
        nbytes += end - start
        if nbytes >= _SLICE_BYTES:
            return i + 1
    return len(rows)
