"""Whether a running cluster can be used from this machine."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tamis.errors import ClusterError

CONNECT_S = 5.0
_MODE = "RAY_AUTH_MODE"

REACH_S = 10.0
"""How long a cluster may take to answer."""


def check_port_answers(address: str) -> None:
    """Refuse an address at which nothing listens."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not (port.isascii() and port.isdigit()):
        raise ClusterError(f"{address!r} is not the address of a cluster: write host:port, as `ray start` shows it")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
        raise ClusterError(
            f"no Ray cluster can be reached at {address}: {error}\n  Is it running, is this its address (`ray start` "
            "shows it), and may this machine connect to that port?"
        ) from None


def check_cluster(address: str) -> str:
    """Refuse a cluster that cannot be used from here; return its ``host:port``."""
    if address != "auto":
        check_port_answers(address)
    answer = _ask(address)
    address = answer["address"]
    problems = []
    ray, cluster_ray = importlib.metadata.version("ray"), answer["ray"]
    if cluster_ray is not None and cluster_ray != ray:
        problems.append(f"Ray {cluster_ray}, this process has {ray}")
    python, cluster_python = platform.python_version(), answer["python"]
    digits = 2 if os.environ.get("RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL") == "minor" else 3
    if cluster_python is not None and cluster_python.split(".")[:digits] != python.split(".")[:digits]:
        problems.append(f"Python {cluster_python}, this process has {python}")
    if problems:
        raise ClusterError(
            f"the cluster at {address} runs {' and '.join(problems)}. Both must be the same on every machine: run the "
            "script in the environment that the cluster was started from"
        )
    if answer["nodes"] and not any(is_this_machine(node) for node in answer["nodes"]):
        raise ClusterError(
            f"this machine is not a node of the cluster at {address} ({', '.join(sorted(answer['nodes'])[:5])}). Run "
            f"the script on one of its nodes, or add this machine: ray start --address={address}"
        )
    return str(address)


def has_token() -> bool:
    """Whether there is a token, and ``RAY_AUTH_MODE`` is not set, so that this process does not send it."""
    given = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    return _MODE not in os.environ and bool(given or Path("~/.ray/auth_token").expanduser().exists())


def _ask(address: str) -> dict[str, Any]:
    """Ask a cluster for its versions and nodes, with the token if it requires one."""
    from tamis.core.node import agree_on_tokens

    answer = _answer_of(address, dict(os.environ))
    if "uthenticat" in answer.get("error", "") and has_token():
        with_token = _answer_of(address, {**os.environ, _MODE: "token"})
        if "error" not in with_token:
            agree_on_tokens(create=False)  # for later requests of this process
            return with_token
    if "error" not in answer:
        return answer
    if "uthenticat" in answer["error"]:
        raise ClusterError(
            f"the cluster at {address} asks for a token. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN if it is not in "
            f"~/.ray/auth_token\n  {answer['error']}"
        )
    raise ClusterError(
        f"the cluster at {address} cannot be used: {answer['error']}\n  The address is that of the head (`ray start` "
        "shows it, by default with port 6379), not of the dashboard or of Ray's remote client"
    )


def _answer_of(address: str, environment: dict[str, str]) -> dict[str, Any]:
    silent = (
        f"something listens at {address}, but does not answer as a Ray cluster within {REACH_S:g} s. The address is "
        "that of the head (`ray start` shows it, by default with port 6379), not of the dashboard"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tamis.core.probe", address],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=REACH_S,
            check=False,
            env=environment,
        )
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, ValueError):
        raise ClusterError(silent) from None
    return answer


def is_same_address(one: str, other: str) -> bool:
    """Whether two ``host:port`` are the same address; a machine may have several names.

    >>> is_same_address("localhost:6379", "127.0.0.1:6379"), is_same_address("127.0.0.1:6379", "127.0.0.1:6380")
    (True, False)
    """
    (host, _, port), (other_host, _, other_port) = one.rpartition(":"), other.rpartition(":")
    if port != other_port:
        return False
    ips, other_ips = _ips_of(host), _ips_of(other_host)
    return bool(ips & other_ips) or all(any(map(is_this_machine, found)) for found in (ips, other_ips))


def _ips_of(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host.strip("[]"), None)}
    except (OSError, UnicodeError):
        return set()


def is_this_machine(ip: str) -> bool:
    """Whether an address belongs to this machine."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((ip, 0))
    except OSError:
        return False
    return True
