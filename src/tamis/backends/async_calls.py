"""Calls of an ``async`` stage: many in flight at a time, on one event loop."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tamis.backends.stage_calls import StageCall, calls_of
from tamis.stages.base import ProcessingStage
from tamis.tasks import Task

if TYPE_CHECKING:
    from tamis.backends.runner import GroupSpec

__all__ = ["AsyncCalls", "AwaitedResults", "CallTimedOutError"]

T = TypeVar("T")


class CallTimedOutError(Exception):
    """A call of an ``async`` stage took longer than its time limit."""


@dataclass
class AwaitedResults:
    """What an ``async`` stage returned.

    Args:
        calls: Its calls.
        returned: What it returned for each call, in their order; shorter if one of them raised.
        error: What that call raised.
        seconds: How long all of it took.
    """

    calls: list[StageCall]
    returned: list[Any] = field(default_factory=list)
    error: BaseException | None = None
    seconds: float = 0.0

    def results(self) -> Iterator[Any]:
        """What each call returned. Raises what a call raised."""
        if self.error is not None:
            raise self.error
        yield from self.returned


class AsyncCalls:
    """Awaits the calls of one stage, up to a number of them at the same time.

    Args:
        spec: The group of the stage.
    """

    def __init__(self, spec: GroupSpec) -> None:
        stage = spec.stages[spec.entry]
        self._limit, self._timeout_s = stage.max_in_flight, stage.timeout_s
        self._slots: asyncio.Semaphore | None = None
        self._setup: asyncio.Future[Any] | None = None
        self._own: asyncio.AbstractEventLoop | None = None

    def run(self, awaitable: Awaitable[T]) -> T:
        """Wait for something, on an event loop of the calling thread: one assignment at a time."""
        if self._own is None:
            self._own = asyncio.new_event_loop()
        return self._own.run_until_complete(awaitable)

    def close(self) -> None:
        """End the event loop of :meth:`run`, if there is one."""
        if self._own is not None:
            self._own.run_until_complete(self._own.shutdown_asyncgens())
            self._own.close()
            self._own = None

    async def set_up(self, set_up: Callable[[], Coroutine[Any, Any, T]]) -> T | None:
        """Set the stage up once, whichever task comes first; the others wait. Returns what went wrong.

        After a failure the next task tries again.
        """
        if self._setup is None:
            self._setup = asyncio.ensure_future(set_up())
        setup = self._setup
        failure = await asyncio.shield(setup)
        if failure is not None and self._setup is setup:
            self._setup = None
        return failure

    async def results(self, stage: ProcessingStage[Any, Any], tasks: list[Task[Any]]) -> AwaitedResults:
        """Call the stage and wait for all results. Never raises for what the stage does."""
        if self._slots is None:
            self._slots = asyncio.Semaphore(self._limit)
        began = time.perf_counter()
        try:
            made = AwaitedResults(list(calls_of(stage, tasks)))
            async with asyncio.TaskGroup() as group:
                waiting = [group.create_task(self._call(stage, call)) for call in made.calls]
            made.returned = [each.result() for each in waiting]
        except ExceptionGroup as errors:  # of the calls; once one has failed the others are cancelled
            made.error = errors.exceptions[0]
        except Exception as error:  # noqa: BLE001 - whatever a stage raises becomes data
            made = AwaitedResults([], error=error)
        made.seconds = time.perf_counter() - began
        return made

    async def _call(self, stage: ProcessingStage[Any, Any], call: StageCall) -> Any:
        assert self._slots is not None
        async with self._slots:
            if self._timeout_s is None:
                return await _returned(call.begin(stage))
            limit = asyncio.timeout(self._timeout_s)
            try:
                async with limit:
                    return await _returned(call.begin(stage))
            except TimeoutError:
                if not limit.expired():
                    raise
                raise CallTimedOutError(f"it took longer than the {self._timeout_s:g} s of timeout_s") from None


async def _returned(begun: Any) -> Any:
    """What a call returns, once it is there: an asynchronous generator gives a list."""
    if inspect.isasyncgen(begun):
        return [item async for item in begun]
    return await begun
