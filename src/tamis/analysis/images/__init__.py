"""Analysis of images: sizes, formats, broken files, duplicates, scores of filters, thresholds for a share to keep."""

from tamis.analysis.images.analyze import analyze_images
from tamis.analysis.images.result import ImageAnalysis

__all__ = ["ImageAnalysis", "analyze_images"]
