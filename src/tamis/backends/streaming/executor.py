"""The streaming executor: the coordinator on the actors of a Ray cluster, with an autoscaler."""

from __future__ import annotations

import os
import weakref
from typing import Any, Literal

from tamis.backends.autoscaler import Autoscaler, has_dedicated_workers
from tamis.backends.balance import Demand, Node, check_fits
from tamis.backends.base import Run
from tamis.backends.carry_out import carry_out, run_paths
from tamis.backends.cluster_storage import share_storage
from tamis.backends.contracts import Limits
from tamis.backends.demand import concurrent_groups
from tamis.backends.group_spec import GroupSpec
from tamis.backends.streaming.cluster_view import Cluster, load_ray
from tamis.backends.streaming.ray_metrics import exported_by_ray
from tamis.backends.worker_registry import Pool, WorkerRegistry
from tamis.errors import PlanError, did_you_mean
from tamis.plan import Group, Plan
from tamis.sizes import byte_size

__all__ = ["StreamingExecutor"]

MODES = ("streaming", "batch")
LEAST_CPUS = 0.1
STORE_SHARE = 0.4


class StreamingExecutor:
    """Runs a pipeline on a Ray cluster: all stages at the same time, each with as many workers as it needs.

    Args:
        address: The cluster's address. By default the one this process is connected to, else ``RAY_ADDRESS``, else a
            new one on this machine that ends with the run.
        execution_mode: ``"streaming"``, or ``"batch"``: one stage after the other over the whole data, which is
            spilled to the run directory in between.
        memory_budget: Memory for tasks between stages, in bytes or as ``"1GiB"``. By default 40 % of the cluster's
            object stores, so that Ray does not spill to disk.
        retries: How often a task is tried again after its stage raised.
        fuse: Whether neighbouring CPU stages may run in one worker, without data moving between them.
        ignore_head_node: Whether to keep the head node free of work. ``CURATOR_IGNORE_RAY_HEAD_NODE=1`` does the same.
        runtime_env: Ray's runtime environment for all workers.
        num_cpus, num_gpus: Cores and GPUs of a new cluster; those of this machine by default.

    >>> StreamingExecutor(memory_budget="1GiB").describe()
    'streaming on Ray'
    """

    def __init__(
        self,
        address: str | None = None,
        execution_mode: Literal["streaming", "batch"] = "streaming",
        memory_budget: int | str | None = None,
        retries: int = 1,
        fuse: bool = True,
        ignore_head_node: bool = False,
        runtime_env: dict[str, Any] | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
    ) -> None:
        kind = type(self).__name__
        if execution_mode not in MODES:
            hint = did_you_mean(str(execution_mode), MODES)
            raise ValueError(f"{kind}(execution_mode={execution_mode!r}): must be one of {', '.join(MODES)}.{hint}")
        if retries < 0:
            raise ValueError(f"{kind}(retries={retries}): must not be negative")
        for name, amount in (("num_cpus", num_cpus), ("num_gpus", num_gpus)):
            if amount is not None and not (amount >= 0 and float(amount).is_integer()):
                raise ValueError(f"{kind}({name}={amount}): must be a whole number, and not negative")
        self.address, self.retries, self.fuse = address, retries, fuse
        self.execution_mode: str = execution_mode
        self.memory_budget = None if memory_budget is None else byte_size(memory_budget)
        self.ignore_head_node = ignore_head_node or os.environ.get("CURATOR_IGNORE_RAY_HEAD_NODE", "0") not in ("", "0")
        self.runtime_env, self.num_cpus, self.num_gpus = runtime_env, num_cpus, num_gpus
        self.reserved_cpus = self.reserved_gpus = 0.0
        self._cluster: Cluster | None = None

    def describe(self) -> str:
        """The executor in a few words."""
        mode = "" if self.execution_mode == "streaming" else f", {self.execution_mode} mode"
        where = f" at {self.address}" if self.address else ""
        return f"streaming on Ray{where}{mode}"

    def has_gpus(self) -> bool:
        """Whether a machine of the cluster has a GPU."""
        load_ray()
        return any(node.gpus for node in self._connected().nodes())

    def check(self, plan: Plan) -> None:
        """Refuse a plan that does not fit on the cluster, before anything is touched."""
        load_ray()
        from tamis.backends.substrates.processes import pickled_stages

        pickled_stages(_specs(plan))  # refuses what cannot be sent
        _check_runtime_envs(plan, self.runtime_env)
        cluster = self._connected(plan)
        try:
            for together in concurrent_groups(plan):
                check_fits(cluster.nodes(), [_least(plan, g, cluster.nodes()) for g in together])
        except BaseException:
            self._leave()
            raise

    def execute(self, plan: Plan, run: Run) -> bool:
        """Carry out the plan. Returns ``False`` if the user stopped it before its end."""
        try:
            return self._execute(plan, run, self._connected(plan))
        finally:
            self._leave()

    def _execute(self, plan: Plan, run: Run, cluster: Cluster) -> bool:
        from tamis.backends.substrates.ray import RaySubstrate

        share_storage(load_ray(), plan, run)
        places = run_paths(run, workers_sync=True)
        work = [g for g in plan.groups if not g.is_source]
        dedicated = [g for g in work if has_dedicated_workers(g)]
        shared = frozenset(g.index for g in work if not has_dedicated_workers(g))
        pools = [
            Pool(frozenset({g.index}), 0, reserved_cpus=g.resources.cpus, in_flight=g.in_flight) for g in dedicated
        ]
        pools += [Pool(shared, 0)] if shared else []
        envs = {g.index: g.runtime_env for g in dedicated if g.runtime_env}
        eager = frozenset(g.index for g in dedicated)
        substrate = RaySubstrate(_specs(plan), places, eager, envs, self.runtime_env)
        nodes = cluster.nodes()
        registry = WorkerRegistry(substrate, pools, {n.id: n.cpus for n in nodes}, elastic=True)
        budget = self.memory_budget or int(STORE_SHARE * cluster.store_bytes())
        limits = Limits(max(n.cpus for n in nodes), budget, self.retries, least_cpus=LEAST_CPUS)
        autoscaler = Autoscaler(plan, registry, cluster.nodes, substrate.now, cluster.cores)
        with exported_by_ray(run, plan.name):
            return carry_out(plan, run, substrate, registry, limits, places, autoscaler)

    def _connected(self, plan: Plan | None = None) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(
                self.address,
                self.num_cpus,
                self.num_gpus,
                ignore_head_node=self.ignore_head_node,
                reserved=(self.reserved_cpus, self.reserved_gpus),
            )
            # A plan that was checked may never be carried out.
            weakref.finalize(self, self._cluster.close).atexit = False
        if plan is not None and any(g.resources.gpu_memory_gb for g in plan.groups):
            self._cluster.measure_cards()
        return self._cluster

    def _leave(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()


def _specs(plan: Plan) -> dict[int, GroupSpec]:
    return {g.index: GroupSpec.of(plan, g) for g in plan.groups if not g.is_source}


def _check_runtime_envs(plan: Plan, of_executor: dict[str, Any] | None) -> None:
    """Refuse runtime environments that Ray would refuse when the first worker starts."""
    from ray.runtime_env import RuntimeEnv

    of_stages = {f"stage {plan.vertices[g.entry].name!r}": g.runtime_env for g in plan.groups}
    for whose, env in {"the executor": of_executor, **of_stages}.items():
        try:
            RuntimeEnv(**(env or {}))
        except (TypeError, ValueError) as error:
            raise PlanError(f"invalid runtime_env for {whose}: {error}") from error


def _least(plan: Plan, group: Group, nodes: list[Node]) -> Demand:
    """What a group needs at least."""
    name = " + ".join(plan.vertices[v].name for v in group.vertices)
    least = group.workers.least or 1
    if group.workers.per_node is not None:
        least = 1
    return Demand(group.index, name, group.resources, min_workers=least, max_workers=group.workers.most)
