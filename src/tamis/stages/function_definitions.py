"""The same names as :mod:`tamis.stages.function_decorators`, where they are defined."""

from tamis.stages.function_decorators import FunctionStage, processing_stage

__all__ = ["FunctionStage", "processing_stage"]
