"""Thresholds that keep a given share of the documents."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.errors import PlanError, did_you_mean
from tamis.stages.text.filters.base import ThresholdFilter

Scores = Mapping[str, NDArray[np.float64]]
"""The scores of documents, by the name of the filter."""

_DIGITS: Final = 4
"""How many digits a proposed threshold has."""

_TINY: Final = 1e-12
"""Scores below this are not rounded: they are practically zero, and rounding would be inexact."""


@dataclass(frozen=True)
class Proposal:
    """A filter with proposed thresholds, and the share of documents that it keeps, 0 to 1."""

    filter: ThresholdFilter
    kept: float


def chosen(filters: Sequence[ThresholdFilter], names: Sequence[str] | None) -> list[ThresholdFilter]:
    """The filters of these names (or of classes of these names); all that have a threshold when none are given.

    >>> from tamis.stages.text.filters import UrlsFilter, WordCountFilter
    >>> [one.name for one in chosen([UrlsFilter(), WordCountFilter()], ["WordCountFilter"])]
    ['word_count']
    """
    if names is None:
        return [one for one in filters if any(bound_fields(one))]
    found: list[ThresholdFilter] = []
    for name in names:
        matching = [one for one in filters if name in (one.name, type(one).__name__)]
        if not matching:
            known = [one.name for one in filters]
            raise PlanError(f"there is no filter {name!r}, only {', '.join(known)}.{did_you_mean(name, known)}")
        found += [one for one in matching if one not in found]
    return found


def bound_fields(one: ThresholdFilter) -> tuple[str | None, str | None]:
    """The parameters that are the lowest and the highest score that is kept.

    >>> from tamis.stages.text.filters import RepeatedLinesFilter, WordCountFilter
    >>> bound_fields(WordCountFilter()), bound_fields(RepeatedLinesFilter())
    (('min_words', 'max_words'), ('max_repeated_line_fraction', None))
    """
    found: list[str | None] = [None, None]
    # "max" in a parameter's name may refer to a low score: which bound it sets is found by changing it.
    for parameter in dataclasses.fields(one):  # type: ignore[arg-type]  # every built-in filter is a dataclass
        if parameter.name.startswith(("min_", "max_")) and getattr(one, parameter.name) is not None:
            changed = with_bounds(one, {parameter.name: getattr(one, parameter.name) + 1})
            for side in (0, 1):
                if changed.bounds()[side] != one.bounds()[side]:
                    found[side] = parameter.name
    return found[0], found[1]


def with_bounds(one: ThresholdFilter, changes: Mapping[str, Any]) -> ThresholdFilter:
    """The filter with other parameters."""
    changed: ThresholdFilter = dataclasses.replace(one, **changes)  # type: ignore[type-var]  # as above
    return changed


def kept_by(filters: Sequence[ThresholdFilter], scores: Scores) -> NDArray[np.bool_]:
    """Which documents all of the filters keep."""
    kept = np.ones(len(next(iter(scores.values()))), np.bool_)
    for one in filters:
        kept &= one.keep_scores(scores[one.name])
    return kept


def propose(one: ThresholdFilter, scores: Scores, keep_rate: float) -> Proposal:
    """Thresholds for a filter that, alone, keeps a share of the documents; at least that share, and as little more as
    the scores allow.
    """
    (proposal,) = propose_together([one], scores, keep_rate)
    return proposal


def propose_together(filters: Sequence[ThresholdFilter], scores: Scores, keep_rate: float) -> list[Proposal]:
    """Thresholds for filters that, one after the other, keep a share of the documents.

    Each filter drops the same share, the documents with the most extreme scores. A filter with two thresholds drops
    half of that share at either end. Documents without words do not influence the thresholds.
    """
    count = len(next(iter(scores.values()), ()))
    has_words = scores["words"] > 0 if "words" in scores else np.ones(count, np.bool_)
    ordered = {one.name: np.sort(scores[one.name][has_words]) for one in filters}
    enough = math.ceil(keep_rate * len(has_words) - 1e-9)

    def proposed(cut: int) -> list[ThresholdFilter]:
        """The filters when each drops so many documents at most."""
        return [_cut(one, ordered[one.name], cut) for one in filters]

    # The more each may drop, the fewer are kept: find the most that leaves enough.
    low, high = 0, int(has_words.sum())
    while low < high:
        middle = (low + high + 1) // 2
        if kept_by(proposed(middle), scores).sum() >= enough:
            low = middle
        else:
            high = middle - 1
    return [Proposal(one, _share(kept_by([one], scores))) for one in proposed(low)]


def _share(kept: NDArray[np.bool_]) -> float:
    return float(kept.mean()) if len(kept) else 0.0


def _cut(one: ThresholdFilter, ordered: NDArray[np.float64], cut: int) -> ThresholdFilter:
    """The filter with thresholds that drop at most so many of the scores."""
    if not len(ordered):
        return one
    fields = bound_fields(one)
    each = cut // 2 if all(fields) else cut
    each = min(each, len(ordered) - 1)
    changes: dict[str, Any] = {}
    if fields[0] is not None:
        changes[fields[0]] = _rounded(float(ordered[each]), True, getattr(one, fields[0]))
    if fields[1] is not None:
        changes[fields[1]] = _rounded(float(ordered[-1 - each]), False, getattr(one, fields[1]))
    return with_bounds(one, changes)


def _rounded(value: float, is_lowest: bool, like: float) -> float:
    """The threshold with a few digits, rounded to where it keeps more; a whole number where the filter counts."""
    if isinstance(like, int) and value.is_integer():
        return int(value)
    if value < _TINY:
        return value
    unit = 10.0 ** (math.floor(math.log10(abs(value))) + 1 - _DIGITS)
    units = math.floor(value / unit) if is_lowest else math.ceil(value / unit)
    rounded = float(f"{units * unit:.{_DIGITS}g}")
    return rounded if (rounded <= value if is_lowest else rounded >= value) else value
