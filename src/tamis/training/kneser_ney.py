"""Interpolated modified Kneser-Ney smoothing (Chen and Goodman, 1998), with pruning as in Heafield et al. (2013).

The probability of a unit w after a context h is (a(hw) - D(a(hw))) / a(h) + g(h) P(w | h'), where h' is h without its
first unit, a(hw) is how often hw occurs if it is of the largest order or begins a line, and otherwise how many
different units come before it; a(h) is the sum over all w, D one of three discounts for each order, and g(h) the rest.
Below single units is the uniform distribution over all known units, the end of a line and the unknown unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.ngram_table import NgramTable, first_keys, longer_keys
from tamis.kernels.text_units import LINE_BEGIN, LINE_END, UNKNOWN

__all__ = ["Smoothed", "discounts_of", "estimate"]

_FALLBACK: Final = (0.5, 1.0, 1.5)
"""Discounts for an order with too few n-grams to compute them, as KenLM has them."""

_DEEPEST: Final = 100
_NEVER: Final = -99.0
"""The logarithm of the probability of a line's beginning, which is only a context."""


@dataclass(frozen=True, eq=False)
class Smoothed:
    """A model, and figures of its training.

    Args:
        table: The n-grams.
        ngrams: How many there are of each order, after pruning.
        pruned: How many were left out of each order.
        discounts: The three discounts of each order.
        units: How many different units are known.
    """

    table: NgramTable
    ngrams: list[int]
    pruned: list[int]
    discounts: list[tuple[float, float, float]]
    units: int


@dataclass(eq=False)
class _Order:
    """The different n-grams of one order, sorted by key.

    Args:
        keys: Their keys.
        counts: How often each occurs.
        context: For each the number of the n-gram without its last unit, one order below.
        shorter: The number of the n-gram without its first unit, one order below.
        begins: Whether it begins a line.
    """

    keys: NDArray[np.uint64]
    counts: NDArray[np.int32]
    context: NDArray[np.int32]
    shorter: NDArray[np.int32]
    begins: NDArray[np.bool_]
    adjusted: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    likely: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    backoffs: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    kept: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))


def estimate(
    hashes: NDArray[np.uint64], order: int, min_unit_count: int = 1, min_counts: Sequence[int] = (), exact: bool = False
) -> Smoothed:
    """Fit a model to lines of units.

    Args:
        hashes: The units of all lines, each line followed by :data:`~tamis.kernels.text_units.LINE_END`.
        order: The largest n.
        min_unit_count: Units that occur fewer times count as the unknown unit.
        min_counts: How often an n-gram of each order must occur to be kept, from single units on, which are all kept;
            the last number holds for all longer ones. Must not decrease.
        exact: Whether to keep probabilities as they are, instead of quantising them to 16 bits.
    """
    known, place, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    rare = (counts < min_unit_count) & (known != LINE_END)
    tokens, depth = _with_begins(np.where(rare[place], np.uint64(UNKNOWN), hashes))
    del known, place
    least = [*(min_counts or (1,)), *[(min_counts or (1,))[-1]] * order][:order]
    orders = _orders(tokens, depth, order)
    _add_unknown(orders[0])
    discounts, pruned = [], []
    for n, held in enumerate(orders):
        _adjust(held, orders[n + 1] if n + 1 < order else None, n + 1)
        held.kept = np.ones(len(held.keys), np.bool_) if n == 0 else held.counts >= least[n]
        discounts.append(_smooth(held, orders[n - 1] if n else None))
        pruned.append(int((~held.kept).sum()))
        held.adjusted = held.counts = held.context = np.zeros(0, np.int32)  # to free memory
        if n:
            _drop_pruned(orders[n - 1])
    _drop_pruned(orders[-1])
    with np.errstate(divide="ignore"):
        likely = np.concatenate([np.log10(held.likely) for held in orders])
        backoffs = np.concatenate([np.log10(held.backoffs) for held in orders])
    likely = np.maximum(likely, _NEVER)
    backoffs = np.maximum(backoffs, _NEVER)
    keys = np.concatenate([held.keys for held in orders])
    ngrams = [len(held.keys) for held in orders]
    table = NgramTable.build(order, keys, likely, backoffs, is_closed=True, exact=exact)
    return Smoothed(
        table,
        ngrams,
        pruned,
        discounts,
        ngrams[0] - 1,
    )


def _drop_pruned(held: _Order) -> None:
    """Leave nothing but the n-grams that are kept, once no other order refers to them by number."""
    for name in ("keys", "likely", "backoffs"):
        setattr(held, name, getattr(held, name)[held.kept])
    held.shorter = np.zeros(0, np.int32)
    held.begins = held.kept = np.zeros(0, np.bool_)


def discounts_of(adjusted: NDArray[Any]) -> tuple[float, float, float]:
    """The discounts of n-grams that are counted once, twice, and three times or more.

    >>> discounts_of(np.array([1, 1, 1, 1, 2, 2, 3, 4]))
    (0.5, 1.25, 1.0)
    >>> discounts_of(np.array([5]))
    (0.5, 1.0, 1.5)
    """
    n1, n2, n3, n4 = (int((adjusted == count).sum()) for count in (1, 2, 3, 4))
    if not all((n1, n2, n3)):
        return _FALLBACK
    share = n1 / (n1 + 2 * n2)
    found = (1 - 2 * share * n2 / n1, 2 - 3 * share * n3 / n2, 3 - 4 * share * n4 / n3)
    return found if all(0 <= discount <= n for n, discount in enumerate(found, start=1)) else _FALLBACK


def _with_begins(units: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], NDArray[np.int8]]:
    """Units with a mark before each line, and how many units of its line there are up to each, with the mark."""
    ends = np.flatnonzero(units == LINE_END)
    starts = np.concatenate([np.zeros(1, np.int64), ends + 1])[: len(ends)]
    tokens = np.insert(units[: int(ends[-1]) + 1 if len(ends) else 0], starts, np.uint64(LINE_BEGIN))
    begins = np.flatnonzero(tokens == LINE_BEGIN)
    lengths = np.diff(np.append(begins, len(tokens)))
    depth = np.arange(len(tokens)) - np.repeat(begins, lengths) + 1
    return tokens, np.minimum(depth, _DEEPEST).astype(np.int8)


def _orders(tokens: NDArray[np.uint64], depth: NDArray[np.int8], order: int) -> list[_Order]:
    found: list[_Order] = []
    keys = first_keys(tokens)
    numbers = np.zeros(len(tokens), np.int32)  # of the n-gram of one order below that ends at each unit
    for n in range(1, order + 1):
        if n > 1:
            keys[n - 1 :] = longer_keys(keys[n - 1 :], tokens[: len(tokens) - n + 1])
        ends = np.flatnonzero(depth >= n)
        sorted_by = np.argsort(keys[ends], kind="stable")
        ends = ends[sorted_by]
        del sorted_by
        ordered = keys[ends]
        is_new = np.ones(len(ends), np.bool_)
        is_new[1:] = ordered[1:] != ordered[:-1]
        firsts = np.flatnonzero(is_new)
        at, own = ends[firsts], ordered[firsts]
        del ordered
        counts = np.diff(np.append(firsts, len(ends))).astype(np.int32)
        context = numbers[at - 1] if n > 1 else np.zeros(len(own), np.int32)
        shorter = numbers[at] if n > 1 else np.zeros(len(own), np.int32)
        found.append(_Order(own, counts, context, shorter, depth[at] == n))
        numbers = np.zeros(len(tokens), np.int32)
        numbers[ends] = np.cumsum(is_new) - 1
    return found


def _add_unknown(held: _Order) -> None:
    """Add the unknown unit to the single units, if it is not among them: every model knows it."""
    key = first_keys(np.array([UNKNOWN], np.uint64))
    if not np.isin(key, held.keys).any():
        held.keys = np.concatenate([held.keys, key])
        for name in ("counts", "context", "shorter"):
            setattr(held, name, np.append(getattr(held, name), np.int32(0)))
        held.begins = np.append(held.begins, False)


def _adjust(held: _Order, above: _Order | None, n: int) -> None:
    """Count how many different units come before each n-gram, unless it begins a line or is of the largest order."""
    if above is None:
        held.adjusted = held.counts
    else:
        followed = np.bincount(above.shorter, minlength=len(held.keys))
        held.adjusted = np.where(held.begins, held.counts, followed).astype(np.int32)
    if n == 1:
        held.adjusted = np.where(held.begins, np.int32(0), held.adjusted)  # the beginning of a line is only a context


def _smooth(held: _Order, below: _Order | None) -> tuple[float, float, float]:
    """The probabilities of n-grams, and the back-off weights of those of one order below."""
    counted = held.adjusted
    discounts = discounts_of(counted)
    by_count = np.array([0.0, *discounts])
    discount = np.minimum(by_count[np.minimum(counted, 3)], counted)
    contexts = 1 if below is None else len(below.keys)
    sums = np.bincount(held.context, counted, contexts)
    taken = np.bincount(held.context, np.where(held.kept, counted - discount, 0.0), contexts)
    with np.errstate(invalid="ignore", divide="ignore"):
        left = np.where(sums > 0, 1 - taken / sums, 1.0)
        own = np.where(sums[held.context] > 0, (counted - discount) / sums[held.context], 0.0)
    if below is None:
        known = int((~held.begins).sum())
        held.likely = np.where(held.begins, 0.0, own + left[0] / known)
    else:
        below.backoffs = left
        held.likely = own + left[held.context] * below.likely[held.shorter]
    held.backoffs = np.ones(len(held.keys))
    return discounts
