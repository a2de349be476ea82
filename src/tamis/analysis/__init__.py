"""Analysis of a data set: lengths, languages, duplicates, scores of filters, and thresholds for a share to keep."""

from tamis.analysis.analyze import analyze
from tamis.analysis.result import Analysis

__all__ = ["Analysis", "analyze"]
