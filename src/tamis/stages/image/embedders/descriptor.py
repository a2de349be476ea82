"""Vectors for images without a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tamis.kernels.image_descriptor import DESCRIPTOR_DIM, DESCRIPTOR_SIDE, describe
from tamis.kernels.resize import resize
from tamis.stages.base import ProcessingStage
from tamis.stages.image.present import rows_with_image
from tamis.stages.vectors import vector_column
from tamis.tasks import ImageBatch

__all__ = ["ImageDescriptorStage"]


@dataclass(repr=False)
class ImageDescriptorStage(ProcessingStage[ImageBatch, ImageBatch]):
    """Add a vector to each image that describes its colours, edges and coarse pattern: no model, no weights.

    Pictures that look alike are close: the same picture in another size, recompressed, brighter, with its borders cut
    off. Different pictures of the same thing are not: a descriptor does not know what a picture shows, as an embedding
    of CLIP or SigLIP does (:class:`~tamis.stages.image.embedders.clip_embedder.ImageEmbeddingStage`). Use it to find
    near-duplicates, not to search, to score or to compare with texts.

    A vector has 303 numbers and length 1: brightness and colour in each of 4 x 4 cells (48), a histogram of colours
    (64), the strength of edges in eight directions in each cell (128), and the lowest frequencies of a discrete cosine
    transform (63), computed of the picture made 64 x 64 pixels small. The same decoded pixels give the same bits on
    every machine. A row without an image has null; one whose image cannot be decoded fails, and is set aside by the
    run.

    Args:
        embedding_field: The column for the vectors.

    >>> from tamis.tasks import ImageObject
    >>> pictures = [ImageObject(image_data=np.full((90, 120, 3), shade, np.uint8)) for shade in (0, 255)]
    >>> ImageDescriptorStage().process(ImageBatch(pictures)).data.schema.field("image_embedding").type
    FixedSizeListType(fixed_size_list<item: float>[303])
    """

    embedding_field: str = "image_embedding"
    name: str = "image_descriptor"

    releases_gil: ClassVar[bool] = True

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.embedding_field]

    def adds_columns(self) -> list[str]:
        return [self.embedding_field]

    def process(self, task: ImageBatch) -> ImageBatch:
        present = rows_with_image(task)
        vectors = np.zeros((task.num_items, DESCRIPTOR_DIM), np.float32)
        if present.any():
            side = DESCRIPTOR_SIDE
            small = task.select(np.flatnonzero(present)).pixels(min_side=2 * side)
            vectors[present] = describe(np.stack([resize(pixels, side, side, "box") for pixels in small]))
        return task.with_column(self.embedding_field, vector_column(vectors, missing=~present))
