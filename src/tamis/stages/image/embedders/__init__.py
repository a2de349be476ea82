"""Vectors for images: from a vision model, or computed of pixels without one."""

from tamis.lazy import load_when_used

_HOMES = {
    "ImageDescriptorStage": "tamis.stages.image.embedders.descriptor",
    "ImageEmbeddingStage": "tamis.stages.image.embedders.clip_embedder",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = load_when_used(__name__, _HOMES)
