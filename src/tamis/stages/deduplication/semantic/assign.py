"""Vectors are assigned to clusters, and copied to those whose borders they are near to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array
from tamis.kernels.centroids import Centroids
from tamis.kernels.unit_vectors import cosines
from tamis.stages.base import WorkerMetadata
from tamis.stages.deduplication.marks import document_numbers
from tamis.stages.deduplication.semantic.files import device_of, pieces_of, read_centroids, share_of_memory
from tamis.stages.deduplication.semantic.ranking import COSINE_DISTANCE, L2_DISTANCE, Ranking
from tamis.stages.deduplication.semantic.vectors import CARRIED, vector_column
from tamis.stages.emit import Publish
from tamis.stages.exchange.files import Rows, put_together, write_cells
from tamis.stages.io.paths import join
from tamis.stages.spill import SUFFIX, ScratchStage
from tamis.tasks import FileGroup
from tamis.tasks.storage import format_order

__all__ = ["AssignVectors", "distances_from"]

Vectors = NDArray[np.float32]
Places = NDArray[np.int64]


def distances_from(centroids: Centroids, vectors: Vectors, homes: Places) -> tuple[Vectors, Vectors]:
    """The cosine distance and the Euclidean distance of vectors from their centres.

    A centre that is the zero vector has no direction: its cosine distance is 1.

    >>> centroids = Centroids(np.array([[2, 0]], np.float32))
    >>> [d.tolist() for d in distances_from(centroids, np.array([[1, 0], [0, 1]], np.float32), np.zeros(2, np.int64))]
    [[0.0, 1.0], [1.0, 2.2360680103302]]
    """
    has_direction = np.any(centroids.vectors, axis=1)[homes]
    cosine = np.ones(len(homes), np.float32)
    cosine[has_direction] -= cosines(vectors[has_direction], centroids.vectors[homes[has_direction]])
    return cosine, np.sqrt(centroids.squared_distances(vectors, homes)).astype(np.float32)


@dataclass
class AssignVectors(ScratchStage[FileGroup, FileGroup]):
    """Write vectors by cluster, or by the cell in which they are compared, if cells are not the clusters.

    Args:
        folder: The folder of the deduplication.
        ranking: The order of rows.
        reach: How near to the region of another centre a vector is when it is copied there.
        memory_bytes: Memory for all tasks that run at the same time on a machine.
        distances: Whether to write the distances from the centres, too.
    """

    ranking: Ranking
    reach: float
    memory_bytes: int
    distances: bool = False
    gpu_is_optional: ClassVar[bool] = True

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        super().setup(worker_metadata)
        self._centroids: Centroids | None = None
        self._cells: Centroids | None = None

    def process(self, task: FileGroup) -> Iterator[Publish]:
        length = task.reader_config["length"]
        if self._centroids is None:
            self._centroids = Centroids(read_centroids(task.reader_config["centroids"], length), device_of(self))
            cells = task.reader_config["cells"]
            self._cells = Centroids(read_centroids(cells, length), device_of(self)) if cells else self._centroids
        if task.reader_config["others"] and not any(task.order[1:]) and task.order[-1] == 0:
            self.log_metric("vectors_of_other_lengths", task.reader_config["others"])
        most = max(share_of_memory(self.memory_bytes) // 8, 2**22)
        step = max(1, most // (4 * length) // 4)
        held: list[tuple[pa.Table, Vectors, Places]] = []
        number = size = 0
        for file, table, matrix in pieces_of(task.reader_config["parts"], length):
            for start in range(0, len(matrix), step):
                placed = self._placed(file, table.slice(start, step), matrix[start : start + step])
                held.append(placed)
                size += 4 * length * len(placed[2])
                if size > most:
                    yield self._written(held, (*task.order, number))
                    held, number, size = [], number + 1, 0
        if held:
            yield self._written(held, (*task.order, number))

    def _placed(self, file: int, table: pa.Table, matrix: Vectors) -> tuple[pa.Table, Vectors, Places]:
        """Some vectors and their copies: what is known of them, the vectors, and the number of the cluster of each."""
        assert self._centroids is not None
        assert self._cells is not None
        if self.reach and len(self._cells) > 1:
            homes, copied, cells = self._cells.near(matrix, self.reach)
        else:
            homes = self._cells.nearest(matrix)
            copied = cells = np.zeros(0, np.int64)
        self.log_metric("copies", len(copied))
        rows = np.concatenate([np.arange(len(matrix)), copied])
        is_home = np.arange(len(rows)) < len(matrix)
        is_shared = ~is_home
        is_shared[copied] = True
        known = table.drop_columns(["vector", "key", "row"])
        if self.distances or self.ranking.needs_distances:
            nearest = homes if self._cells is self._centroids else self._centroids.nearest(matrix)
            cosine, l2 = distances_from(self._centroids, matrix, nearest)
            found: dict[str, NDArray[Any]] = {**self.ranking.of_distances(cosine, l2)}
            found |= {f"{CARRIED}{L2_DISTANCE}": l2, f"{CARRIED}{COSINE_DISTANCE}": cosine} if self.distances else {}
            for name, values in found.items():
                known = known.append_column(name, arrow_array(values))
        known = known.append_column("document", arrow_array(document_numbers(file, numpy_array(table.column("row")))))
        known = known.take(arrow_array(rows))
        known = known.append_column("is_home", arrow_array(is_home))
        known = known.append_column("is_shared", arrow_array(is_shared))
        return known, matrix[rows], np.concatenate([homes, cells])

    def _written(self, held: list[tuple[pa.Table, Vectors, Places]], order: tuple[int, ...]) -> Publish:
        clusters = np.concatenate([cells for _, _, cells in held])
        by_cluster = np.argsort(clusters, kind="stable")
        vectors = np.concatenate([matrix for _, matrix, _ in held])[by_cluster]
        table = put_together([known for known, _, _ in held]).take(arrow_array(by_cluster))
        table = table.append_column("vector", vector_column(vectors))
        in_order = clusters[by_cluster]
        starts = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1]))
        edges = np.append(starts, len(in_order)).astype(np.int64)
        final = join(self._directory, "cells", format_order(order) + SUFFIX)
        return write_cells(final, Rows(table), in_order[starts].astype(np.int64), edges, compress=False)
