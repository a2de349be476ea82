"""The copies of stages that one worker has: how they are set up before the first task, and torn down at the end."""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
from collections.abc import Callable
from typing import Any

from tamis.backends.group_spec import GroupSpec
from tamis.stages.base import ProcessingStage, WorkerMetadata

__all__ = ["StageCopies"]

_LOG = logging.getLogger("tamis")


class StageCopies(dict[int, ProcessingStage[Any, Any]]):
    """The stages of a group by vertex, each a copy on which the worker may keep state.

    Args:
        spec: The group.
        worker: The worker they run in.
        entering: Called with each vertex before its stage is set up, so that a failure can be traced to it.

    Attributes:
        are_ready: Whether they are set up.
    """

    def __init__(self, spec: GroupSpec, worker: WorkerMetadata, entering: Callable[[int], None]) -> None:
        super().__init__((vertex, _own_copy(stage)) for vertex, stage in spec.stages.items())
        self._names, self._worker, self._entering = spec.names, worker, entering
        self.are_ready = False

    def set_up(self) -> None:
        """Set the stages up, once. Raises what a stage raises."""
        if self.are_ready:
            return
        for vertex, stage in self.items():
            self._entering(vertex)
            stage.setup(self._worker)
        self.are_ready = True

    async def set_up_async(self) -> None:
        """The same on an event loop, where clients and locks of asyncio belong."""
        for vertex, stage in self.items():
            self._entering(vertex)
            set_up: Any = stage.setup
            done = set_up(self._worker)
            if inspect.isawaitable(done):
                await done
        self.are_ready = True

    def tear_down(self) -> None:
        """Tear the stages down, if they are set up."""
        if self.are_ready:
            self.are_ready = False
            for vertex in self:
                self._end(vertex)

    async def tear_down_async(self) -> None:
        """The same on the event loop where they were set up."""
        if self.are_ready:
            self.are_ready = False
            for vertex in self:
                ended = self._end(vertex)
                if inspect.isawaitable(ended):
                    await ended

    def _end(self, vertex: int) -> Any:
        try:
            return self[vertex].teardown()
        except Exception:  # noqa: BLE001 - the work is done; the other stages are torn down all the same
            _LOG.exception("stage %r raised in teardown()", self._names[vertex])


def _own_copy(stage: ProcessingStage[Any, Any]) -> ProcessingStage[Any, Any]:
    """A copy for one worker; what cannot be copied is shared."""
    for make in (copy.deepcopy, copy.copy):
        with contextlib.suppress(Exception):  # locks, connections and the like raise whatever they like
            return make(stage)
    return stage
