"""Workers as processes, for stages in pure Python. Tables pass as Arrow files; pipes carry envelopes only.

A worker is a new interpreter started with ``python -m``, not a fork and not ``multiprocessing``: it works the same on
Linux, macOS and Windows, and a script needs no ``if __name__ == "__main__"``. In the driver, each worker has a thread,
so the coordinator never waits for a pipe.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import queue
import struct
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import IO

import cloudpickle

import tamis
from tamis.backends.payload import encode_payload
from tamis.backends.runner import GroupSpec, Outcome, RunPaths, cannot_travel
from tamis.backends.running_stage import RunningStage
from tamis.backends.substrates.base import Done, WorkerDied, WorkerReady
from tamis.backends.substrates.threads import Assignment, Inbox, ThreadSubstrate
from tamis.errors import PlanError

_LENGTH = struct.Struct("<Q")

GOODBYE = b"goodbye"
"""The last message to a worker: tear down the stages and end. A pipe that closes without it means a dead driver."""

SENT_AHEAD = 8
"""How many short assignments are sent to a process before the driver waits for its first answer."""

SENT_AHEAD_BYTES = 400
"""A longer message is sent only when no answer is due, so that both sides never wait for room in a pipe."""


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
    """Each worker is a process, with a thread in the driver that talks to it.

    Args:
        specs: The groups of the plan.
        places: The run's directories.
        payloads: Directory for tasks that pass between processes.
    """

    def __init__(self, specs: dict[int, GroupSpec], places: RunPaths, payloads: str) -> None:
        super().__init__(specs, places)
        self._payloads = payloads
        os.makedirs(payloads, exist_ok=True)
        self._stages = pickled_stages(specs)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._closing = False
        self._killed: dict[int, str] = {}
        self._set_up: set[tuple[int, int]] = set()

    def kill_worker(self, worker: int, why: str) -> None:
        """Kill the process."""
        self._killed[worker] = why
        self._processes[worker].kill()

    def close(self, *, at_once: bool) -> None:
        """Stop the processes: after their stages are torn down, or by killing them."""
        self._closing = at_once
        if at_once:
            for process in list(self._processes.values()):
                process.kill()
        super().close(at_once=at_once)
        for process in list(self._processes.values()):
            _end(process)

    def _work(self, worker: int, inbox: Inbox, gpu_ids: tuple[int, ...]) -> None:
        process: subprocess.Popen[bytes] | None = None
        open_ended = True
        while open_ended:
            waiting = _take(inbox)
            if waiting[-1] is None:
                open_ended = False
            tickets: deque[int] = deque()
            try:
                for assignment in waiting:
                    if assignment is not None:
                        process = process or self._start(worker, gpu_ids)
                        self._ask_or_fail(worker, process, tickets, assignment)
                if process is not None:
                    self._hear_all(process, tickets)
            except (OSError, EOFError) as error:
                if not self._closing:
                    why = self._killed.get(worker) or _cause_of_death(process, error)
                    self._events.put(WorkerDied(worker, tuple(tickets)[:1], why, self._running_stage(worker)))
                return
        if process is not None:
            _end(process)

    def _running_stage(self, worker: int) -> str:
        """The stage that a dead worker was running."""
        vertex = RunningStage.read(RunningStage.path(self._places.scratch, str(worker)))
        names = {v: name for spec in self._specs.values() for v, name in spec.names.items()}
        return names.get(vertex, "") if vertex is not None else ""

    def _start(self, worker: int, gpu_ids: tuple[int, ...]) -> subprocess.Popen[bytes]:
        environment = dict(os.environ)
        home = str(Path(tamis.__file__).parents[1])  # the worker must find tamis before it receives our sys.path
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [home, environment.get("PYTHONPATH")]))
        if gpu_ids:
            environment["CUDA_VISIBLE_DEVICES"] = _cuda_names(gpu_ids, environment.get("CUDA_VISIBLE_DEVICES"))
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

    def _ask_or_fail(
        self, worker: int, process: subprocess.Popen[bytes], tickets: deque[int], assignment: Assignment
    ) -> None:
        ticket, group, _ = assignment
        try:
            self._ask(worker, process, tickets, assignment)
        except (OSError, EOFError):
            raise
        except Exception as error:  # noqa: BLE001 - pickling and Arrow raise many kinds
            spec = self._specs[group]
            failure = cannot_travel(spec.names[spec.entry], error)
            self._events.put(Done(ticket, Outcome(failure=failure)))

    def _ask(self, worker: int, process: subprocess.Popen[bytes], tickets: deque[int], assignment: Assignment) -> None:
        """Send an assignment; a long one only when no answer is due."""
        assert process.stdin is not None
        ticket, group, envelopes = assignment
        for envelope in envelopes:
            # Encoded in place, so that it is freed with the envelope and exists for another attempt.
            envelope.payload = encode_payload(envelope.payload, self._payloads)
        message = pickle.dumps((group, [e.payload for e in envelopes]))
        if len(message) > SENT_AHEAD_BYTES:
            self._hear_all(process, tickets)
        if (worker, group) not in self._set_up and any(s.timeout_s for s in self._specs[group].stages.values()):
            self._hear_all(process, tickets)
            self._set_up_first(worker, process, group)
        tickets.append(ticket)
        send(process.stdin, message)

    def _set_up_first(self, worker: int, process: subprocess.Popen[bytes], group: int) -> None:
        """Set up a stage with a time limit before its time begins."""
        assert process.stdin is not None
        assert process.stdout is not None
        send(process.stdin, pickle.dumps((group, None)))
        if receive(process.stdout) is None:
            raise EOFError("the worker closed its pipe")
        self._set_up.add((worker, group))
        self._events.put(WorkerReady(worker))

    def _hear_all(self, process: subprocess.Popen[bytes], tickets: deque[int]) -> None:
        """Wait for the answers to all assignments sent."""
        assert process.stdout is not None
        while tickets:
            answer = receive(process.stdout)
            if answer is None:
                raise EOFError("the worker closed its pipe")
            self._events.put(Done(tickets.popleft(), pickle.loads(answer)))


def _cuda_names(gpu_ids: tuple[int, ...], visible: str | None) -> str:
    """The value of CUDA_VISIBLE_DEVICES for some GPUs, which are numbered among those that the driver may use.

    >>> _cuda_names((0, 1), None), _cuda_names((0, 1), "3,5,7")
    ('0,1', '3,5')
    """
    cards = visible.split(",") if visible else None
    return ",".join(cards[i].strip() if cards else str(i) for i in gpu_ids)


def _take(inbox: Inbox) -> list[Assignment | None]:
    """Wait for an assignment and take those that are queued after it, up to :data:`SENT_AHEAD`."""
    taken = [inbox.get()]
    while taken[-1] is not None and len(taken) < SENT_AHEAD:
        try:
            taken.append(inbox.get_nowait())
        except queue.Empty:
            break
    return taken


def pickled_stages(specs: dict[int, GroupSpec]) -> bytes:
    """The stages in the form that worker processes receive; raises if one cannot be pickled."""
    for spec in specs.values():
        for index, stage in spec.stages.items():
            _by_value_if_needed(type(stage).__module__)
            _by_value_if_needed(getattr(getattr(stage, "function", None), "__module__", None))
            try:
                cloudpickle.dumps(stage)
            except Exception as error:
                raise PlanError(
                    f"stage {spec.names[index]!r} cannot be sent to a worker process: {error}. "
                    "Create what cannot be pickled in setup(), or use LocalExecutor(substrate='threads')"
                ) from error
    stages: bytes = cloudpickle.dumps(specs)
    return stages


def _by_value_if_needed(name: str | None) -> None:
    """Send a module along with its stages if a new interpreter could not import it."""
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
    """Ask the worker to end; kill it if it does not."""
    try:
        if process.stdin is not None and not process.stdin.closed:
            send(process.stdin, GOODBYE)
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


__all__ = ["GOODBYE", "ProcessSubstrate", "receive", "send"]
