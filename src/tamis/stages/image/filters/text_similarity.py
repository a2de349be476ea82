"""Keep images whose captions belong to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.arrays import arrow_array
from tamis.errors import ModelError
from tamis.models.image_preprocessing import OPEN_CLIP_CONFIG
from tamis.models.model import Model
from tamis.stages.column_values import read_column
from tamis.stages.image.model_folder import model_in
from tamis.stages.resources import Resources
from tamis.stages.text.models.model import TextModelStage
from tamis.stages.vectors import vectors_of
from tamis.tasks import DocumentBatch

__all__ = ["ImageTextSimilarityFilter"]

_VECTORS = "caption_vectors"


@dataclass(repr=False)
class ImageTextSimilarityFilter(TextModelStage):
    """Score how well captions fit their images (the CLIP score), and drop rows below a threshold.

    The score is the cosine of the embedding of the image, which
    :class:`~tamis.stages.image.embedders.clip_embedder.ImageEmbeddingStage` has added, and that of the caption, which
    the text tower of the same model computes here: on a GPU, or on CPUs where there is none. For CLIP models, captions
    that fit are mostly between 0.2 and 0.35. Captions are cut to as many tokens as the model reads. A row without a
    caption or without an embedding is dropped, with that reason.

    Args:
        model_dir: As for ``ImageEmbeddingStage``: the folder of the model, or one that has it below under its name.
        min_score: Rows with this cosine and more are kept.
        model: The model that made the embeddings: a name on the hub, a folder, or a
            :class:`~tamis.models.model.Model`.
        text_field: The column with the captions.
        embedding_field: The column with the embeddings of the images.
        score_field: The column for the score.
        max_seq_length: The most tokens of a caption; what the model reads when not given.
        batch_tokens: The most tokens of a batch; a number that suits the device when not given.
        dtype: The model's numbers: ``"auto"``, or a type of PyTorch by name.
        name: The name of the stage.
        resources: What a worker that runs the model needs.

    >>> [stage.name for stage in ImageTextSimilarityFilter("model-folder", 0.2).decompose()]
    ['image_text_similarity tokens', 'image_text_similarity']
    """

    model_dir: str | None = None
    min_score: float = 0.15
    model: Model | str = "openai/clip-vit-large-patch14"
    text_field: str = "caption"
    embedding_field: str = "image_embedding"
    score_field: str = "image_text_similarity"
    max_seq_length: int | None = None
    batch_tokens: int | None = None
    dtype: str = "auto"
    name: str = "image_text_similarity"
    resources: Resources = Resources(gpus=0.25)  # noqa: RUF009 - it cannot be changed

    def __post_init__(self) -> None:
        if not -1 <= self.min_score <= 1:
            raise ValueError(f"{self.name}(min_score={self.min_score}): a cosine is between -1 and 1")

    @property
    def source(self) -> Model:
        return model_in(self.model_dir, self.model, ("config.json", OPEN_CLIP_CONFIG))

    def parameters(self) -> dict[str, Any]:
        given = super().parameters()
        return {key: replace(value, token=None) if isinstance(value, Model) else value for key, value in given.items()}

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field, self.embedding_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.score_field]

    def adds_columns(self) -> list[str]:
        return [self.score_field]

    def load(self, device: str) -> None:
        from tamis.models.image_encoder import TextTower

        self._tower = TextTower(self.source, device, self.dtype)

    def infer(self, tokens: Any) -> Mapping[str, Any]:
        return {_VECTORS: self._tower(tokens)}

    def finish(self, batch: DocumentBatch, columns: Mapping[str, pa.Array]) -> DocumentBatch:
        captions, no_caption = vectors_of(columns[_VECTORS], _VECTORS)
        vectors, no_vector = vectors_of(read_column(batch.data, self.embedding_field, self.name), self.embedding_field)
        if vectors.shape[1] not in (0, captions.shape[1]):
            raise ModelError(
                f"{self.name}: the vectors in {self.embedding_field!r} have {vectors.shape[1]} numbers, and those of "
                f"captions have {captions.shape[1]}: they are embeddings of another model"
            )
        scores = np.zeros(len(captions), np.float32)
        if vectors.shape[1]:
            scores = (vectors * captions).sum(axis=1) / np.maximum(np.linalg.norm(vectors, axis=1), np.float32(1e-12))
        missing = no_caption | no_vector
        made = batch.with_column(self.score_field, arrow_array(scores, missing if missing.any() else None))
        for lacks, what in ((no_caption, self.text_field), (no_vector, self.embedding_field)):
            if lacks.any():
                kept = ~lacks
                made, scores, no_vector = made.keep(kept, f"no {what}"), scores[kept], no_vector[kept]
        return made.keep(scores >= self.min_score, f"{self.score_field} < {self.min_score:g}", scores)
