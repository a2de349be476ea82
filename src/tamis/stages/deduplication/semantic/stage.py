"""Semantic deduplication as one stage of a pipeline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from tamis.errors import PlanError
from tamis.kernels.kmeans import KMeans
from tamis.sizes import byte_size, size_text
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.marks import KeptRows, RemoveMarked
from tamis.stages.deduplication.semantic.assign import AssignVectors
from tamis.stages.deduplication.semantic.compare import CellFiles, CompareCells
from tamis.stages.deduplication.semantic.decide import DecideOpen, MarkDuplicates, OpenPairs, SimilarPairs
from tamis.stages.deduplication.semantic.files import VectorFiles
from tamis.stages.deduplication.semantic.fit import FitClusters, SampleFiles, SampleToFit, SampleVectors, rounds
from tamis.stages.deduplication.semantic.ranking import Ranking, RankingStrategy
from tamis.stages.deduplication.semantic.vectors import WriteVectors
from tamis.stages.io.paths import absolute
from tamis.stages.resources import Resources
from tamis.stages.spill import folder_for
from tamis.tasks import TableTask

__all__ = ["REASON", "SemanticDeduplication", "SemanticDeduplicationStage"]

REASON = "semantic duplicate"

_LEAST_MEMORY = 64 * 2**20


@dataclass
class SemanticDeduplication(CompositeStage[TableTask, TableTask]):
    """Of rows with similar vectors, keep one: of texts, images or anything else that has an embedding.

    Rows are ranked. A row is removed if the cosine of its vector and that of a row ranked before it, which stays, is at
    least ``1 - eps``. So each removed row has a similar one that stays, and no two rows that stay are similar. To find
    such pairs without comparing all with all, vectors are divided into clusters by k-means, and compared within these.
    Vectors near to the border of a cluster are compared on both sides of it, so no pair is lost, and the rows that are
    removed do not depend on the clusters, but for the ranks ``"hard"`` and ``"easy"``.

    A row without a vector (null), with one of no direction (zeros, NaN, infinity) or of another length than most is not
    a duplicate of anything; the report counts such rows.

    The drop ledger says of each duplicate which row is kept in its place (``score_text``), and the cosine (``score``).

    Args:
        id_field: For NeMo Curator's scripts: a column that must be there. Rows have names of their own.
        embedding_field: The column with the vectors: lists of numbers.
        n_clusters: How many clusters; chosen from the number of rows when not given. Where so many would need many
            copies of vectors near to borders, rows are compared in fewer and larger cells; the clusters only rank then.
        eps: How far from 1 the cosine of similar vectors may be.
        which_to_keep: Which row of a pair stays: ``"hard"``, the one further away from the centre of its cluster,
            ``"easy"``, the one nearer to it, or ``"random"``.
        distance_metric: How that distance is measured: ``"cosine"`` or ``"l2"``.
        keep: Instead of ``which_to_keep``: the ``"first"`` by name, the ``"highest:COLUMN"`` or ``"lowest:COLUMN"``.
        ranking_strategy: Instead of these: a rank by several columns.
        compare_with: ``"kept"``: only a row that stays removes others. ``"all"``: one that is removed itself does, too,
            as in NeMo Curator; then a removed row may have no similar one left.
        borders: Whether vectors near to the border of a cluster are compared on both sides; if not, pairs are lost.
        pairs_path: A folder for all similar pairs, as Parquet, so that a smaller ``eps`` can be tried afterwards. They
            are many where many rows are similar to each other.
        init, max_iter, tol, n_init, oversampling_factor: See :class:`tamis.kernels.kmeans.KMeans`.
        random_state: Another seed makes other clusters, and another order for ``"random"``.
        fit_data_fraction: The share of the rows, 0 to 1, on which the centres are fitted; as many as are needed, and
            fit into memory, when not given.
        refine_rounds: How often all rows move the centres afterwards, on all workers.
        partitions: How many parts the pairs are divided into; as many can be worked on at the same time.
        memory_budget: Memory for the tables of this stage on one machine, in bytes or as ``"8GB"``. What does not fit
            is worked on in parts that are kept on disk.
        gpus: GPUs, or the share of one, for each worker that multiplies vectors. Where there is no GPU, CPUs do it.

    >>> from tamis.testing import run_stage
    >>> rows = [{"embeddings": [1.0, 0.0]}, {"embeddings": [0.0, 1.0]}, {"embeddings": [1.0, 0.01]}]
    >>> run = run_stage(SemanticDeduplication(keep="first"), rows)
    >>> [row["embeddings"] for row in run], run.dropped[0].reason
    ([[1.0, 0.0], [0.0, 1.0]], 'semantic duplicate')
    """

    id_field: str | None = None
    embedding_field: str = "embeddings"
    n_clusters: int | None = None
    eps: float = 0.01
    which_to_keep: Literal["hard", "easy", "random"] = "hard"
    distance_metric: Literal["cosine", "l2"] = "cosine"
    keep: str | None = None
    ranking_strategy: RankingStrategy | None = None
    compare_with: Literal["kept", "all"] = "kept"
    borders: bool = True
    pairs_path: str | None = None
    init: Literal["k-means||", "random"] = "k-means||"
    max_iter: int = 20
    tol: float = 1e-3
    n_init: int = 1
    oversampling_factor: float = 2.0
    random_state: int = 42
    fit_data_fraction: float | None = None
    refine_rounds: int = 0
    partitions: int = 16
    memory_budget: int | str = "2GiB"
    gpus: float = 0.0
    name: str = "SemanticDeduplication"

    def __post_init__(self) -> None:
        for parameter in ("n_clusters", "partitions"):
            value = getattr(self, parameter)
            if value is not None and value < 1:
                raise PlanError(f"{parameter}={value}: must be at least 1")
        if self.partitions > 2**15:
            raise PlanError(f"partitions={self.partitions}: must be at most {2**15}")
        if not 0 <= self.eps < 1:
            raise PlanError(f"eps={self.eps}: must be at least 0 and less than 1")
        if self.compare_with not in ("kept", "all"):
            raise PlanError(f"compare_with={self.compare_with!r}: must be 'kept' or 'all'")
        if self.fit_data_fraction is not None and not 0 < self.fit_data_fraction <= 1:
            raise PlanError(f"fit_data_fraction={self.fit_data_fraction}: must be more than 0 and at most 1")
        if self.refine_rounds < 0:
            raise PlanError(f"refine_rounds={self.refine_rounds}: must be at least 0")
        if byte_size(self.memory_budget) < _LEAST_MEMORY:
            raise PlanError(
                f"memory_budget={self.memory_budget!r}: comparing vectors needs at least {size_text(_LEAST_MEMORY)}"
            )
        self._ranking()
        self._kmeans()

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self._vectors("").inputs()[1]

    def _ranking(self) -> Ranking:
        return Ranking.of(self.which_to_keep, self.distance_metric, self.keep, self.ranking_strategy, self.random_state)

    def _kmeans(self) -> KMeans:
        try:
            return KMeans(
                self.n_clusters or 1,
                self.random_state,
                self.init,
                max_iter=self.max_iter,
                tol=self.tol,
                n_init=self.n_init,
                oversampling_factor=self.oversampling_factor,
            )
        except ValueError as error:
            raise PlanError(str(error)) from None

    def _vectors(self, folder: str) -> WriteVectors:
        return WriteVectors(folder, self.embedding_field, self._ranking(), self.id_field)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder, memory, parts = folder_for(self.name), byte_size(self.memory_budget), self.partitions
        threshold = 1 - self.eps
        reach = reach_of(self.eps) if self.borders else 0.0
        sample = (folder, memory, 0, self.n_clusters, self.fit_data_fraction)
        pairs_path = absolute(self.pairs_path) if self.pairs_path else ""
        stages: dict[str, ProcessingStage[Any, Any]] = {
            "vectors": self._vectors(folder),
            "sample files": SampleFiles(*sample),
            "sample": SampleVectors(folder),
            "whole sample": SampleToFit(*sample),
            "fit": self._on_gpu(FitClusters(folder, self._kmeans(), reach, self.n_clusters is None, bool(reach))),
            **{name: self._on_gpu(stage) for name, stage in rounds(folder, memory, self.refine_rounds).items()},
            "files": VectorFiles(folder, memory, self.refine_rounds),
            "assign": self._on_gpu(AssignVectors(folder, self._ranking(), reach, memory)),
            "clusters": CellFiles(folder, memory),
            "compare": self._on_gpu(CompareCells(folder, threshold, self.compare_with, parts, memory, pairs_path)),
            "open": OpenPairs(folder),
            "decide": DecideOpen(folder, threshold, parts, memory),
            "pairs": SimilarPairs(folder, memory),
            "mark": MarkDuplicates(folder, parts),
            "rows": KeptRows(folder),
        }
        named = [stage.with_(name=f"{self.name} ({name})") for name, stage in stages.items()]
        return [*named, RemoveMarked(folder, REASON).with_(name=self.name)]

    def _on_gpu(self, stage: ProcessingStage[Any, Any]) -> ProcessingStage[Any, Any]:
        if not self.gpus or not getattr(stage, "gpu_is_optional", False):
            return stage
        return stage.with_(resources=Resources(cpus=1, gpus=self.gpus))


@dataclass
class SemanticDeduplicationStage(SemanticDeduplication):
    """As :class:`SemanticDeduplication`, under the name that scripts for NeMo Curator use.

    >>> SemanticDeduplicationStage(id_field="image_id", embedding_field="image_embedding", n_clusters=100).eps
    0.01
    """

    name: str = "SemanticDeduplicationStage"


def reach_of(eps: float) -> float:
    """Half of the largest distance of two vectors of length one whose cosine is at least ``1 - eps``.

    >>> round(reach_of(0.02), 2)
    0.1
    """
    return math.sqrt(2 * eps + 1e-5) / 2
