"""cosmos-xenna as an engine: each group is a stage of a Xenna pipeline, and parcels are its samples.

Xenna expects a cluster that runs nothing else. To run it on any Ray cluster, two parts of it are replaced here: its
monitor, which needs the dashboard, the state API and a core on every machine, by one that only checks whether to
continue; and its count of GPUs, which includes only those with a driver, by Ray's. Processes that outlive their actors
are ended. The names used for this are private to Xenna; they are the same from version 0.3 to 0.5.
"""

from __future__ import annotations

import contextlib
import math
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis.backends.external.operator import OperatorSpec, Parcel
from tamis.backends.external.ray_session import ClusterNode, end_members
from tamis.backends.external.worker_spec import WorkerSpec
from tamis.errors import ResourceError, StageError, TamisError, WorkerDiedError
from tamis.plan import Group

SETTINGS = (
    "num_setup_attempts_python",
    "slots_per_actor",
    "worker_max_lifetime_m",
    "worker_restart_interval_m",
    "max_setup_failure_percentage",
)
"""Settings of a stage that are passed to Xenna; the others are handled here."""


@dataclass
class XennaPlacement:
    """How a group runs on Xenna.

    Args:
        group: The group.
        cpus, gpus: What one worker requests from Xenna.
        workers: A fixed number of workers.
        per_node: Or a fixed number of workers on each machine.
        runtime_env: The runtime environment of their processes.
        settings: The ``xenna_stage_spec`` of the stages.
    """

    group: Group
    cpus: float
    gpus: float
    workers: int | None = None
    per_node: float | None = None
    runtime_env: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def least_workers(self, nodes: int) -> int:
        """The least number of workers that Xenna starts."""
        if self.workers is not None:
            return self.workers
        return 1 if self.per_node is None else max(1, math.ceil(self.per_node * nodes))


class _Aborted(Exception):
    """The driver ends the pipeline."""


class XennaEngine:
    """Runs segments of a plan as Xenna pipelines.

    Args:
        worker_spec: What workers need.
        placements: How each group runs.
        config: The executor's settings.
        nodes: The machines that may be used.
    """

    def __init__(
        self,
        worker_spec: WorkerSpec,
        placements: dict[int, XennaPlacement],
        config: dict[str, Any],
        nodes: Sequence[ClusterNode],
    ) -> None:
        self.workers = max(1, int(sum(n.cpus for n in nodes)))
        self._worker_spec, self._placements, self._config, self._nodes = worker_spec, placements, config, nodes
        self._mailbox = worker_spec.mailbox
        self._aborted = threading.Event()

    def operator(self, group: Group, inside: frozenset[int]) -> OperatorSpec:
        """What the workers of a group need."""
        settings = self._placements[group.index].settings
        return self._worker_spec.operator(
            group,
            inside,
            retries=max(0, int(settings.get("num_run_attempts_python", 2)) - 1),
            keep_failed=bool(settings.get("ignore_failures", self._config["ignore_failures"])),
            renew=bool(settings.get("reset_workers_on_failure", False)),
            setup_attempts=int(settings.get("num_setup_attempts_python", 1)),
        )

    def take(self, wait_s: float) -> list[bytes]:
        """The records that have arrived."""
        return self._mailbox.take(wait_s)

    def abort(self) -> None:
        """End the running pipeline."""
        self._aborted.set()

    def carry(self, groups: Sequence[Group], operators: Sequence[OperatorSpec], parcels: list[Parcel]) -> None:
        """Run one Xenna pipeline: the parcels, through all stages."""
        import ray
        from loguru import logger

        logger.disable("cosmos_xenna")
        import cosmos_xenna.pipelines.v1 as xenna

        from tamis.backends.xenna.stage import XennaStage

        specs = []
        for group, operator in zip(groups, operators, strict=True):
            placement = self._placements[group.index]
            stage = XennaStage(operator, self._mailbox.slot, placement.cpus, placement.gpus, placement.runtime_env)
            settings = {k: v for k, v in placement.settings.items() if k in SETTINGS}
            specs.append(
                xenna.StageSpec(
                    stage, num_workers=placement.workers, num_workers_per_node=placement.per_node, **settings
                )
            )
        streaming = self._config["execution_mode"] == "streaming"
        nothing = xenna.VerbosityLevel.NONE
        config = xenna.PipelineConfig(
            execution_mode=xenna.ExecutionMode.STREAMING if streaming else xenna.ExecutionMode.BATCH,
            logging_interval_s=self._config["logging_interval"],
            cpu_allocation_percentage=self._config["cpu_allocation_percentage"],
            mode_specific=xenna.StreamingSpecificSpec(
                autoscale_interval_s=self._config["autoscale_interval_s"], executor_verbosity_level=nothing
            ),
            actor_pool_verbosity_level=nothing,
            monitoring_verbosity_level=nothing,
        )
        with self._adapted():
            try:
                xenna.run_pipeline(xenna.PipelineSpec(input_data=parcels, stages=specs, config=config))
            except _Aborted:
                return
            except Exception as error:
                raise _engine_error(error) from error
            finally:
                end_members(ray, self._mailbox.members())

    @contextlib.contextmanager
    def _adapted(self) -> Iterator[None]:
        """Replace the parts of Xenna that need more than a Ray cluster, for the time of a run."""
        from cosmos_xenna.pipelines.private import monitoring, specs
        from cosmos_xenna.ray_utils import cluster

        engine, make_stage = self, specs.make_actor_pool_stage_from_stage_spec
        count_resources = cluster.make_cluster_resources_from_ray_nodes
        logical: set[bool] = set()

        class Monitor:
            """Replaces Xenna's monitor."""

            def __init__(self, interval_s: float, inputs: int, pools: list[Any], *_: Any) -> None:
                self._pools = pools

            def __enter__(self) -> Monitor:
                return self

            def __exit__(self, kind: Any, *_: Any) -> None:
                if kind is not None:  # Xenna does not stop its actors when it fails
                    for pool in self._pools:
                        with contextlib.suppress(Exception):
                            pool.stop()

            def update(self, *_: Any, **__: Any) -> bool:
                if engine._aborted.is_set():
                    raise _Aborted
                return False

        def resources(cpu_allocation_percentage: float = 1.0) -> Any:
            counted = count_resources(cpu_allocation_percentage)
            if engine._fill_up(counted):
                logical.add(True)
            return counted

        def stage_with_params(*arguments: Any) -> Any:
            made = make_stage(*arguments)
            if logical:  # no device to make visible
                made.params.modify_cuda_visible_devices_env_var = False
            return made

        replaced: list[tuple[Any, str, Any]] = [
            (monitoring, "PipelineMonitor", Monitor),
            (cluster, "make_cluster_resources_from_ray_nodes", resources),
            (cluster, "init_or_connect_to_cluster", lambda *_, **__: None),
            (specs, "make_actor_pool_stage_from_stage_spec", stage_with_params),
        ]
        before = [(module, name, getattr(module, name)) for module, name, _ in replaced]
        for module, name, replacement in replaced:
            setattr(module, name, replacement)
        try:
            yield
        finally:
            for module, name, original in before:
                setattr(module, name, original)

    def _fill_up(self, counted: Any) -> bool:
        """Correct Xenna's count; returns whether some GPUs are logical: known to Ray, but without a device."""
        from cosmos_xenna.pipelines.private.resources import GpuResources

        known = {n.id: n for n in self._nodes}
        found = False
        for name in list(counted.nodes):
            if name not in known:
                del counted.nodes[name]
                continue
            node = counted.nodes[name]
            node.total_cpus = max(1, node.total_cpus)
            for index in range(len(node.gpus), int(known[name].gpus)):
                node.gpus.append(GpuResources(index=index, uuid_=uuid.uuid4(), used_fraction=0.0))
                found = True
        return found


def _engine_error(error: Exception) -> Exception:
    """A short error for what went wrong in Xenna itself, not in a stage."""
    if isinstance(error, TamisError):
        return error
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    message = lines[0] if lines else type(error).__name__
    chain: list[BaseException] = [error]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None and len(chain) < 10:
        chain.append(before)
    if any("ActorDied" in type(e).__name__ or "WorkerCrashed" in type(e).__name__ for e in chain):
        return WorkerDiedError(f"a worker died, and this version of cosmos-xenna fails then: {message}")
    if message.startswith("Unable to allocate"):
        return ResourceError(
            f"cosmos-xenna keeps a worker of every stage at the same time and has no room for them: {message}. Give "
            "shares of a card that fit on one card together, Resources(gpus=0.5), or fewer workers"
        )
    return StageError(f"cosmos-xenna failed: {type(error).__name__}: {message}")


__all__ = ["XennaEngine", "XennaPlacement"]
