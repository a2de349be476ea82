"""A worker process: ``python -m tamis.backends.substrates.worker``. Reads assignments, writes outcomes."""

from __future__ import annotations

import ctypes
import os
import pickle
import queue
import signal
import sys
import threading
from dataclasses import replace
from typing import IO

from tamis.backends.payload import decode_payload, encode_payload
from tamis.backends.runner import Outcome, cannot_travel
from tamis.backends.running_stage import RunningStage
from tamis.backends.substrates.inline import WorkerRunners
from tamis.backends.substrates.processes import GOODBYE, receive, send

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Work until the driver says goodbye. If the driver is gone without a word, end at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal; the driver decides
    _die_with_parent()
    # The pipes are kept apart from what stages, and programs they start, read and print.
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    hello, stages = receive(questions), receive(questions)
    if hello is None or stages is None:
        return
    sys.path, sys.argv, worker_id, gpu_ids, places, payloads = pickle.loads(hello)
    marker = RunningStage(RunningStage.path(places.scratch, worker_id))
    runners = WorkerRunners(pickle.loads(stages), places, worker_id, gpu_ids, marker)
    inbox: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(questions, inbox), name="tamis-reader", daemon=True).start()
    while (message := inbox.get()) != GOODBYE:
        group, tasks = pickle.loads(message)
        if tasks is None:  # only to be set up; a failure is reported with the first task
            runners.runner(group).set_up()
            send(answers, b"")
            continue
        try:
            outcome = runners.runner(group).run([decode_payload(t) for t in tasks])
            for envelope in outcome.outputs:
                envelope.payload = encode_payload(envelope.payload, payloads)
            answer = _pickled(outcome)
        except Exception as error:  # noqa: BLE001 - a task that cannot be sent is reported as any other failure
            answer = pickle.dumps(Outcome(failure=cannot_travel(runners.name_of(group), error)))
        send(answers, answer)
    runners.close()


def _read(questions: IO[bytes], inbox: queue.SimpleQueue[bytes]) -> None:
    """Pass messages on, also while a stage runs, so that the end of the driver is noticed then, too."""
    while (message := receive(questions)) is not None:
        inbox.put(message)
        if message == GOODBYE:
            return
    os._exit(1)  # the driver was killed: its pipe is closed


def _die_with_parent() -> None:
    """On Linux the kernel ends this process with the driver, even if a stage keeps all threads from running."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _pickled(outcome: Outcome) -> bytes:
    if outcome.failure is not None and not travels(outcome.failure.exception):
        outcome.failure = replace(outcome.failure, exception=None)
    return pickle.dumps(outcome)


def travels(error: BaseException | None) -> bool:
    """Whether an exception survives pickling; one that does not is sent as text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - user classes may raise anything here
        return False
    return True


if __name__ == "__main__":
    main()
