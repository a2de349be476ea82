"""``nemo_curator.backends.base`` and ``.utils`` for scripts: their own executors, and the resources of a cluster."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

from tamis.errors import MissingExtraError
from tamis.stages.base import ProcessingStage
from tamis.tasks import Task

__all__ = ["BaseExecutor", "get_available_cpu_gpu_resources"]


class BaseExecutor(ABC):
    """The base of executors that scripts define: they are given the stages of a pipeline and run them.

    tamis's executors count as subclasses, as scripts that use ``isinstance`` expect.

    Args:
        config: Settings, for the subclass to read.
        ignore_head_node: Whether to leave the head node of a cluster free.

    >>> from tamis import LocalExecutor
    >>> isinstance(LocalExecutor(), BaseExecutor)
    True
    """

    def __init__(self, config: dict[str, Any] | None = None, ignore_head_node: bool = False) -> None:
        self.config = config or {}
        self.ignore_head_node = ignore_head_node or bool(os.environ.get("CURATOR_IGNORE_RAY_HEAD_NODE"))

    @abstractmethod
    def execute(self, stages: list[ProcessingStage[Any, Any]], initial_tasks: list[Task[Any]] | None = None) -> Any:
        """Run the stages over the tasks; ``Pipeline.run()`` returns the result."""

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        is_ours = cls is BaseExecutor and all(hasattr(other, name) for name in ("check", "execute"))
        return True if is_ours else NotImplemented


def get_available_cpu_gpu_resources(
    init_and_shutdown: bool = False, ignore_head_node: bool = False
) -> tuple[float, float]:
    """How many CPUs and GPUs of the Ray cluster are free.

    Args:
        init_and_shutdown: Whether to connect first and disconnect afterwards.
        ignore_head_node: Whether to leave out the resources of the head node.
    """
    try:
        import ray
    except ImportError as e:
        raise MissingExtraError("get_available_cpu_gpu_resources()", package="ray", extra="ray") from e
    if init_and_shutdown:
        ray.init(ignore_reinit_error=True)
    cluster: Any = ray
    free = dict(cluster.available_resources())
    if ignore_head_node:
        for node in cluster.nodes():
            if node["Alive"] and "node:__internal_head__" in node["Resources"]:
                for kind in ("CPU", "GPU"):
                    free[kind] = max(0.0, free.get(kind, 0.0) - node["Resources"].get(kind, 0.0))
    if init_and_shutdown:
        ray.shutdown()
    return free.get("CPU", 0.0), free.get("GPU", 0.0)
