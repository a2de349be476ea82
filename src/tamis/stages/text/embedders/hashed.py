"""Embeddings without a model: by hashing words."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import DataError
from tamis.kernels.hashed_words import HashedWords, fit_rarity
from tamis.kernels.hashed_words_definition import TOTAL_BUCKETS
from tamis.stages.base import WorkerMetadata
from tamis.stages.column_values import TextStage
from tamis.stages.io.paths import open_read, open_write, reading
from tamis.stages.vectors import vector_column
from tamis.tasks import DocumentBatch

__all__ = ["HashedEmbeddingStage", "write_word_rarity"]


@dataclass(repr=False)
class HashedEmbeddingStage(TextStage):
    """Add a vector to each text by hashing its words: no model, no weights, nothing to download.

    Two texts are close to each other if they share words, begins of words and pairs of words. That finds copies, edited
    copies and texts about the same subject, in any language. It does not find synonyms, and no translations: a
    transformer does, at a thousandth of the speed. In scripts without spaces between words, each character is a word.

    Vectors have length 1, and are the same bits on every machine. A null, or a text without words, has null.

    Args:
        text_field: The column with the text.
        embedding_field: The column for the vectors, of type ``fixed_size_list<float32>[dim]``.
        dim: The length of a vector, 1 to 65,536. Longer ones tell texts apart better, and take more memory.
        seed: Vectors made with different seeds cannot be compared.
        rarity_path: A file of :func:`write_word_rarity`, so that words that are frequent in your data count less.

    >>> batch = HashedEmbeddingStage(dim=64).process(DocumentBatch({"text": ["A small red boat", "..."]}))
    >>> batch.data.schema.field("embeddings").type, batch.data["embeddings"].is_valid().to_pylist()
    (FixedSizeListType(fixed_size_list<item: float>[64]), [True, False])
    """

    text_field: str = "text"
    embedding_field: str = "embeddings"
    dim: int = 512
    seed: int = 42
    rarity_path: str | None = None

    releases_gil: ClassVar[bool] = True

    def __post_init__(self) -> None:
        HashedWords(self.dim, self.seed)  # checks them
        if self.embedding_field == self.text_field:
            raise ValueError(f"{self.name}(embedding_field={self.embedding_field!r}): that is the column with the text")

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.embedding_field]

    def adds_columns(self) -> list[str]:
        return [self.embedding_field]

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        rarity = None if self.rarity_path is None else _read_rarity(self.rarity_path)
        self._words = HashedWords(self.dim, self.seed, rarity)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if not hasattr(self, "_words"):
            self.setup()
        vectors = self._words.vectors(self.texts(task))
        return task.with_column(
            self.embedding_field, vector_column(vectors, missing=np.logical_not(vectors.any(axis=1)))
        )


def write_word_rarity(path: str, texts: Iterable[pa.Array | pa.ChunkedArray]) -> None:
    """Count in how many texts of a sample each word occurs, for ``HashedEmbeddingStage(rarity_path=...)``.

    Args:
        path: The file to write (96 KiB).
        texts: The sample, in as many parts as wanted: some thousand texts are enough.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_word_rarity(f"{folder}/rarity.npy", [pa.array(["the cat", "the dog"])])
    ...     stage = HashedEmbeddingStage(rarity_path=f"{folder}/rarity.npy")
    ...     stage.process(DocumentBatch({"text": ["the cat"]})).get_columns()
    ['text', 'embeddings']
    """
    file = io.BytesIO()
    np.save(file, fit_rarity(texts), allow_pickle=False)
    with open_write(path) as target:
        target.write(file.getvalue())


def _read_rarity(path: str) -> NDArray[np.uint8]:
    with reading(path), open_read(path) as source:
        data = source.read()
    try:
        rarity: NDArray[np.uint8] = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(f"it is not a file of write_word_rarity(): {error}", path=path) from None
    if not isinstance(rarity, np.ndarray) or rarity.dtype != np.uint8 or rarity.shape != (TOTAL_BUCKETS,):
        raise DataError("it is not a file of write_word_rarity(): it has other numbers", path=path)
    return rarity
