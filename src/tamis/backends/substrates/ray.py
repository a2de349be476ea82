"""Workers as Ray actors. The driver holds references only: data stays in the cluster's object stores.

Everything is asked of Ray asynchronously and answers come by callbacks into one queue, so neither the driver nor a
worker polls. An assignment is one actor call; short ones that go to the same worker travel together. What a call
makes is returned as objects of their own, which the driver owns: they outlive the worker that made them.
"""

from __future__ import annotations

import math
import pickle
import queue
import re
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ActorUnschedulableError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayTaskError,
    TaskUnschedulableError,
    WorkerCrashedError,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tamis.backends.group_spec import GroupSpec, RunPaths
from tamis.backends.outcome import Failure, Outcome, cannot_travel
from tamis.backends.payload import Envelope, ObjectPart
from tamis.backends.running_stage import RunningStage
from tamis.backends.substrates.base import (
    Done,
    Event,
    Lost,
    SetupFailed,
    WorkerDied,
    WorkerReady,
    WorkerStopped,
    WorkerUp,
)
from tamis.backends.substrates.processes import pickled_stages
from tamis.backends.substrates.ray_worker import (
    SENTINEL,
    AsyncRayWorker,
    Home,
    RayWorker,
    running_stage,
    save_task,
    set_up_node,
)
from tamis.stages.base import ProcessingStage
from tamis.tasks import Task
from tamis.tasks.storage import pickled

INLINE_BYTES = 2**16
"""A task of the driver's up to this size travels in the call itself, a larger one as an object of the store."""

MAX_SLOTS = 16
"""The most objects that the results of one call are spread over."""

BUNDLE = 16
"""The most assignments in one call."""

CALLS_AT_ONCE = 3
"""Calls that an actor takes at the same time: one reads its arguments, one runs, one stores its results."""

MACHINE_GONE = "the worker's machine is gone"

END_S = 60.0
"""How long stages may take to tear down at the end."""

_ENDED = (
    ActorDiedError,
    ActorUnavailableError,  # the connection broke; it is not known how far the worker got
    ActorUnschedulableError,  # its machine was gone before it was there
    NodeDiedError,
    OutOfMemoryError,
    TaskUnschedulableError,
    WorkerCrashedError,
)
"""Errors by which Ray says that a process is no more, or was never there."""

_ARGUMENTS = "At least one of the input arguments for this task could not be computed"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class _Call:
    """A call that was sent to a worker: its assignments, the data it was given and who made that, what it makes."""

    tickets: list[int] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    payloads: list[list[Any]] = field(default_factory=list)
    makers: set[int] = field(default_factory=set)
    made: list[Any] = field(default_factory=list)


@dataclass
class _Worker:
    actor: Any
    groups: frozenset[int]
    node: str
    node_ready: Any
    calls: deque[_Call] = field(default_factory=deque)
    outbox: list[tuple[int, int, list[Envelope], bool]] = field(default_factory=list)
    ready: bool = False
    killed: str = ""
    overdue: tuple[int, ...] = ()
    gone: bool = False


class RaySubstrate:
    """Each worker is an actor, pinned to a machine; Ray's own accounting of cores and GPUs is left out.

    Args:
        specs: The groups of the plan.
        places: Where the run keeps its files.
        eager: The groups whose stages are set up before a worker is called ready.
        runtime_envs: The runtime environment of groups that have one of their own.
        runtime_env: The runtime environment of all others.
    """

    latency_s: ClassVar[float] = 0.03
    message_s: float = 1.2  # a call costs 3 ms of CPU time in all, at low rates
    volatile: ClassVar[bool] = True

    def __init__(
        self,
        specs: dict[int, GroupSpec],
        places: RunPaths,
        eager: frozenset[int],
        runtime_envs: dict[int, dict[str, Any]],
        runtime_env: dict[str, Any] | None = None,
    ) -> None:
        self._specs, self._places, self._eager = specs, places, eager
        self._runtime_envs, self._runtime_env = runtime_envs, runtime_env
        self._home = Home()
        self._stages = ray.put(pickled_stages(specs))
        actors = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)
        self._actor_class, self._async_actor_class = actors(RayWorker), actors(AsyncRayWorker)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._workers: dict[int, _Worker] = {}
        self._full: set[int] = set()  # workers with something in their outbox
        self._nodes_ready: dict[str, Any] = {}
        self._node_groups = [i for i, s in specs.items() if any(map(_sets_up_nodes, s.stages.values()))]
        self._seconds: dict[int, float] = {}  # how long assignments of a group take
        self._fan_out: dict[int, int] = {}
        self._stage_names = {v: name for spec in specs.values() for v, name in spec.names.items()}
        self._saving: list[Any] = []
        if places.scratch and not places.staging:
            Path(places.local, SENTINEL).touch()

    # -- workers -----------------------------------------------------------------------------------------------------

    def start_worker(self, worker: int, groups: frozenset[int], gpu_ids: tuple[int, ...] = (), node: str = "") -> None:
        """Start an actor on a machine; it says when it is ready."""
        where = NodeAffinitySchedulingStrategy(node, soft=False)
        only = next(iter(groups)) if len(groups) == 1 else -1
        env = {**(self._runtime_env or {}), **self._runtime_envs.get(only, {})}
        options: dict[str, Any] = {"scheduling_strategy": where, **({"runtime_env": env} if env else {})}
        options["enable_task_events"] = False  # the run keeps its own account of every task
        in_flight = self._specs[only].in_flight if only >= 0 and self._specs[only].is_async else 0
        timed = any(stage.timeout_s for group in groups for stage in self._specs[group].stages.values())
        # The clock of a time limit runs from the end of the call before: such calls must not overtake each other.
        options["max_concurrency"] = in_flight + 2 if in_flight else 1 if timed else CALLS_AT_ONCE
        actor_class: Any = self._async_actor_class if in_flight else self._actor_class
        actor = actor_class.options(**options).remote(self._home, str(worker), gpu_ids)
        state = self._workers[worker] = _Worker(actor, groups, node, self._node_ready(node))
        eager = sorted(groups & self._eager)
        up = actor.begin.remote(self._stages)
        up.future().add_done_callback(lambda future: self._answers.put(("up", worker, future)))
        ready = actor.set_up.remote(self._places, eager, state.node_ready)
        ready.future().add_done_callback(lambda future: self._answers.put(("ready", worker, future)))

    def stop_worker(self, worker: int) -> None:
        """Let an actor tear down its stages, then end it."""
        done = self._workers[worker].actor.stop.remote()
        done.future().add_done_callback(lambda future: self._answers.put(("stopped", worker, future)))

    def kill_worker(self, worker: int, why: str, running: tuple[int, ...] = ()) -> None:
        """End an actor at once."""
        self._workers[worker].killed, self._workers[worker].overdue = why, running
        ray.kill(self._workers[worker].actor)

    def _node_ready(self, node: str) -> Any:
        """A reference to something that is there once ``setup_on_node`` of all stages has run on the machine."""
        if not self._node_groups:
            return None
        if node not in self._nodes_ready:
            where = NodeAffinitySchedulingStrategy(node, soft=False)
            task = ray.remote(num_cpus=0, max_retries=0)(set_up_node).options(
                scheduling_strategy=where, **({"runtime_env": self._runtime_env} if self._runtime_env else {})
            )
            scratch = self._places.scratch
            self._nodes_ready[node] = task.remote(self._stages, self._home, node, scratch, self._node_groups)
        return self._nodes_ready[node]

    # -- assignments -------------------------------------------------------------------------------------------------

    def submit(self, worker: int, ticket: int, group: int, envelopes: list[Envelope], *, alone: bool = False) -> None:
        """Put an assignment into the worker's outbox; it is sent with the next :meth:`poll`."""
        self._workers[worker].outbox.append((ticket, group, envelopes, alone))
        self._full.add(worker)

    def _send_all(self) -> None:
        for worker in self._full:
            state = self._workers[worker]
            waiting, state.outbox = state.outbox, []
            bundle: list[tuple[int, int, list[Envelope], bool]] = []
            room_s = self.message_s
            for item in waiting:
                _, group, _, alone = item
                alone = alone or self._specs[group].is_async
                seconds = math.inf if alone else self._seconds.get(group, math.inf)
                if bundle and (seconds > 2 * room_s or len(bundle) == BUNDLE):
                    self._send(worker, state, bundle)
                    bundle, room_s = [], self.message_s
                bundle.append(item)
                room_s -= seconds
            if bundle:
                self._send(worker, state, bundle)
        self._full.clear()

    def _send(self, worker: int, state: _Worker, bundle: list[tuple[int, int, list[Envelope], bool]]) -> None:
        objects: dict[Any, int] = {}
        content, call, slots = [], _Call(), 1
        for ticket, group, envelopes, _ in bundle:
            try:
                places = [self._place(e.payload, objects) for e in envelopes]
            except Exception as error:  # noqa: BLE001 - pickling raises many kinds
                spec = self._specs[group]
                self._events.put(Done(ticket, Outcome(failure=cannot_travel(spec.names[spec.entry], error))))
                continue
            content.append((group, places, envelopes[0].isolation))
            call.tickets.append(ticket)
            call.groups.append(group)
            call.payloads.append([e.payload for e in envelopes])
            call.makers.update(e.maker.group for e in envelopes if e.maker is not None)
            slots = max(slots, self._fan_out.get(group, 1))
        if not content:
            return
        slots = min(MAX_SLOTS, max(slots, len(content)))
        answer, *call.made = state.actor.run.options(num_returns=1 + slots).remote(
            pickle.dumps(content), slots, *objects
        )
        state.calls.append(call)
        answer.future().add_done_callback(lambda future: self._answers.put((call, worker, future)))

    def _place(self, payload: Any, objects: dict[Any, int]) -> Any:
        """Where a worker finds a payload, with the objects it is given numbered."""
        if isinstance(payload, Task):
            if payload.nbytes <= INLINE_BYTES:
                return pickled(payload)
            payload = ObjectPart(ray.put([payload]), 0)
        if isinstance(payload, ObjectPart):
            return ObjectPart(objects.setdefault(payload.ref, len(objects)), payload.index)
        return payload

    # -- what comes back ---------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float) -> list[Event]:
        """Send what is waiting to be sent, then hear what happened."""
        self._send_all()
        events: list[Event] = []
        while not self._events.empty():
            events.append(self._events.get())
        try:
            answer = self._answers.get(timeout=0 if events else timeout_s)
            while True:
                events += self._understand(*answer)
                answer = self._answers.get_nowait()
        except queue.Empty:
            return events

    def _understand(self, kind: Any, worker: int, future: Future[Any]) -> list[Event]:
        state = self._workers[worker]
        error = future.exception()
        if isinstance(kind, WorkerDied):  # what it was running is known now, unless its machine has gone, too
            return [replace(kind, stage=self._stage_names.get(future.result(), ""))] if error is None else [kind]
        if state.gone:
            return []
        if kind == "stopped":
            state.gone = True
            ray.kill(state.actor)
            return [WorkerStopped(worker)]
        if kind == "up" and error is None:
            return [WorkerUp(worker)]
        if kind in ("up", "ready"):
            return self._on_ready(worker, state, error, future)
        if isinstance(error, _ENDED):
            return self._died(worker, state, error)
        call: _Call = kind
        state.calls.remove(call)
        if error is not None:
            return self._on_error(call, error)
        return self._on_answer(state, call, pickle.loads(future.result()))

    def _on_ready(self, worker: int, state: _Worker, error: BaseException | None, future: Future[Any]) -> list[Event]:
        on_node = False
        if error is None:
            failure, on_node, seconds = future.result()
            if failure is None:
                state.ready = True
                return [WorkerReady(worker, seconds)]
        else:
            cause = error.cause if isinstance(error, RayTaskError) else error
            if isinstance(cause, (*_ENDED, ObjectLostError)) and not getattr(cause, "actor_init_failed", False):
                self._nodes_ready.pop(state.node, None)  # it may be that what is gone is the process that set it up
                return self._died(worker, state, cause)
            failure = Failure(self._names(state.groups), f"{type(cause).__name__}: {cause}", str(error))
        state.gone = True
        ray.kill(state.actor)
        events: list[Event] = [SetupFailed(worker, failure)]
        if on_node:  # others waited for the same: they go too, and it counts once
            del self._nodes_ready[state.node]
            for index, other in self._workers.items():
                if other.node_ready is state.node_ready and not other.gone:
                    other.gone = True
                    ray.kill(other.actor)
                    events.append(WorkerStopped(index))
        return events

    def _on_answer(self, state: _Worker, call: _Call, outcomes: list[Outcome]) -> list[Event]:
        events: list[Event] = []
        for ticket, group, outcome in zip(call.tickets, call.groups, outcomes, strict=True):
            self._seconds[group] = 0.8 * self._seconds.get(group, outcome.seconds) + 0.2 * outcome.seconds
            self._fan_out[group] = max(self._fan_out.get(group, 1), len(outcome.outputs))
            for envelope in outcome.outputs:
                if isinstance(envelope.payload, ObjectPart):
                    envelope.payload = ObjectPart(call.made[envelope.payload.ref], envelope.payload.index)
                    envelope.home = state.node
            events.append(Done(ticket, outcome))
        return events

    def _on_error(self, call: _Call, error: BaseException) -> list[Event]:
        """A call failed outside of a stage: its data is lost, or could not be read."""
        cause = error.cause if isinstance(error, RayTaskError) else error
        if not isinstance(cause, ObjectLostError):
            first, *_ = str(cause).splitlines() or [""]
            words = f"a task cannot be sent between machines: {type(cause).__name__}: {first}"
            # Where it is what the call was given that cannot be had, those before are to blame.
            groups = call.makers if _ARGUMENTS in str(error) else set(call.groups)
            frames = _COLOUR.sub("", str(error))
            failed = Failure(self._names(groups or call.groups), words, frames, permanent=True)
            return [Done(t, Outcome(failure=failed)) for t in call.tickets]
        parts = [[p for p in payloads if isinstance(p, ObjectPart)] for payloads in call.payloads]
        lost = [[p for p in of_one if p.ref.hex() == cause.object_ref_hex] for of_one in parts]
        if not any(lost):
            lost = parts
        return [Lost(ticket, tuple(of_one)) for ticket, of_one in zip(call.tickets, lost, strict=True)]

    def _names(self, groups: Iterable[int]) -> str:
        return " + ".join(name for group in sorted(groups) for name in self._specs[group].names.values())

    def _died(self, worker: int, state: _Worker, error: Exception) -> list[Event]:
        state.gone = True
        ray.kill(state.actor)
        calls, state.calls = state.calls, deque()
        why = state.killed or _cause_of_death(error)
        # The end of a machine says nothing about what its workers ran. Otherwise any call may be the cause: answers
        # to calls that were done get lost, too.
        suspects = [] if why == MACHINE_GONE else list(calls)
        tickets = state.overdue if state.killed else tuple(t for call in suspects for t in call.tickets)
        event = WorkerDied(worker, tickets, why)
        if len(event.running) != 1:
            return [event]
        where = NodeAffinitySchedulingStrategy(state.node, soft=False)
        read = ray.remote(num_cpus=0, max_retries=0)(running_stage).options(scheduling_strategy=where)
        vertex: Any = read.remote(self._places.local, str(worker))
        vertex.future().add_done_callback(lambda future: self._answers.put((event, worker, future)))
        return []

    # -- the end -----------------------------------------------------------------------------------------------------

    def now(self) -> float:
        """The machine's clock."""
        return time.monotonic()

    def processed_bytes(self, worker: int) -> int:
        """What a worker on the driver's machine has noted; 0 for others, whose notes are on their own disks."""
        return RunningStage.processed_bytes(RunningStage.path(self._places.local, str(worker)))

    def save_task(self, payload: Any, path: str) -> None:
        """Have a task written to a file of the driver's machine."""
        objects: dict[Any, int] = {}
        place = self._place(payload, objects)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        save = ray.remote(num_cpus=0)(save_task).options(scheduling_strategy=here)
        self._saving.append(save.remote(place, path, *objects))

    def close(self, *, at_once: bool) -> None:
        """Stop the actors: after a teardown of their stages, or by killing them. What has not set up is just killed."""
        living = [s for s in self._workers.values() if not s.gone]
        last = [*self._saving, *(s.actor.stop.remote() for s in living if s.ready and not at_once)]
        if last:
            ray.wait(last, num_returns=len(last), timeout=END_S)
        for state in living:
            state.gone = True
            ray.kill(state.actor)


def _sets_up_nodes(stage: ProcessingStage[Any, Any]) -> bool:
    return type(stage).setup_on_node is not ProcessingStage.setup_on_node


def _cause_of_death(error: Exception) -> str:
    """Ray's account of a death, cut down to what happened."""
    text = " ".join(str(error).split())
    if isinstance(error, OutOfMemoryError):
        return "the worker was ended because its machine was out of memory"
    gone = isinstance(error, NodeDiedError | ActorUnschedulableError | TaskUnschedulableError)
    if gone or "node has died" in text or "node was terminated" in text:
        return MACHINE_GONE
    if "SIGKILL" in text or "connection error code 2" in text.lower() or "End of file" in text:
        return "the worker process was killed (signal 9) or crashed: often the machine was out of memory"
    return f"the worker process ended: {text[:300]}"


__all__ = ["RaySubstrate"]
