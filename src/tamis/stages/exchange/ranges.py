"""Exchange by range: rows sorted by a key across all tasks.

The map side sorts each batch and cuts it into cells, of which the index has the smallest key. From these keys the
bounds of the partitions are chosen, and a partition is read from the cells that overlap it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import DataError
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Cells, Ints, Rows, file_codes, put_together, read_cells, write_cells

__all__ = ["cut_sorted", "partition_bounds", "range_chooser", "read_range"]

CELLS_PER_PARTITION = 4
"""Cells of a file for each partition: the finer they are, the less is read twice at the bounds."""


def cut_sorted(rows: Rows, key: str, partitions: int, final: str, count: int = 0) -> Publish:
    """Write rows sorted by their key, in cells of about equal size."""
    rows = _sorted(rows, key)
    length = rows.table.num_rows
    cells = max(1, min(length, CELLS_PER_PARTITION * partitions))
    edges = np.arange(cells + 1, dtype=np.int64) * length // cells
    keys = rows.table.column(key).take(arrow_array(edges[:-1].copy())).combine_chunks()
    keys = keys.chunk(0) if isinstance(keys, pa.ChunkedArray) else keys
    return write_cells(final, rows, np.arange(cells), edges, keys, count)


def _sorted(rows: Rows, key: str) -> Rows:
    """The rows by their key, nulls last; equal keys stay in their order."""
    frame = pl.DataFrame({"key": _series(rows.table.column(key), key)}).with_row_index("row")
    order = frame.sort("key", nulls_last=True, maintain_order=True)["row"].to_numpy().astype(np.int64)
    table = rows.table.unify_dictionaries().take(arrow_array(order))
    return rows.with_table(table)


def _series(values: pa.ChunkedArray | pa.Array, key: str) -> pl.Series:
    if pa.types.is_nested(values.type):
        raise DataError(f"the column {key!r} holds {values.type}, which has no order")
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    series = pl.from_arrow(values)
    assert isinstance(series, pl.Series)
    return series


def partition_bounds(files: Sequence[Cells], partitions: int, given: Sequence[Any] | None) -> list[Any]:
    """The first key of each partition but the first: given ones, or such that partitions are about equally large."""
    if given is not None:
        bounds = list(given)
        if bounds != sorted(bounds):
            raise DataError("bounds must be in ascending order")
        return bounds
    cells = put_together([file.table for file in files])
    return _quantiles(cells, partitions)


def _quantiles(cells: pa.Table, parts: int) -> list[Any]:
    """Keys that cut cells into parts of about equal size; fewer where keys are equal."""
    frame = pl.DataFrame({"key": _series(cells.column("key"), "key"), "nbytes": numpy_array(cells.column("nbytes"))})
    frame = frame.drop_nulls("key")
    if frame["key"].dtype.is_float():
        frame = frame.drop_nans("key")
    frame = frame.sort("key")
    if frame.is_empty() or parts < 2:
        return []
    running = frame["nbytes"].cum_sum().to_numpy()
    wanted = np.arange(1, parts) * (int(numpy_array(cells.column("nbytes")).sum()) / parts)
    places = np.searchsorted(running, wanted, side="left")
    keys = frame["key"].gather(np.minimum(places, len(running) - 1))
    found = keys.unique().sort().to_list()
    return found[1:] if found and found[0] == frame["key"][0] else found


def range_chooser(bounds: Sequence[Any]) -> Callable[[pa.Table], tuple[Ints, Ints]]:
    """A function that says which cells overlap which partition; one at a bound belongs to several."""

    def choose(cells: pa.Table) -> tuple[Ints, Ints]:
        first = _part_of(cells.column("key"), bounds)
        # The last key of a cell is at most the first key of the next cell in the same file.
        files = file_codes(cells)
        last = np.append(first[1:], len(bounds))
        last[np.append(files[1:] != files[:-1], True)] = len(bounds)
        counts = last - first + 1
        chosen = np.repeat(np.arange(len(first)), counts)
        within = np.arange(len(chosen)) - np.repeat(np.cumsum(counts) - counts, counts)
        return chosen, first[chosen] + within

    return choose


def _part_of(keys: pa.ChunkedArray, bounds: Sequence[Any]) -> Ints:
    """The partition of each key; nulls are in the last."""
    if not len(bounds):
        return np.zeros(len(keys), np.int64)
    series = _series(keys, "key")
    edges = pl.Series(list(bounds), dtype=series.dtype if series.dtype != pl.Null else None)
    if series.dtype == pl.Null:
        return np.full(len(keys), len(bounds), np.int64)
    found: NDArray[np.int64] = np.asarray(edges.search_sorted(series.fill_null(edges[0]), side="right"), np.int64)
    found[series.is_null().to_numpy()] = len(bounds)
    return found


def read_range(cells: pa.Table, key: str, low: Any, high: Any, limit: int) -> Iterator[Rows]:
    """The rows with keys from ``low`` up to but not ``high``, sorted, in pieces of about ``limit`` bytes.

    Args:
        cells: The cells that overlap the range.
        key: The key column.
        low, high: The range; ``None`` where it has no end. Nulls belong to a range without an upper end.
        limit: Memory that a piece may take. Rows with equal keys are in one piece, however many they are.
    """
    nbytes = int(numpy_array(cells.column("nbytes")).sum())
    bounds = [b for b in _quantiles(cells, -(-nbytes // limit)) if low is None or b > low]
    bounds = [b for b in bounds if high is None or b < high]
    chosen, part = range_chooser(bounds)(cells)
    edges = [low, *bounds, high]
    for number in range(len(bounds) + 1):
        here = np.sort(chosen[part == number])
        found = [
            piece
            for rows in read_cells(cells.take(arrow_array(here)))
            if (piece := _within(rows, key, edges[number], edges[number + 1])).table.num_rows
        ]
        if found:
            yield _sorted(Rows.concat(found), key)


def _within(rows: Rows, key: str, low: Any, high: Any) -> Rows:
    """The rows of a sorted piece that are in a range."""
    bounds = [bound for bound in (low, high) if bound is not None]
    part = _part_of(rows.table.column(key), bounds)
    wanted = 0 if low is None else 1
    start, stop = np.searchsorted(part, [wanted, wanted + 1])
    return rows.with_table(rows.table.slice(start, stop - start))
