"""Where a run on a cluster keeps its files, with and without a directory that all machines share.

A run directory that all machines see is used by all of them. Where a machine does not see it, data between stages goes
to the run's scratch address, or to Ray's object store if there is none; records (drops, quarantine, outputs) wait there
for the driver, which writes them to the run directory. Writers need a path that all machines see.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tamis.backends.base import Run
from tamis.errors import PlanError
from tamis.plan import Plan
from tamis.stages.io.object_store import start_directory
from tamis.stages.io.paths import is_local, join, protocol
from tamis.stages.io.sink import FileSink

__all__ = ["share_storage"]


def share_storage(ray: Any, plan: Plan, run: Run, nodes: Sequence[str] | None = None) -> None:
    """Make sure that every machine can reach the files of a run; moves its scratch data if needed.

    Args:
        ray: The module, connected.
        plan: The plan.
        run: The run; its directory may be given another scratch location.
        nodes: The machines that are used, by Ray's ids; by default all.
    """
    directory = run.directory
    if protocol(directory.scratch) == "memory":
        raise PlanError('scratch="memory://..." is in the memory of one process; workers on a cluster are many')
    sinks = {v.name: v.stage.destination.path for v in plan.vertices if isinstance(v.stage, FileSink)}
    local = {name: path for name, path in sinks.items() if is_local(path)}
    unseen = _unseen(ray, [directory.path, *local.values()], nodes)
    for name, path in local.items():
        if path in unseen:
            raise PlanError(
                f"{name} writes to {path}, which machine {unseen[path]} of the cluster does not see: output would be "
                "scattered over machines. Write to a directory that all machines share, or to an address such as "
                "s3://bucket/folder"
            )
    if directory.path not in unseen:
        return
    if is_local(directory.scratch):
        where = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        here = ray.get_runtime_context().get_node_id()
        directory.keeper, address = start_directory(scheduling_strategy=where(here, soft=False))
        directory.scratch = join(address, "scratch")
    directory.payloads = join(directory.scratch, "payloads")
    directory.staging = join(directory.scratch, "records")
    run.observer.message(
        f"machine {unseen[directory.path]} does not see the run directory {directory.path}: data between stages is in "
        f"{'the object store of Ray' if directory.keeper else directory.scratch}, records go to the driver"
    )


def _unseen(ray: Any, paths: Sequence[str], nodes: Sequence[str] | None) -> dict[str, str]:
    """The directories of this machine that another machine does not see, each with one such machine."""
    here = ray.get_runtime_context().get_node_id()
    alive = {node["NodeID"]: node.get("NodeManagerHostname", "") for node in ray.nodes() if node.get("Alive", True)}
    others = [node for node in (alive if nodes is None else nodes) if node != here and node in alive]
    if not others:
        return {}
    signs = {path: os.path.join(path, f".tamis-{secrets.token_hex(8)}.sign") for path in dict.fromkeys(paths)}
    try:
        for sign in signs.values():
            os.makedirs(os.path.dirname(sign), exist_ok=True)
            Path(sign).touch()
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        look = ray.remote(num_cpus=0)(_seen)
        calls = [
            look.options(scheduling_strategy=affinity(node, soft=False)).remote(list(signs.values())) for node in others
        ]
        unseen: dict[str, str] = {}
        for node, call in zip(others, calls, strict=True):
            with contextlib.suppress(ray.exceptions.RayError):  # a machine that has gone meanwhile does no work
                for path, seen in zip(signs, ray.get(call), strict=True):
                    if not seen:
                        unseen.setdefault(path, alive[node] or node)
        return unseen
    finally:
        for sign in signs.values():
            with contextlib.suppress(OSError):
                os.unlink(sign)


def _seen(paths: list[str]) -> list[bool]:
    return [os.path.exists(path) for path in paths]
