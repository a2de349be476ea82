"""Embeddings: a vector for each text, close to those of similar texts."""

from tamis.lazy import load_when_used

_HOMES = {
    "EmbeddingCreatorStage": "tamis.stages.text.embedders.base",
    "EmbeddingModelStage": "tamis.stages.text.embedders.base",
    "SentenceTransformerEmbeddingModelStage": "tamis.stages.text.embedders.base",
    "VLLMEmbeddingModelStage": "tamis.stages.text.embedders.vllm",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = load_when_used(__name__, _HOMES)
