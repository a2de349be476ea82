"""Semantic deduplication of texts, from files to files: embed, find duplicates, remove them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tamis.errors import PlanError
from tamis.pipeline.workflow import WorkflowBase, WorkflowRunResult
from tamis.pipeline.workflows.exact import DEDUPLICATED
from tamis.pipeline.workflows.removal import TextDuplicatesRemovalWorkflow
from tamis.pipeline.workflows.semantic import DUPLICATES, SemanticDeduplicationWorkflow
from tamis.pipeline.workflows.steps import Paths, Steps, WorkflowInput, check_run_arguments
from tamis.stages.base import ProcessingStage
from tamis.stages.deduplication.document_ids import AssignIds, NumberFiles
from tamis.stages.deduplication.file_reading import reading_stage
from tamis.stages.deduplication.id_generator import CURATOR_DEDUP_ID_STR
from tamis.stages.deduplication.semantic.embedding import embedding_stage
from tamis.stages.deduplication.semantic.ranking import RankingStrategy
from tamis.stages.io import ParquetWriter
from tamis.stages.io.paths import absolute, join, path_text

__all__ = ["TextSemanticDeduplicationWorkflow"]

_IDS_FILE: Final = "semantic_id_generator.json"
_EMBEDDINGS: Final = "embeddings"


@dataclass
class TextSemanticDeduplicationWorkflow(WorkflowBase):
    """Embed the texts of files, find those with similar embeddings, and write the documents that stay.

    Below ``cache_path`` are the embeddings and the files of :class:`SemanticDeduplicationWorkflow`; below
    ``output_path`` the ids to remove (``duplicates``), and with ``perform_removal`` the documents that stay
    (``deduplicated``). Started again, it goes on where it stopped.

    Args:
        input_path: The documents: a file, a directory, a pattern, any fsspec address, or a list of those.
        output_path: A directory for the results.
        cache_path: A directory for the files between the steps; ``output_path`` when not given.
        perform_removal: Whether to write the documents that stay.
        text_field: The column with the text.
        embedding_field: The column for the embeddings.
        model_identifier: The model that embeds: a hub name or a local folder; or ``"hashed"``, which needs no weights.
        embedding_stage: A stage that adds the embeddings, instead of a model.
        embedding_max_seq_length, embedding_max_chars, embedding_pooling, embedding_model_inference_batch_size,
            hf_token: For the model.
        embedding_padding_side, embedding_pretokenize: For NeMo Curator's code; not used.
        n_clusters: How many clusters; chosen from the number of documents when ``None``.
        id_field: The column with the ids.
        embedding_dim, metadata_fields, distance_metric, which_to_keep, eps, ranking_strategy, pairwise_batch_size: See
            :class:`SemanticDeduplicationWorkflow`.
        kmeans_max_iter, kmeans_tol, kmeans_random_state, kmeans_init, kmeans_n_init, kmeans_oversampling_factor,
            kmeans_max_samples_per_batch, fit_data_fraction: The same, without ``kmeans_``.
        use_id_generator: Give documents ids that follow from file and row, in the column ``_curator_dedup_id``.
        id_generator_state_file: Where these are kept; ``<output_path>/semantic_id_generator.json`` when not given.
        input_filetype: ``"parquet"`` or ``"jsonl"``.
        input_files_per_partition: Whole files per task, instead of ``input_blocksize``.
        input_blocksize: Bytes of input per task.
        input_file_extensions: Endings to look for in directories.
        output_filetype: ``"parquet"`` or ``"jsonl"``.
        output_file_extension: Ending of the output files.
        output_fields: Columns to write; all of them when not given.
        read_kwargs, cache_kwargs, write_kwargs: Further arguments of readers and writers, and ``storage_options``.
        clear_output: Not used: files of an earlier run are replaced.
        verbose: Not used: the reports have the figures.
        borders, memory_budget, gpus: See :class:`SemanticDeduplicationWorkflow`.

    >>> TextSemanticDeduplicationWorkflow("docs", "out", model_identifier="hashed").n_clusters
    100
    """

    input_path: Paths | None
    output_path: str | os.PathLike[str]
    cache_path: str | os.PathLike[str] | None = None
    perform_removal: bool = True
    text_field: str = "text"
    embedding_field: str = "embeddings"
    model_identifier: str = "google/embeddinggemma-300m"
    embedding_max_seq_length: int | None = None
    embedding_max_chars: int | None = None
    embedding_padding_side: Literal["left", "right"] = "right"
    embedding_pooling: Literal["mean_pooling", "last_token"] = "mean_pooling"
    embedding_model_inference_batch_size: int | None = None
    embedding_pretokenize: bool = False
    hf_token: str | None = field(default=None, repr=False)
    n_clusters: int | None = 100
    id_field: str = "id"
    embedding_dim: int | None = None
    metadata_fields: list[str] | None = None
    distance_metric: Literal["cosine", "l2"] = "cosine"
    which_to_keep: Literal["hard", "easy", "random"] = "hard"
    eps: float | None = 0.01
    kmeans_max_iter: int = 300
    kmeans_tol: float = 1e-4
    kmeans_random_state: int = 42
    kmeans_init: Literal["k-means||", "random"] = "k-means||"
    kmeans_n_init: int = 1
    kmeans_oversampling_factor: float = 2.0
    kmeans_max_samples_per_batch: int = 2**15
    fit_data_fraction: float | None = None
    ranking_strategy: RankingStrategy | None = None
    pairwise_batch_size: int = 1024
    _duplicates_num_row_groups_hint: int | None = None
    use_id_generator: bool = False
    id_generator_state_file: str | None = None
    input_filetype: str = "parquet"
    input_files_per_partition: int | None = None
    input_blocksize: int | str | None = None
    input_file_extensions: list[str] | None = None
    output_filetype: str = "parquet"
    output_file_extension: str | None = None
    output_fields: list[str] | None = None
    read_kwargs: dict[str, Any] | None = None
    cache_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    clear_output: bool = True
    verbose: bool = True
    embedding_stage: ProcessingStage[Any, Any] | None = None
    borders: bool = True
    memory_budget: int | str = "2GiB"
    gpus: float = 0.0

    def __post_init__(self) -> None:
        self.output_path = path_text(self.output_path)
        self.cache_path = self.output_path if self.cache_path is None else path_text(self.cache_path)
        if self.perform_removal and self.eps is None:
            raise PlanError(f"{type(self).__name__}: perform_removal needs eps, which says what a duplicate is")
        self._finding()

    def run(self, executor: Any = None, **settings: Any) -> WorkflowRunResult:
        """Embed the documents, find the duplicates, and remove them if that is asked for.

        Args:
            executor: What runs it, by default as in :meth:`tamis.pipeline.Pipeline.run`; or three of them, for
                embedding, for k-means and for the comparison.
            settings: Further arguments of :meth:`tamis.pipeline.Pipeline.run`.

        Returns:
            The files that each step wrote (``pipeline_tasks``), and in the metadata ``num_duplicates``,
            ``num_duplicates_removed``, ``id_generator_path``, and how many seconds each step took.
        """
        owner = type(self).__name__
        one_for_each = executor if isinstance(executor, tuple) else (executor, executor, executor)
        if len(one_for_each) != 3:
            raise PlanError(f"{owner}.run(): give one executor, or three, not {len(one_for_each)}")
        for one in one_for_each:
            check_run_arguments(owner, None, one)
        steps = Steps("semantic deduplication of texts", str(self.cache_path), one_for_each[0], settings)
        steps.run("embeddings", self._embedding_stages(), time_name="embedding_time")
        inner = self._finding().run(*one_for_each[1:], **settings)
        steps.took("semantic_deduplication_time")
        for name, tasks in inner.pipeline_tasks.items():
            steps.result.add_pipeline_tasks(name, tasks)
        run_dirs = {**steps.result.metadata["run_dirs"], **inner.metadata["run_dirs"]}
        found = {**inner.metadata, "run_dirs": run_dirs, "id_generator_path": self._ids_path()}
        if self.perform_removal:
            steps.result.metadata["run_dirs"] = run_dirs
            done = steps.run("removal", self._removal().stages(), data_card=True)
            found["num_duplicates_removed"] = sum(done.stage("RemoveByIds").dropped.values())
        return steps.finished(**found)

    @property
    def _ids(self) -> str:
        return CURATOR_DEDUP_ID_STR if self.use_id_generator else self.id_field

    def _ids_path(self) -> str | None:
        if not self.use_id_generator:
            return None
        return self.id_generator_state_file or join(absolute(self.output_path), _IDS_FILE)

    def _folder(self) -> str:
        return join(absolute(str(self.cache_path)), _EMBEDDINGS)

    def _ranking_columns(self) -> list[str]:
        ranking = self.ranking_strategy.metadata_cols if self.ranking_strategy is not None else []
        own = (self._ids, "cosine_dist_to_cent", "l2_dist_to_cent")
        return list(dict.fromkeys([*(self.metadata_fields or ()), *(name for name in ranking if name not in own)]))

    def _embedding_stages(self) -> list[ProcessingStage[Any, Any]]:
        owner = type(self).__name__
        files = WorkflowInput(
            owner,
            self.input_path,
            self.input_filetype,
            self.input_blocksize or "64MiB",
            self.input_file_extensions,
            self.read_kwargs,
            self.input_files_per_partition,
        ).given(None)
        kept = self._ranking_columns()
        ids = [] if self.use_id_generator else [self.id_field]
        reader = reading_stage(owner, self.input_filetype, [self.text_field, *ids, *kept], self.read_kwargs)
        stages: list[ProcessingStage[Any, Any]] = [files.partitioning()]
        if self.use_id_generator:
            options = (self.write_kwargs or {}).get("storage_options") or {}
            stages += [NumberFiles(str(self._ids_path()), True, options), reader.with_(name="Read"), AssignIds()]
        else:
            stages.append(reader.with_(name="Read"))
        given = {k: v for k, v in (self.cache_kwargs or {}).items() if k == "storage_options"}
        writer = ParquetWriter(
            self._folder(), fields=[self._ids, self.embedding_field, *kept], mode="overwrite", write_kwargs=given
        )
        return [*stages, self._embedder(), writer]

    def _embedder(self) -> ProcessingStage[Any, Any]:
        """The stage that embeds."""
        if self.embedding_stage is not None:
            return self.embedding_stage
        optional = {
            "max_seq_length": self.embedding_max_seq_length,
            "max_chars": self.embedding_max_chars,
            "model_inference_batch_size": self.embedding_model_inference_batch_size,
            "hf_token": self.hf_token,
        }
        given = {name: value for name, value in optional.items() if value is not None}
        return embedding_stage(
            self.model_identifier,
            self.text_field,
            self.embedding_field,
            embedding_pooling=self.embedding_pooling,
            **given,
        )

    def _finding(self) -> SemanticDeduplicationWorkflow:
        return SemanticDeduplicationWorkflow(
            self._folder(),
            self.output_path,
            self.n_clusters,
            self.cache_path,
            self._ids,
            self.embedding_field,
            metadata_fields=self._ranking_columns(),
            max_iter=self.kmeans_max_iter,
            tol=self.kmeans_tol,
            random_state=self.kmeans_random_state,
            init=self.kmeans_init,
            n_init=self.kmeans_n_init,
            oversampling_factor=self.kmeans_oversampling_factor,
            fit_data_fraction=self.fit_data_fraction,
            distance_metric=self.distance_metric,
            which_to_keep=self.which_to_keep,
            ranking_strategy=self.ranking_strategy,
            pairwise_batch_size=self.pairwise_batch_size,
            eps=self.eps,
            read_kwargs=self.cache_kwargs,
            cache_kwargs=self.cache_kwargs,
            write_kwargs=self.write_kwargs,
            borders=self.borders,
            memory_budget=self.memory_budget,
            gpus=self.gpus,
        )

    def _removal(self) -> TextDuplicatesRemovalWorkflow:
        options = (self.write_kwargs or {}).get("storage_options") or {}
        return TextDuplicatesRemovalWorkflow(
            self.input_path,
            join(absolute(self.output_path), DUPLICATES),
            join(absolute(self.output_path), DEDUPLICATED),
            self.input_filetype,
            id_field=self._ids,
            input_files_per_partition=self.input_files_per_partition,
            input_blocksize=self.input_blocksize,
            input_file_extensions=self.input_file_extensions,
            input_kwargs=self.read_kwargs,
            duplicate_id_field="id",
            duplicate_id_read_kwargs={"storage_options": options},
            id_generator_path=self._ids_path(),
            id_generator_storage_options=options,
            output_filetype=self.output_filetype,
            output_file_extension=self.output_file_extension,
            output_kwargs={"storage_options": options} if options else None,
            output_fields=self.output_fields,
            output_mode="overwrite",
            drop_id_field=self.use_id_generator,
            memory_budget=self.memory_budget,
        )
