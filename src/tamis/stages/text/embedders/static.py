"""Embeddings from static vectors of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tamis.models.model import Model
from tamis.models.static import WORDLLAMA, load_static_model
from tamis.stages.base import NodeInfo, WorkerMetadata
from tamis.stages.column_values import TextStage
from tamis.stages.vectors import vector_column
from tamis.tasks import DocumentBatch

__all__ = ["StaticEmbeddingStage"]


@dataclass(repr=False)
class StaticEmbeddingStage(TextStage):
    """Add a vector to each text: the mean of the vectors of its tokens. Needs ``tamis[static-embeddings]``.

    Such models know which words mean alike, but nothing of their order. They need no GPU.

    A null, or a text without tokens, has null. The metric ``tokens`` counts tokens.

    Args:
        model: ``"wordllama"`` for the one in the package of that name, with nothing to download; a folder of model2vec
            or of a ``StaticEmbedding`` of sentence-transformers; or the name of such a model on the Hugging Face hub.
        text_field: The column with the text.
        embedding_field: The column for the vectors, of type ``fixed_size_list<float32>``.
        dim: Only the first so many entries of each vector, for models that are trained for it; all when not given.
        max_seq_length: The most tokens of a text; what the model names as its limit when not given.
        normalize: Whether vectors have length 1.

    >>> stage = StaticEmbeddingStage("wordllama")
    >>> vector, none = stage.process(DocumentBatch({"text": ["a cat", ""]})).data["embeddings"].to_pylist()
    >>> len(vector), none
    (256, None)
    """

    model: str | Model = WORDLLAMA
    text_field: str = "text"
    embedding_field: str = "embeddings"
    dim: int | None = None
    max_seq_length: int | None = None
    normalize: bool = True

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.embedding_field == self.text_field:
            raise ValueError(f"{self.name}(embedding_field={self.embedding_field!r}): that is the column with the text")
        for name in ("dim", "max_seq_length"):
            value: Any = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{self.name}({name}={value}): must be at least 1")

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.embedding_field]

    def adds_columns(self) -> list[str]:
        return [self.embedding_field]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        if self.model != WORDLLAMA:
            (self.model if isinstance(self.model, Model) else Model(self.model)).fetch()

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._model = load_static_model(self.model, self.dim)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if not hasattr(self, "_model"):
            self.setup()
        vectors, used = self._model.embed(self.texts(task), normalize=self.normalize, most_tokens=self.max_seq_length)
        self.log_metric("tokens", int(used.sum()))
        return task.with_column(self.embedding_field, vector_column(vectors, missing=used == 0))
