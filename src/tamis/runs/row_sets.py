"""Compares which rows two runs left out, by the names of the rows, in memory that does not grow with the runs."""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import numpy_array
from tamis.runs.dropped_rows import Thresholds, described_rows, ledger_of, mixed
from tamis.runs.failures import failures
from tamis.runs.lineage import input_files
from tamis.tasks.base import digest

__all__ = ["LeftOut", "MainWay", "compare_left_out", "read_files"]

BUCKET_ROWS: Final = 16_000_000
"""Rows whose names are in memory at a time. A larger ledger is read several times, each time for some of the names."""

SET_ASIDE: Final = "set aside"


@dataclass
class LeftOut:
    """Rows that one run left out and the other one did not.

    Args:
        rows: How many.
        reasons: How many for each stage and reason.
        examples: Some of them: ``row``, ``stage``, ``reason``, ``score``, ``low``, ``high``, ``source``, ``position``.
        all_rows: Rows that the run left out in all, of input that both runs have read.
        has_pieces: Whether some are pieces of rows.
    """

    rows: int = 0
    reasons: dict[tuple[str, str], int] = field(default_factory=dict)
    examples: list[dict[str, Any]] = field(default_factory=list)
    all_rows: int = 0
    has_pieces: bool = False


def read_files(run_dir: str) -> dict[str, str]:
    """The input files of a run, each with what changes when it changes."""
    return {file.path: f"{file.size}/{file.version}" for file in input_files(run_dir)}


@dataclass(frozen=True)
class MainWay:
    """A run, and what in its records is not about the rows themselves.

    Args:
        run_dir: The run's directory.
        copies: The stages that copies of rows went through, which a Tee has made.
    """

    run_dir: str
    copies: frozenset[str] = frozenset()


def compare_left_out(
    run: MainWay, other: MainWay, shared: set[str] | None, thresholds: Thresholds, examples: int = 5
) -> LeftOut:
    """The rows that a run has dropped or set aside, and another has not.

    Args:
        run: The run.
        other: The other one.
        shared: The files that both have read; ``None`` if all rows are compared.
        thresholds: The scores that the run keeps.
        examples: How many examples to give.
    """
    found = LeftOut()
    drawn: list[tuple[int, int, dict[str, Any]]] = []
    number = itertools.count()  # so that equal draws need not be compared further
    count = max(1, -(-max(_rows(run.run_dir), _rows(other.run_dir)) // BUCKET_ROWS))
    for bucket in range(count):
        names = [
            _keys(batch)[1][_in_bucket(batch, bucket, count)]
            for batch in _batches(other, ["source", "position", "part"])
        ]
        known = np.unique(np.concatenate([*names, np.zeros(0, np.uint64)]))
        for batch in _batches(run, None):
            chosen = np.flatnonzero(_in_bucket(batch, bucket, count) & _is_shared(batch, shared))
            if not len(chosen):
                continue
            some = batch.take(pa.array(chosen))
            found.all_rows += len(some)
            found.has_pieces = found.has_pieces or some.column("part").null_count < len(some)
            missing = np.flatnonzero(~_known(some, known))
            found.rows += len(missing)
            _count(some.take(pa.array(missing)), found.reasons)
            draws = _keys(some)[1][missing]
            nearest = np.argsort(draws, kind="stable")[:examples]
            rows = described_rows(some.take(pa.array(missing[nearest])), thresholds)
            for draw, row in zip(draws[nearest].tolist(), rows, strict=True):
                heapq.heappush(drawn, (-draw, next(number), row.to_dict()))
            while len(drawn) > examples:
                heapq.heappop(drawn)
    found.examples = [row for *_, row in sorted(drawn, key=lambda item: (-item[0], item[2]["row"]))]
    return found


def _batches(run: MainWay, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    """The drop ledger, then what was set aside, in the same columns."""
    import pyarrow.dataset as ds

    ledger = ledger_of(run.run_dir)
    if ledger is not None:
        wanted = ~ds.field("stage").isin(sorted(run.copies)) if run.copies else None
        yield from ledger.to_batches(columns=columns, filter=wanted)
    aside = [
        one
        for one in failures(run.run_dir)
        if one.kind != "task" and one.position is not None and one.stage not in run.copies
    ]
    if aside:
        values: dict[str, list[Any]] = {
            "stage": [one.stage for one in aside],
            "reason": [f"{SET_ASIDE}: {one.problem}" for one in aside],
            "score": [None] * len(aside),
            "score_text": [None] * len(aside),
            "source": [one.source for one in aside],
            "position": [one.position for one in aside],
            "part": [one.part or None for one in aside],
        }
        types = {"score": pa.float64(), "position": pa.int64()}
        yield pa.record_batch(
            {n: pa.array(v, types.get(n, pa.string())) for n, v in values.items() if not columns or n in columns}
        )


def _rows(run_dir: str) -> int:
    ledger = ledger_of(run_dir)
    return 0 if ledger is None else int(ledger.count_rows())


def _keys(batch: pa.RecordBatch) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """A number for the row of the source that each row comes from, and one for the row itself."""
    roots = mixed(
        _hashes(batch.column("source")) ^ numpy_array(batch.column("position").fill_null(-1)).astype(np.uint64)
    )
    return roots, mixed(roots ^ _hashes(batch.column("part")))


def _hashes(column: pa.Array) -> NDArray[np.uint64]:
    encoded = column.fill_null("").dictionary_encode()
    values = np.array([int(digest(value), 16) for value in encoded.dictionary.to_pylist()], np.uint64)
    return values[numpy_array(encoded.indices)] if len(values) else np.zeros(len(column), np.uint64)


def _in_bucket(batch: pa.RecordBatch, bucket: int, count: int) -> NDArray[np.bool_]:
    if count == 1:
        return np.ones(len(batch), np.bool_)
    mask: NDArray[np.bool_] = _keys(batch)[0] % np.uint64(count) == np.uint64(bucket)
    return mask


def _is_shared(batch: pa.RecordBatch, shared: set[str] | None) -> NDArray[np.bool_]:
    if shared is None:
        return np.ones(len(batch), np.bool_)
    encoded = batch.column("source").fill_null("").dictionary_encode()
    is_shared = np.array([value in shared for value in encoded.dictionary.to_pylist()], np.bool_)
    return is_shared[numpy_array(encoded.indices)] if len(is_shared) else np.zeros(len(batch), np.bool_)


def _known(batch: pa.RecordBatch, known: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether the other run left out each row as well, or the row that it is a piece of."""
    import pyarrow.compute as pc

    roots, keys = _keys(batch)
    mask = _is_among(keys, known)
    parts = batch.column("part").fill_null("")
    while len(parts) and pc.max(pc.binary_length(parts)).as_py():
        parts = pc.replace_substring_regex(parts, r"[/+]\d+$", "")
        mask |= _is_among(mixed(roots ^ _hashes(parts)), known)
    return mask


def _is_among(keys: NDArray[np.uint64], known: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether each key is among known ones, which are sorted."""
    if not len(known):
        return np.zeros(len(keys), np.bool_)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    mask: NDArray[np.bool_] = known[places] == keys
    return mask


def _count(batch: pa.RecordBatch, reasons: dict[tuple[str, str], int]) -> None:
    for entry in pa.table(batch).group_by(["stage", "reason"]).aggregate([([], "count_all")]).to_pylist():
        reason = SET_ASIDE if entry["reason"].startswith(f"{SET_ASIDE}:") else entry["reason"]
        reasons[entry["stage"], reason] = reasons.get((entry["stage"], reason), 0) + entry["count_all"]


def changed_files(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Files that both have read, in different states."""
    return sorted(path for path, version in one.items() if path in other and other[path] != version)


def is_recorded(run_dir: str) -> bool:
    """Whether a run has a drop ledger."""
    return os.path.isdir(os.path.join(run_dir, "drops"))
