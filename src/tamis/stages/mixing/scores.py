"""Several scores as one, and scores as buckets of equal size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, one_array, text_array
from tamis.errors import DataError, PlanError
from tamis.stages.base import CompositeStage, ProcessingStage, WorkerMetadata
from tamis.stages.column_values import read_column
from tamis.stages.emit import Publish
from tamis.stages.io.paths import join
from tamis.stages.mixing.quota import AllMeasured, MeasuredRows
from tamis.stages.scratch import load_task, read_file, write_file
from tamis.stages.spill import SUFFIX, ScratchStage, folder_for, spill
from tamis.tasks import DocumentBatch, FileGroup
from tamis.tasks.storage import format_order

__all__ = ["HOW", "ScoreBuckets", "ScoreEnsemble", "bucket_edges"]

HOW: Final = ("mean", "max", "min", "weights")
"""How scores are put together."""

_EDGES: Final = "edges.arrow"
_DIGITS: Final = 16
_CELLS: Final = 1 << _DIGITS


@dataclass(repr=False)
class ScoreEnsemble(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Put the scores of several filters or classifiers together into one.

    A missing score (null or NaN) is left out; the result is null where all are missing.

    Args:
        score_fields: The columns with the scores.
        how: ``"mean"``, ``"max"``, ``"min"``, or ``"weights"`` for a weighted mean.
        score_field: The column for the result.
        weights: For ``"weights"``, one number for each column; they need not add up to 1.

    >>> batch = DocumentBatch({"a": [0.5, None], "b": [1.0, 0.25]})
    >>> ScoreEnsemble(["a", "b"], how="weights", weights=[3, 1]).process(batch)["ensemble_score"].to_pylist()
    [0.625, 0.25]
    """

    score_fields: list[str]
    how: str = "mean"
    score_field: str = "ensemble_score"
    weights: list[float] | None = None
    name: str = "ScoreEnsemble"

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.score_fields, str) or not self.score_fields:
            raise PlanError(f"ScoreEnsemble(score_fields={self.score_fields!r}): give a list of columns")
        if self.how not in HOW:
            raise PlanError(f"ScoreEnsemble(how={self.how!r}): must be one of {', '.join(map(repr, HOW))}")
        if (self.how == "weights") != (self.weights is not None):
            raise PlanError('ScoreEnsemble: weights=[...] goes with how="weights"')
        if self.weights is not None:
            if len(self.weights) != len(self.score_fields):
                raise PlanError(f"ScoreEnsemble: {len(self.weights)} weights for {len(self.score_fields)} columns")
            if not all(0 <= weight < math.inf for weight in self.weights) or not sum(self.weights):
                raise PlanError(f"ScoreEnsemble(weights={self.weights}): no weight may be negative, nor all zero")

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.score_fields)

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.score_field]

    def adds_columns(self) -> list[str]:
        return [self.score_field]

    def ordered_columns(self) -> list[str]:
        return list(self.score_fields)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        table = task.columns(self.score_fields)
        scores = np.stack([_numbers(table, name, self.name) for name in self.score_fields])
        there = ~np.isnan(scores)
        some: NDArray[np.bool_] = np.asarray(there.any(axis=0))
        if self.how in ("mean", "weights"):
            weights = np.array(self.weights or [1.0] * len(scores))[:, None] * there
            total = weights.sum(axis=0)
            some = some & (total > 0)
            made = (np.where(there, scores, 0.0) * weights).sum(axis=0) / np.where(some, total, 1.0)
        elif self.how == "max":
            made = np.where(there, scores, -np.inf).max(axis=0)
        else:
            made = np.where(there, scores, np.inf).min(axis=0)
        return task.with_column(self.score_field, arrow_array(np.where(some, made, 0.0), missing=~some))


@dataclass(repr=False)
class ScoreBuckets(CompositeStage[DocumentBatch, DocumentBatch]):
    """Add a column with the bucket of each row's score: 0 for the lowest scores up to ``buckets - 1`` for the highest.

    Buckets have as many rows each as equal scores allow: rows with equal scores are in the same one. For that, all
    rows must be read first; they are written to the run directory meanwhile. With ``edges``, rows are not held up.
    The result is the same for any number of workers. A row without a score (null or NaN) has no bucket.

    Args:
        score_field: The column with the score.
        buckets: How many buckets.
        bucket_field: The column for the bucket.
        edges: The lowest score of each bucket but the first, ascending: ``buckets - 1`` numbers, such as
            :func:`bucket_edges` finds them in a sample. When not given, they are found in the data.
        groups: For a second column, names of groups of buckets, each with its first bucket:
            ``{"low": 0, "medium": 6, "high": 14}``.
        group_field: That column.

    >>> stage = ScoreBuckets("score", buckets=4, edges=[0.25, 0.5, 0.75], groups={"low": 0, "high": 2})
    >>> stage.process(DocumentBatch({"score": [0.1, 0.5, None]})).data.drop_columns("score").to_pydict()
    {'bucket': [0, 2, None], 'quality': ['low', 'high', None]}
    """

    score_field: str
    buckets: int = 20
    bucket_field: str = "bucket"
    edges: list[float] | None = None
    groups: dict[str, int] = field(default_factory=dict)
    group_field: str = "quality"
    name: str = "ScoreBuckets"

    def __post_init__(self) -> None:
        if not 2 <= self.buckets <= 1000:
            raise PlanError(f"ScoreBuckets(buckets={self.buckets}): must be from 2 to 1000")
        if self.edges is not None:
            if len(self.edges) != self.buckets - 1:
                raise PlanError(
                    f"ScoreBuckets: {self.buckets} buckets have {self.buckets - 1} edges, not {len(self.edges)}"
                )
            if list(self.edges) != sorted(self.edges) or any(map(math.isnan, self.edges)):
                raise PlanError(f"ScoreBuckets(edges={self.edges}): must be numbers in ascending order")
        firsts = list(self.groups.values())
        if firsts and (firsts[0] != 0 or firsts != sorted(set(firsts)) or firsts[-1] >= self.buckets):
            raise PlanError(
                f"ScoreBuckets(groups={self.groups}): give the first bucket of each group, from 0 up to "
                f"{self.buckets - 1}"
            )

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Sort the rows of one batch into buckets with known edges."""
        if self.edges is None:
            raise PlanError(f"{self.name}: without edges it needs the whole input; run the stage in a pipeline")
        return AddBuckets("", self).process(task)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        if self.edges is not None:
            return [AddBuckets("", self).with_(name=self.name)]
        folder = folder_for(self.name)
        return [
            MeasureScores(folder, self).with_(name=f"{self.name} (measure)"),
            AllMeasured(folder).with_(name=f"{self.name} (all measured)"),
            DecideEdges(folder, self).with_(name=f"{self.name} (edges)"),
            MeasuredRows(folder).with_(name=f"{self.name} (rows)"),
            BucketRows(folder, self).with_(name=self.name),
        ]


def bucket_edges(scores: Any, buckets: int = 20) -> list[float]:
    """The edges of buckets of equal size, given scores.

    Args:
        scores: An Arrow or NumPy array, or a list.
        buckets: How many buckets.

    >>> bucket_edges([5, 1, 4, 2, 3, 6], buckets=3)
    [3.0, 5.0]
    """
    values = np.asarray(one_array(scores).cast(pa.float64()).drop_null())
    values = np.sort(values[~np.isnan(values)])
    if not len(values):
        raise DataError("ScoreBuckets: there is no score from which to find the edges of buckets")
    edges: list[float] = values[[len(values) * k // buckets for k in range(1, buckets)]].tolist()
    return edges


@dataclass(repr=False)
class MeasureScores(ScratchStage[DocumentBatch, FileGroup]):
    """Write the rows to a file, and their scores to another one."""

    owner: ScoreBuckets

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.owner.score_field]

    def ordered_columns(self) -> list[str]:
        return [self.owner.score_field]

    def process(self, task: DocumentBatch) -> Iterator[Publish]:
        yield spill(task, join(self._directory, "rows"))
        scores = _numbers(task.columns([self.owner.score_field]), self.owner.score_field, self.owner.name)
        name = format_order(task.order) + SUFFIX
        yield _write(pa.table({"score": arrow_array(scores[~np.isnan(scores)])}), join(self._directory, "keys", name))


@dataclass(repr=False)
class DecideEdges(ScratchStage[FileGroup, FileGroup]):
    """Find the edges: exact order statistics, in memory that does not grow with the number of rows."""

    owner: ScoreBuckets

    def process(self, task: FileGroup) -> Iterator[Publish]:
        total = sum(_read(path).num_rows for path in task.data)
        buckets = self.owner.buckets
        ranks = np.array([total * k // buckets for k in range(1, buckets)], np.int64)
        found = np.zeros(len(ranks), np.uint64)
        if total:
            # The numbers are found from their upper to their lower digits, each time by the sizes of the cells of the
            # numbers that agree in all digits so far.
            for shift in range(64 - _DIGITS, -1, -_DIGITS):
                prefixes, place = np.unique(found, return_inverse=True)
                counts = np.zeros((len(prefixes), _CELLS), np.int64)
                for path in task.data:
                    _count(counts, prefixes, _ordered(_read(path)["score"].to_numpy()), shift)
                ends = np.cumsum(counts, axis=1)
                for edge, row in enumerate(place.tolist()):
                    cell = int(np.searchsorted(ends[row], ranks[edge], side="right"))
                    ranks[edge] -= ends[row, cell - 1] if cell else 0
                    found[edge] |= np.uint64(cell) << np.uint64(shift)
        edges = _unordered(found) if total else np.zeros(len(ranks))
        yield _write(pa.table({"edge": arrow_array(edges)}), join(self._directory, _EDGES))


def _count(counts: NDArray[np.int64], prefixes: NDArray[np.uint64], keys: NDArray[np.uint64], shift: int) -> None:
    """Count keys by their next digits, for each of the prefixes that the digits before must equal."""
    above = np.uint64(shift + _DIGITS)
    digits = ((keys >> np.uint64(shift)) & np.uint64(_CELLS - 1)).astype(np.int64)
    for row, prefix in enumerate(prefixes):
        same = digits if int(above) == 64 else digits[(keys >> above) == (prefix >> above)]
        counts[row] += np.bincount(same, minlength=_CELLS)


@dataclass(repr=False)
class BucketRows(ScratchStage[FileGroup, DocumentBatch]):
    """Read the rows again, and add their buckets."""

    owner: ScoreBuckets
    internal: ClassVar[bool] = False

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        super().setup(worker_metadata)
        self._edges: NDArray[np.float64] | None = None

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return available if available is None else available | set(self.adds_columns())

    def adds_columns(self) -> list[str]:
        return _added(self.owner)

    def process(self, task: FileGroup) -> DocumentBatch:
        if self._edges is None:
            self._edges = _read(join(self._directory, _EDGES))["edge"].to_numpy()
        batch = load_task(task.data[0])
        assert isinstance(batch, DocumentBatch)
        made, numbers = _with_buckets(batch, self.owner, self._edges)
        for number, count in enumerate(np.bincount(numbers[numbers >= 0], minlength=self.owner.buckets).tolist()):
            if count:
                self.log_metric(f"bucket {number}", count)
        return made


@dataclass(repr=False)
class AddBuckets(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Add the buckets that given edges make."""

    folder: str
    owner: ScoreBuckets

    releases_gil: ClassVar[bool] = True

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.owner.score_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], _added(self.owner)

    def adds_columns(self) -> list[str]:
        return _added(self.owner)

    def ordered_columns(self) -> list[str]:
        return [self.owner.score_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return _with_buckets(task, self.owner, np.array(self.owner.edges, np.float64))[0]


def _added(owner: ScoreBuckets) -> list[str]:
    return [owner.bucket_field, *([owner.group_field] if owner.groups else [])]


def _with_buckets(
    batch: DocumentBatch, owner: ScoreBuckets, edges: NDArray[np.float64]
) -> tuple[DocumentBatch, NDArray[np.int64]]:
    """The batch with the bucket of each row, and the numbers of the buckets: -1 for none."""
    scores = _numbers(batch.columns([owner.score_field]), owner.score_field, owner.name)
    missing = np.isnan(scores)
    numbers = np.searchsorted(edges, scores, side="right")
    found = {owner.bucket_field: arrow_array(numbers.astype(np.int32), missing=missing)}
    if owner.groups:
        firsts = np.array(list(owner.groups.values()))
        place = np.searchsorted(firsts, numbers, side="right") - 1
        found[owner.group_field] = text_array(list(owner.groups)).take(arrow_array(place, missing=missing))
    return batch.with_columns(found), np.where(missing, -1, numbers)


def _numbers(table: pa.Table, name: str, stage: str) -> NDArray[np.float64]:
    """The scores of a column; NaN where there is none."""
    column = read_column(table, name, stage)
    types = pa.types
    if not (types.is_integer(column.type) or types.is_floating(column.type) or types.is_null(column.type)):
        raise DataError(f"{stage}: a score is a number, but the column {name!r} holds {column.type}")
    values: NDArray[np.float64] = np.array(pc.fill_null(column.cast(pa.float64()), math.nan), np.float64)
    return values


def _ordered(scores: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Whole numbers in the order of the scores."""
    bits = (scores + 0.0).view(np.uint64)  # 0.0 for -0.0
    top = np.uint64(1) << np.uint64(63)
    return np.where(bits & top, ~bits, bits | top)


def _unordered(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    top = np.uint64(1) << np.uint64(63)
    return np.where(keys & top, keys ^ top, ~keys).view(np.float64)


def _write(table: pa.Table, final: str) -> Publish:
    def fill(sink: pa.NativeFile) -> None:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)

    return write_file(final, table.num_rows, fill)


def _read(path: str) -> pa.Table:
    return pa.ipc.open_file(read_file(path)).read_all().combine_chunks()
