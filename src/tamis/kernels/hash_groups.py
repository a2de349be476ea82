"""Which hashes are equal: the order in which equal ones are neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native

__all__ = ["HashGroups"]

Hashes = NDArray[np.uint64]
Mask = NDArray[np.bool_]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class HashGroups:
    """Entries with one or more hashes each, in the order of their hashes.

    Args:
        order: The entries, sorted by their hashes. Those with equal hashes are in their old order.
        is_new: For each hash of an entry, whether it or one before it differs from that of the entry before, in the
            sorted order: one row for each hash.

    >>> hashes = np.array([7, 5, 7, 5], np.uint64), np.array([1, 2, 1, 3], np.uint64)
    >>> groups = HashGroups.of(hashes)
    >>> groups.order.tolist(), groups.is_new.tolist()
    ([1, 3, 0, 2], [[True, False, True, False], [True, True, True, False]])
    """

    order: Places
    is_new: Mask

    @classmethod
    def of(cls, hashes: Sequence[Hashes]) -> HashGroups:
        """The groups of some entries.

        Args:
            hashes: The hashes of all entries, the ones that count first at first.
        """
        first = np.ascontiguousarray(hashes[0])
        kernel = native.load("hash_order")
        if kernel is None or len(first) < 2:
            order = np.lexsort(tuple(hashes[::-1]))
            near = np.arange(1, len(order))
        else:
            skipped = min(64 - int(first.max() ^ first.min()).bit_length(), 63)
            keys, places = np.empty((2, len(first)), np.uint64), np.empty((2, len(first)), np.int64)
            kernel(first, len(first), skipped, np.zeros(3 * 2048, np.int64), keys[0], places[0], keys[1], places[1])
            order = places[1]
            # Entries that are equal in the bits that were compared: only they can be equal to the one before.
            digits = keys[1] >> np.uint64(31)
            near = np.flatnonzero(digits[1:] == digits[:-1]) + 1
            _sort_fully(hashes, order, near)
        is_new = np.ones((len(hashes), len(order)), np.bool_)
        is_new[:, near] = _changes(hashes, order, near)
        return cls(order, is_new)


def _changes(hashes: Sequence[Hashes], order: Places, near: Places) -> Mask:
    """For each hash, whether it or one before it changes at some places of the order."""
    entries, before = order[near], order[near - 1]
    changes: Mask = np.logical_or.accumulate([column[entries] != column[before] for column in hashes])
    return changes


def _sort_fully(hashes: Sequence[Hashes], order: Places, near: Places) -> None:
    """Sort by all bits what was sorted by some of them."""
    is_mixed = _changes(hashes, order, near)[-1]
    if not is_mixed.any():
        return
    starts_run = np.append(True, np.diff(near) > 1)
    run = np.cumsum(starts_run) - 1
    in_mixed = np.isin(run, run[is_mixed])
    mixed = np.union1d(near[in_mixed], near[in_mixed & starts_run] - 1)
    entries = np.sort(order[mixed])  # lexsort keeps equal entries in their order, which must be the old one
    order[mixed] = entries[np.lexsort([column[entries] for column in hashes[::-1]])]
