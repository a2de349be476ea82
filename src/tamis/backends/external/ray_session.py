"""The Ray cluster of an external engine: connect to it, list its machines, and leave it as it was."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tamis.backends.group_spec import GroupSpec, RunPaths, set_up_on_node
from tamis.backends.streaming.cluster_view import connect, load_ray, signals_kept
from tamis.core import host
from tamis.errors import ResourceError
from tamis.plan import Group, Plan
from tamis.stages.base import NodeInfo, ProcessingStage, WorkerMetadata
from tamis.stages.resources import Resources

HEAD = "node:__internal_head__"

GRACE_S = 2.0
"""Seconds that Ray has to end an actor's process before it is killed here, which Ray logs as an error."""

MOST_MESSAGES = 10_000
"""How many messages a mailbox holds; then senders wait."""


@dataclass(frozen=True)
class ClusterNode:
    """A machine of the cluster, as Ray counts it.

    Args:
        id: Its id in Ray.
        cpus, gpus: What Ray may use of it.
        is_head: Whether it is the head node of the cluster.
    """

    id: str
    cpus: float
    gpus: float
    is_head: bool = False


@contextmanager
def connected(what: str, settings: dict[str, str] | None = None) -> Iterator[Any]:
    """Ray, connected to a cluster: the one this process uses, that of ``RAY_ADDRESS``, or a new one that ends here.

    Args:
        what: What needs it, for error messages.
        settings: Environment variables for a new cluster.
    """
    ray = load_ray(what)
    if ray.is_initialized():
        yield ray
        return
    wanted = {"RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", **(settings or {})}
    before = dict(os.environ)
    os.environ.update(wanted)
    # "local" ignores clusters of other users that happen to run on this machine.
    address = os.environ.get("RAY_ADDRESS") or "local"
    try:
        if address == "local":
            quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "include_dashboard": False}
            with signals_kept(), _no_stderr():
                ray.init(address=address, configure_logging=False, **quiet)
        else:
            connect(ray, address, log_to_driver=False)
        yield ray
    finally:
        ray.shutdown()
        for name in {name for name in os.environ if _is_set_by_ray(name)} | wanted.keys():
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)


def _is_set_by_ray(name: str) -> bool:
    """Whether Ray may set an environment variable when it starts: for its own processes, and to be debugged."""
    return name.startswith("RAY_") or name == "PYTHONBREAKPOINT"


class RaySession:
    """A connection that begins when a plan is checked, before anything is touched, and ends with its run.

    Args:
        what: What needs it, for error messages.
        settings: Environment variables for a new cluster.
    """

    def __init__(self, what: str, settings: dict[str, str] | None = None) -> None:
        self._what, self._settings = what, settings
        self._ray: Any = None
        self._stack = ExitStack()

    def begin(self) -> Any:
        """Ray; connects at the first call."""
        if self._ray is None:
            self._ray = self._stack.enter_context(connected(self._what, self._settings))
        return self._ray

    def end(self) -> None:
        """Leave the cluster as it was."""
        self._ray = None
        self._stack.close()


@contextmanager
def _no_stderr() -> Iterator[None]:
    """Hide what Ray's C++ side writes to stderr while it starts."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def ignores_head(given: bool) -> bool:
    """Whether to keep the head node free: as given, or as ``CURATOR_IGNORE_RAY_HEAD_NODE`` says."""
    return given or os.environ.get("CURATOR_IGNORE_RAY_HEAD_NODE", "0") not in ("", "0")


def nodes_of(ray: Any, *, ignore_head: bool) -> list[ClusterNode]:
    """The machines that may be used."""
    found = []
    for node in ray.nodes():
        has = node.get("Resources", {})
        if node.get("Alive", True):
            found.append(ClusterNode(node["NodeID"], has.get("CPU", 0.0), has.get("GPU", 0.0), HEAD in has))
    usable = [n for n in found if not (ignore_head and n.is_head)]
    if not usable:
        raise ResourceError("ignore_head_node=True leaves no machine to work on: the cluster has only its head node")
    return usable


def others(nodes: Sequence[ClusterNode]) -> list[str]:
    """The ids of the cluster's other machines."""
    ray = load_ray("an external engine")
    return sorted({node["NodeID"] for node in ray.nodes() if node.get("Alive", True)} - {n.id for n in nodes})


def on_node(node: ClusterNode) -> Any:
    """Ray's scheduling strategy for work that must be done on one machine."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node.id, soft=False)


def set_up_nodes(
    ray: Any,
    plan: Plan,
    stages: dict[int, bytes],
    nodes: Sequence[ClusterNode],
    places: RunPaths,
    runtime_env: dict[str, Any] | None,
) -> None:
    """Call ``setup_on_node`` of the stages that have one, on every machine they can run on."""
    calls = []
    for group in plan.groups:
        own = [plan.vertices[v].stage for v in group.vertices]
        if group.is_source or all(type(s).setup_on_node is ProcessingStage.setup_on_node for s in own):
            continue
        for node in nodes:
            if node.gpus or not group.resources.requires_gpu:
                options: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": on_node(node)}
                if env := group.runtime_env or runtime_env:
                    options["runtime_env"] = env
                call = ray.remote(_set_up_here).options(**options)
                calls.append(call.remote(stages[group.index], group.index, node.id, places, module_path()))
    try:
        ray.get(calls)
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from None


def module_path() -> tuple[str, ...]:
    """Where this process finds modules, for processes that load its stages."""
    return os.getcwd(), *(p for p in sys.path if p)


def _set_up_here(stages: bytes, group: int, node: str, places: RunPaths, path: tuple[str, ...]) -> None:
    import pickle

    sys.path += [p for p in path if p not in sys.path]
    spec: GroupSpec = pickle.loads(stages)[group]
    set_up_on_node(spec, NodeInfo(node), WorkerMetadata(scratch=places.scratch))


def card_memory_gb(ray: Any, nodes: Sequence[ClusterNode]) -> float:
    """Memory in GB of the smallest GPU of the cluster; 0 if no GPU reports it."""
    calls = [
        ray.remote(_cards_here).options(num_cpus=0, scheduling_strategy=on_node(node)).remote()
        for node in nodes
        if node.gpus
    ]
    found = [size for sizes in ray.get(calls) for size in sizes]
    return min(found, default=0.0)


def _cards_here() -> list[float]:
    return [card.memory_gb for card in host.gpus()]


def gpu_share(names: str, resources: Resources, card_gb: float) -> float:
    """How many GPUs one worker takes; ``gpu_memory_gb`` becomes a fraction of a card of that size."""
    if not resources.gpu_memory_gb:
        return resources.gpus
    if not card_gb:
        raise ResourceError(
            f"stage {names!r} asks for {resources.gpu_memory_gb:g} GB of GPU memory, but no GPU of the cluster reports "
            "how much it has. Give a share of a card instead: Resources(gpus=0.25)"
        )
    # Ray counts in ten-thousandths; rounded up, so that a card never gets more workers than fit.
    return min(1.0, -(-int(resources.gpu_fraction(card_gb) * 1e6) // 100) / 1e4)


def names_of(plan: Plan, group: Group) -> str:
    """The stages of a group, in words."""
    return " + ".join(plan.vertices[v].name for v in group.vertices)


class Mailbox:
    """Takes the workers' records to the driver: a small actor on the driver's machine.

    Args:
        ray: The module.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        here = ClusterNode(ray.get_runtime_context().get_node_id(), 0, 0)
        keeper = ray.remote(_Keeper).options(num_cpus=0, max_concurrency=1000, scheduling_strategy=on_node(here))
        self.slot = Slot(keeper.remote())

    def take(self, wait_s: float) -> list[bytes]:
        """All messages that have arrived; waits for the first one."""
        messages: list[bytes] = self._ray.get(self.slot.keeper.take.remote(wait_s))
        return messages

    def members(self) -> list[Member]:
        """The workers that have checked in since the last call."""
        members: list[Member] = self._ray.get(self.slot.keeper.members.remote())
        return members

    def close(self) -> None:
        """Remove the mailbox."""
        if self._ray.is_initialized():
            self._ray.kill(self.slot.keeper)


class Slot:
    """The workers' side of a mailbox."""

    def __init__(self, keeper: Any) -> None:
        self.keeper = keeper

    def post(self, message: bytes) -> None:
        """Send a message; it has arrived when this returns."""
        import ray

        ray.get(self.keeper.put.remote(message))

    def check_in(self) -> None:
        """Report which process this is, so that it can be ended if it outlives its actor."""
        import ray

        member = Member(ray.get_runtime_context().get_node_id(), os.getpid(), _started(os.getpid()))
        ray.get(self.keeper.check_in.remote(member))


@dataclass(frozen=True)
class Member:
    """A worker's process: its machine, its id, and when it started, since process ids are reused."""

    node: str
    pid: int
    started: float | None


def _started(pid: int) -> float | None:
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


def end_members(ray: Any, members: Sequence[Member]) -> None:
    """End processes that have outlived their actors, on any machine."""
    calls = []
    for name in sorted({m.node for m in members}):
        there = [m for m in members if m.node == name]
        strategy = on_node(ClusterNode(name, 0, 0))
        calls.append(ray.remote(_end_here).options(num_cpus=0, scheduling_strategy=strategy).remote(there))
    for call in calls:
        with suppress(ray.exceptions.RayError):  # a machine that was lost has no processes left
            ray.get(call, timeout=30)


def _end_here(members: Sequence[Member]) -> None:
    import time

    left = [m for m in members if m.pid != os.getpid() and m.started is not None]
    deadline = time.monotonic() + GRACE_S
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = [m for m in left if _started(m.pid) == m.started]
    for member in left:
        with suppress(ProcessLookupError):
            os.kill(member.pid, signal.SIGKILL)


class _Keeper:
    """Holds messages until the driver takes them; beyond :data:`MOST_MESSAGES`, senders wait."""

    def __init__(self) -> None:
        import asyncio

        self._messages: list[bytes] = []
        self._some = asyncio.Event()
        self._members: list[Member] = []

    async def put(self, message: bytes) -> None:
        import asyncio

        while len(self._messages) >= MOST_MESSAGES:
            await asyncio.sleep(0.01)
        self._messages.append(message)
        self._some.set()

    async def take(self, wait_s: float) -> list[bytes]:
        import asyncio

        with suppress(TimeoutError):
            await asyncio.wait_for(self._some.wait(), wait_s)
        self._some.clear()
        taken, self._messages = self._messages, []
        return taken

    async def check_in(self, member: Member) -> None:
        self._members.append(member)

    async def members(self) -> list[Member]:
        taken, self._members = self._members, []
        return taken
