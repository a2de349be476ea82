"""Replaces threads that would only wait for Python's lock by processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tamis.backends.substrates.mixed import MixedSubstrate
from tamis.backends.worker_registry import Worker, WorkerRegistry

if TYPE_CHECKING:
    from tamis.backends.coordinator import Coordinator

__all__ = ["FEWEST_THREADS", "ThreadLimit"]

LOCKED_S = 0.015
"""About twice the seconds for which an assignment holds Python's lock: with more threads, they wait for each other."""

FEWEST_THREADS = 4
"""So many threads are always worth it."""

AFTER_S = 1.0
"""Seconds: a run that is over by then does without processes, which take about as long to start."""


class ThreadLimit:
    """Keeps as many threads as can be busy, and has processes do the work of the others.

    Most of an assignment runs outside Python's lock, but not all of it. Where assignments are short, many threads wait
    for the lock most of the time. Processes have a lock each.

    Args:
        registry: The workers.
        substrate: Where they run.
        group: A group that runs on threads.
    """

    def __init__(self, registry: WorkerRegistry, substrate: MixedSubstrate, group: int) -> None:
        self._registry, self._substrate, self._group = registry, substrate, group
        self._most: int | None = None

    def adjust(self, coordinator: Coordinator) -> None:
        """Start processes once it is known how long assignments take."""
        if self._most is not None or coordinator.elapsed_s < AFTER_S:
            return
        cpu_s = self._substrate.mean_cpu_s()
        if cpu_s is None:
            return
        useful = max(FEWEST_THREADS, int(cpu_s / LOCKED_S))
        threads = self._threads()
        waiting = sum(len(state.ready) for state in coordinator.scheduler.groups)
        if len(threads) <= useful or waiting < len(threads):
            return
        if not self._substrate.stages_can_travel():
            self._most = len(threads)  # they stay
            return
        self._most, self._substrate.no_more_threads = useful, True
        pool = self._registry.pool_for(self._group)
        for _ in threads[useful:]:
            self._substrate.prepare(self._registry.start_worker(pool).index, self._group)

    def up(self, worker: Worker) -> None:
        """The process of a worker has started."""

    def ready(self, worker: Worker, seconds: float) -> None:
        """A process is ready: it takes the place of a thread."""
        threads = self._threads() if worker.pool == self._registry.pool_for(self._group) else []
        if self._most is not None and len(threads) > self._most:
            self._registry.drain(threads[-1])

    def _threads(self) -> list[Worker]:
        workers = self._registry.of_pool(self._registry.pool_for(self._group))
        return [w for w in workers if not w.draining and self._substrate.is_thread(w.index)]
