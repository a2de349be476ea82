"""Threads and processes side by side: each group runs where it runs best."""

from __future__ import annotations

from typing import Any

from tamis.backends.payload import Envelope
from tamis.backends.substrates.processes import ProcessSubstrate
from tamis.backends.substrates.threads import ThreadSubstrate
from tamis.errors import PlanError


class MixedSubstrate(ThreadSubstrate):
    """Sends the groups in ``in_processes`` to processes, the others to threads; one queue of events for both."""

    def __init__(self, threads: ThreadSubstrate, processes: ProcessSubstrate, in_processes: frozenset[int]) -> None:
        self._threads, self._by_process, self._in_processes = threads, processes, in_processes
        self._events = processes._events = threads._events
        self._homes: dict[int, ThreadSubstrate] = {}
        self.no_more_threads = False
        """Whether new workers of all groups are processes."""

    def start_worker(self, worker: int, groups: frozenset[int], gpu_ids: tuple[int, ...] = (), node: str = "") -> None:
        """Start a worker of the kind its groups need."""
        is_process = self.no_more_threads or bool(groups & self._in_processes)
        home = self._homes[worker] = self._by_process if is_process else self._threads
        home.start_worker(worker, groups, gpu_ids, node)

    def prepare(self, worker: int, group: int) -> None:
        """Start the process of a worker ahead of its first assignment, and report when it is ready for one."""
        self._by_process.prepare(worker, group)

    def stages_can_travel(self) -> bool:
        """Whether the stages can be sent to processes."""
        try:
            return bool(self._by_process.stages)
        except PlanError:
            return False

    def is_thread(self, worker: int) -> bool:
        """Whether a worker is a thread."""
        return self._homes.get(worker) is self._threads

    def mean_cpu_s(self) -> float | None:
        """Seconds of a core that an assignment on a thread took on average; ``None`` as long as there were few."""
        return self._threads.mean_cpu_s()

    def submit(self, worker: int, ticket: int, group: int, envelopes: list[Envelope], *, alone: bool = False) -> None:
        """Hand the assignment on."""
        self._homes[worker].submit(worker, ticket, group, envelopes, alone=alone)

    def kill_worker(self, worker: int, why: str, running: tuple[int, ...] = ()) -> None:
        """Kill the process."""
        self._homes[worker].kill_worker(worker, why, running)

    def stop_worker(self, worker: int) -> None:
        """Let the worker end."""
        self._homes[worker].stop_worker(worker)

    def save_task(self, payload: Any, path: str) -> None:
        """Write the task to a file."""
        self._threads.save_task(payload, path)

    def processed_bytes(self, worker: int) -> int:
        """What the worker has noted."""
        return self._homes[worker].processed_bytes(worker)

    def close(self, *, at_once: bool) -> None:
        """Stop both."""
        self._by_process.close(at_once=at_once)
        self._threads.close(at_once=at_once)
