"""The centres of clusters: found in a sample, and moved by all vectors if that is asked for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.kernels.centroids import Centroids
from tamis.kernels.kmeans import ClusterSums, KMeans
from tamis.stages.base import WorkerMetadata
from tamis.stages.deduplication.semantic.files import (
    VectorFiles,
    cells_file,
    centroids_file,
    device_of,
    open_vectors,
    pieces_of,
    read_centroids,
    write_centroids,
)
from tamis.stages.deduplication.semantic.vectors import vector_column, vectors_of
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Parts, Rows, merge_indexes, read_cells, read_indexes, write_cells
from tamis.stages.io.paths import join
from tamis.stages.spill import SUFFIX, ScratchSource, ScratchStage, spilled_files
from tamis.tasks import FileGroup, FileSlice
from tamis.tasks.storage import format_order

__all__ = [
    "FitClusters",
    "MoveCentroids",
    "SampleFiles",
    "SampleToFit",
    "SampleVectors",
    "SumFiles",
    "SumVectors",
    "chosen_clusters",
]

Vectors = NDArray[np.float32]

_ONE_CLUSTER: Final = 4096
"""Up to so many vectors, all are compared with all."""

_PER_CLUSTER: Final = 64
"""How many vectors of the sample there are for each cluster, if there is memory for them."""

_LEAST_SAMPLE: Final = 16_384
_FITTING: Final = 6
"""Memory that fitting takes, as a multiple of that of the sample."""

_MOST_COPIES: Final = 8.0
"""Copies for each vector, beyond which there are too many clusters for vectors that lie close together."""

_COPY_COST: Final = 1000.0
"""How many products take as long as to write a copy and to read it."""

_COUNTED: Final = 16_384
"""Vectors of the sample that are looked at to estimate the cost of clusters."""


def chosen_clusters(rows: int) -> int:
    """How many clusters there are for so many vectors, before it is known how close they lie.

    Comparing with all centres then takes as long as comparing within clusters.

    >>> chosen_clusters(1000), chosen_clusters(1_000_000)
    (1, 1000)
    """
    return 1 if rows <= _ONE_CLUSTER else round(math.sqrt(rows))


@dataclass
class SampleFiles(VectorFiles):
    """As :class:`VectorFiles`, with the share of the vectors that is in the sample; nothing if all of them are.

    Args:
        folder: The folder of the deduplication.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
        n_clusters: How many clusters there are, if that is given.
        fraction: The share of the vectors, if that is given.
    """

    n_clusters: int | None = None
    fraction: float | None = None

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        found = open_vectors(directory)
        share = self._share(found.rows, found.length)
        if found.rows and share < 1:
            yield from self._groups(directory, found, {"length": found.length, "share": share})

    def _share(self, rows: int, length: int) -> float:
        """The share of the vectors that is in the sample."""
        if not rows:
            return 1.0
        if self.fraction is not None:
            return self.fraction
        clusters = self.n_clusters or chosen_clusters(rows)
        wanted = max(_LEAST_SAMPLE, _PER_CLUSTER * clusters)
        fits = self.memory_bytes // (4 * length * _FITTING)
        return min(1.0, min(wanted, fits) / rows)


@dataclass
class SampleVectors(ScratchStage[FileGroup, FileGroup]):
    """Write the vectors of the sample: those of rows whose names have the smallest hashes.

    So the sample does not depend on the order of the input, or on how it is cut into tasks.
    """

    def process(self, task: FileGroup) -> Iterator[Publish]:
        length, share = task.reader_config["length"], task.reader_config["share"]
        bound = np.uint64(min(int(share * 2**64), 2**64 - 1))
        keys, vectors = [np.zeros(0, np.uint64)], [np.zeros((0, length), np.float32)]
        for _, table, matrix in pieces_of(task.reader_config["parts"], length):
            own = numpy_array(table.column("key"))
            chosen = np.flatnonzero(own < bound)
            keys.append(own[chosen])
            vectors.append(matrix[chosen])
        made = pa.table({"key": arrow_array(np.concatenate(keys)), "vector": vector_column(np.concatenate(vectors))})
        final = join(self._directory, "sample", format_order(task.order) + SUFFIX)
        edges = np.array([0, made.num_rows], np.int64)
        yield write_cells(final, Rows(made), np.array([length], np.int64), edges, compress=False)


@dataclass
class SampleToFit(SampleFiles):
    """One task for the whole sample, once it is there."""

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        found = open_vectors(directory)
        if not found.rows:
            return
        files = found.files
        if self._share(found.rows, found.length) < 1:
            files = read_indexes([(path, size) for path, size, _ in spilled_files(join(directory, "sample"))])
        parts = merge_indexes(files, join(directory, "fit.index")).get(found.length)
        if parts is None or not parts.rows:  # a share so small that no row is in it
            parts = merge_indexes(found.files, join(directory, "fit.index"))[found.length]
        clusters = self.n_clusters or chosen_clusters(found.rows)
        config = {"parts": parts, "length": found.length, "clusters": clusters, "rows": found.rows}
        yield FileGroup(["sample"], slices=(FileSlice("sample", size=parts.nbytes),), reader_config=config)


@dataclass
class FitClusters(ScratchStage[FileGroup, FileGroup]):
    """Find the centres of the sample.

    Args:
        folder: The folder of the deduplication.
        kmeans: How; the number of clusters is that of the task.
        reach: How near to the region of another centre a vector is when it is copied there.
        is_chosen: Whether there may be fewer clusters, if many vectors lie near to several regions.
        has_cells: Whether rows may be compared in fewer and larger cells than the clusters then, which remain as they
            are.
    """

    kmeans: KMeans
    reach: float
    is_chosen: bool
    has_cells: bool = False
    gpu_is_optional: ClassVar[bool] = True

    def process(self, task: FileGroup) -> Iterator[Publish]:
        length, clusters = task.reader_config["length"], task.reader_config["clusters"]
        keys, vectors = _sorted_sample(task.reader_config["parts"], length)
        device = device_of(self)
        centroids = self._fitted(vectors, clusters, device)
        rows = task.reader_config["rows"]
        if self.is_chosen:
            centroids = self._cheaper(centroids, vectors, rows, device)
        elif self.has_cells and not math.isfinite(self._cost(centroids, vectors, rows, device)):
            cells = self._cheaper(centroids, vectors, rows, device)
            self.log_metric("cells", len(cells))
            yield write_centroids(cells_file(self._directory), cells)
        self.log_metric("clusters", len(centroids))
        self.log_metric("vectors_fitted", len(keys))
        yield write_centroids(centroids_file(self._directory, 0), centroids)

    def _cheaper(self, centroids: Vectors, vectors: Vectors, rows: int, device: str) -> Vectors:
        """Fewer centres, if comparing so many rows takes less work then."""
        clusters = len(centroids)
        cost = self._cost(centroids, vectors, rows, device) if clusters > 1 else 0.0
        while clusters > 1:
            clusters = max(1, clusters // 4)
            fewer = self._fitted(vectors, clusters, device)
            other = self._cost(fewer, vectors, rows, device)
            if other >= cost and math.isfinite(cost):
                break
            centroids, cost = fewer, other
        return centroids

    def _fitted(self, vectors: Vectors, clusters: int, device: str) -> Vectors:
        if clusters == 1:
            mean: Vectors = vectors.mean(axis=0, dtype=np.float64, keepdims=True).astype(np.float32)
            return mean
        fitted = dataclasses.replace(self.kmeans, n_clusters=clusters).fit(vectors, device)
        self.log_metric("iterations", fitted.iterations)
        return fitted.centroids

    def _cost(self, centroids: Vectors, vectors: Vectors, rows: int, device: str) -> float:
        """About how many products it takes to compare so many rows; infinite if there are too many copies."""
        placed = Centroids(centroids, device)
        counted = vectors[:: max(1, len(vectors) // _COUNTED)]
        homes, copied, cells = placed.near(counted, self.reach)
        copies = len(copied) / len(counted)
        if copies > _MOST_COPIES and len(centroids) > 1:
            return math.inf
        own, others = (np.bincount(some, minlength=len(placed)) / len(counted) for some in (homes, cells))
        return rows * (len(placed) + _COPY_COST * copies) + float(rows) ** 2 * float((own * (own / 2 + others)).sum())


def _sorted_sample(parts: Parts, length: int) -> tuple[NDArray[np.uint64], Vectors]:
    """The vectors of a sample in the order of their keys, and the keys."""
    keys = np.empty(parts.rows, np.uint64)
    vectors = np.empty((parts.rows, length), np.float32)
    done = 0
    for rows in read_cells(parts.read()):
        count = rows.table.num_rows
        keys[done : done + count] = numpy_array(rows.table.column("key"))
        vectors[done : done + count] = vectors_of(rows.table, length)
        done += count
    order = np.argsort(keys, kind="stable")
    return keys[order], vectors[order]


# -- all vectors, on all workers ------------------------------------------------------------------------------------


@dataclass
class SumVectors(ScratchStage[FileGroup, FileGroup]):
    """Write the sums and counts of some vectors by their nearest centres.

    Args:
        folder: The folder of the deduplication.
        round: The number of the round.
    """

    round: int
    gpu_is_optional: ClassVar[bool] = True

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        super().setup(worker_metadata)
        self._centroids: Centroids | None = None

    def process(self, task: FileGroup) -> Iterator[Publish]:
        length = task.reader_config["length"]
        if self._centroids is None:
            self._centroids = Centroids(read_centroids(task.reader_config["centroids"], length), device_of(self))
        sums = ClusterSums(len(self._centroids), length)
        for _, _, matrix in pieces_of(task.reader_config["parts"], length):
            sums.add(matrix, self._centroids.nearest(matrix))
        used = np.flatnonzero(sums.counts)
        columns = {"cluster": arrow_array(used), "count": arrow_array(sums.counts[used])}
        columns["sums"] = vector_column(sums.sums[used].view(np.float32))
        final = join(self._directory, f"sums-{self.round}", format_order(task.order) + SUFFIX)
        edges = np.array([0, len(used)], np.int64)
        yield write_cells(final, Rows(pa.table(columns)), np.zeros(1, np.int64), edges, count=length, compress=False)


@dataclass
class SumFiles(ScratchSource[FileGroup]):
    """One task for the sums of one round, once all of them are there.

    Args:
        folder: The folder of the deduplication.
        round: The number of the round.
    """

    round: int

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        directory = join(scratch, self.folder)
        files = read_indexes([(p, size) for p, size, _ in spilled_files(join(directory, f"sums-{self.round}"))])
        if files:
            parts = merge_indexes(files, join(directory, f"sums-{self.round}.index"))[0]
            config = {
                "parts": parts,
                "length": files[0].count,
                "centroids": centroids_file(directory, self.round),
            }
            yield FileGroup(["sums"], slices=(FileSlice("sums", size=parts.nbytes),), reader_config=config)


@dataclass
class MoveCentroids(ScratchStage[FileGroup, FileGroup]):
    """Add the sums of one round, and write the means: the centres of the next. A centre without vectors stays.

    Args:
        folder: The folder of the deduplication.
        round: The number of the round.
    """

    round: int

    def process(self, task: FileGroup) -> Iterator[Publish]:
        length: int = task.reader_config["length"]
        before = read_centroids(task.reader_config["centroids"], length)
        total = ClusterSums(len(before), length)
        for rows in read_cells(task.reader_config["parts"].read()):
            clusters, counts = (numpy_array(rows.table.column(name)) for name in ("cluster", "count"))
            sums = rows.table.select(["sums"]).rename_columns(["vector"])
            total.sums[clusters] += vectors_of(sums, 2 * length).view(np.int64)
            total.counts[clusters] += counts
        means, has_vectors = total.means()
        means[~has_vectors] = before[~has_vectors]
        yield write_centroids(centroids_file(self._directory, self.round + 1), means)


def rounds(folder: str, memory_bytes: int, count: int) -> dict[str, Any]:
    """The stages of some rounds over all vectors."""
    stages: dict[str, Any] = {}
    for number in range(count):
        title = f"round {number + 1}"
        stages |= {
            f"{title}, files": VectorFiles(folder, memory_bytes, number),
            f"{title}, sums": SumVectors(folder, number),
            f"{title}, all sums": SumFiles(folder, number),
            f"{title}, centres": MoveCentroids(folder, number),
        }
    return stages
