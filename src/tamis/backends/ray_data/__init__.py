"""Pipelines on Ray Data."""

from tamis.backends.ray_data.executor import RayDataExecutor

__all__ = ["RayDataExecutor"]
