"""A Ray cluster of one simulated node, and what its processes and the driver's use of the machine's real CPUs."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
from streaming_parts.scenarios import CPUS, GPUS

__all__ = ["Cluster", "CpuMeter", "cluster"]

START_LIMIT_S = 120
SAMPLE_S = 0.25

PROBE = """
import ray, time
ray.init(log_to_driver=False)
while not ray.cluster_resources().get("GPU"): time.sleep(0.2)
ray.get(ray.remote(lambda: None).remote())
"""
"""The first driver of a cluster: once it has run a task, and left, the cluster is one that is running."""


class CpuMeter:
    """CPU seconds of some processes and all they start, those included that have ended.

    A control group counts exactly. Where none can be made (it takes the right to write below ``/sys/fs/cgroup``), the
    process tree is sampled four times a second, and what a process used after its last sample is lost. Waiting for
    the processes would not do: the raylet has the kernel discard its children, and what they used with them.
    """

    def __init__(self) -> None:
        self._group = _make_group(f"tamis-benchmark-{uuid.uuid4().hex[:12]}")
        self._seen: dict[psutil.Process, float] = {}
        self._stop = threading.Event()
        if self._group is None:
            threading.Thread(target=self._sample_on, daemon=True).start()

    @property
    def exact(self) -> bool:
        return self._group is not None

    def start(self, command: list[str], log: Path, environment: dict[str, str]) -> psutil.Popen:
        """Start a process that is counted."""
        with log.open("wb") as file:
            process = psutil.Popen(
                command,
                env=environment,
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                preexec_fn=self._join,
            )
        if self._group is None:
            self._seen[psutil.Process(process.pid)] = 0.0
        return process

    def seconds(self) -> float:
        """CPU seconds up to now."""
        if self._group is None:
            self._sample()
            return sum(self._seen.values())
        if (self._group / "cpuacct.usage").exists():
            return int((self._group / "cpuacct.usage").read_text()) / 1e9
        fields = dict(line.split() for line in (self._group / "cpu.stat").read_text().splitlines())
        return int(fields["usage_usec"]) / 1e6

    def end(self) -> None:
        """End what is left of the processes; engines and clusters leave some behind."""
        self._stop.set()
        deadline = time.monotonic() + 20
        while not self._gone() and time.monotonic() < deadline:
            for process in self._living():
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(0.1)

    def _gone(self) -> bool:
        """Whether all processes are gone; then so is the group, which cannot be removed before."""
        if self._group is None:
            return not self._living()
        try:
            self._group.rmdir()
        except OSError:
            return False
        return True

    def _join(self) -> None:
        if self._group is not None:
            (self._group / "cgroup.procs").write_text(str(os.getpid()))

    def _living(self) -> list[psutil.Process]:
        if self._group is None:
            self._sample()
            pids = [process.pid for process in self._seen if process.is_running()]
        else:
            pids = [int(pid) for pid in (self._group / "cgroup.procs").read_text().split()]
        living = []
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.status() != psutil.STATUS_ZOMBIE:
                    living.append(process)
        return living

    def _sample_on(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        """Look at the processes known and their children: an orphan that was seen once stays known."""
        pids = {process.pid for process in list(self._seen) if process.is_running()}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid in pids or process.ppid() in pids:
                    pids.add(process.pid)
                    times = process.cpu_times()
                    self._seen[process] = times.user + times.system


class Cluster:
    """A cluster that is running.

    Args:
        python: The interpreter whose Ray it is.
        environment: The environment of its processes and of drivers.
        head: The process that holds it.
        meter: Counts the CPU seconds of its processes and of drivers.
    """

    def __init__(self, python: str, environment: dict[str, str], head: psutil.Popen, meter: CpuMeter) -> None:
        self.python, self.environment, self.meter = python, environment, meter
        self._head = head

    def run(self, arguments: list[str], log: Path, limit_s: float) -> int:
        """Run a driver to its end; give its exit status, or ``-1`` if it took too long."""
        process = self.meter.start([self.python, *arguments], log, self.environment)
        try:
            return int(process.wait(limit_s))
        except psutil.TimeoutExpired:
            process.kill()
            process.wait()
            return -1

    def services_cpu_s(self) -> float:
        """CPU seconds of the cluster's own processes (GCS, raylet, dashboard, agents), workers left out."""
        total = 0.0
        for process in [self._head, *self._head.children(recursive=True)]:
            try:
                name = process.name()
                if not name.startswith("ray::") or name in ("ray::DashboardAgent", "ray::RuntimeEnvAgent"):
                    times = process.cpu_times()
                    total += times.user + times.system
            except psutil.Error:
                continue
        return total

    def settle(self, limit_s: float = 30.0) -> None:
        """Wait until the cluster's processes are idle: they use less than a tenth of a core for two seconds."""
        began = time.monotonic()
        while time.monotonic() - began < limit_s:
            before = self.meter.seconds()
            time.sleep(2.0)
            if self.meter.seconds() - before < 0.2:
                return


@contextlib.contextmanager
def cluster(python: str, *, dashboard: bool) -> Iterator[Cluster]:
    """Start a cluster that nothing has run on but a probe; nothing of it is left afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="tb"))  # short: the names of Ray's sockets have 107 characters at most
    gcs, *ports = _free_ports(7)
    environment = {
        **os.environ,
        "RAY_ADDRESS": f"127.0.0.1:{gcs}",
        "PYTHONPATH": str(Path(__file__).parent.parent),
        # Ray protects clusters with a token by default from 2.60 on. This cluster has one of its own, made here.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": uuid.uuid4().hex,
        # Xenna lists actors through the dashboard with a limit that the dashboard's own must allow, and sets the
        # visible devices of its workers itself.
        "RAY_MAX_LIMIT_FROM_API_SERVER": "40000",
        "RAY_MAX_LIMIT_FROM_DATA_SOURCE": "40000",
        "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1",
        "RAY_DEDUP_LOGS": "0",
    }
    names = [
        "ray-client-server-port",
        "dashboard-port",
        "dashboard-agent-listen-port",
        "dashboard-agent-grpc-port",
        "runtime-env-agent-port",
        "metrics-export-port",
    ]
    options = {
        "port": gcs,
        **dict(zip(names, ports, strict=True)),
        "min-worker-port": 0,
        "max-worker-port": 0,
        "node-ip-address": "127.0.0.1",
        "num-cpus": CPUS,
        "num-gpus": GPUS,
        "object-store-memory": 200_000_000,
        "include-dashboard": str(dashboard).lower(),
        "temp-dir": folder / "ray",
    }
    command = [python, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"]
    meter = CpuMeter()
    log = folder / "head.log"
    head = meter.start(
        [*command, *(f"--{name}={value}" for name, value in options.items())],
        log,
        {name: value for name, value in environment.items() if name != "RAY_ADDRESS"},
    )
    try:
        running = Cluster(python, environment, head, meter)
        _wait_for(gcs, head, log)
        if running.run(["-c", PROBE], folder / "probe.log", START_LIMIT_S):
            raise RuntimeError(f"no cluster: {(folder / 'probe.log').read_text()[-2000:]}")
        running.settle()
        yield running
    finally:
        head.terminate()
        try:
            head.wait(10)
        except psutil.TimeoutExpired:
            head.kill()
        meter.end()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(port: int, head: psutil.Popen, log: Path) -> None:
    began = time.monotonic()
    while time.monotonic() - began < START_LIMIT_S and head.poll() is None:
        with socket.socket() as connection:
            if not connection.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.1)
    raise RuntimeError(f"Ray did not start: {log.read_text()[-2000:]}")


def _make_group(name: str) -> Path | None:
    """A control group that counts CPU time: version 1, or 2 where that can be written to."""
    for parent in (Path("/sys/fs/cgroup/cpuacct"), Path("/sys/fs/cgroup")):
        group = parent / name
        try:
            group.mkdir()
        except OSError:
            continue
        if any((group / counter).exists() for counter in ("cpuacct.usage", "cpu.stat")):
            return group
        group.rmdir()
    return None


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
