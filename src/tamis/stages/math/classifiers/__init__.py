"""Classifiers of mathematical texts."""

from tamis.stages.math.classifiers.finemath import FineMathClassifier

__all__ = ["FineMathClassifier"]
