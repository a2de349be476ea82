"""Fuzzy deduplication: of documents with similar texts, one stays."""

from tamis.stages.deduplication.fuzzy.stage import FuzzyDeduplication

__all__ = ["FuzzyDeduplication"]
