"""Locality-sensitive hashing: documents that agree in a band of their signatures share a bucket."""

from tamis.stages.deduplication.fuzzy.lsh.stage import LSHStage

__all__ = ["LSHStage"]
