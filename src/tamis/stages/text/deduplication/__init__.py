"""Removal of duplicates, under the names that scripts for NeMo Curator import."""

from tamis.lazy import load_when_used

__all__ = ["TextDuplicatesRemovalStage", "TextDuplicatesRemovalWorkflow"]

__getattr__, __dir__ = load_when_used(
    __name__,
    {
        "TextDuplicatesRemovalStage": "tamis.stages.text.deduplication.removal",
        "TextDuplicatesRemovalWorkflow": "tamis.pipeline.workflows.removal",
    },
)
