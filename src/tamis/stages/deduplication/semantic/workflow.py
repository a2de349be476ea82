"""The workflow, under the name that scripts for NeMo Curator import; it runs pipelines, so its home is elsewhere."""

from tamis.lazy import load_when_used

__all__ = ["SemanticDeduplicationWorkflow"]  # noqa: F822 - loaded when it is used

__getattr__, __dir__ = load_when_used(__name__, {"SemanticDeduplicationWorkflow": "tamis.pipeline.workflows.semantic"})
