"""Ports: which are free, who holds the others."""

from __future__ import annotations

import socket
from collections.abc import Collection

from tamis.errors import ClusterError

_OF_WORKERS = range(10002, 20000)
"""Ray gives these to its worker processes as it needs them."""


class DefaultPort(int):
    """A default port: if it is taken, another one will do.

    >>> isinstance(DefaultPort(6379), int), DefaultPort(6379) == 6379
    (True, True)
    """

    __slots__ = ()


def is_free(port: int) -> bool:
    """Whether a port of this machine can be listened on, on every address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what only waits for its last packets is free
        try:
            probe.bind(("", port))
            probe.listen(1)  # on some systems only this fails when another one listens
        except OSError:
            return False
    return True


def choose_port(name: str, wanted: int, taken: Collection[int] = ()) -> int:
    """The port, or the next free one if it is a default.

    Args:
        name: What it is for, as the parameter is called.
        wanted: The port. Only a :class:`DefaultPort` is ever replaced.
        taken: Ports that are given to something else already.
    """
    if wanted not in taken and is_free(wanted):
        return wanted
    if not isinstance(wanted, DefaultPort):
        holder = "given to something else of this cluster" if wanted in taken else f"in use{holder_of(wanted)}"
        raise ClusterError(
            f"{name}={wanted}: the port is {holder}. Give another one, or leave it out: then a free one is found"
        )
    for port in range(wanted + 1, 65536):
        if port not in _OF_WORKERS and port not in taken and is_free(port):
            return DefaultPort(port)
    raise ClusterError(f"{name}: no port from {wanted} on is free")


def holder_of(port: int) -> str:
    """Who listens on a port: ``" by python (process 4711)"``; empty when it cannot be known."""
    try:
        import psutil
    except ImportError:
        return ""
    try:
        found = [c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.pid]
        return f" by {psutil.Process(found[0]).name()} (process {found[0]})" if found else ""
    except (psutil.Error, OSError):
        return ""
