"""Everything in the calling thread: breakpoints and profilers work as in any other program."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from tamis.backends.async_calls import WorkerLoop
from tamis.backends.group_spec import GroupSpec, RunPaths
from tamis.backends.isolation import Isolation
from tamis.backends.payload import Envelope, decode_payload
from tamis.backends.runner import GroupRunner
from tamis.backends.running_stage import Marker
from tamis.backends.substrates.base import Done, Event
from tamis.stages.base import WorkerMetadata
from tamis.tasks import Task
from tamis.tasks.storage import write_task

if TYPE_CHECKING:
    from tamis.backends.base import Run


class WorkerRunners:
    """The runners of one worker, made when they are first needed.

    Args:
        specs: The groups of the plan.
        places: The run's directories.
        worker_id: The worker's name.
        gpu_ids: Its GPUs.
        marker: Where the running stage is noted, if the worker can die without the driver.
    """

    def __init__(
        self,
        specs: dict[int, GroupSpec],
        places: RunPaths,
        worker_id: str,
        gpu_ids: tuple[int, ...] = (),
        marker: Marker | None = None,
    ) -> None:
        self._specs, self._places, self._marker = specs, places, marker
        self._worker = WorkerMetadata(worker_id, places.scratch, gpu_ids)
        self._runners: dict[int, GroupRunner] = {}
        self.loop = WorkerLoop()

    def runner(self, group: int) -> GroupRunner:
        """The runner of a group."""
        if group not in self._runners:
            self._runners[group] = GroupRunner(self._specs[group], self._worker, self._places, self._marker, self.loop)
        return self._runners[group]

    def name_of(self, group: int) -> str:
        """The name of a group's first stage."""
        spec = self._specs[group]
        return spec.names[spec.entry]

    def running_stage(self, group: int) -> str:
        """The name of the stage of a group that is running, or ran last."""
        return self._runners[group].running_stage if group in self._runners else self.name_of(group)

    def close(self) -> None:
        """Cancel what is awaited, and tear all stages down."""
        self.loop.cancel()
        for runner in self._runners.values():
            runner.close()
        self.loop.close()

    async def close_async(self) -> None:
        """Tear all stages down on the event loop that runs now: all of them are ``async``."""
        for runner in self._runners.values():
            await runner.close_async()


class _InlineNote(Marker):
    """How far the running task is, in the memory of the process."""

    def __init__(self) -> None:
        self.processed = 0
        self.show: Callable[[], None] | None = None

    def note(self, vertex: int, processed: int = 0) -> None:
        """Note which vertex is running now, and how many bytes of the task's input are processed."""
        self.processed = processed
        if self.show is not None:
            with contextlib.suppress(Exception):  # not the fault of the stage; the loop shows it again, and raises
                self.show()


class InlineSubstrate:
    """Runs an assignment when it is submitted, in the thread that submits it.

    Assignments of ``async`` stages are begun there, and awaited in :meth:`poll`, on an event loop of the same thread.

    Args:
        specs: The groups of the plan.
        places: The run's directories.
        run: The run: its stop signal reaches a running stage.
    """

    latency_s: ClassVar[float] = 0.0
    message_s: float = 0.0
    volatile: ClassVar[bool] = False

    def __init__(self, specs: dict[int, GroupSpec], places: RunPaths, run: Run) -> None:
        self._note = _InlineNote()
        self._runners, self._run = WorkerRunners(specs, places, "inline", marker=self._note), run
        self._events: list[Event] = []
        self._awaited: set[asyncio.Task[None]] = set()

    def start_worker(self, worker: int, groups: frozenset[int], gpu_ids: tuple[int, ...] = (), node: str = "") -> None:
        """Nothing to start: work is done in this thread."""

    def submit(self, worker: int, ticket: int, group: int, envelopes: list[Envelope], *, alone: bool = False) -> None:
        """Do the work now, or begin it."""
        runner = self._runners.runner(group)
        tasks = [decode_payload(e.payload) for e in envelopes]
        if not runner.is_async:
            with self._run.stop.interruptible(self._run.observer.message):
                self._events.append(Done(ticket, runner.run(tasks, envelopes[0].isolation)))
            return
        awaited = self._await(ticket, runner, tasks, envelopes[0].isolation)
        self._awaited.add(self._runners.loop.loop.create_task(awaited))

    async def _await(
        self, ticket: int, runner: GroupRunner, tasks: list[Task[Any]], isolation: Isolation | None
    ) -> None:
        outcome = await runner.run_async(tasks, isolation)
        self._events.append(Done(ticket, outcome))  # :meth:`poll` may have put another list there meanwhile

    def poll(self, timeout_s: float) -> list[Event]:
        """The assignments that are done. If there are none, awaits the first of those that were begun."""
        if self._awaited:
            first = asyncio.wait(
                self._awaited, timeout=0 if self._events else None, return_when=asyncio.FIRST_COMPLETED
            )
            with self._run.stop.interruptible(self._run.observer.message):
                done, self._awaited = self._runners.loop.run(first)
            for task in done:
                task.result()
        events, self._events = self._events, []
        return events

    def now(self) -> float:
        """The machine's clock."""
        return time.monotonic()

    def stop_worker(self, worker: int) -> None:
        """Nothing to stop."""

    def kill_worker(self, worker: int, why: str, running: tuple[int, ...] = ()) -> None:
        """Nothing to kill."""

    def processed_bytes(self, worker: int) -> int:
        """What has been noted."""
        return self._note.processed

    def show_with(self, show: Callable[[], None]) -> None:
        """Call this whenever the running task has got further: the loop that shows progress waits for it."""
        self._note.show = show

    def save_task(self, payload: Any, path: str) -> None:
        """Write the task to a file."""
        write_task(decode_payload(payload), path)

    def close(self, *, at_once: bool) -> None:
        """Tear the stages down; at once: only cancel what is awaited."""
        if at_once:
            self._runners.loop.close()
        else:
            self._runners.close()
