"""Reads the drop ledger of a run in a stream: the drops of one row, and samples. It may be of any size."""

from __future__ import annotations

import heapq
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import numpy_array
from tamis.runs.drops import SCHEMA
from tamis.runs.histograms import ScoreHistogram
from tamis.tasks.base import digest

if TYPE_CHECKING:
    import pyarrow.dataset as ds

__all__ = [
    "DroppedRow",
    "Thresholds",
    "count_drops",
    "described_rows",
    "drops_of_row",
    "duplicates_of",
    "is_duplicate",
    "ledger_of",
    "sample_drops",
    "sample_where",
]

DUPLICATE: Final = "duplicate"
"""The last word of the reason for which duplicates are dropped."""

_TEXTS: Final = pa.schema(
    [f.with_type(pa.string()) if pa.types.is_dictionary(f.type) else f for f in SCHEMA]  # so that filters compare text
)


@dataclass(frozen=True)
class DroppedRow:
    """A row that was dropped.

    Args:
        stage: The stage that dropped it.
        reason: Why.
        source, position, part: The name of the row.
        score: The score that led to it, if there is one.
        low, high: The lowest and the highest score that are kept, where that is known.
        original: Of a duplicate, the name of the row that is kept in its place.
    """

    stage: str
    reason: str
    source: str
    position: int | None
    part: str = ""
    score: float | str | None = None
    low: float | None = None
    high: float | None = None
    original: str = ""

    @property
    def name(self) -> str:
        """The name of the row."""
        return f"{self.source}:{self.position}{self.part}" if self.position is not None else self.source

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"row": self.name, **asdict(self)}


@dataclass(frozen=True)
class Thresholds:
    """The scores that each criterion keeps, from the histograms of a run.

    Args:
        scores: Histograms by stage and criterion, as :func:`tamis.runs.histograms.read_scores` gives them.

    >>> Thresholds({"words": {"word_count": ScoreHistogram((2, None))}}).of("words", "word_count < 2")
    (2, None)
    """

    scores: Mapping[str, Mapping[str, ScoreHistogram]]

    def of(self, stage: str, reason: str) -> tuple[float | None, float | None]:
        """The bounds of the criterion that a stage dropped a row by; ``None`` where there is none that is known."""
        criteria = self.scores.get(stage, {})
        own = [name for name in criteria if reason.removeprefix("not (").startswith(f"{name} ")]
        name = max(own, key=len) if own else next(iter(criteria)) if len(criteria) == 1 else None
        return criteria[name].bounds if name is not None else (None, None)


def drops_of_row(run_dir: str, source: str, position: int, thresholds: Thresholds | None = None) -> list[DroppedRow]:
    """What the ledger says of a row, or of pieces of it."""
    import pyarrow.dataset as ds

    ledger = ledger_of(run_dir)
    if ledger is None:
        return []
    wanted = (ds.field("position") == position) & (ds.field("source") == source)
    rows = [row for batch in ledger.to_batches(filter=wanted) for row in described_rows(batch, thresholds)]
    return sorted(rows, key=lambda row: (row.part, row.stage, row.reason))


def count_drops(run_dir: str, stage: str = "", reason: str = "") -> dict[tuple[str, str], int]:
    """How many rows each stage dropped for each reason.

    Args:
        run_dir: The run's directory.
        stage: Only this stage.
        reason: Only reasons that contain this text.
    """
    ledger = ledger_of(run_dir)
    counts: dict[tuple[str, str], int] = {}
    for batch in ledger.to_batches(columns=["stage", "reason"], filter=_wanted(stage, reason)) if ledger else ():
        for entry in pa.table(batch).group_by(["stage", "reason"]).aggregate([([], "count_all")]).to_pylist():
            pair = entry["stage"], entry["reason"]
            counts[pair] = counts.get(pair, 0) + entry["count_all"]
    return dict(sorted(counts.items()))


def sample_drops(
    run_dir: str, count: int, stage: str = "", reason: str = "", seed: int = 0, thresholds: Thresholds | None = None
) -> list[DroppedRow]:
    """Some of the rows that were dropped, chosen by their names and a seed: the same ones however the run went.

    Args:
        run_dir: The run's directory.
        count: How many.
        stage: Only those of this stage.
        reason: Only those with a reason that contains this text.
        seed: Another seed chooses other rows.
        thresholds: The scores that are kept.
    """
    return sample_where(ledger_of(run_dir), count, _wanted(stage, reason), seed, thresholds)


def sample_where(
    ledger: ds.Dataset | None,
    count: int,
    wanted: ds.Expression | None,
    seed: int = 0,
    thresholds: Thresholds | None = None,
) -> list[DroppedRow]:
    """As :func:`sample_drops`, of the rows of a ledger for which an expression holds."""
    chosen: list[tuple[int, int, DroppedRow]] = []  # a heap: the greatest draw is first
    number = 0
    for batch in ledger.to_batches(filter=wanted) if ledger and count else ():
        draws = _draws(batch, seed)
        limit = -chosen[0][0] if len(chosen) >= count else None
        near = np.flatnonzero(draws < limit) if limit is not None else np.arange(len(draws))
        near = near[np.argsort(draws[near], kind="stable")][:count]
        for place, row in zip(near.tolist(), described_rows(batch.take(pa.array(near)), thresholds), strict=True):
            number += 1
            heapq.heappush(chosen, (-int(draws[place]), number, row))
        while len(chosen) > count:
            heapq.heappop(chosen)
    return [row for *_, row in sorted(chosen, key=lambda item: (-item[0], item[2].name, item[2].stage))]


def ledger_of(run_dir: str, most_rows: int | None = None) -> ds.Dataset | None:
    """The drop ledger of a run, its columns of few values as text; ``None`` if it has none.

    Args:
        run_dir: The run's directory.
        most_rows: Of a larger ledger, some files with about so many rows, spread over it.
    """
    import pyarrow.dataset as ds

    folder = os.path.join(run_dir, "drops")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    paths = [os.path.join(folder, name) for name in names if name.endswith(".parquet") and not name.startswith(".")]
    if most_rows is not None and len(paths) > 1:
        paths = _some_of(paths, most_rows)
    return ds.dataset(paths, schema=_TEXTS, format="parquet") if paths else None


def _some_of(paths: list[str], most_rows: int) -> list[str]:
    import pyarrow.parquet as pq

    rows = [pq.read_metadata(path).num_rows for path in paths]
    share = min(1.0, most_rows / max(sum(rows), 1))
    # The file at which another whole file's worth of rows is due.
    due = np.floor(np.arange(1, len(paths) + 1) * share)
    return [path for path, now, before in zip(paths, due, [0.0, *due[:-1]], strict=True) if now > before] or paths[:1]


def _wanted(stage: str, reason: str) -> ds.Expression | None:
    import pyarrow.compute as pc

    conditions = []
    if stage:
        conditions.append(pc.field("stage") == stage)
    if reason:
        conditions.append(pc.match_substring(pc.field("reason"), reason))
    return conditions[0] & conditions[-1] if conditions else None


def described_rows(batch: pa.RecordBatch, thresholds: Thresholds | None) -> Iterator[DroppedRow]:
    """The rows of a batch of the ledger."""
    for row in batch.to_pylist():
        stage, reason, score = row["stage"] or "", row["reason"] or "", row["score"]
        if isinstance(score, float) and math.isnan(score):
            score = None
        low, high = (None, None) if thresholds is None else thresholds.of(stage, reason)
        yield DroppedRow(
            stage,
            reason,
            row["source"] or "",
            row["position"],
            row["part"] or "",
            row["score_text"] if score is None else score,
            low,
            high,
            row["score_text"] or "" if is_duplicate(reason) else "",
        )


def is_duplicate(reason: str) -> bool:
    """Whether a row was dropped because another one is kept in its place.

    >>> is_duplicate("near duplicate"), is_duplicate("duplicate_line_fraction > 0.3")
    (True, False)
    """
    return reason == DUPLICATE or reason.endswith(f" {DUPLICATE}")


def duplicates_of(stage: str = "") -> ds.Expression:
    """What holds for the rows of the ledger that are duplicates, of all stages or of one."""
    import pyarrow.compute as pc

    found = (pc.field("reason") == DUPLICATE) | pc.ends_with(pc.field("reason"), f" {DUPLICATE}")
    return found & (pc.field("stage") == stage) if stage else found


def _draws(batch: pa.RecordBatch, seed: int) -> NDArray[np.uint64]:
    """A number for each row that follows from its name, its stage and the seed, and from nothing else."""
    draws = numpy_array(batch.column("position").fill_null(0)).astype(np.uint64)
    for name in ("source", "part", "stage", "reason"):
        encoded = batch.column(name).fill_null("").dictionary_encode()
        hashes = np.array([int(digest(seed, value), 16) for value in encoded.dictionary.to_pylist()], np.uint64)
        if len(hashes):
            draws = mixed(draws ^ hashes[numpy_array(encoded.indices)])
    return draws


def mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The mixing step of splitmix64: every bit of the result depends on every bit of the value."""
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
