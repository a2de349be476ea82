"""Duplicates among the images of an analysis: the same bytes, the same pixels, nearly the same perceptual hash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from tamis.analysis.images.result import DuplicateGroups
from tamis.kernels.hamming import similar_pairs
from tamis.kernels.union_find import Forest

__all__ = ["NEAR_BITS", "equal_groups", "near_groups"]

NEAR_BITS: Final = 4
"""In how many of 64 bits the perceptual hashes of near duplicates may differ."""


def equal_groups(table: pl.DataFrame, column: str) -> DuplicateGroups:
    """Groups of images with the same value in a column.

    >>> equal_groups(pl.DataFrame({"bytes_hash": [3, 7, 3, None, None]}), "bytes_hash").groups
    [[0, 2]]
    """
    numbered = table.select(column).with_row_index("row").drop_nulls()
    grouped = numbered.group_by(column, maintain_order=True).agg("row").filter(pl.col("row").list.len() > 1)
    return DuplicateGroups(_ordered(grouped["row"].to_list()))


def near_groups(table: pl.DataFrame, max_bits: int = NEAR_BITS) -> DuplicateGroups:
    """Groups of images whose perceptual hashes differ in few bits, from one to the next.

    >>> near_groups(pl.DataFrame({"phash": [0b1111, 0b0111, 2**60 - 1]}, schema={"phash": pl.UInt64})).groups
    [[0, 1]]
    """
    numbered = table.select("phash").with_row_index("row").drop_nulls()
    rows, hashes = numbered["row"].to_numpy(), numbered["phash"].to_numpy()
    distinct, place = np.unique(hashes, return_inverse=True)
    forest = Forest(len(distinct))
    left, right, _ = similar_pairs(distinct, max_bits)
    forest.join(left, right, marks=False)
    of_row = pl.DataFrame({"row": rows, "group": forest.roots()[place]})
    grouped = of_row.group_by("group", maintain_order=True).agg("row").filter(pl.col("row").list.len() > 1)
    return DuplicateGroups(_ordered(grouped["row"].to_list()))


def _ordered(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    return sorted((sorted(group) for group in groups), key=lambda group: (-len(group), group))
