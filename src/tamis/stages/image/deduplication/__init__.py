"""Removes images that occur several times: the same file, the same pixels, or pictures that look the same."""

from tamis.stages.image.deduplication.exact import ImageExactDeduplication
from tamis.stages.image.deduplication.hashes import PerceptualHash
from tamis.stages.image.deduplication.perceptual import PerceptualDeduplication
from tamis.stages.image.deduplication.removal import ImageDuplicatesRemovalStage

__all__ = [
    "ImageDuplicatesRemovalStage",
    "ImageExactDeduplication",
    "PerceptualDeduplication",
    "PerceptualHash",
]
