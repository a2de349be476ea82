"""k-means from files to files, one folder for each cluster, under NeMo Curator's names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import PlanError
from tamis.kernels.kmeans import KMeans
from tamis.sizes import byte_size
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.file_reading import reader_for, reading_stage
from tamis.stages.deduplication.marks import by_name
from tamis.stages.deduplication.part_files import FOLDER, PART, write_parts
from tamis.stages.deduplication.semantic.assign import AssignVectors
from tamis.stages.deduplication.semantic.compare import CellFiles
from tamis.stages.deduplication.semantic.files import VectorFiles, share_of_memory
from tamis.stages.deduplication.semantic.fit import FitClusters, SampleFiles, SampleToFit, SampleVectors
from tamis.stages.deduplication.semantic.ranking import COSINE_DISTANCE, L2_DISTANCE, Ranking
from tamis.stages.deduplication.semantic.stage import reach_of
from tamis.stages.deduplication.semantic.vectors import CARRIED, WriteVectors, vectors_of
from tamis.stages.exchange.files import Parts, Rows, read_cells
from tamis.stages.io import FilePartitioningStage
from tamis.stages.io.paths import absolute
from tamis.stages.resources import Resources
from tamis.stages.spill import ScratchStage, folder_for
from tamis.tasks import DocumentBatch, FileGroup

__all__ = ["IS_COPY", "KMeansReadFitWriteStage", "KMeansStage"]

IS_COPY: Final = "is_copy"
"""The column that says whether a row is of another cluster, near to the border of this one."""

_READ_BYTES: Final = "64MiB"


@dataclass
class KMeansReadFitWriteStage(CompositeStage[FileGroup, FileGroup]):
    """Divide the rows of files into clusters: ``<output_path>/centroid=<k>/part.<n>.parquet``.

    A file has the ids, the vectors scaled to the length one, the columns asked for, and the distances from the centre:
    ``l2_dist_to_cent`` and ``cosine_dist_to_cent``. Rows without a vector that has a direction are left out.

    Args:
        id_field: The column with the ids.
        embedding_field: The column with the vectors.
        output_path: The directory above those of the clusters.
        filetype: ``"parquet"`` or ``"jsonl"``.
        n_clusters: How many clusters; chosen from the number of rows when ``None``.
        metadata_fields: Further columns to write.
        verbose: Not used: the report has the figures.
        max_iter, tol, random_state, init, n_init, oversampling_factor: See :class:`tamis.kernels.kmeans.KMeans`.
        max_samples_per_batch: For NeMo Curator's GPU code; not used.
        fit_data_fraction: The share of the rows on which the centres are fitted.
        cache_path: Not used: data between the steps are in the run's scratch location.
        read_kwargs: Further arguments of the reader.
        write_kwargs: Further arguments of ``pyarrow.parquet.ParquetWriter``, and ``storage_options``.
        embedding_output_dtype: ``"float32"`` or ``"float16"``.
        border_eps: Write rows to other clusters, too, that may have a row whose cosine with it is at least
            ``1 - border_eps``; the column ``is_copy`` says which these are. Off when ``None``.
        memory_budget: How much memory of a machine the step may take, as a number of bytes or as ``"8GB"``.
        gpus: GPUs, or the share of one, for each worker that multiplies vectors.

    >>> stage = KMeansReadFitWriteStage("id", "embeddings", "out", "parquet", 10)
    >>> [stage.name for stage in stage.decompose()][-1]
    'KMeansReadFitWriteStage'
    """

    id_field: str
    embedding_field: str
    output_path: str
    filetype: str
    n_clusters: int | None
    metadata_fields: list[str] | None = None
    verbose: bool = False
    max_iter: int = 300
    tol: float = 1e-4
    random_state: int = 42
    init: Literal["k-means||", "random"] = "k-means||"
    n_init: int = 1
    oversampling_factor: float = 2.0
    max_samples_per_batch: int = 2**15
    fit_data_fraction: float | None = None
    cache_path: str | None = None
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    embedding_output_dtype: str = "float32"
    border_eps: float | None = None
    memory_budget: int | str = "2GiB"
    gpus: float = 0.0
    name: str = "KMeansReadFitWriteStage"

    def __post_init__(self) -> None:
        reader_for(type(self).__name__, self.filetype)
        if self.embedding_output_dtype not in ("float32", "float16"):
            raise PlanError(f"embedding_output_dtype={self.embedding_output_dtype!r}: must be 'float32' or 'float16'")
        if self.border_eps is not None and not 0 <= self.border_eps < 1:
            raise PlanError(f"border_eps={self.border_eps}: must be at least 0 and less than 1")
        byte_size(self.memory_budget)
        self._kmeans()

    def _kmeans(self) -> KMeans:
        try:
            return KMeans(
                1 if self.n_clusters is None else self.n_clusters,
                self.random_state,
                self.init,
                max_iter=self.max_iter,
                tol=self.tol,
                n_init=self.n_init,
                oversampling_factor=self.oversampling_factor,
            )
        except ValueError as error:
            raise PlanError(f"{type(self).__name__}: {error}") from None

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        folder, memory = folder_for(self.name), byte_size(self.memory_budget)
        carried = tuple(dict.fromkeys([self.id_field, *(self.metadata_fields or ())]))
        reach = 0.0 if self.border_eps is None else reach_of(self.border_eps)
        sample = (folder, memory, 0, self.n_clusters, self.fit_data_fraction)
        read = reading_stage(
            type(self).__name__, self.filetype, [*carried, self.embedding_field], self.read_kwargs, _READ_BYTES
        )
        clusters = ClusterRows(folder, self.embedding_field, self.embedding_output_dtype, memory, bool(reach))
        stages: dict[str, ProcessingStage[Any, Any]] = {
            "read": read,
            "vectors": WriteVectors(folder, self.embedding_field, Ranking(), carried=carried),
            "sample files": SampleFiles(*sample),
            "sample": SampleVectors(folder),
            "whole sample": SampleToFit(*sample),
            "fit": self._on_gpu(FitClusters(folder, self._kmeans(), reach, self.n_clusters is None)),
            "files": VectorFiles(folder, memory),
            "assign": self._on_gpu(AssignVectors(folder, Ranking(), reach, memory, distances=True)),
            "clusters": CellFiles(folder, memory),
            "rows": clusters,
        }
        columns = [*carried, self.embedding_field, L2_DISTANCE, COSINE_DISTANCE, *([IS_COPY] if reach else [])]
        writing = write_parts(self.output_path, columns, self.write_kwargs).with_(name=self.name)
        return [*(stage.with_(name=f"{self.name} ({name})") for name, stage in stages.items()), writing]

    def _on_gpu(self, stage: ProcessingStage[Any, Any]) -> ProcessingStage[Any, Any]:
        return stage.with_(resources=Resources(cpus=1, gpus=self.gpus)) if self.gpus else stage


@dataclass
class ClusterRows(ScratchStage[FileGroup, DocumentBatch]):
    """The rows of each cluster, by name; those of a cluster that is large in several batches, by file.

    Args:
        folder: The folder of the step.
        embedding_field: The column for the vectors.
        dtype: ``"float32"`` or ``"float16"``.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
        has_copies: Whether rows of other clusters are among them.
    """

    embedding_field: str
    dtype: str
    memory_bytes: int
    has_copies: bool
    makes_rows: ClassVar[Literal["same", "split", "joined", "new"]] = "new"

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return None

    def process(self, task: FileGroup) -> Iterator[DocumentBatch]:
        length = task.reader_config["length"]
        for cluster, parts in task.reader_config["clusters"].items():
            for number, table in enumerate(self._tables(parts)):
                made = self._made(table, length)
                yield DocumentBatch(made, _metadata={FOLDER: f"centroid={cluster}", PART: number})

    def _tables(self, parts: Parts) -> Iterator[pa.Table]:
        most = max(share_of_memory(self.memory_bytes) // 4, 2**22)
        for rows in Rows.lots(read_cells(parts.read()), most):
            yield rows.table

    def _made(self, table: pa.Table, length: int) -> pa.Table:
        order = np.lexsort((numpy_array(table.column("document")), *by_name(table)))
        vectors = vectors_of(table, length)[order].astype(self.dtype).reshape(-1)
        values = pa.array(vectors) if self.dtype == "float16" else arrow_array(vectors)
        columns = {
            name.removeprefix(CARRIED): table.column(name).take(arrow_array(order))
            for name in table.column_names
            if name.startswith(CARRIED)
        }
        columns[self.embedding_field] = pa.FixedSizeListArray.from_arrays(values, length)
        if self.has_copies:
            columns[IS_COPY] = arrow_array(~numpy_array(table.column("is_home"))[order])
        return pa.table(columns)


@dataclass
class KMeansStage(CompositeStage[Any, FileGroup]):
    """Divide the rows of files into clusters: ``<output_path>/centroid=<k>/part.<n>.parquet``.

    It lists the files of ``input_path``; all else is :class:`KMeansReadFitWriteStage`.

    Args:
        n_clusters: How many clusters; chosen from the number of rows when ``None``.
        id_field: The column with the ids.
        embedding_field: The column with the vectors.
        input_path: The rows: a file, a directory, a pattern, any fsspec address, or a list of those.
        output_path: The directory above those of the clusters.
        metadata_fields, verbose, read_kwargs, write_kwargs: See :class:`KMeansReadFitWriteStage`.
        input_filetype: ``"parquet"`` or ``"jsonl"``.
        input_file_extensions: Endings to look for in directories.
        max_iter, tol, random_state, init, n_init, oversampling_factor: See :class:`tamis.kernels.kmeans.KMeans`.
        max_samples_per_batch, fit_data_fraction, cache_path, embedding_output_dtype, border_eps, memory_budget, gpus:
            See :class:`KMeansReadFitWriteStage`.

    >>> KMeansStage(10, "id", "embeddings", "in", "out").init
    'k-means||'
    """

    n_clusters: int | None
    id_field: str
    embedding_field: str
    input_path: str | list[str]
    output_path: str
    metadata_fields: list[str] | None = None
    verbose: bool = False
    input_filetype: str = "parquet"
    input_file_extensions: list[str] | None = None
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    max_iter: int = 300
    tol: float = 1e-4
    random_state: int = 42
    init: Literal["k-means||", "random"] = "k-means||"
    n_init: int = 1
    oversampling_factor: float = 2.0
    max_samples_per_batch: int = 2**15
    fit_data_fraction: float | None = None
    cache_path: str | None = None
    embedding_output_dtype: str = "float32"
    border_eps: float | None = None
    memory_budget: int | str = "2GiB"
    gpus: float = 0.0
    name: str = "KMeansStage"

    def __post_init__(self) -> None:
        self._clustering()

    def _clustering(self) -> KMeansReadFitWriteStage:
        own = ("input_path", "input_filetype", "input_file_extensions", "name")
        given = {name: value for name, value in self.parameters().items() if name not in own}
        return KMeansReadFitWriteStage(filetype=self.input_filetype, **given)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        reader = reader_for(type(self).__name__, self.input_filetype)
        paths = self.input_path
        files = FilePartitioningStage(
            absolute(paths) if isinstance(paths, str) else sorted(paths),
            blocksize=_READ_BYTES,
            file_extensions=list(self.input_file_extensions or reader.extensions),
            storage_options=(self.read_kwargs or {}).get("storage_options") or {},
            splittable=True,
        )
        return [files.with_(name=f"{self.name} (input)"), self._clustering().with_(name=self.name)]
