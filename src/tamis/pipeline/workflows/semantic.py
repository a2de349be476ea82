"""Semantic deduplication from files to files, in steps whose results are files, too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from tamis.errors import PlanError
from tamis.pipeline.workflow import WorkflowBase, WorkflowRunResult
from tamis.pipeline.workflows.steps import Paths, Steps, WorkflowInput, check_run_arguments
from tamis.sizes import byte_size
from tamis.stages.deduplication.semantic.identify_duplicates import IdentifyDuplicatesStage
from tamis.stages.deduplication.semantic.kmeans import KMeansReadFitWriteStage
from tamis.stages.deduplication.semantic.pairwise import PairwiseStage
from tamis.stages.deduplication.semantic.ranking import COSINE_DISTANCE, L2_DISTANCE, RankingStrategy
from tamis.stages.io.paths import absolute, join, path_text
from tamis.tasks import Task

__all__ = ["DUPLICATES", "SemanticDeduplicationWorkflow"]

DUPLICATES: Final = "duplicates"
"""The folder with the ids, below ``output_path``."""

_CLUSTERS: Final = "kmeans_results"
_PAIRWISE: Final = "pairwise_results"


@dataclass
class SemanticDeduplicationWorkflow(WorkflowBase):
    """Find rows with similar vectors in files, and write the ids of those that can be removed.

    Below ``cache_path``, k-means writes ``kmeans_results/centroid=<k>/part.<n>.parquet``, and the comparison within
    clusters writes ``pairwise_results/cluster_<k>.parquet``. With ``eps``, ``<output_path>/duplicates`` has the ids of
    rows whose cosine with a row ranked before them is at least ``1 - eps``. It runs on any executor and needs no GPU.
    Started again, it goes on where it stopped; the runs of its steps are in ``<cache_path>/.tamis``.

    As in NeMo Curator, a row is also removed because of one that is removed itself. The stage
    :class:`~tamis.stages.deduplication.semantic.SemanticDeduplication` does all of this inside a pipeline, and by
    default removes a row only because of one that stays.

    Args:
        input_path: The rows: a file, a directory, a pattern, any fsspec address, or a list of those.
        output_path: A directory for the ids.
        n_clusters: How many clusters; chosen from the number of rows when ``None``.
        cache_path: A directory for the files between the steps; ``output_path`` when not given.
        id_field: The column with the ids.
        embedding_field: The column with the vectors.
        embedding_dim: Not used: the files say it.
        metadata_fields: Further columns to keep in the clusters; those that rank rows are kept in any case.
        input_filetype: ``"parquet"`` or ``"jsonl"``.
        input_file_extensions: Endings to look for in directories.
        max_iter, tol, random_state, init, n_init, oversampling_factor: See :class:`tamis.kernels.kmeans.KMeans`.
        max_samples_per_batch: For NeMo Curator's GPU code; not used.
        fit_data_fraction: The share of the rows on which the centres are fitted; as many as are needed, and fit into
            memory, when not given.
        distance_metric: The distance from the centre that ranks rows: ``"cosine"`` or ``"l2"``.
        which_to_keep: ``"hard"``: rows far from the centre stay; ``"easy"``: near ones; or ``"random"``.
        ranking_strategy: The order of the rows by columns, instead of ``which_to_keep``.
        pairwise_batch_size: How many rows are compared with those before them at once.
        eps: How far from 1 the cosine of similar vectors may be. Without it, no ids are written.
        read_kwargs: Further arguments of the reader, such as ``storage_options``.
        cache_kwargs: Further arguments of ``pyarrow.parquet.ParquetWriter`` for files between the steps, and
            ``storage_options``.
        write_kwargs: The same for the ids.
        clear_output: Not used: files of an earlier run are replaced.
        verbose: Not used: the reports have the figures.
        kmeans_embedding_output_dtype: ``"float32"`` or ``"float16"``: how vectors are kept between the steps.
        pairwise_compute_dtype: For NeMo Curator's GPU code; not used.
        borders: Whether rows near to the border of a cluster are compared on both sides of it (only with ``eps``); if
            not, pairs are lost, as in NeMo Curator.
        memory_budget: How much memory of a machine a step may take, as a number of bytes or as ``"8GB"``.
        gpus: GPUs, or the share of one, for each worker that multiplies vectors.

    >>> SemanticDeduplicationWorkflow("embeddings", "out", n_clusters=100, eps=0.01).which_to_keep
    'hard'
    """

    input_path: Paths | None
    output_path: str | os.PathLike[str]
    n_clusters: int | None = None
    cache_path: str | os.PathLike[str] | None = None
    id_field: str = "id"
    embedding_field: str = "embeddings"
    embedding_dim: int | None = None
    metadata_fields: list[str] | None = None
    input_filetype: str = "parquet"
    input_file_extensions: list[str] | None = None
    max_iter: int = 300
    tol: float = 1e-4
    random_state: int = 42
    init: Literal["k-means||", "random"] = "k-means||"
    n_init: int = 1
    oversampling_factor: float = 2.0
    max_samples_per_batch: int = 2**15
    fit_data_fraction: float | None = None
    distance_metric: Literal["cosine", "l2"] = "cosine"
    which_to_keep: Literal["hard", "easy", "random"] = "hard"
    ranking_strategy: RankingStrategy | None = None
    pairwise_batch_size: int = 1024
    eps: float | None = None
    _duplicates_num_row_groups_hint: int | None = None
    read_kwargs: dict[str, Any] | None = None
    cache_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    clear_output: bool = True
    verbose: bool = True
    kmeans_embedding_output_dtype: str = "float32"
    pairwise_compute_dtype: str = "float32"
    borders: bool = True
    memory_budget: int | str = "2GiB"
    gpus: float = 0.0

    def __post_init__(self) -> None:
        self.output_path = path_text(self.output_path)
        self.cache_path = self.output_path if self.cache_path is None else path_text(self.cache_path)
        byte_size(self.memory_budget)
        self._clustering()
        self._pairwise()
        if self.eps is not None:
            IdentifyDuplicatesStage("", self.eps)

    def run(
        self,
        kmeans_executor: Any = None,
        pairwise_executor: Any = None,
        *,
        initial_tasks: Sequence[Task[Any]] | None = None,
        executor: Any = None,
        **settings: Any,
    ) -> WorkflowRunResult:
        """Find the duplicates.

        Args:
            kmeans_executor: What runs k-means; by default as in :meth:`tamis.pipeline.Pipeline.run`.
            pairwise_executor: What runs the comparison; the one of k-means when not given.
            initial_tasks: The files to read, as :class:`~tamis.tasks.FileGroup` tasks, instead of ``input_path``.
            executor: What runs both.
            settings: Further arguments of :meth:`tamis.pipeline.Pipeline.run`.

        Returns:
            The files that each step wrote (``pipeline_tasks``), and in the metadata ``num_duplicates``, and how many
            seconds each step took (``kmeans_time``, ``pairwise_time``, ``total_time``).
        """
        owner = type(self).__name__
        if executor is not None and (kmeans_executor is not None or pairwise_executor is not None):
            raise PlanError(f"{owner}.run() sets both executor and kmeans_executor or pairwise_executor")
        first = executor or kmeans_executor
        second = executor or pairwise_executor or first
        for one in (first, second):
            check_run_arguments(owner, initial_tasks, one)
        files = WorkflowInput(
            owner, self.input_path, self.input_filetype, "64MiB", self.input_file_extensions, self.read_kwargs
        ).given(initial_tasks)
        steps = Steps("semantic deduplication", str(self.cache_path), first, settings)
        steps.run("kmeans", [files.partitioning(), self._clustering()])
        steps.executor = second
        found: dict[str, Any] = {}
        if self.eps is None:
            steps.run("pairwise", [self._pairwise()])
        else:
            identifying = IdentifyDuplicatesStage(
                join(absolute(self.output_path), DUPLICATES),
                self.eps,
                read_kwargs=self.cache_kwargs,
                write_kwargs=self.write_kwargs,
            )
            made = steps.run("pairwise", [self._pairwise(), identifying])
            found["num_duplicates"] = sum(int(task._metadata.get("num_removal_ids", 0)) for task in made)
        return steps.finished(**found)

    def _clustering(self) -> KMeansReadFitWriteStage:
        ranking = self.ranking_strategy.metadata_cols if self.ranking_strategy is not None else []
        computed = (COSINE_DISTANCE, L2_DISTANCE, self.id_field)
        kept = [*(self.metadata_fields or ()), *(name for name in ranking if name not in computed)]
        return KMeansReadFitWriteStage(
            self.id_field,
            self.embedding_field,
            join(absolute(str(self.cache_path)), _CLUSTERS),
            self.input_filetype,
            self.n_clusters,
            metadata_fields=list(dict.fromkeys(kept)),
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self.random_state,
            init=self.init,
            n_init=self.n_init,
            oversampling_factor=self.oversampling_factor,
            max_samples_per_batch=self.max_samples_per_batch,
            fit_data_fraction=self.fit_data_fraction,
            read_kwargs=self.read_kwargs,
            write_kwargs=self.cache_kwargs,
            embedding_output_dtype=self.kmeans_embedding_output_dtype,
            border_eps=self.eps if self.borders else None,
            memory_budget=self.memory_budget,
            gpus=self.gpus,
            name="KMeansStage",
        )

    def _pairwise(self) -> PairwiseStage:
        cache = absolute(str(self.cache_path))
        return PairwiseStage(
            self.id_field,
            self.embedding_field,
            join(cache, _CLUSTERS),
            join(cache, _PAIRWISE),
            self.ranking_strategy,
            self.pairwise_batch_size,
            read_kwargs=self.cache_kwargs,
            write_kwargs=self.cache_kwargs,
            which_to_keep=self.which_to_keep,
            sim_metric=self.distance_metric,
            random_seed=self.random_state,
            compute_dtype=self.pairwise_compute_dtype,
        )
