"""Fuzzy deduplication: of documents with similar texts, one stays."""

from tamis.lazy import load_when_used
from tamis.stages.deduplication.fuzzy.buckets_to_edges import BucketsToEdgesStage
from tamis.stages.deduplication.fuzzy.connected_components import ConnectedComponentsStage
from tamis.stages.deduplication.fuzzy.identify_duplicates import IdentifyDuplicatesStage
from tamis.stages.deduplication.fuzzy.lsh.stage import LSHStage
from tamis.stages.deduplication.fuzzy.minhash import MinHashStage
from tamis.stages.deduplication.fuzzy.stage import FuzzyDeduplication

__all__ = [
    "BucketsToEdgesStage",
    "ConnectedComponentsStage",
    "FuzzyDeduplication",
    "FuzzyDeduplicationWorkflow",
    "IdentifyDuplicatesStage",
    "LSHStage",
    "MinHashStage",
]

# It runs pipelines, so its home is elsewhere.
__getattr__, _ = load_when_used(__name__, {"FuzzyDeduplicationWorkflow": "tamis.pipeline.workflows.fuzzy"})
