"""Embeddings: a vector for each text, close to those of similar texts."""

from tamis.lazy import load_when_used

_HOMES = {
    "EmbeddingCreatorStage": "tamis.stages.text.embedders.base",
    "EmbeddingModelStage": "tamis.stages.text.embedders.base",
    "SentenceTransformerEmbeddingModelStage": "tamis.stages.text.embedders.base",
    "VLLMEmbeddingModelStage": "tamis.stages.text.embedders.vllm",
    "HashedEmbeddingStage": "tamis.stages.text.embedders.hashed",
    "StaticEmbeddingStage": "tamis.stages.text.embedders.static",
    "write_word_rarity": "tamis.stages.text.embedders.hashed",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = load_when_used(__name__, _HOMES)
