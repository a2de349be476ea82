"""The Ray Data executor: a plan as a chain of ``map_batches``, around the same runner as in every executor."""

from __future__ import annotations

from typing import Any

from tamis.backends.base import Run
from tamis.backends.external.driver import segments_of
from tamis.backends.external.fitting import AMOUNT, COUNT, FLAG, TABLE, Need, check_gpus, check_settings, scaled_cpus
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
from tamis.backends.ray_data.engine import RayDataEngine, RayDataPlacement
from tamis.backends.streaming.cluster_view import load_ray
from tamis.backends.substrates.processes import pickled_stages
from tamis.errors import MissingExtraError, PlanError
from tamis.plan import Group, Plan
from tamis.stages.base import ProcessingStage

__all__ = ["RayDataExecutor"]

SPEC_KEYS = {
    "is_actor_stage": FLAG,
    "is_fanout_stage": FLAG,
    "is_raft_actor": FLAG,
    "is_lsh_stage": FLAG,
    "is_shuffle_stage": FLAG,
    "max_calls_per_worker": COUNT,
    "min_workers": COUNT,
    "max_workers": COUNT,
    "initial_workers": COUNT,
    "ray_remote_args": TABLE,
    "ray_num_cpus": AMOUNT,
}
"""The keys of ``ray_stage_spec``. Fan-out and shuffles are known from the plan, so those keys change nothing."""

RESERVED_REMOTE_ARGS = ("compute", "max_calls", "num_cpus", "num_gpus")
"""Keys that ``ray_remote_args`` must not have: stages have other settings for them."""


class RayDataExecutor:
    """Runs a pipeline on Ray Data.

    A stage with a ``setup`` or ``teardown``, or with a GPU, runs in a pool of actors; others as Ray tasks.

    Args:
        config: ``{"runtime_env": {...}}``: the Ray runtime environment of stages that have none.
        ignore_head_node: Whether to keep the head node free of work. ``CURATOR_IGNORE_RAY_HEAD_NODE=1`` does the same.
        fuse: Whether neighbouring stages may run in one worker, without data moving between them.
        retries: How often a task is tried again after its stage raised.

    >>> RayDataExecutor(ignore_head_node=True).describe()
    'Ray Data, without the head node'
    """

    def __init__(
        self,
        config: dict[str, Any] | None = None,
        ignore_head_node: bool = False,
        fuse: bool = True,
        retries: int = 1,
    ) -> None:
        check_settings(config or {}, {"runtime_env": TABLE}, "RayDataExecutor(config=...)")
        if retries < 0:
            raise ValueError(f"RayDataExecutor(retries={retries}): must not be negative")
        self.config = dict(config or {})
        self.ignore_head_node = ignores_head(ignore_head_node)
        self.execution_mode = "streaming"
        self.fuse = fuse
        self.retries = retries
        self._session = RaySession("RayDataExecutor")

    def describe(self) -> str:
        """The executor in a few words."""
        return f"Ray Data{', without the head node' if self.ignore_head_node else ''}"

    def has_gpus(self) -> bool:
        """Whether a machine of the cluster has a GPU."""
        load_ray("RayDataExecutor")
        return any(node.gpus for node in nodes_of(self._session.begin(), ignore_head=self.ignore_head_node))

    def check(self, plan: Plan) -> None:
        """Raise if the plan cannot run here, before anything is touched."""
        load_ray("RayDataExecutor")
        try:
            import pandas  # noqa: F401 - Ray Data itself cannot be imported without it
        except ImportError as error:
            raise MissingExtraError("RayDataExecutor", package="pandas", extra="ray") from error
        for group in plan.groups:
            _spec_of(plan, group)
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
            worker_spec = WorkerSpec.of(ray, plan, run, nodes, self.config.get("runtime_env"))
            return run_on_engine(plan, run, RayDataEngine(worker_spec, placements, nodes, self.retries), worker_spec)
        finally:
            self._session.end()

    def _fitted(self, plan: Plan) -> tuple[Any, list[ClusterNode], dict[int, RayDataPlacement]]:
        """Ray, its machines, and how the groups run on them."""
        ray = self._session.begin()
        nodes = nodes_of(ray, ignore_head=self.ignore_head_node)
        return ray, nodes, self._placements(ray, plan, nodes)

    def _placements(self, ray: Any, plan: Plan, nodes: list[ClusterNode]) -> dict[int, RayDataPlacement]:
        """For each group: tasks or actors, how many, and what each requests from Ray."""
        wants_memory = any(g.resources.gpu_memory_gb for g in plan.groups)
        card_gb = card_memory_gb(ray, nodes) if wants_memory else 0.0
        total, largest = sum(n.cpus for n in nodes), max(n.cpus for n in nodes)
        placements: dict[int, RayDataPlacement] = {}
        for segment in segments_of(plan):
            own = [self._placement(plan, g, card_gb, len(nodes)) for g in segment.groups]
            needs = [Need(names_of(plan, s.group), s.cpus, s.gpus, s.least) for s in own]
            check_gpus(needs, nodes, "Ray Data")
            # Actors keep their cores to the end. If tasks run too, some cores must be left for them.
            actors = [(s, n) for s, n in zip(own, needs, strict=True) if s.is_actor]
            for_tasks = max((s.cpus for s in own if not s.is_actor), default=0.0)
            for_tasks = min(for_tasks, largest, total / 2 if actors else total)
            scaled = scaled_cpus([n for _, n in actors], total - for_tasks, largest)
            for (placement, _), cpus in zip(actors, scaled, strict=True):
                placement.cpus = cpus
            for placement in own:
                placement.cpus = placement.cpus if placement.is_actor else min(placement.cpus, for_tasks)
                placements[placement.group.index] = placement
        return placements

    def _placement(self, plan: Plan, group: Group, card_gb: float, nodes: int) -> RayDataPlacement:
        spec = _spec_of(plan, group)
        stages = [plan.vertices[v].stage for v in group.vertices]
        lives = any(
            type(s).setup is not ProcessingStage.setup or type(s).teardown is not ProcessingStage.teardown
            for s in stages
        )
        gpus = gpu_share(names_of(plan, group), group.resources, card_gb)
        least, most = group.workers.least, group.workers.most
        if group.workers.per_node is not None:
            least = most = max(1, round(group.workers.per_node * nodes))
        initial = spec.get("initial_workers")
        if initial is not None and not (least or 1) <= initial <= (most or initial):
            raise PlanError(
                f"stage {names_of(plan, group)!r}: initial_workers={initial} must be between the smallest and the "
                f"largest number of workers, {least or 1} and {most or 'any number'}"
            )
        return RayDataPlacement(
            group,
            is_actor=bool(spec.get("is_actor_stage", False) or gpus or lives),
            cpus=float(spec.get("ray_num_cpus", group.resources.cpus)),
            gpus=gpus,
            least=least or 1,
            most=most,
            initial=initial,
            max_calls=spec.get("max_calls_per_worker"),
            runtime_env=group.runtime_env or self.config.get("runtime_env"),
            remote_args=dict(spec.get("ray_remote_args") or {}),
        )


def _spec_of(plan: Plan, group: Group) -> dict[str, Any]:
    """The checked settings of a group's stages for Ray; if several stages share a worker, the last one wins."""
    together: dict[str, Any] = {}
    for vertex in (plan.vertices[v] for v in group.vertices):
        spec = vertex.stage.ray_stage_spec()
        where = f"stage {vertex.name!r}, ray_stage_spec"
        check_settings(spec, SPEC_KEYS, where)
        for key in spec.get("ray_remote_args") or {}:
            if key in RESERVED_REMOTE_ARGS:
                raise PlanError(
                    f"{where}: ray_remote_args must not have {key!r}. Use Resources(...), num_workers or "
                    "max_calls_per_worker"
                )
        together.update((key, value) for key, value in spec.items() if value is not None)
    return together
