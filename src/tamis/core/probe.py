"""Asks a cluster for its versions and nodes. Run as a process, with the address as its argument; prints a line of JSON.

Ray's client waits 40 s for a cluster that does not answer, cannot be interrupted, and keeps its token settings: in a
separate process it can be given a time limit, and does not change the caller.
"""

from __future__ import annotations

import json
import sys
from typing import Any

QUESTION_S = 5


def ask(address: str) -> dict[str, Any]:
    """The versions of a cluster's head and the addresses of its living nodes.

    Args:
        address: ``host:port`` of the head, or ``"auto"`` for the one that was started last on this machine.
    """
    from ray._private import services
    from ray._raylet import GcsClient  # type: ignore[attr-defined] # compiled

    if address == "auto":
        address = services.canonicalize_bootstrap_address("auto", None) or ""
    head = GcsClient(address=address)
    metadata = head.internal_kv_get(b"CLUSTER_METADATA", namespace=b"cluster", timeout=QUESTION_S)
    versions = json.loads(metadata) if metadata else {}
    nodes = head.get_all_node_info(timeout=QUESTION_S).values()
    return {
        "address": address,
        "ray": versions.get("ray_version"),
        "python": versions.get("python_version"),
        "nodes": [node.node_manager_address for node in nodes if node.state == 0],  # 0: alive
    }


if __name__ == "__main__":
    try:
        answer = ask(sys.argv[1])
    except Exception as error:  # noqa: BLE001 - the caller reports whatever Ray raises
        answer = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(answer) + "\n")
