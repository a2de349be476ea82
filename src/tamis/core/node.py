"""A Ray node on this machine: starts it with ``ray start``, waits until it is ready, ends all its processes."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tamis.core import keeper
from tamis.core.ports import DefaultPort, choose_port
from tamis.errors import ClusterError

POLL_S = 0.05
GRACE_S = 5.0
"""How long Ray may take to end by itself before it is killed."""

LOG_LINES = 20

_SOCKET_IN_TEMP_DIR = "/session_2026-01-01_00-00-00_000000_4194304/sockets/plasma_store"
_LONGEST_SOCKET_PATH = 103 if sys.platform == "darwin" else 107
LONGEST_TEMP_DIR = _LONGEST_SOCKET_PATH - len(_SOCKET_IN_TEMP_DIR)
"""In bytes. The system limits the paths of sockets, and Ray puts its sockets below its temporary directory."""

_ADDRESS_FILE = "ray_current_cluster"
"""Ray writes the cluster's address there once a node is up."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class RayNode:
    """A node that was started here.

    Args:
        process: The process that watches it.
        log: Ray's output while it starts.
        address_file: Where Ray writes the address.
    """

    process: subprocess.Popen[bytes]
    log: Path
    address_file: Path

    @classmethod
    def start(cls, options: list[str], *, temp_dir: str, log: Path, address: str, scratch: str | None) -> RayNode:
        """Start ``ray start`` with these options and return at once.

        Args:
            options: The options of ``ray start``.
            temp_dir: Ray's temporary directory.
            log: File for Ray's output.
            address: The end of the cluster's address; the address file of an earlier start with it is removed.
            scratch: Directory to remove if this process is killed.
        """
        address_file = Path(temp_dir, _ADDRESS_FILE)
        if _address_in(address_file).endswith(address):
            address_file.unlink(missing_ok=True)
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", *options]
        # -I -S: the watching process must not import any code of the user
        command = [sys.executable, "-I", "-S", keeper.__file__, str(os.getpid()), str(GRACE_S), scratch or "", *ray]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_environment(),
                start_new_session=True,
            )
        return cls(process, log, address_file)

    def wait_until_ready(self, address: str, timeout_s: float) -> str:
        """Wait until the node has joined its cluster; return the cluster's address.

        Args:
            address: The end of the address.
            timeout_s: How long to wait before raising an error.
        """
        deadline = time.monotonic() + timeout_s
        while not (found := _address_in(self.address_file)).endswith(address):
            if not self.is_alive():
                raise ClusterError(f"Ray did not start. {self.last_output()}")
            if time.monotonic() > deadline:
                raise ClusterError(f"Ray was not ready after {timeout_s:g} s. {self.last_output()}")
            time.sleep(POLL_S)
        return found

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def end(self) -> None:
        """End every process of the node, if it has not ended before."""
        self.process.terminate()
        try:
            self.process.wait(3 * GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.returncode < 0:  # the watching process was killed before it could end the others
            keeper.kill_session(self.process.pid)

    def last_output(self) -> str:
        """The end of Ray's output, and the file it is in."""
        try:
            lines = _COLOUR.sub("", self.log.read_text(encoding="utf-8", errors="replace")).strip().splitlines()
        except OSError:
            lines = []
        if not lines:
            return f"It printed nothing ({self.log})"
        return "\n  ".join([f"The end of {self.log}:", *lines[-LOG_LINES:]])


def check_temp_dir(path: str) -> None:
    """Refuse a temporary directory that is too deep for Ray's sockets."""
    length = len(os.fsencode(os.path.abspath(path)))
    if length > LONGEST_TEMP_DIR:
        raise ValueError(
            f"RayClient(ray_temp_dir={path!r}): {length} bytes long, but Ray keeps sockets there, whose paths the "
            f"system limits to {_LONGEST_SOCKET_PATH} bytes: at most {LONGEST_TEMP_DIR} are left for the directory"
        )


def new_private_directory() -> str:
    """A new empty directory with a short path that only this user can read."""
    name = f"tamis-ray-{os.getuid()}"
    # On macOS the user's temporary directory is too deep.
    base = tempfile.gettempdir()
    if len(os.fsencode(os.path.join(base, name, "12345678"))) > LONGEST_TEMP_DIR:
        base = "/tmp"
    # Ray makes its directory readable for all users, so the directory around it must be private.
    outer = os.path.join(base, name)
    os.makedirs(outer, mode=0o700, exist_ok=True)
    if os.lstat(outer).st_uid != os.getuid() or os.path.islink(outer):
        raise ClusterError(f"{outer} belongs to another user. Give another directory: RayClient(ray_temp_dir=...)")
    os.chmod(outer, 0o700)
    return tempfile.mkdtemp(prefix="", dir=outer)


def agree_on_tokens(*, create: bool) -> None:
    """Let this process and the node it starts use the same token, as ``ray.init()`` does for a new cluster.

    From Ray 2.5x on, `ray start` silently requires a token if the user has one, but a process that is given the address
    sends it only with RAY_AUTH_MODE.
    """
    try:
        from ray._private.authentication import authentication_token_setup as tokens
    except ImportError:
        return  # this version of Ray has no tokens
    ray_log = logging.getLogger(tokens.__name__)
    before = ray_log.level
    ray_log.setLevel(logging.ERROR)  # Ray warns although all is well
    try:
        tokens.enable_token_auth_by_default()
        tokens.ensure_token_if_auth_enabled(create_token_if_missing=create)
    except Exception as error:
        raise ClusterError(
            f"the cluster asks for a token: {error}\n  All nodes need the same one: share the file ~/.ray/auth_token, "
            "or set RAY_AUTH_TOKEN everywhere"
        ) from error
    finally:
        ray_log.setLevel(before)


def _environment() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    # When this cluster ends, all its nodes end: there is no node to move work to.
    environment.setdefault("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "0")
    # Two clusters on one machine need different ports here too, and Ray does not look for free ones.
    for name, port in (("AUTOSCALER_METRIC_PORT", 44217), ("DASHBOARD_METRIC_PORT", 44227)):
        environment.setdefault(name, str(choose_port(name, DefaultPort(port))))
    return environment


def _address_in(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
