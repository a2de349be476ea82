"""Filters for images."""

from tamis.lazy import load_when_used

_HOMES = {
    "BaseFilterStage": "tamis.stages.image.filters.base",
    "ImageAestheticFilterStage": "tamis.stages.image.filters.aesthetic_filter",
    "ImageNSFWFilterStage": "tamis.stages.image.filters.nsfw_filter",
    "ImageTextSimilarityFilter": "tamis.stages.image.filters.text_similarity",
}

__all__ = list(_HOMES)

__getattr__, __dir__ = load_when_used(__name__, _HOMES)
