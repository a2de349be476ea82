"""Calls of an ``async`` stage: many in flight at a time, on one event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tamis.backends.stage_calls import StageCall, calls_of
from tamis.stages.base import ProcessingStage
from tamis.tasks import Task

if TYPE_CHECKING:
    from tamis.backends.group_spec import GroupSpec

__all__ = ["AsyncCalls", "AwaitedResults", "CallTimedOutError", "WorkerLoop", "awaited"]

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


class WorkerLoop:
    """The event loop of a worker, made when it is first needed. It runs in the calling thread or a separate one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._begun: set[Future[Any]] = set()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop itself."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine."""
        if self._thread is not None:
            return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()
        return self.loop.run_until_complete(coroutine)

    def begin(self, coroutine: Coroutine[Any, Any, T], then: Callable[[Future[T]], None]) -> None:
        """Begin a coroutine on the loop's separate thread, and call ``then`` there when it is done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self.loop.run_forever, name="tamis-event-loop", daemon=True)
            self._thread.start()
        begun = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        self._begun.add(begun)
        begun.add_done_callback(self._begun.discard)
        begun.add_done_callback(then)

    def cancel(self) -> None:
        """Cancel the coroutines that have begun and are not done."""
        for begun in list(self._begun):
            begun.cancel()

    def close(self) -> None:
        """Cancel everything that is still awaited, and end the loop and its thread."""
        if self._loop is None:
            return
        self.run(_cancel_all())
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        self._loop = self._thread = None


async def _cancel_all() -> None:
    awaited = asyncio.all_tasks() - {asyncio.current_task()}
    for task in awaited:
        task.cancel()
    await asyncio.gather(*awaited, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


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

    async def set_up(self, set_up: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Set the stage up once, for the first task; the others wait. Returns what ``set_up`` returns: the failure.

        After a failure the next task tries again.
        """
        if self._setup is None:
            self._setup = asyncio.ensure_future(set_up())
        setup = self._setup
        failure: T = await asyncio.shield(setup)
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
            limit = asyncio.timeout(self._timeout_s)
            try:
                async with limit:
                    return await _returned(call.begin(stage))
            except TimeoutError:
                if not limit.expired():
                    raise
                raise CallTimedOutError(f"it took longer than the {self._timeout_s:g} s of timeout_s") from None
            except SystemExit as error:  # it would end the event loop, and with it the calls of other tasks
                raise RuntimeError(f"the stage called sys.exit({error.code!r})") from error


def awaited(loop: WorkerLoop, begun: Any) -> Any:
    """Wait for the result of a call."""
    return loop.run(_returned(begun))


async def _returned(begun: Any) -> Any:
    """The result of a call: a list for an asynchronous generator."""
    if inspect.isasyncgen(begun):
        return [item async for item in begun]
    return await begun
