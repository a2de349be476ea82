"""The actor-pool executor, under the name that scripts for NeMo Curator import."""

from tamis.backends.ray_actor_pool import RayActorPoolExecutor

__all__ = ["RayActorPoolExecutor"]
