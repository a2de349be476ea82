"""Semantic deduplication: of rows with similar embeddings, one stays."""

from tamis.lazy import load_when_used
from tamis.stages.deduplication.semantic.identify_duplicates import IdentifyDuplicatesStage
from tamis.stages.deduplication.semantic.kmeans import KMeansReadFitWriteStage, KMeansStage
from tamis.stages.deduplication.semantic.pairwise import PairwiseCosineSimilarityStage, PairwiseStage
from tamis.stages.deduplication.semantic.pairwise_io import ClusterWiseFilePartitioningStage
from tamis.stages.deduplication.semantic.ranking import RankingStrategy
from tamis.stages.deduplication.semantic.stage import SemanticDeduplication, SemanticDeduplicationStage

__all__ = [
    "ClusterWiseFilePartitioningStage",
    "IdentifyDuplicatesStage",
    "KMeansReadFitWriteStage",
    "KMeansStage",
    "PairwiseCosineSimilarityStage",
    "PairwiseStage",
    "RankingStrategy",
    "SemanticDeduplication",
    "SemanticDeduplicationStage",
    "SemanticDeduplicationWorkflow",
]

# It runs pipelines, so its home is elsewhere.
__getattr__, _ = load_when_used(__name__, {"SemanticDeduplicationWorkflow": "tamis.pipeline.workflows.semantic"})
