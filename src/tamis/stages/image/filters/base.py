"""The base of filters that score the embeddings of images."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tamis.arrays import arrow_array
from tamis.errors import ModelError
from tamis.models.embedding_heads import EmbeddingHead
from tamis.stages.base import NodeInfo, ProcessingStage, WorkerMetadata
from tamis.stages.column_values import read_column
from tamis.stages.text.filters.base import ThresholdFilter
from tamis.stages.text.filters.chain import Step
from tamis.stages.vectors import vectors_of
from tamis.tasks import ImageBatch

__all__ = ["BaseFilterStage"]


@dataclass
class _ScoreBounds(ThresholdFilter):
    """The bounds of a score, for the drop ledger and for new thresholds after a run.

    Args:
        name: The score.
        scored_by: What the score depends on.
        min_score: The lowest score that is kept.
        max_score: The highest score that is kept: the last 32-bit number before the first that is dropped.
    """

    name: str = "score"
    scored_by: str = ""
    min_score: float | None = None
    max_score: float | None = None

    def reason(self) -> str:
        if self.max_score is None:
            return f"{self.name} < {self.min_score:g}"
        return f"{self.name} >= {np.nextafter(np.float32(self.max_score), np.float32(np.inf)):g}"


@dataclass(repr=False)
class BaseFilterStage(ProcessingStage[ImageBatch, ImageBatch]):
    """Score the embedding of each image with a small network, and drop rows by the score.

    A subclass defines :meth:`load_head`, :attr:`keeps_high` and a column for the score. Rows without an embedding are
    dropped, with that reason.

    Args:
        model_dir: A folder with the weights, or one that has them below under their name.
        num_gpus_per_worker: Accepted for scripts that name it: a core scores tens of thousands of embeddings per
            second, so the stage asks for no GPU.
        model_inference_batch_size: Accepted for scripts that name it. A batch is scored as a whole.
        score_threshold: The score at which rows are kept or dropped.
        verbose: Accepted for scripts that name it. The run reports what was dropped.
        name: The name of the stage.
        embedding_field: The column with the embeddings, as
            :class:`~tamis.stages.image.embedders.clip_embedder.ImageEmbeddingStage` makes them.
        score_field: The column for the score.
        allow_pickle: Whether weights may come in a pickled file (``.pth``), of which only tensors are loaded.

    >>> class Sum(BaseFilterStage):
    ...     def load_head(self):
    ...         return EmbeddingHead((np.ones((1, 2), np.float32),), (np.zeros(1, np.float32),))
    >>> kept = Sum().process(ImageBatch({"image_embedding": [[0.5, 0.25], [0.25, 0.125], None]}))
    >>> kept["score"].to_pylist(), [dropped.reason for dropped in kept.dropped]
    ([0.75], ['no image_embedding', 'score < 0.5'])
    """

    model_dir: str | None = None
    num_gpus_per_worker: float = 0.25
    model_inference_batch_size: int = 32
    score_threshold: float = 0.5
    verbose: bool = False
    name: str = "image_filter"
    embedding_field: str = field(default="image_embedding", kw_only=True)
    score_field: str = field(default="score", kw_only=True)
    allow_pickle: bool = field(default=False, kw_only=True)

    keeps_high: ClassVar[bool] = True
    """Whether scores at the threshold and above are kept, or those below it."""

    releases_gil: ClassVar[bool] = True

    def load_head(self) -> EmbeddingHead:
        """Load the network, once in each worker."""
        raise NotImplementedError(f"{type(self).__name__} has no load_head()")

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.embedding_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.score_field]

    def adds_columns(self) -> list[str]:
        return [self.score_field]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        self.load_head()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._head = self.load_head()

    def process(self, task: ImageBatch) -> ImageBatch:
        if not hasattr(self, "_head"):  # called by hand
            self.setup()
        vectors, missing = vectors_of(read_column(task.data, self.embedding_field, self.name), self.embedding_field)
        if vectors.shape[1] not in (0, self._head.dim):
            raise ModelError(
                f"{self.name}: the vectors in {self.embedding_field!r} have {vectors.shape[1]} numbers, and the "
                f"weights take {self._head.dim}: they belong to embeddings of another model"
            )
        scores = np.zeros(len(vectors), np.float32)
        scores[~missing] = self._head.scores(vectors[~missing]) if vectors.shape[1] else 0
        scored = task.with_column(self.score_field, arrow_array(scores, missing if missing.any() else None))
        if missing.any():
            scored, scores = scored.keep(~missing, f"no {self.embedding_field}"), scores[~missing]
        (step,) = self._steps
        kept = scores >= self.score_threshold if self.keeps_high else scores < self.score_threshold
        return scored.keep(kept, step.reason(), scores)

    @property
    def _steps(self) -> list[Step]:
        """The decision in the form that new thresholds after a run are derived from."""
        others = {key: value for key, value in self.parameters().items() if key != "score_threshold"}
        limit = np.float32(self.score_threshold)
        bounds: dict[str, Any] = (
            {"min_score": float(limit)}
            if self.keeps_high
            else {"max_score": float(np.nextafter(limit, np.float32(-np.inf)))}
        )
        operation = _ScoreBounds(self.score_field, repr(others), **bounds)
        return [Step(operation, self.embedding_field, self.score_field)]


def weights_file(folders: list[str], names: tuple[str, ...]) -> str | None:
    """The first file of some names in some folders."""
    places = (os.path.join(os.path.expanduser(folder), name) for folder in folders for name in names)
    return next((place for place in places if os.path.isfile(place)), None)
