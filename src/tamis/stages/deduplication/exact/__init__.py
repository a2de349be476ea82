"""Exact deduplication: of documents with equal text, one stays."""

from tamis.lazy import load_when_used
from tamis.stages.deduplication.exact.identification import ExactDuplicateIdentification
from tamis.stages.deduplication.exact.stage import ExactDeduplication

__all__ = ["ExactDeduplication", "ExactDeduplicationWorkflow", "ExactDuplicateIdentification"]

# It runs pipelines, so its home is elsewhere.
__getattr__, _ = load_when_used(__name__, {"ExactDeduplicationWorkflow": "tamis.pipeline.workflows.exact"})
