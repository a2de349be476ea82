"""The stage that embeds texts, by the name of a model."""

from __future__ import annotations

import importlib
from typing import Any, Final

from tamis.stages.base import ProcessingStage

__all__ = ["HASHED", "embedding_stage"]

HASHED: Final = "hashed"
"""The name that stands for embeddings without a model."""


def embedding_stage(
    model: str, text_field: str = "text", embedding_field: str = "embeddings", **settings: Any
) -> ProcessingStage[Any, Any]:
    """The stage that adds embeddings.

    Args:
        model: A hub name or a local folder; or ``"hashed"``, which needs no weights.
        text_field: The column with the text.
        embedding_field: The column for the embeddings.
        settings: For a model: further parameters of its stage.

    >>> embedding_stage("hashed").name
    'HashedEmbeddingStage'
    """
    embedders = importlib.import_module("tamis.stages.text.embedders")
    if model == HASHED:
        hashed: ProcessingStage[Any, Any] = embedders.HashedEmbeddingStage(text_field, embedding_field)
        return hashed
    made: ProcessingStage[Any, Any] = embedders.EmbeddingCreatorStage(
        model, text_field=text_field, embedding_field=embedding_field, **settings
    )
    return made
