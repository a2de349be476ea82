"""For each row of a cluster the most similar row before it, from files to files, under NeMo Curator's names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array, one_array
from tamis.errors import DataError, PlanError
from tamis.kernels.hashing import hash_text_64
from tamis.kernels.products import Products, products_on
from tamis.kernels.unit_vectors import cosines, unit_rows
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.deduplication.part_files import PART, PartDestination, WriteParts, part_encoder
from tamis.stages.deduplication.semantic.files import device_of
from tamis.stages.deduplication.semantic.kmeans import IS_COPY
from tamis.stages.deduplication.semantic.pairwise_io import ClusterWiseFilePartitioningStage
from tamis.stages.deduplication.semantic.ranking import COSINE_DISTANCE, L2_DISTANCE, RankingStrategy
from tamis.stages.deduplication.semantic.vectors import vectors_by_length
from tamis.stages.io.destination import TEMPORARY
from tamis.stages.io.paths import absolute, open_read
from tamis.tasks import DocumentBatch, FileGroup, Task

__all__ = ["PairwiseCosineSimilarityStage", "PairwiseStage", "RankingStrategy", "most_similar_before"]

Vectors = NDArray[np.float32]
Places = NDArray[np.int64]

COLUMNS: Final = ["id", "max_id", "cosine_sim_score"]


def most_similar_before(
    vectors: Vectors, is_home: NDArray[np.bool_], products: Products, rows: int = 1024
) -> tuple[Places, Vectors]:
    """For each row the most similar of the rows before it, and their cosine. Copies are not compared with copies.

    A row with none before it has itself, and 0.

    Args:
        vectors: Vectors of length one.
        is_home: Which rows are not copies.
        products: Where products are computed.
        rows: How many rows to compare at once.

    >>> found = most_similar_before(np.array([[1, 0], [0, 1], [1, 0]], np.float32), np.ones(3, bool), products_on())
    >>> [some.tolist() for some in found]
    [[0, 0, 0], [0.0, 0.0, 1.0]]
    """
    best = np.full(len(vectors), -np.inf, np.float32)
    place = np.arange(len(vectors))
    numbers = np.arange(len(vectors))
    for start in range(0, len(vectors), rows):
        block = numbers[start : start + rows]
        for asked, others in ((block, numbers[is_home]), (block[is_home[block]], numbers[~is_home])):
            others = others[others < block[-1]]
            held = products.hold(vectors[asked]) if len(asked) and len(others) else None
            for first in range(0, len(others) if held is not None else 0, products.pair_columns):
                tile = others[first : first + products.pair_columns]
                if tile[-1] < block[0]:
                    scores, at = products.largest(products.multiply(held, products.hold(vectors[tile])))
                else:
                    some = products.at(products.multiply(held, products.hold(vectors[tile])), np.arange(len(asked)))
                    some = np.where(tile < asked[:, None], some, -np.inf)
                    at = some.argmax(axis=1)
                    scores = some[np.arange(len(asked)), at]
                better = scores > best[asked]
                best[asked[better]], place[asked[better]] = scores[better], tile[at[better]]
    exact = np.zeros(len(vectors), np.float32)
    for first in range(0, len(vectors), 8192):
        piece = slice(first, first + 8192)
        exact[piece] = cosines(vectors[piece], vectors[place[piece]])
    exact[place == numbers] = 0
    return place, exact


@dataclass
class PairwiseCosineSimilarityStage(ProcessingStage[FileGroup, DocumentBatch]):
    """Read a cluster, rank its rows, and find for each the most similar row before it.

    Writes ``<output_path>/cluster_<k>.parquet`` with the columns ``id``, ``max_id`` and ``cosine_sim_score``.

    Args:
        id_field: The column with the ids.
        embedding_field: The column with the vectors.
        output_path: The directory for the files.
        ranking_strategy: The order of the rows.
        pairwise_batch_size: How many rows are compared with those before them at once.
        verbose: Not used: the report has the figures.
        read_kwargs: ``storage_options`` for the clusters; nothing else in it is used.
        write_kwargs: Further arguments of ``pyarrow.parquet.ParquetWriter``, and ``storage_options``.
        compute_dtype: For NeMo Curator's GPU code. Products are in single precision, cosines are exact.

    >>> ranking = RankingStrategy(["cosine_dist_to_cent", "id"], ascending=False)
    >>> PairwiseCosineSimilarityStage("id", "embeddings", "out", ranking).pairwise_batch_size
    1024
    """

    id_field: str
    embedding_field: str
    output_path: str
    ranking_strategy: RankingStrategy
    pairwise_batch_size: int = 1024
    verbose: bool = False
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    compute_dtype: str = "float32"
    name: str = "PairwiseCosineSimilarityStage"

    releases_gil: ClassVar[bool] = True
    gpu_is_optional: ClassVar[bool] = True
    makes_rows: ClassVar[Literal["same", "split", "joined", "new"]] = "new"

    def __post_init__(self) -> None:
        if self.pairwise_batch_size < 1:
            raise PlanError(f"pairwise_batch_size={self.pairwise_batch_size}: must be at least 1")

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(COLUMNS)

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return frozenset(COLUMNS)

    def process(self, task: FileGroup) -> Iterator[DocumentBatch]:
        table = self._read(task)
        table = table.take(self._order(table))
        found = list(vectors_by_length(table.column(self.embedding_field), self.embedding_field, self.name))
        if len(found) != 1 or len(found[0][0]) != table.num_rows:
            raise DataError("the rows of a cluster must have vectors of one length", path=task.data[0])
        vectors, valid = unit_rows(found[0][1])
        if not valid.all():
            raise DataError(
                f"{int((~valid).sum())} vectors of a cluster have no direction (zeros, NaN)", path=task.data[0]
            )
        copies = numpy_array(table.column(IS_COPY)) if IS_COPY in table.column_names else np.zeros(len(valid), np.bool_)
        products = products_on(device_of(self))
        place, similarity = most_similar_before(vectors, ~copies, products, self.pairwise_batch_size)
        ids = one_array(table.column(self.id_field))
        made = pa.table([ids, ids.take(arrow_array(place)), arrow_array(similarity)], COLUMNS)
        yield DocumentBatch(made, _metadata={PART: task.reader_config.get("centroid", 0)})

    def _read(self, task: FileGroup) -> pa.Table:
        import pyarrow.parquet as pq

        options = (self.read_kwargs or {}).get("storage_options")
        tables = []
        for path in task.data:
            with open_read(path, options) as source:
                tables.append(pq.ParquetFile(source).read())
        table = pa.concat_tables(tables, promote_options="permissive")
        wanted = [self.id_field, self.embedding_field, *self.ranking_strategy.metadata_cols]
        missing = [name for name in wanted if name not in table.column_names]
        if missing:
            known = ", ".join(table.column_names)
            raise DataError(
                f"there is no column {missing[0]!r}, only {known}",
                path=task.data[0],
                hint="Columns that rank rows must be in metadata_fields of the clustering.",
            )
        return table

    def _order(self, table: pa.Table) -> pa.Array:
        """The rows in the order of their ranks; those that are equal in all are in the order of their ids."""
        strategy = self.ranking_strategy
        keys = [(name, "ascending" if ascending else "descending") for name, ascending in strategy.order]
        if strategy.strategy == "random":
            hashes = hash_text_64(one_array(table.column(self.id_field)).cast(pa.string()))
            seed = np.uint64(strategy.random_seed % 2**63)
            mixed = (hashes ^ seed) * np.uint64(0x9E3779B97F4A7C15)
            table = table.append_column(_RANDOM, arrow_array(mixed ^ (mixed >> np.uint64(31))))
            keys = [(_RANDOM, "ascending")]
        if self.id_field not in dict(keys):
            keys.append((self.id_field, "ascending"))
        return pc.sort_indices(table.select([name for name, _ in keys]), sort_keys=keys)


_RANDOM: Final = "tamis.random"


@dataclass(frozen=True)
class ClusterDestination(PartDestination):
    """A directory with files ``cluster_<k>.parquet``."""

    def name_for(self, task: Task[Any], run: str = "") -> str:
        return f"cluster_{task._metadata[PART]}{self.ending}"

    def own_names(self) -> str:
        return rf"(?:cluster_\d+\.parquet|{TEMPORARY.pattern})"


@dataclass
class PairwiseStage(CompositeStage[Any, FileGroup]):
    """For each row of the clusters in files the most similar row before it: ``<output_path>/cluster_<k>.parquet``.

    Args:
        id_field: The column with the ids.
        embedding_field: The column with the vectors.
        input_path: The directory above those of the clusters, as :class:`KMeansStage` writes it.
        output_path: The directory for the files.
        ranking_strategy: The order of the rows, instead of ``which_to_keep``.
        pairwise_batch_size, verbose, read_kwargs, write_kwargs, compute_dtype: See
            :class:`PairwiseCosineSimilarityStage`.
        which_to_keep: ``"hard"``: rows far from the centre first; ``"easy"``: near ones first; ``"random"``. Ties are
            in the order of the ids, descending for ``"hard"``.
        sim_metric: The distance from the centre: ``"cosine"`` or ``"l2"``.
        random_seed: For ``"random"``.

    >>> [stage.name for stage in PairwiseStage("id", "embeddings", "clusters", "out").decompose()][-1]
    'PairwiseStage'
    """

    id_field: str
    embedding_field: str
    input_path: str
    output_path: str
    ranking_strategy: RankingStrategy | None = None
    pairwise_batch_size: int = 1024
    verbose: bool = False
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    which_to_keep: Literal["hard", "easy", "random"] = "hard"
    sim_metric: Literal["cosine", "l2"] = "cosine"
    random_seed: int = 42
    compute_dtype: str = "float32"
    name: str = "PairwiseStage"

    def __post_init__(self) -> None:
        if self.which_to_keep not in ("hard", "easy", "random"):
            raise PlanError(f"which_to_keep={self.which_to_keep!r}: must be one of hard, easy, random")
        if self.sim_metric not in ("cosine", "l2"):
            raise PlanError(f"sim_metric={self.sim_metric!r}: must be 'cosine' or 'l2'")

    def _ranking(self) -> RankingStrategy:
        if self.ranking_strategy is not None:
            return self.ranking_strategy
        if self.which_to_keep == "random":
            return RankingStrategy.random(self.random_seed)
        distance = COSINE_DISTANCE if self.sim_metric == "cosine" else L2_DISTANCE
        return RankingStrategy([distance, self.id_field], ascending=self.which_to_keep == "easy")

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        comparing = PairwiseCosineSimilarityStage(
            self.id_field,
            self.embedding_field,
            self.output_path,
            self._ranking(),
            self.pairwise_batch_size,
            self.verbose,
            self.read_kwargs,
            self.write_kwargs,
            self.compute_dtype,
        )
        options = (self.write_kwargs or {}).get("storage_options") or {}
        destination = ClusterDestination(absolute(self.output_path), mode="overwrite", storage_options=options)
        read_options = (self.read_kwargs or {}).get("storage_options")
        return [
            ClusterWiseFilePartitioningStage(self.input_path, read_options).with_(name=f"{self.name} (clusters)"),
            comparing.with_(name=f"{self.name} (compare)"),
            WriteParts(destination, part_encoder(self.write_kwargs), list(COLUMNS)).with_(name=self.name),
        ]
