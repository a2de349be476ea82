"""Workers as threads: tasks are handed over by reference. For stages that work outside Python's lock."""

from __future__ import annotations

import functools
import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tamis.backends.group_spec import GroupSpec, RunPaths
from tamis.backends.outcome import Outcome
from tamis.backends.payload import Envelope, decode_payload
from tamis.backends.running_stage import RunningStage
from tamis.backends.substrates.base import Done, Event, WorkerDied, WorkerStopped
from tamis.backends.substrates.inline import WorkerRunners
from tamis.stages.io.paths import is_local
from tamis.tasks.storage import write_task

Assignment = tuple[int, int, list[Envelope]]
Inbox = queue.SimpleQueue[Assignment | None]


@dataclass
class _Thread:
    inbox: Inbox = field(default_factory=queue.SimpleQueue)
    thread: threading.Thread | None = None
    finished: int = 0
    cpu_s: float = 0.0


class ThreadSubstrate:
    """Each worker is a thread with an inbox; what happens goes into one queue for all.

    Args:
        specs: The groups of the plan.
        places: Where the run keeps its files.
    """

    latency_s: ClassVar[float] = 0.002
    message_s: float = 0.0
    volatile: ClassVar[bool] = False

    def __init__(self, specs: dict[int, GroupSpec], places: RunPaths) -> None:
        self._specs, self._places = specs, places
        self._workers: dict[int, _Thread] = {}
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def start_worker(self, worker: int, groups: frozenset[int], gpu_ids: tuple[int, ...] = (), node: str = "") -> None:
        """Start a thread."""
        state = self._workers[worker] = _Thread()
        state.thread = threading.Thread(
            target=self._work, args=(worker, state.inbox, gpu_ids), name=f"tamis-worker-{worker}", daemon=True
        )
        state.thread.start()

    def submit(self, worker: int, ticket: int, group: int, envelopes: list[Envelope], *, alone: bool = False) -> None:
        """Put an assignment into the worker's inbox."""
        self._workers[worker].inbox.put((ticket, group, envelopes))

    def poll(self, timeout_s: float) -> list[Event]:
        """All events there are; waits for the first."""
        try:
            events = [self._events.get(timeout=timeout_s)]
        except queue.Empty:
            return []
        while True:
            try:
                events.append(self._events.get_nowait())
            except queue.Empty:
                return events

    def now(self) -> float:
        """The machine's clock."""
        return time.monotonic()

    def stop_worker(self, worker: int) -> None:
        """Let a thread end."""
        self._workers[worker].inbox.put(None)

    def kill_worker(self, worker: int, why: str, running: tuple[int, ...] = ()) -> None:
        """A thread cannot be ended from outside; stages with a time limit run in processes."""
        raise RuntimeError("a thread cannot be ended from outside: a stage with a time limit must run in a process")

    def mean_cpu_s(self) -> float | None:
        """Seconds of a core that an assignment took on average; ``None`` as long as there were few."""
        states = list(self._workers.values())
        finished = sum(state.finished for state in states)
        return sum(state.cpu_s for state in states) / finished if finished >= len(states) else None

    def save_task(self, payload: Any, path: str) -> None:
        """Write the task to a file."""
        write_task(decode_payload(payload), path)

    def processed_bytes(self, worker: int) -> int:
        """What the worker has noted."""
        return RunningStage.processed_bytes(RunningStage.path(self._places.scratch, str(worker)))

    def close(self, *, at_once: bool) -> None:
        """Let the threads end; a thread cannot be stopped in the middle of a task, so at once means: do not wait."""
        for state in self._workers.values():
            state.inbox.put(None)
        if not at_once:
            for state in self._workers.values():
                if state.thread is not None:
                    state.thread.join()

    def _work(self, worker: int, inbox: Inbox, gpu_ids: tuple[int, ...]) -> None:
        scratch, state = self._places.scratch, self._workers[worker]
        marker = RunningStage(RunningStage.path(scratch, str(worker))) if scratch and is_local(scratch) else None
        placement = WorkerRunners(self._specs, self._places, str(worker), gpu_ids, marker)
        while True:
            assignment = inbox.get()
            if assignment is None:
                placement.close()
                self._events.put(WorkerStopped(worker))
                return
            ticket, group, envelopes = assignment
            try:
                runner, tasks = placement.runner(group), [decode_payload(e.payload) for e in envelopes]
                if runner.is_async:
                    awaited = runner.run_async(tasks, envelopes[0].isolation)
                    placement.loop.begin(awaited, functools.partial(self._on_awaited, worker, ticket))
                else:
                    began = time.thread_time()
                    outcome = runner.run(tasks, envelopes[0].isolation)
                    state.cpu_s += time.thread_time() - began
                    state.finished += 1
                    self._events.put(Done(ticket, outcome))
                    del outcome
            except BaseException as error:  # noqa: BLE001 - SystemExit in a stage ends the thread, not the run
                stage = placement.running_stage(group)
                self._events.put(WorkerDied(worker, (ticket,), f"{type(error).__name__}: {error}", stage))
                return
            # Hold nothing while waiting for the next assignment.
            del assignment, envelopes, tasks

    def _on_awaited(self, worker: int, ticket: int, future: Future[Outcome]) -> None:
        """An assignment of an ``async`` stage is done."""
        if future.cancelled():
            return  # the run has ended
        error = future.exception()
        if error is None:
            self._events.put(Done(ticket, future.result()))
        else:
            self._events.put(WorkerDied(worker, (ticket,), f"{type(error).__name__}: {error}"))
