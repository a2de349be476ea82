"""A worker process: ``python -m tamis.backends.substrates.worker``. Reads assignments, writes outcomes."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from dataclasses import replace

from tamis.backends.payload import decode_payload, encode_payload
from tamis.backends.runner import Outcome, cannot_travel
from tamis.backends.substrates.inline import WorkerRunners
from tamis.backends.substrates.processes import receive, send


def main() -> None:
    """Work until the driver closes the pipe or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal; the driver decides
    # The pipes are kept apart from what stages, and programs they start, read and print.
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    hello, stages = receive(questions), receive(questions)
    if hello is None or stages is None:
        return
    sys.path, sys.argv, worker_id, gpu_ids, places, payloads = pickle.loads(hello)
    placement = WorkerRunners(pickle.loads(stages), places, worker_id, gpu_ids)
    while (message := receive(questions)) is not None:
        group, tasks = pickle.loads(message)
        if tasks is None:  # only to be set up; what goes wrong is told when there is a task
            placement.runner(group).set_up()
            send(answers, b"")
            continue
        try:
            outcome = placement.runner(group).run([decode_payload(t) for t in tasks])
            for envelope in outcome.outputs:
                envelope.payload = encode_payload(envelope.payload, payloads)
            answer = _pickled(outcome)
        except Exception as error:  # noqa: BLE001 - a task that cannot travel is reported as any other failure
            answer = pickle.dumps(Outcome(failure=cannot_travel(placement.name_of(group), error)))
        send(answers, answer)
    placement.close()


def _pickled(outcome: Outcome) -> bytes:
    if outcome.failure is not None and not travels(outcome.failure.exception):
        outcome.failure = replace(outcome.failure, exception=None)
    return pickle.dumps(outcome)


def travels(error: BaseException | None) -> bool:
    """Whether an exception survives pickling; one that does not goes as text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - user classes may raise anything here
        return False
    return True


if __name__ == "__main__":
    main()
