"""Semantic deduplication: of rows with similar embeddings, one stays."""

from tamis.stages.deduplication.semantic.ranking import RankingStrategy
from tamis.stages.deduplication.semantic.stage import SemanticDeduplication, SemanticDeduplicationStage

__all__ = ["RankingStrategy", "SemanticDeduplication", "SemanticDeduplicationStage"]
