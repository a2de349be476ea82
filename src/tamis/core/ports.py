"""Which ports are free, and which process uses a port."""

from __future__ import annotations

import socket
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


def choose_port(name: str, wanted: int, taken: Collection[int] = ()) -> int:
    """The port, or the next free one if it is a default.

    Args:
        name: The name of the parameter, for messages.
        wanted: The port. Only a :class:`DefaultPort` is ever replaced.
        taken: Other ports of this cluster.
    """
    if wanted not in taken and is_free(wanted):
        return wanted
    if not isinstance(wanted, DefaultPort):
        use = "given twice for this cluster" if wanted in taken else f"in use{holder_of(wanted)}"
        raise ClusterError(
            f"{name}={wanted}: the port is {use}. Give another one, or leave it out: then a free one is found"
        )
    for port in range(wanted + 1, 65536):
        if port not in _WORKER_PORTS and port not in taken and is_free(port):
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
