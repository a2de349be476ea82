"""The Ray cluster of a run: connects to it or starts one, and lists its machines."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from tamis.backends.balance import Node
from tamis.core import host
from tamis.core.reach import check_cluster, check_port_answers, is_same_address
from tamis.errors import ClusterError, MissingExtraError, ResourceError

_HEAD = "node:__internal_head__"
_WATCH_S = 2.0


class Cluster:
    """A connection to a cluster. A cluster that was started here ends with the connection.

    Args:
        address: The cluster's address; by default ``RAY_ADDRESS``, or a new cluster on this machine.
        num_cpus, num_gpus: Cores and GPUs of a new cluster.
        object_store_bytes: Memory for objects of a new cluster.
        ignore_head_node: Whether to keep the head node free of work.
        reserved: Cores and GPUs to leave to other programs.
    """

    def __init__(
        self,
        address: str | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        object_store_bytes: int | None = None,
        *,
        ignore_head_node: bool = False,
        reserved: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        ray = load_ray()
        self._ray, self._ignore_head_node, self._reserved = ray, ignore_head_node, reserved
        self._connected_here = not ray.is_initialized()
        if self._connected_here:
            address = address or os.environ.get("RAY_ADDRESS")
            if address and address != "local":
                connect(ray, address)
            else:
                with signals_kept(), _quiet():
                    ray.init(
                        address="local",
                        num_cpus=num_cpus,
                        num_gpus=num_gpus,
                        object_store_memory=object_store_bytes,
                        include_dashboard=False,
                        logging_level=logging.ERROR,
                        configure_logging=False,
                    )
        elif address:
            check_connected(ray, address)
        self._memory: dict[str, tuple[float, ...]] = {}
        self._usable_cores = host.usable_cores()
        try:
            self._listed = self._list()
        except BaseException:
            if self._connected_here:
                ray.shutdown()
            raise
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="tamis-watch-cluster", daemon=True).start()

    def nodes(self) -> list[Node]:
        """The machines that may be given work, as of a moment ago."""
        cpus, gpus = self._reserved
        found = []
        for node in sorted(self._listed, key=lambda n: -n["Resources"].get("CPU", 0.0)):
            if not node["Alive"] or (self._ignore_head_node and _HEAD in node["Resources"]):
                continue
            cores, cards = node["Resources"].get("CPU", 0.0), self._cards(node)
            left, kept = min(cpus, cores), min(math.ceil(gpus), len(cards))
            cpus, gpus = cpus - left, gpus - kept
            found.append(Node(node["NodeID"], cores - left, cards[: len(cards) - kept]))
        return found

    def measure_cards(self) -> None:
        """Find out how much memory the GPUs have; needed if a stage asks for GPU memory."""
        from tamis.backends.substrates.ray_worker import gpu_memory_of_this_node

        with_gpus = [n["NodeID"] for n in self._listed if n["Alive"] and n["Resources"].get("GPU")]
        probe = self._ray.remote(num_cpus=0)(gpu_memory_of_this_node)
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        asked = {
            node: probe.options(scheduling_strategy=affinity(node, soft=False)).remote()
            for node in with_gpus
            if node not in self._memory
        }
        for node, answer in asked.items():
            self._memory[node] = self._ray.get(answer, timeout=60)

    def cores(self, node: str) -> float:
        """Cores that a machine really has, if that is known: Ray may be configured with more."""
        listed = next((n for n in self._listed if n["NodeID"] == node), None)
        if listed is None:
            return 0.0
        cpus: float = listed["Resources"].get("CPU", 0.0)
        here = listed["NodeManagerAddress"] == self._ray.util.get_node_ip_address()
        return min(cpus, self._usable_cores) if here else cpus

    def store_bytes(self) -> int:
        """Memory of all object stores together."""
        return int(sum(n["Resources"].get("object_store_memory", 0) for n in self._listed if n["Alive"]))

    def close(self) -> None:
        """Disconnect, and end the cluster if it was started here. A second call does nothing."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._connected_here:
            self._ray.shutdown()

    def _cards(self, node: dict[str, Any]) -> tuple[float, ...]:
        count = int(node["Resources"].get("GPU", 0))
        known = self._memory.get(node["NodeID"], ())
        return (*known, *([0.0] * count))[:count]

    def _list(self) -> list[dict[str, Any]]:
        nodes: list[dict[str, Any]] = self._ray.nodes()
        if self._ignore_head_node and all(_HEAD in n["Resources"] for n in nodes if n["Alive"]):
            raise ResourceError(
                "ignore_head_node=True leaves no machine to work on: the cluster has its head node only. "
                "Add workers to it, or let the head node work too"
            )
        return nodes

    def _watch(self) -> None:
        while not self._closed.wait(_WATCH_S):
            with contextlib.suppress(Exception):  # the cluster is unreachable for a moment, or just disconnected
                self._listed = self._ray.nodes()


def load_ray(what: str = "running on a Ray cluster") -> Any:
    """The module ``ray``. If it is missing, the error says what needs it and how to install it."""
    try:
        import ray
    except ImportError as e:
        raise MissingExtraError(what, package="ray", extra="ray") from e
    return ray


def connect(ray: Any, address: str, *, log_to_driver: bool = True) -> None:
    """Connect to a running cluster, or raise an error that says why not."""
    if address.startswith("ray://"):
        check_port_answers(address.removeprefix("ray://"))
    else:  # Ray itself would wait forever if another program listens there, and sends no token
        address = check_cluster(address)
    try:
        with signals_kept(), _quiet():
            ray.init(address=address, logging_level=logging.ERROR, configure_logging=False, log_to_driver=log_to_driver)
    except Exception as error:
        raise ClusterError(f"the cluster at {address} cannot be used: {type(error).__name__}: {error}") from error


def check_connected(ray: Any, address: str) -> None:
    """Refuse an address that is not that of the cluster this process is connected to."""
    if address in ("auto", "local") or address.startswith("ray://") or ray.util.client.ray.is_connected():
        return
    connected = ray.get_runtime_context().gcs_address
    if not is_same_address(address, connected):
        raise ClusterError(
            f"this process is connected to the cluster at {connected}, not to {address}. Leave the address out to use "
            "it, or leave that cluster first: ray.shutdown()"
        )


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """Keep the signal handlers: Ray's would end the process at the first SIGTERM, and the run could not drain."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in kept.items():
                if handler is not None:  # one that was not set from Python
                    signal.signal(number, handler)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray's output off the terminal while it starts; show it if the start fails."""
    with tempfile.TemporaryFile() as output:
        kept, failed = {}, True
        for number, stream in ((1, sys.stdout), (2, sys.stderr)):
            if stream is not None:  # it is None if the shell has closed it
                stream.flush()
                kept[number] = os.dup(number)
                os.dup2(output.fileno(), number)
        try:
            yield
            failed = False
        finally:
            for number, copy in kept.items():
                os.dup2(copy, number)
                os.close(copy)
            if failed and sys.stderr is not None:
                output.seek(0)
                sys.stderr.write(output.read().decode(errors="replace"))
