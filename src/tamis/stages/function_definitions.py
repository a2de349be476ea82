"""The same names as :mod:`tamis.stages.base`, where they are defined."""

from tamis.stages.base import FunctionStage, processing_stage

__all__ = ["FunctionStage", "processing_stage"]
