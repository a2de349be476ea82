"""The Ray Data executor, under the name that scripts for NeMo Curator import."""

from tamis.backends.ray_data import RayDataExecutor

__all__ = ["RayDataExecutor"]
