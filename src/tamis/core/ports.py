"""Which ports are free, and which process uses a port."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Collection

from tamis.errors import ClusterError

_WORKER_PORTS = range(10002, 20000)
"""Ray gives these to its worker processes."""


class DefaultPort(int):
    """A default port, which may be replaced if it is taken.

    >>> isinstance(DefaultPort(6379), int), DefaultPort(6379) == 6379
    (True, True)
    """

    __slots__ = ()


def is_free(port: int) -> bool:
    """Whether a port of this machine can be listened on, on every address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
        try:
            probe.bind(("", port))
            probe.listen(1)  # on some systems only this fails if another process listens
        except OSError:
            return False
    return True


class Reservations:
    """Ports that this process has chosen and that nothing listens on yet, so that no other process chooses them.

    Ray begins to listen seconds after its ports were chosen. Two scripts that start at the same time would choose the
    same ones.
    """

    def __init__(self) -> None:
        self._files: list[int] = []

    def reserve(self, port: int) -> bool:
        """Reserve a port; ``False`` if another process has reserved it."""
        try:
            import fcntl
        except ImportError:  # Windows, where no cluster is started
            return True
        folder = os.path.join(tempfile.gettempdir(), f"tamis-ports-{os.getuid()}")
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            file = os.open(os.path.join(folder, str(port)), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:
            return True  # without a place for reservations, there are none
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        self._files.append(file)
        return True

    def release(self) -> None:
        """Give all of them up: they are listened on now, or not needed."""
        for file in self._files:
            os.close(file)
        self._files.clear()


def choose_port(name: str, wanted: int, taken: Collection[int] = (), reservations: Reservations | None = None) -> int:
    """The port, or the next free one if it is a default.

    Args:
        name: The name of the parameter, for messages.
        wanted: The port. Only a :class:`DefaultPort` is ever replaced.
        taken: Other ports of this cluster.
        reservations: Where default ports are reserved.
    """

    def reserved(port: int) -> bool:
        return reservations is None or reservations.reserve(port)

    is_default = isinstance(wanted, DefaultPort)
    if wanted not in taken and is_free(wanted) and (not is_default or reserved(wanted)):
        return wanted
    if not is_default:
        use = "given twice for this cluster" if wanted in taken else f"in use{holder_of(wanted)}"
        raise ClusterError(
            f"{name}={wanted}: the port is {use}. Give another one, or leave it out: then a free one is found"
        )
    for port in range(wanted + 1, 65536):
        if port not in _WORKER_PORTS and port not in taken and is_free(port) and reserved(port):
            return DefaultPort(port)
    raise ClusterError(f"{name}: no port from {wanted} on is free")


def holder_of(port: int) -> str:
    """The process that listens on a port: ``" by python (process 4711)"``; empty if it is not known."""
    try:
        import psutil
    except ImportError:
        return ""
    try:
        found = [c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.pid]
        return f" by {psutil.Process(found[0]).name()} (process {found[0]})" if found else ""
    except (psutil.Error, OSError):
        return ""
