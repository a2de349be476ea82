"""Workers as processes, for stages in pure Python. Tables pass as Arrow files; pipes carry envelopes only.

A worker is a fresh interpreter started with ``python -m``, not a fork and not ``multiprocessing``: it works the same
on Linux, macOS and Windows, and a script needs no ``if __name__ == "__main__"``. In the driver two threads per worker
talk to it, one in each direction, so the coordinator never waits for a pipe, and answers may come in any order.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle

import tamis
from tamis.backends.group_spec import GroupSpec, RunPaths
from tamis.backends.outcome import Failure, Outcome, cannot_travel
from tamis.backends.payload import encode_payload
from tamis.backends.pipes import receive, send
from tamis.backends.running_stage import RunningStage
from tamis.backends.substrates.base import Done, SetupFailed, WorkerDied, WorkerReady, WorkerStopped
from tamis.backends.substrates.threads import Assignment, Inbox, ThreadSubstrate
from tamis.errors import PlanError

GOODBYE = b"goodbye"
"""The last message to a worker: tear down the stages and end. A pipe that closes without it means a dead driver."""

SET_UP = -1
"""Stands for a ticket where a worker is asked to set up its stages, or says that it has."""

CANNOT_LOAD = -2
"""Stands for a ticket where a worker says that it cannot load its stages, and why."""


@dataclass
class _Process:
    """A worker process, as the driver sees it.

    Args:
        process: The process.
        sent: Assignments that it was sent and has not answered.
        begun: Those of them that it has begun.
        loading: Whether it was started ahead of its first assignment and is not ready for it.
        stopping: Whether it was asked to end.
    """

    process: subprocess.Popen[bytes]
    sent: dict[int, None] = field(default_factory=dict)
    begun: dict[int, None] = field(default_factory=dict)
    loading: bool = False
    stopping: bool = False


class ProcessSubstrate(ThreadSubstrate):
    """Each worker is a process. In the driver, one thread sends it assignments and another receives its answers.

    Args:
        specs: The groups of the plan.
        places: The run's directories.
        payloads: Directory for tasks that pass between processes.
    """

    def __init__(self, specs: dict[int, GroupSpec], places: RunPaths, payloads: str) -> None:
        super().__init__(specs, places)
        self._payloads = payloads
        os.makedirs(payloads, exist_ok=True)
        self._processes: dict[int, _Process] = {}
        self._closing = False
        self._killed: dict[int, tuple[str, tuple[int, ...]]] = {}

    @functools.cached_property
    def stages(self) -> bytes:
        """The stages as processes receive them, made when they are first needed: some hold much data."""
        return pickled_stages(self._specs)

    def prepare(self, worker: int, group: int) -> None:
        """Start the process of a worker ahead of its first assignment, and report when it is ready for one."""
        self._workers[worker].inbox.put((SET_UP, group, []))

    def kill_worker(self, worker: int, why: str, running: tuple[int, ...] = ()) -> None:
        """Kill the process."""
        self._killed[worker] = why, running
        self._processes[worker].process.kill()

    def close(self, *, at_once: bool) -> None:
        """Stop the processes: after their stages are torn down, or by killing them."""
        self._closing = at_once
        if at_once:
            for state in list(self._processes.values()):
                state.process.kill()
        super().close(at_once=at_once)
        for state in list(self._processes.values()):
            _end(state.process)

    def _work(self, worker: int, inbox: Inbox, gpu_ids: tuple[int, ...]) -> None:
        """Send assignments to a process, which is started for the first of them."""
        state: _Process | None = None
        receiver: threading.Thread | None = None
        set_up: set[int] = set()
        while (assignment := inbox.get()) is not None:
            try:
                if state is None:
                    state = self._start(worker, gpu_ids)
                    state.loading = assignment[0] == SET_UP
                    receiver = threading.Thread(target=self._receive, args=(worker, state, inbox), daemon=True)
                    receiver.start()
                self._send_or_fail(state, set_up, assignment)
            except OSError as error:
                if state is None and not self._closing:
                    self._events.put(WorkerDied(worker, (), f"the worker process could not be started: {error}"))
                    return
                # The process is gone: the receiving thread reports that.
            del assignment  # hold nothing while waiting for the next
        if state is not None and receiver is not None:
            state.stopping = True
            if state.loading:
                state.process.kill()
            _end(state.process)
            receiver.join()
        self._events.put(WorkerStopped(worker))

    def _start(self, worker: int, gpu_ids: tuple[int, ...]) -> _Process:
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
        state = self._processes[worker] = _Process(process)
        assert process.stdin is not None
        send(process.stdin, pickle.dumps((sys.path, sys.argv, str(worker), gpu_ids, self._places, self._payloads)))
        send(process.stdin, self.stages)
        return state

    def _send_or_fail(self, state: _Process, set_up: set[int], assignment: Assignment) -> None:
        ticket, group, envelopes = assignment
        spec = self._specs[group]
        if ticket == SET_UP:
            assert state.process.stdin is not None
            set_up.add(group)
            send(state.process.stdin, pickle.dumps((SET_UP, group, None, None)))
            return
        try:
            for envelope in envelopes:
                # Encoded in place, so that it is freed with the envelope and is there for another try.
                envelope.payload = encode_payload(envelope.payload, self._payloads, envelope.nbytes)
            message = pickle.dumps((ticket, group, [e.payload for e in envelopes], envelopes[0].isolation))
        except Exception as error:  # noqa: BLE001 - pickling and Arrow raise many kinds
            failure = cannot_travel(spec.names[spec.entry], error)
            self._events.put(Done(ticket, Outcome(failure=failure)))
            return
        stdin = state.process.stdin
        assert stdin is not None
        if group not in set_up and any(s.timeout_s for s in spec.stages.values()):
            set_up.add(group)
            send(stdin, pickle.dumps((SET_UP, group, None, None)))  # before the clock of the time limit runs
        state.sent[ticket] = None
        send(stdin, message)

    def _receive(self, worker: int, state: _Process, inbox: Inbox) -> None:
        """Report what a process answers, and its end."""
        stdout = state.process.stdout
        assert stdout is not None
        while (message := receive(stdout)) is not None:
            ticket, outcome = pickle.loads(message)
            if ticket == SET_UP:
                state.loading = False
                self._events.put(WorkerReady(worker))
            elif ticket == CANNOT_LOAD:
                state.stopping = True
                failed = SetupFailed(worker, Failure(self._first_stage(), outcome, permanent=True))
                # Others do the work of a worker that was only started ahead.
                self._events.put(WorkerStopped(worker) if state.loading else failed)
            elif outcome is None:
                state.begun[ticket] = None
            else:
                state.begun.pop(ticket, None)
                state.sent.pop(ticket, None)
                self._events.put(Done(ticket, outcome))
        was_asked_to_end = self._closing or state.stopping  # read first: the sending thread sets it when it ends
        inbox.put(None)  # ends the sending thread
        if was_asked_to_end:
            return
        running = tuple(state.begun) or tuple(state.sent)[:1]
        why, running = self._killed.get(worker) or (_cause_of_death(state.process), running)
        self._events.put(WorkerDied(worker, running, why, self._running_stage(worker)))

    def _first_stage(self) -> str:
        spec = next(iter(self._specs.values()))
        return spec.names[spec.entry]

    def _running_stage(self, worker: int) -> str:
        """The stage that a dead worker was running."""
        vertex = RunningStage.read(RunningStage.path(self._places.local, str(worker)))
        names = {v: name for spec in self._specs.values() for v, name in spec.names.items()}
        return names.get(vertex, "") if vertex is not None else ""


def _cuda_names(gpu_ids: tuple[int, ...], visible: str | None) -> str:
    """The value of CUDA_VISIBLE_DEVICES for some GPUs, which are numbered among those that the driver may use.

    >>> _cuda_names((0, 1), None), _cuda_names((0, 1), "3,5,7")
    ('0,1', '3,5')
    """
    cards = visible.split(",") if visible else None
    return ",".join(cards[i].strip() if cards else str(i) for i in gpu_ids)


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


def _cause_of_death(process: subprocess.Popen[bytes]) -> str:
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
    except ValueError:
        pass  # another thread has closed the pipe meanwhile
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


__all__ = ["CANNOT_LOAD", "GOODBYE", "SET_UP", "ProcessSubstrate"]
