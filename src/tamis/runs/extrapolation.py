"""What a sample says about the whole: duplicates, and how far measurements of single tasks are apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

__all__ = ["distinct_in_whole", "relative_spread"]


def distinct_in_whole(copies: Sequence[int], rows: int, share: float, nearby: int = 0) -> float:
    """The share of rows that stays when a whole data set is deduplicated, from what was found in a sample of it.

    A sample shows fewer duplicates than the whole: of a document that occurs twice, the sample may have one. The model
    is that some documents occur once and the others equally often, anywhere; how often follows from the documents that
    the sample has several times, whose numbers of copies have a truncated binomial distribution.

    Args:
        copies: How often each document occurs in the sample that occurs more than once.
        rows: Rows in the sample.
        share: The share of the whole that the sample is, above 0 and at most 1.
        nearby: Duplicates of a row in the same part of the input, which a sample of parts shows as the whole does.

    >>> distinct_in_whole([], 1000, 0.1), distinct_in_whole([2] * 100, 1000, 1.0)
    (1.0, 0.9)
    >>> distinct_in_whole([], 1000, 0.1, nearby=100)
    0.9
    >>> round(distinct_in_whole([2] * 10, 1000, 0.1), 2)  # all documents twice
    0.9
    """
    repeated = len(copies)
    seen = 1 - (sum(copies) - repeated + nearby) / max(1, rows)
    if not repeated or share >= 1:
        return seen
    each = _copies_in_whole(fmean(copies), share)
    removed = repeated / _seen_twice(each, share) * (each - 1)
    return min(seen, max(1 / each, 1 - nearby / rows - removed * share / rows))


def _seen_twice(each: float, share: float) -> float:
    """The chance that a sample has at least two of some copies."""
    return 1 - math.pow(1 - share, each) - each * share * math.pow(1 - share, each - 1)


def _copies_in_whole(mean: float, share: float) -> float:
    """How often a document occurs in the whole, by halving.

    Args:
        mean: How often documents occur in the sample that occur there at least twice.
        share: The share of the whole that the sample is.
    """
    low, high = 2.0, max(4.0, 2 * mean / share)
    for _ in range(60):
        each = (low + high) / 2
        found = each * share * (1 - math.pow(1 - share, each - 1)) / _seen_twice(each, share)
        low, high = (each, high) if found < mean else (low, each)
    return (low + high) / 2


def relative_spread(costs: Sequence[float], share: float) -> float:
    """Twice the standard error of a mean, as a share of it: how far the mean of the whole may be from the sample's.

    Args:
        costs: The cost per byte of single tasks.
        share: The share of the whole that they are.

    >>> relative_spread([1.0, 1.0, 1.0], 0.1), round(relative_spread([1.0, 3.0], 0.0), 2)
    (0.0, 1.0)
    """
    if len(costs) < 2 or not (mean := fmean(costs)):
        return 1.0
    return min(1.0, 2 * stdev(costs) / mean / math.sqrt(len(costs)) * math.sqrt(max(0.0, 1 - share)))
