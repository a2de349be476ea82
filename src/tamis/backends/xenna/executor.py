"""The Xenna executor: a plan as pipelines of cosmos-xenna, around the same runner as in every executor."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

from tamis.backends.base import Run
from tamis.backends.external.driver import segments_of
from tamis.backends.external.fitting import (
    AMOUNT,
    ANYTHING,
    COUNT,
    FLAG,
    POSITIVE,
    SHARE,
    Need,
    check_gpus,
    check_settings,
    scaled_cpus,
)
from tamis.backends.external.ray_session import (
    ClusterNode,
    RaySession,
    card_memory_gb,
    gpu_share,
    ignores_head,
    names_of,
    nodes_of,
)
from tamis.backends.external.worker_spec import WorkerSpec, group_specs, run_on_engine
from tamis.backends.streaming.cluster_view import load_ray
from tamis.backends.substrates.processes import pickled_stages
from tamis.backends.xenna.engine import XennaEngine, XennaPlacement
from tamis.errors import MissingExtraError, PlanError, did_you_mean
from tamis.plan import Group, Plan

__all__ = ["XennaExecutor"]

DEFAULTS: dict[str, Any] = {
    "logging_interval": 60,
    "ignore_failures": False,
    "execution_mode": "streaming",
    "cpu_allocation_percentage": 0.95,
    "autoscale_interval_s": 180,
}

CONFIG_KEYS = {
    "logging_interval": POSITIVE,
    "ignore_failures": FLAG,
    "execution_mode": ANYTHING,
    "cpu_allocation_percentage": SHARE,
    "autoscale_interval_s": POSITIVE,
}

SPEC_KEYS = {
    "num_workers_per_node": POSITIVE,
    "num_setup_attempts_python": COUNT,
    "num_run_attempts_python": COUNT,
    "ignore_failures": FLAG,
    "reset_workers_on_failure": FLAG,
    "slots_per_actor": COUNT,
    "worker_max_lifetime_m": AMOUNT,
    "worker_restart_interval_m": AMOUNT,
    "max_setup_failure_percentage": AMOUNT,
}
"""The keys of ``xenna_stage_spec``."""

MODES = ("streaming", "batch")

CLUSTER_SETTINGS = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
"""Xenna assigns GPUs itself, so Ray must not."""


class XennaExecutor:
    """Runs a pipeline on cosmos-xenna.

    Args:
        config: Settings, each with a default: ``logging_interval`` (60 s; Xenna's own log is off), ``ignore_failures``
            (``False``; ``True``: a task whose stage raises is set aside in the run's quarantine, and the run goes on),
            ``execution_mode`` (``"streaming"`` or ``"batch"``), ``cpu_allocation_percentage`` (0.95 of the cores),
            ``autoscale_interval_s`` (180).
        ignore_head_node: Whether to keep the head node free of work. ``CURATOR_IGNORE_RAY_HEAD_NODE=1`` does the same.

    >>> XennaExecutor({"execution_mode": "batch"}).describe()
    'Xenna, batch mode'
    >>> XennaExecutor({"logging": 60})
    Traceback (most recent call last):
    ...
    tamis.errors.PlanError: XennaExecutor(config=...): there is no setting 'logging'. Did you mean 'logging_interval'?
    """

    def __init__(self, config: dict[str, Any] | None = None, ignore_head_node: bool = False) -> None:
        check_settings(config or {}, CONFIG_KEYS, "XennaExecutor(config=...)")
        self.config = {**DEFAULTS, **{key: value for key, value in (config or {}).items() if value is not None}}
        mode = self.config["execution_mode"]
        if mode not in MODES:
            hint = did_you_mean(str(mode), MODES)
            raise ValueError(f"XennaExecutor: execution_mode={mode!r} must be one of {', '.join(MODES)}.{hint}")
        self.ignore_head_node = ignores_head(ignore_head_node)
        self.execution_mode: str = mode
        self.fuse = True
        self._session = RaySession("XennaExecutor", CLUSTER_SETTINGS)

    def describe(self) -> str:
        """The executor in a few words."""
        mode = "" if self.execution_mode == "streaming" else ", batch mode"
        return f"Xenna{mode}{', without the head node' if self.ignore_head_node else ''}"

    def has_gpus(self) -> bool:
        """Whether a machine of the cluster has a GPU."""
        load_ray("XennaExecutor")
        return any(node.gpus for node in nodes_of(self._session.begin(), ignore_head=self.ignore_head_node))

    def check(self, plan: Plan) -> None:
        """Raise if the plan cannot run here, before anything is touched."""
        if importlib.util.find_spec("cosmos_xenna") is None:
            raise MissingExtraError("XennaExecutor", package="cosmos-xenna", extra="xenna")
        if importlib.util.find_spec("tqdm") is None:  # cosmos-xenna imports it without declaring it
            raise MissingExtraError("XennaExecutor", package="tqdm", extra="xenna")
        load_ray("XennaExecutor")
        for group in plan.groups:
            _spec_of(plan, group)
            unknown = set(group.runtime_env or {}) - {"conda", "env_vars"}
            if unknown:
                raise PlanError(
                    f"stage {plan.vertices[group.entry].name!r}: Xenna supports 'conda' and 'env_vars' of a "
                    f"runtime_env, not {', '.join(sorted(unknown))}. Use the streaming executor"
                )
        pickled_stages(group_specs(plan))
        try:
            self._fitted(plan)
        except BaseException:
            self._session.end()
            raise

    def execute(self, plan: Plan, run: Run) -> bool:
        """Carry out the plan. Returns ``False`` if the user stopped it before its end."""
        try:
            ray, nodes, placements = self._fitted(plan)
            worker_spec = WorkerSpec.of(ray, plan, run, nodes)
            return run_on_engine(plan, run, XennaEngine(worker_spec, placements, self.config, nodes), worker_spec)
        finally:
            self._session.end()

    def _fitted(self, plan: Plan) -> tuple[Any, list[ClusterNode], dict[int, XennaPlacement]]:
        """Ray, its machines, and how the groups run on them."""
        ray = self._session.begin()
        nodes = nodes_of(ray, ignore_head=self.ignore_head_node)
        return ray, nodes, self._placements(ray, plan, nodes)

    def _placements(self, ray: Any, plan: Plan, nodes: list[ClusterNode]) -> dict[int, XennaPlacement]:
        """For each group: what one worker requests from Xenna, made to fit, and its settings."""
        wants_memory = any(g.resources.gpu_memory_gb for g in plan.groups)
        card_gb = card_memory_gb(ray, nodes) if wants_memory else 0.0
        cores = [usable_cpus(n, self.config["cpu_allocation_percentage"]) for n in nodes]
        placements: dict[int, XennaPlacement] = {}
        for segment in segments_of(plan):
            own = [self._placement(plan, g, card_gb) for g in segment.groups]
            needs = [Need(names_of(plan, b.group), max(b.cpus, 0.1), b.gpus, b.least_workers(len(nodes))) for b in own]
            # In batch mode one stage runs at a time and may use the whole cluster.
            together = [[n] for n in needs] if self.execution_mode == "batch" else [needs]
            scaled = [cpus for part in together for cpus in scaled_cpus(part, sum(cores), max(cores))]
            for part in together:
                check_gpus(part, nodes, "Xenna")
            for placement, cpus in zip(own, scaled, strict=True):
                placement.cpus = cpus
                placements[placement.group.index] = placement
        return placements

    def _placement(self, plan: Plan, group: Group, card_gb: float) -> XennaPlacement:
        spec = _spec_of(plan, group)
        gpus = gpu_share(names_of(plan, group), group.resources, card_gb)
        workers, per_node = group.workers.least, spec.pop("num_workers_per_node", group.workers.per_node)
        fixed = workers if workers == group.workers.most else None
        return XennaPlacement(group, group.resources.cpus, gpus, fixed, per_node, group.runtime_env or {}, spec)


def usable_cpus(node: ClusterNode, share: float) -> float:
    """Cores of a machine that Xenna may use: a whole number, as Xenna counts, and at least one."""
    return max(1, math.floor(node.cpus * share))


def _spec_of(plan: Plan, group: Group) -> dict[str, Any]:
    """The checked settings of a group's stages for Xenna; if several stages share a worker, the last one wins."""
    together: dict[str, Any] = {}
    for vertex in (plan.vertices[v] for v in group.vertices):
        spec = vertex.stage.xenna_stage_spec()
        where = f"stage {vertex.name!r}, xenna_stage_spec"
        if "num_workers" in spec:
            raise PlanError(f"{where}: give num_workers in with_(num_workers=...), which every executor reads")
        check_settings(spec, SPEC_KEYS, where)
        if spec.get("num_workers_per_node") is not None and group.workers.least is not None:
            raise PlanError(f"{where}: num_workers_per_node and num_workers in with_(...) exclude each other; set one")
        together.update((key, value) for key, value in spec.items() if value is not None)
    return together
