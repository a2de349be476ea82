"""A worker process: ``python -m tamis.backends.substrates.worker``. Reads assignments, writes outcomes.

The main thread runs the stages. Meanwhile one thread reads and decodes the next assignment, and another encodes and
writes the last outcome.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import IO, Any

from tamis.backends.isolation import Isolation
from tamis.backends.outcome import Outcome, cannot_travel
from tamis.backends.payload import decode_payload, encode_payload
from tamis.backends.pipes import die_with_parent, receive, send
from tamis.backends.running_stage import RunningStage
from tamis.backends.substrates.inline import WorkerRunners
from tamis.backends.substrates.processes import CANNOT_LOAD, GOODBYE, SET_UP
from tamis.tasks import Task

Fetched = tuple[int, int, list[Task[Any]] | Exception | None, Isolation | None]
"""An assignment: its ticket, its group, its tasks (or why they cannot be read, or ``None`` to set up only), and
whether to find items that fail."""


def main() -> None:
    """Work until the driver says goodbye. If the driver is gone without a word, end at once."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal; the driver decides
    # The pipes are kept apart from what stages, and programs they start, read and print.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    hello, stages = receive(requests), receive(requests)
    if hello is None or stages is None:
        return
    sys.path, sys.argv, worker_id, gpu_ids, places, payloads = pickle.loads(hello)
    marker = RunningStage(RunningStage.path(places.local, worker_id)) if places.scratch else None
    try:
        specs = pickle.loads(stages)
    except Exception as error:  # noqa: BLE001 - modules of the user's are imported here, which may raise anything
        why = f"a worker process cannot load its stages: {type(error).__name__}: {error}"
        send(answers, pickle.dumps((CANNOT_LOAD, why)))
        return
    runners = WorkerRunners(specs, places, worker_id, gpu_ids, marker)
    outbox = Outbox(answers, payloads, runners.name_of)
    inbox: queue.Queue[Fetched | None] = queue.Queue(maxsize=1)
    threading.Thread(target=_fetch, args=(requests, inbox), name="tamis-fetch", daemon=True).start()
    while (fetched := inbox.get()) is not None:
        _work(runners, outbox, *fetched)
        del fetched  # hold nothing while waiting for the next
    outbox.close()
    runners.close()


def _work(
    runners: WorkerRunners,
    outbox: Outbox,
    ticket: int,
    group: int,
    tasks: list[Task[Any]] | Exception | None,
    isolation: Isolation | None,
) -> None:
    runner = runners.runner(group)
    if tasks is None:  # a failure is reported when there is a task
        runner.set_up()
        outbox.note(SET_UP)
    elif isinstance(tasks, Exception):
        outbox.put(ticket, group, Outcome(failure=cannot_travel(runners.name_of(group), tasks)))
    elif runner.is_async:
        outbox.note(ticket)

        def done(future: Future[Outcome]) -> None:
            if not future.cancelled():
                outbox.put(ticket, group, future.result(), waits=False)

        runners.loop.begin(runner.run_async(tasks, isolation), done)
    else:
        outbox.note(ticket)
        outbox.put(ticket, group, runner.run(tasks, isolation))


def _fetch(requests: IO[bytes], inbox: queue.Queue[Fetched | None]) -> None:
    """Read and decode assignments, one ahead of the one that runs.

    The pipe is read while a stage runs, so that the end of the driver is noticed then, too.
    """
    while (message := receive(requests)) != GOODBYE:
        if message is None:
            os._exit(1)  # the driver was killed: its pipe is closed
        ticket, group, payloads, isolation = pickle.loads(message)
        tasks: list[Task[Any]] | Exception | None = None
        if payloads is not None:
            try:
                tasks = [decode_payload(p) for p in payloads]
            except Exception as error:  # noqa: BLE001 - a task that cannot be read is reported as any other failure
                tasks = error
        inbox.put((ticket, group, tasks, isolation))
        del tasks
    inbox.put(None)


class Outbox:
    """Sends outcomes to the driver, from a thread of its own.

    Args:
        answers: The pipe to the driver.
        payloads: Directory for tasks on their way between processes.
        name_of: The name of a group, for a message.
    """

    def __init__(self, answers: IO[bytes], payloads: str, name_of: Callable[[int], str]) -> None:
        self._answers, self._payloads, self._name_of = answers, payloads, name_of
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[tuple[int, int, Outcome, bool] | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(2)  # outcomes that are not sent yet
        self._thread = threading.Thread(target=self._run, name="tamis-hand-over", daemon=True)
        self._thread.start()

    def note(self, ticket: int) -> None:
        """Report that an assignment has begun, or that the stages are set up."""
        self._send(pickle.dumps((ticket, None)))

    def put(self, ticket: int, group: int, outcome: Outcome, *, waits: bool = True) -> None:
        """Send an outcome, while the next assignment runs. Waits if the thread is two outcomes behind."""
        if waits:
            self._room.acquire()
        self._waiting.put((ticket, group, outcome, waits))

    def close(self) -> None:
        """Send what is left."""
        self._waiting.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            ticket, group, outcome, waits = item
            message = self._encoded(ticket, group, outcome)
            self._send(message)
            if waits:
                self._room.release()
            del item, outcome, message  # hold nothing while waiting for the next

    def _encoded(self, ticket: int, group: int, outcome: Outcome) -> bytes:
        try:
            for envelope in outcome.outputs:
                envelope.payload = encode_payload(envelope.payload, self._payloads, envelope.nbytes)
            if outcome.failure is not None and not travels(outcome.failure.exception):
                outcome.failure = replace(outcome.failure, exception=None)
            return pickle.dumps((ticket, outcome))
        except Exception as error:  # noqa: BLE001 - a task that cannot travel is reported as any other failure
            return pickle.dumps((ticket, Outcome(failure=cannot_travel(self._name_of(group), error))))

    def _send(self, message: bytes) -> None:
        with self._lock:
            try:
                send(self._answers, message)
            except BrokenPipeError:
                os._exit(1)  # the driver is gone


def travels(error: BaseException | None) -> bool:
    """Whether an exception survives pickling; one that does not goes as text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - user classes may raise anything here
        return False
    return True


if __name__ == "__main__":
    main()
