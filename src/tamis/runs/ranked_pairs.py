"""Rows that remove others in the order of their ranks, at another threshold: from the pairs that a run recorded."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array
from tamis.errors import DataError
from tamis.kernels.hashing import hash_text_64

__all__ = ["ranked_removals"]

Hashes = NDArray[np.uint64]

_COLUMNS = ("left", "right", "similarity")


def ranked_removals(folder: str, threshold: float, only_kept: bool) -> pa.Table:
    """The rows that would be removed, and for each the most similar row that would remove it: ``removed``, ``kept``.

    Memory holds a hash and a state for each row of a pair.

    Args:
        folder: The folder with the pairs, as Parquet: ``left`` is ranked before ``right``.
        threshold: The least similarity.
        only_kept: Whether only rows that stay remove others.
    """
    nodes = np.zeros(0, np.uint64)
    for left, right, _ in _pairs(folder, threshold):
        nodes = np.unique(np.concatenate([nodes, hash_text_64(left), hash_text_64(right)]))
    stays = _stays(folder, threshold, nodes) if only_kept else np.ones(len(nodes), np.bool_)
    best = pa.table({"removed": pa.array([], pa.string()), "kept": pa.array([], pa.string())})
    best = best.append_column("similarity", pa.array([], pa.float32()))
    for left, right, similarity in _pairs(folder, threshold):
        chosen = arrow_array(stays[np.searchsorted(nodes, hash_text_64(left))])
        columns = [right.filter(chosen), left.filter(chosen), similarity.filter(chosen)]
        both = pa.concat_tables([best, pa.table(columns, ["removed", "kept", "similarity"])]).combine_chunks()
        order = pc.sort_indices(both, [("removed", "ascending"), ("similarity", "descending"), ("kept", "ascending")])
        both = both.take(order).combine_chunks()
        hashes = hash_text_64(both.column("removed"))
        is_first = np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]
        best = both.filter(arrow_array(is_first))
    return best.select(["removed", "kept"]).combine_chunks()


def _stays(folder: str, threshold: float, nodes: Hashes) -> NDArray[np.bool_]:
    """Which rows stay, if only rows that stay remove others: decided from the best rank on, some at a time."""
    is_open, stays = np.ones(len(nodes), np.bool_), np.zeros(len(nodes), np.bool_)
    while is_open.any():
        removed, blocked = np.zeros(len(nodes), np.bool_), np.zeros(len(nodes), np.bool_)
        for left, right, _ in _pairs(folder, threshold):
            before, after = (np.searchsorted(nodes, hash_text_64(side)) for side in (left, right))
            removed[after[stays[before]]] = True
            blocked[after[is_open[before]]] = True
        changed = is_open & (removed | ~blocked)
        if not changed.any():
            raise DataError("the pairs do not come from one order of the rows", path=folder)
        stays |= changed & ~removed
        is_open &= ~changed
    return stays


def _pairs(folder: str, threshold: float) -> Iterator[tuple[pa.Array, pa.Array, pa.Array]]:
    """The pairs that are similar enough, some at a time."""
    import pyarrow.dataset as ds

    try:
        names = sorted(os.listdir(folder))
        paths = [os.path.join(folder, name) for name in names if name.endswith(".parquet") and not name.startswith(".")]
        pairs = ds.dataset(paths, format="parquet") if paths else None
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"the pairs cannot be read: {error}", path=folder) from error
    if pairs is None:
        return
    missing = [name for name in _COLUMNS if name not in pairs.schema.names]
    if missing:
        raise DataError(f"these are not pairs of rows: the files have no column {missing[0]!r}", path=folder)
    enough = pc.field("similarity") >= pa.scalar(np.float32(threshold), pa.float32())
    for batch in pairs.to_batches(columns=list(_COLUMNS), filter=enough):
        if batch.num_rows:
            yield batch.column("left"), batch.column("right"), batch.column("similarity")
