"""The executor with a barrier after each stage."""

from tamis.backends.ray_actor_pool.executor import RayActorPoolExecutor

__all__ = ["RayActorPoolExecutor"]
