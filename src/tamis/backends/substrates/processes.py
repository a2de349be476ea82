"""Workers as processes: for stages in plain Python. Tables travel as Arrow files, pipes carry envelopes only.

A worker is a fresh interpreter started with ``python -m``, not a fork and not ``multiprocessing``: it works the same
on Linux, macOS and Windows, and a script needs no ``if __name__ == "__main__"``. In the driver one thread per worker
talks to it, so the coordinator never waits for a pipe.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import struct
import subprocess
import sys
from typing import IO, Any

import cloudpickle

from tamis.backends.payload import Envelope, pack
from tamis.backends.runner import GroupSpec, Outcome, Places
from tamis.backends.substrates.base import Done, WorkerDied
from tamis.backends.substrates.threads import Inbox, ThreadSubstrate
from tamis.errors import PlanError

_LENGTH = struct.Struct("<Q")


def send(pipe: IO[bytes], message: bytes) -> None:
    """Write one message to a pipe."""
    pipe.write(_LENGTH.pack(len(message)))
    pipe.write(message)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes | None:
    """Read one message from a pipe; ``None`` when the other side is gone."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    message = pipe.read(length)
    return message if len(message) == length else None


class ProcessSubstrate(ThreadSubstrate):
    """Each worker is a process, with a thread here that talks to it.

    Args:
        specs: The groups of the plan.
        places: Where the run keeps its files.
        payloads: Directory for tasks on their way between processes.
    """

    def __init__(self, specs: dict[int, GroupSpec], places: Places, payloads: str) -> None:
        super().__init__(specs, places)
        self._payloads = payloads
        os.makedirs(payloads, exist_ok=True)
        self._stages = _pickled_stages(specs)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._closing = False

    def close(self, *, at_once: bool) -> None:
        """Stop the processes: after a teardown of their stages, or by killing them."""
        self._closing = at_once
        if at_once:
            for process in list(self._processes.values()):
                process.kill()
        super().close(at_once=at_once)
        for process in list(self._processes.values()):
            _end(process)

    def _work(self, worker: int, inbox: Inbox, gpu_ids: tuple[int, ...]) -> None:
        process: subprocess.Popen[bytes] | None = None
        while True:
            assignment = inbox.get()
            if assignment is None:
                break
            ticket, group, envelopes = assignment
            try:
                process = process or self._start(worker, gpu_ids)
                outcome = self._ask(process, group, envelopes)
            except (OSError, EOFError) as error:
                if not self._closing:
                    self._events.put(WorkerDied(worker, ticket, _cause_of_death(process, error)))
                return
            self._events.put(Done(ticket, outcome))
        if process is not None:
            _end(process)

    def _start(self, worker: int, gpu_ids: tuple[int, ...]) -> subprocess.Popen[bytes]:
        environment = dict(os.environ)
        if gpu_ids:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpu_ids))
        process = subprocess.Popen(
            [sys.executable, "-m", "tamis.backends.substrates.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._processes[worker] = process
        assert process.stdin is not None
        send(process.stdin, pickle.dumps((sys.path, sys.argv, str(worker), gpu_ids, self._places, self._payloads)))
        send(process.stdin, self._stages)
        return process

    def _ask(self, process: subprocess.Popen[bytes], group: int, envelopes: list[Envelope]) -> Outcome:
        assert process.stdin is not None
        assert process.stdout is not None
        payloads = [pack(e.payload, self._payloads) for e in envelopes]
        for envelope, payload in zip(envelopes, payloads, strict=True):
            envelope.payload = payload  # so that it is freed with the envelope, and is there for another try
        send(process.stdin, pickle.dumps((group, payloads)))
        answer = receive(process.stdout)
        if answer is None:
            raise EOFError("it closed its pipe")
        outcome: Outcome = pickle.loads(answer)
        return outcome


def _pickled_stages(specs: dict[int, GroupSpec]) -> bytes:
    for spec in specs.values():
        for index, stage in spec.stages.items():
            _by_value_if_needed(type(stage).__module__)
            _by_value_if_needed(getattr(getattr(stage, "function", None), "__module__", None))
            try:
                cloudpickle.dumps(stage)
            except Exception as error:
                raise PlanError(
                    f"stage {spec.names[index]!r} cannot be sent to a worker process: {error}. "
                    "Make what it cannot pickle in setup(), or use LocalExecutor(substrate='threads')"
                ) from error
    stages: bytes = cloudpickle.dumps(specs)
    return stages


def _by_value_if_needed(name: str | None) -> None:
    """Modules that a new interpreter could not import are sent along."""
    module = sys.modules.get(name or "")
    if module is None or name == "__main__" or (name or "").partition(".")[0] == "tamis":
        return
    try:
        found = importlib.util.find_spec(name or "")
    except (ImportError, ValueError):
        found = None
    if found is None or found.origin != getattr(module, "__file__", found.origin):
        cloudpickle.register_pickle_by_value(module)


def _cause_of_death(process: subprocess.Popen[bytes] | None, error: BaseException) -> str:
    if process is None:
        return f"the worker process could not be started: {error}"
    try:
        code = process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        return "the worker process stopped answering"
    if code == -9:
        return "the worker process was killed (signal 9): often the machine was out of memory"
    return f"the worker process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe, which ends the worker; kill it if that does not help."""
    try:
        if process.stdin is not None and not process.stdin.closed:
            process.stdin.close()
    except OSError:
        process.kill()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


__all__: list[Any] = ["ProcessSubstrate", "receive", "send"]
