"""The names that scripts for NeMo Curator import from one place."""

from tamis.stages.text.columns import AddId
from tamis.stages.text.filters import Filter, Score, ScoreFilter
from tamis.stages.text.modifiers import Modify
from tamis.stages.text.segments import DocumentJoiner, DocumentSplitter

__all__ = ["AddId", "DocumentJoiner", "DocumentSplitter", "Filter", "Modify", "Score", "ScoreFilter"]
