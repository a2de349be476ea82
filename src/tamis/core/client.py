"""``RayClient``: starts a Ray cluster or uses an existing one, and ends only what it started."""

from __future__ import annotations

import atexit
import importlib.util
import json
import logging
import os
import shutil
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

from tamis.core import slurm
from tamis.core.node import RayNode, agree_on_tokens, check_temp_dir, new_private_directory
from tamis.core.ports import DefaultPort, Reservations, choose_port, is_free
from tamis.core.reach import REACH_S, check_cluster, check_port_answers
from tamis.errors import ClusterError, MissingExtraError
from tamis.sizes import byte_size

__all__ = ["RayClient", "SlurmRayClient"]

STARTS = 3
"""How often a start is tried if another program takes a port between its choice and its use."""

_PORTS: Final = ("ray_port", "ray_dashboard_port", "ray_client_server_port", "ray_metrics_port")
_ADDRESS: Final = "RAY_ADDRESS"
_TOKENS: Final = "RAY_AUTH_MODE"

_LOG = logging.getLogger("tamis")


@dataclass
class _Started:
    """What a start changed, so that it can be undone."""

    address: str | None
    before: dict[str, str | None]
    changed: dict[str, str | None] = field(default_factory=dict)
    node: RayNode | None = None
    temp_dir: str | None = None
    announcements: list[Path] = field(default_factory=list)
    pid: int = field(default_factory=os.getpid)


@dataclass
class RayClient:
    """A Ray cluster for a script: an existing one, or a new one on this machine.

    With ``address`` or the variable ``RAY_ADDRESS``, or in a process that is connected to Ray already, it uses that
    cluster and never stops it. Otherwise it starts one, whose processes end with ``stop()``, with the ``with`` block,
    or with the script, however that ends. Meanwhile ``RAY_ADDRESS`` is set, so that executors find the cluster.

    A port that you give must be free. Default ports that are taken are replaced by free ones, and the fields updated.

    Args:
        ray_port: Port of the head.
        ray_dashboard_port: Port of the dashboard.
        ray_client_server_port: Port for Ray's remote client.
        ray_temp_dir: Directory for Ray's logs, sockets and spilled objects. By default a private one in the system's
            temporary directory, which ``stop()`` removes.
        include_dashboard: Whether there is a dashboard.
        ray_metrics_port: Port for Prometheus.
        ray_dashboard_host: Address the dashboard listens on.
        num_gpus: GPUs that Ray may use; by default those it finds.
        num_cpus: CPUs that Ray may use; by default those it finds.
        object_store_memory: Size of the object store in bytes or as ``"2GiB"``; 30 % of the memory by default.
        enable_object_spilling: Whether Ray moves objects to disk when the store is full. Otherwise objects that do not
            fit are created in files, after a pause of two seconds.
        ray_stdouterr_capture_file: File for Ray's output; by default one in ``ray_temp_dir``.
        metrics_dir: Directory for a file that tells Prometheus where the metrics are, while the cluster runs.
        address: ``host:port`` of a cluster to use, or ``"auto"`` for the one last started on this machine.
        start_timeout_s: Seconds that Ray may take to start.

    >>> client = RayClient(num_cpus=2, include_dashboard=False)
    >>> client.address is None  # until start()
    True
    """

    ray_port: int = DefaultPort(6379)
    ray_dashboard_port: int = DefaultPort(8265)
    ray_client_server_port: int = DefaultPort(10001)
    ray_temp_dir: str | None = None
    include_dashboard: bool = True
    ray_metrics_port: int = DefaultPort(8080)
    ray_dashboard_host: str = "127.0.0.1"
    num_gpus: int | None = None
    num_cpus: int | None = None
    object_store_memory: int | str | None = None
    enable_object_spilling: bool = False
    ray_stdouterr_capture_file: str | None = None
    metrics_dir: str | None = None
    address: str | None = None
    start_timeout_s: float = 120.0
    _started: _Started | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        kind = type(self).__name__
        for name in _PORTS:
            if not _is_whole(getattr(self, name)) or not 1 <= getattr(self, name) <= 65535:
                raise ValueError(f"{kind}({name}={getattr(self, name)}): a port is a number from 1 to 65535")
        for name in ("num_cpus", "num_gpus"):
            value = getattr(self, name)
            if value is not None and not (_is_whole(value) and value >= 0):
                raise ValueError(f"{kind}({name}={value}): must be a whole number, and not negative")
        if not self.start_timeout_s > 0:
            raise ValueError(f"{kind}(start_timeout_s={self.start_timeout_s}): must be more than 0")
        if self.object_store_memory is not None:
            byte_size(self.object_store_memory)
        if self.ray_temp_dir is not None:
            check_temp_dir(self.ray_temp_dir)

    def start(self) -> None:
        """Start a cluster or connect to an existing one, and wait until it is ready. A second call does nothing."""
        if self._is_up():
            return
        self.stop()
        _require_ray()
        address = self.address or os.environ.get(_ADDRESS, "")
        if address and address != "local":
            self._use(address)
        elif (connected := _connected_to()) is not None:  # executors of this process would use no other
            self._began()
            self._now_at(connected)
        else:
            self._start_head()

    def stop(self) -> None:
        """End what ``start()`` started; a cluster that existed before stays. A second call does nothing."""
        started, self._started = self._started, None
        if started is None or started.pid != os.getpid():  # a fork of the script must not end it
            return
        atexit.unregister(self.stop)
        for file in started.announcements:
            with suppress(OSError):  # if the file system is gone, the cluster ends all the same
                file.unlink(missing_ok=True)
        if started.node is not None:
            _disconnect(self.address)
            started.node.end()
        if started.temp_dir is not None:
            shutil.rmtree(started.temp_dir, ignore_errors=True)
        self.address = started.address
        for name, value in started.before.items():
            if started.changed and os.environ.get(name) != started.changed[name]:
                continue  # other code has changed it in between
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def __enter__(self) -> RayClient:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _is_up(self) -> bool:
        started = self._started
        return started is not None and (started.node is None or started.node.is_alive())

    def _use(self, address: str) -> None:
        self._began()
        try:
            if address.startswith("ray://"):
                check_port_answers(address.removeprefix("ray://"))  # Ray's client itself compares the versions
            else:
                address = check_cluster(address)
            self._now_at(address)
        except BaseException:
            self.stop()
            raise

    def _start_head(self) -> None:
        if sys.platform == "win32":
            raise ClusterError(
                "RayClient cannot start a cluster on Windows. Start one with `ray start --head`, and give its address"
            )
        for left in reversed(range(STARTS)):
            reservations = Reservations()
            try:
                self._choose_ports(reservations)
                self._start_node(self._head_options(), f":{self.ray_port}")
                return
            except ClusterError as error:
                # Two scripts that start at the same time may choose the same port. On a busy machine Ray itself gives
                # up after 30 seconds.
                is_taken = not all(is_free(p) for p in self._own_ports() if isinstance(p, DefaultPort))
                if not left or not (is_taken or "timed out during startup" in str(error)):
                    raise
            finally:
                reservations.release()

    def _start_node(self, options: list[str], address: str) -> None:
        """Start a node and wait until it is ready. ``address`` is the end of its cluster's address."""
        started = self._began()
        try:
            agree_on_tokens(create=address.startswith(":"))
            temp_dir = self.ray_temp_dir
            if temp_dir is None:
                temp_dir = started.temp_dir = new_private_directory()
            log = Path(self.ray_stdouterr_capture_file or os.path.join(temp_dir, f"ray_start_{self.ray_port}.log"))
            options = [*options, f"--temp-dir={os.path.abspath(temp_dir)}", *self._node_options()]
            started.node = RayNode.start(options, temp_dir=temp_dir, log=log, address=address, scratch=started.temp_dir)
            self._now_at(started.node.wait_until_ready(address, self.start_timeout_s))
            self._tell_prometheus(started)
        except OSError as error:
            self.stop()
            raise ClusterError(f"Ray's files cannot be written: {error}. Its directory is ray_temp_dir") from error
        except BaseException as error:
            if isinstance(error, ClusterError):
                started.temp_dir = None  # keep the log that the message names
            self.stop()
            raise

    def _began(self) -> _Started:
        before = {name: os.environ.get(name) for name in (_ADDRESS, _TOKENS)}
        self._started = _Started(self.address, before)
        atexit.register(self.stop)
        return self._started

    def _now_at(self, address: str) -> None:
        self.address = os.environ[_ADDRESS] = address
        assert self._started is not None
        self._started.changed = {name: os.environ.get(name) for name in self._started.before}

    def _own_ports(self) -> list[int]:
        return [getattr(self, name) for name in _PORTS if self.include_dashboard or name != "ray_dashboard_port"]

    def _choose_ports(self, reservations: Reservations) -> None:
        taken: list[int] = []
        for name in _PORTS:
            if self.include_dashboard or name != "ray_dashboard_port":
                port = choose_port(name, getattr(self, name), taken, reservations)
                setattr(self, name, port)
                taken.append(port)

    def _head_options(self) -> list[str]:
        spilling = json.dumps({"automatic_object_spilling_enabled": self.enable_object_spilling})
        options = [
            "--head",
            f"--port={self.ray_port}",
            f"--include-dashboard={str(self.include_dashboard).lower()}",
            f"--system-config={spilling}",
            "--disable-usage-stats",
        ]
        if self.include_dashboard:
            options += [f"--dashboard-host={self.ray_dashboard_host}", f"--dashboard-port={self.ray_dashboard_port}"]
        if importlib.util.find_spec("grpc") is not None:  # without it, Ray refuses the port of its remote client
            options.append(f"--ray-client-server-port={self.ray_client_server_port}")
        return options

    def _node_options(self) -> list[str]:
        options = ["--block", "--log-color=false", f"--metrics-export-port={self.ray_metrics_port}"]
        if self.num_cpus is not None:
            options.append(f"--num-cpus={self.num_cpus}")
        if self.num_gpus is not None:
            options.append(f"--num-gpus={self.num_gpus}")
        if self.object_store_memory is not None:
            options.append(f"--object-store-memory={byte_size(self.object_store_memory)}")
        return options

    def _tell_prometheus(self, started: _Started) -> None:
        if self.metrics_dir is None:
            return
        host = socket.gethostname()
        file = Path(self.metrics_dir, f"ray-{host}-{self.ray_metrics_port}.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        target = {"targets": [f"{host}:{self.ray_metrics_port}"], "labels": {"job": "ray", "cluster": self.address}}
        started.announcements.append(file)
        file.write_text(json.dumps([target]), encoding="utf-8")


@dataclass
class SlurmRayClient(RayClient):
    """A Ray cluster on all nodes of a Slurm job, each of which runs the same script once.

    On the first node ``start()`` starts the head, waits until the others have joined, and returns. On the others
    ``start()`` joins the cluster and never returns: when the first node stops the cluster, it ends the script. Outside
    Slurm it is a ``RayClient``.

    CPUs and GPUs of a node are those that Slurm gives (``SLURM_CPUS_ON_NODE``, ``SLURM_GPUS_ON_NODE``). The head writes
    its address to a file ``ray_head_port_<job>`` in the directory ``RAY_PORT_BROADCAST_DIR``, by default the one the
    job was submitted from: all nodes must see it.

    Args:
        ray_dashboard_host: Address the dashboard listens on.
        worker_connect_timeout_s: Seconds that a node waits for the head, and the head for the nodes.
        cleanup_on_start: Whether the head removes the file of an earlier start of this job.

    >>> SlurmRayClient(num_cpus=2).worker_connect_timeout_s
    300.0
    """

    ray_dashboard_host: str = "0.0.0.0"
    worker_connect_timeout_s: float = 300.0
    cleanup_on_start: bool = True

    def start(self) -> None:
        """Start the cluster on the first node and return; join it on the others and stay until it is stopped."""
        if self._is_up():
            return
        if "SLURM_JOB_ID" not in os.environ or self.address or os.environ.get(_ADDRESS):
            super().start()
            return
        if os.environ.get("SLURM_LOCALID", "0") != "0":
            raise ClusterError("SlurmRayClient needs one task per node: srun --ntasks-per-node=1")
        self.num_cpus = slurm.count("SLURM_CPUS_ON_NODE") if self.num_cpus is None else self.num_cpus
        self.num_gpus = slurm.count("SLURM_GPUS_ON_NODE") if self.num_gpus is None else self.num_gpus
        if os.environ.get("SLURM_NODEID", "0") == "0":
            self._lead()
        else:
            _require_ray()
            sys.exit(self._follow())

    def _lead(self) -> None:
        file = slurm.broadcast_file()
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if self.cleanup_on_start:
                file.unlink(missing_ok=True)
        except OSError as error:
            raise ClusterError(
                f"the head cannot write its address for the other nodes: {error}. Set RAY_PORT_BROADCAST_DIR to a "
                "directory that all nodes see"
            ) from error
        super().start()
        assert self._started is not None
        assert self.address is not None
        try:
            self._started.announcements.append(file)  # stop() removes it, and the other nodes watch it
            slurm.announce_address(self.address)
            self._wait_for_nodes(slurm.count("SLURM_STEP_NUM_NODES") or 1)
        except BaseException:
            self.stop()
            raise

    def _wait_for_nodes(self, wanted: int) -> None:
        if wanted < 2:
            return
        from ray._raylet import GcsClient  # type: ignore[attr-defined] # compiled

        head = GcsClient(address=self.address)
        deadline = time.monotonic() + self.worker_connect_timeout_s
        while (here := sum(node.state == 0 for node in head.get_all_node_info(timeout=REACH_S).values())) < wanted:
            if time.monotonic() > deadline:
                _LOG.warning("%d of %d nodes joined within %g s", here, wanted, self.worker_connect_timeout_s)
                return
            time.sleep(0.5)

    def _follow(self) -> int:
        """Join the head's cluster, stay until it ends, and return the exit code."""
        address = self._wait_for_head()
        self.ray_metrics_port = choose_port("ray_metrics_port", self.ray_metrics_port)
        self._start_node([f"--address={address}"], address)
        misses = 0  # a network file system may sometimes fail to answer
        while self._is_up() and misses < 3:
            misses = 0 if slurm.announced_address() == address else misses + 1
            time.sleep(1)
        ended_well = self._is_up()
        self.stop()
        return 0 if ended_well else 1

    def _wait_for_head(self) -> str:
        deadline = time.monotonic() + self.worker_connect_timeout_s
        while True:
            address = slurm.announced_address()
            if address is not None:
                with suppress(ClusterError):
                    check_port_answers(address)
                    return address
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"no head was found within {self.worker_connect_timeout_s:g} s: its address should be in "
                    f"{slurm.broadcast_file()}. Is the first node running, and do all nodes see that directory? Set "
                    "RAY_PORT_BROADCAST_DIR to use another one"
                )
            time.sleep(0.5)


def _require_ray() -> None:
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError("a Ray cluster", package="ray", extra="ray")


def _disconnect(address: str | None) -> None:
    """Disconnect before the cluster ends: Ray kills a process whose cluster disappears."""
    if address is not None and _connected_to() == address:
        sys.modules["ray"].shutdown()


def _connected_to() -> str | None:
    """The address of the cluster that this process is a part of, if any."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized() or ray.util.client.ray.is_connected():
        return None
    return str(ray.get_runtime_context().gcs_address)


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
