"""The local executor: the coordinator on threads and processes of one machine, without Ray."""

from __future__ import annotations

from typing import Literal

from tamis.backends.base import Run
from tamis.backends.carry_out import carry_out, run_paths
from tamis.backends.contracts import Limits, Manager
from tamis.backends.group_spec import GroupSpec, RunPaths, set_up_on_node
from tamis.backends.local.cards import CardManager, Cards, place_on_cards
from tamis.backends.local.thread_limit import FEWEST_THREADS, ThreadLimit
from tamis.backends.substrates.base import Substrate
from tamis.backends.substrates.inline import InlineSubstrate
from tamis.backends.substrates.mixed import MixedSubstrate
from tamis.backends.substrates.processes import ProcessSubstrate, pickled_stages
from tamis.backends.substrates.threads import ThreadSubstrate
from tamis.backends.worker_registry import Pool, WorkerRegistry
from tamis.core import host
from tamis.errors import PlanError, did_you_mean
from tamis.plan import Group, Plan
from tamis.sizes import byte_size
from tamis.stages.base import NodeInfo, WorkerMetadata
from tamis.stages.io.paths import protocol

__all__ = ["LocalExecutor"]

SUBSTRATES = ("auto", "inline", "threads", "processes")
MODES = ("streaming", "batch")
MIB = 2**20


class LocalExecutor:
    """Runs a pipeline on this machine.

    Args:
        workers: How many tasks are processed at the same time; as many as cores by default. ``0`` runs everything in
            the calling thread, so that breakpoints work.
        substrate: ``"auto"`` runs stages that release the GIL on threads, and the others on processes. ``"inline"``,
            ``"threads"`` and ``"processes"`` run all stages there.
        execution_mode: ``"streaming"``: all stages at the same time, on different batches. ``"batch"``: one stage
            after the other over the whole data, which is spilled to disk in between.
        memory_budget: Memory for tasks between stages, in bytes or as ``"1GiB"``. By default a quarter of the
            machine's memory, at most 128 MiB per worker (but no less than 512 MiB).
        retries: How often a task is tried again after its stage raised.
        fuse: Whether neighbouring stages may run in one worker, without data moving between them.

    >>> LocalExecutor(workers=4, memory_budget="1GiB").describe()
    'local, 4 workers'
    """

    def __init__(
        self,
        workers: int | None = None,
        substrate: Literal["auto", "inline", "threads", "processes"] = "auto",
        execution_mode: Literal["streaming", "batch"] = "streaming",
        memory_budget: int | str | None = None,
        retries: int = 1,
        fuse: bool = True,
    ) -> None:
        for name, value, known in (("substrate", substrate, SUBSTRATES), ("execution_mode", execution_mode, MODES)):
            if value not in known:
                hint = did_you_mean(str(value), known)
                raise ValueError(f"LocalExecutor({name}={value!r}): must be one of {', '.join(known)}.{hint}")
        if workers is not None and workers < 0:
            raise ValueError(f"LocalExecutor(workers={workers}): must not be negative")
        self.workers = max(1, int(host.usable_cores())) if workers is None else workers
        self.substrate = "inline" if self.workers == 0 else substrate
        self.execution_mode: str = execution_mode
        self.memory_budget = self._budget(memory_budget)
        if retries < 0:
            raise ValueError(f"LocalExecutor(retries={retries}): must not be negative")
        self.retries = retries
        self.fuse = fuse

    def describe(self) -> str:
        """The executor in a few words."""
        kind = "inline" if self.substrate == "inline" else f"{self.workers} worker{'s' if self.workers != 1 else ''}"
        mode = "" if self.execution_mode == "streaming" else f", {self.execution_mode} mode"
        return f"local, {kind}{'' if self.substrate in ('auto', 'inline') else f' on {self.substrate}'}{mode}"

    def has_gpus(self) -> bool:
        """Whether this machine has a GPU."""
        return bool(host.gpus())

    def check(self, plan: Plan) -> None:
        """Refuse a plan that cannot run here, before anything is touched."""
        in_processes = self._in_processes(plan)
        self._cards(plan)
        for group in plan.groups:
            if group.timeout_s is not None and self.substrate == "threads":
                raise PlanError(
                    f"stage {plan.vertices[group.entry].name!r} has timeout_s={group.timeout_s:g}: a thread cannot be "
                    "ended from outside. Use LocalExecutor(substrate='auto') or 'processes'"
                )
        pickled_stages({g.index: GroupSpec.of(plan, g) for g in plan.groups if g.index in in_processes})

    def execute(self, plan: Plan, run: Run) -> bool:
        """Carry out the plan. Returns ``False`` if the user stopped it before its end."""
        places = run_paths(run)
        specs = {g.index: GroupSpec.of(plan, g) for g in plan.groups if not g.is_source}
        in_processes = self._in_processes(plan)
        if in_processes and protocol(places.scratch) == "memory":
            raise PlanError(
                'scratch="memory://..." is in the memory of one process, and some stages run in others. '
                'Use LocalExecutor(substrate="threads"), or another scratch'
            )
        on_threads = [plan.groups[i] for i in specs if i not in in_processes]
        may_move = not in_processes and self._may_move(plan, on_threads, places)
        movable = frozenset(g.index for g in on_threads) if may_move else frozenset()
        substrate = self._substrate(specs, places, in_processes, movable, run)
        for spec in specs.values():
            set_up_on_node(spec, NodeInfo(), WorkerMetadata(scratch=places.scratch))
        cpus = max(1, self.workers)
        registry = WorkerRegistry(substrate, self._pools(plan, in_processes), {"": cpus})
        limits = Limits(cpus, self.memory_budget, self.retries)
        cards = self._cards(plan)
        manager: Manager | None = CardManager(plan, registry, cards) if cards else None
        if movable and not cards and isinstance(substrate, MixedSubstrate):
            manager = ThreadLimit(registry, substrate, next(g.index for g in on_threads if not g.workers))
        return carry_out(plan, run, substrate, registry, limits, places, manager)

    def _may_move(self, plan: Plan, on_threads: list[Group], places: RunPaths) -> bool:
        """Whether threads may be replaced by processes.

        They may if the groups are given tasks that name data and do not hold it, which travel at no cost.
        """
        if self.substrate != "auto" or self.workers <= FEWEST_THREADS:
            return False
        if all(g.workers for g in on_threads) or any(g.is_async for g in on_threads):
            return False
        if protocol(places.scratch) == "memory":
            return False
        return all(g.inputs and all(plan.groups[before].is_source for before in g.inputs) for g in on_threads)

    def _cards(self, plan: Plan) -> Cards:
        """The cards of each worker of the GPU stages; refuses what does not fit."""
        if not any(g.resources.requires_gpu for g in plan.groups):
            return {}
        return place_on_cards(plan, host.gpus(), 1 if self.substrate == "inline" else self.workers)

    def _budget(self, given: int | str | None) -> int:
        if given is None:
            return min(host.memory().total_bytes // 4, max(512 * MIB, 128 * MIB * self.workers))
        budget = byte_size(given)
        if budget < MIB:
            raise ValueError(f"LocalExecutor(memory_budget={given!r}): must be at least 1 MiB")
        return budget

    def _in_processes(self, plan: Plan) -> frozenset[int]:
        """The groups that run in processes. A single worker gains nothing from them."""
        work = [g for g in plan.groups if not g.is_source]
        if self.substrate == "processes":
            return frozenset(g.index for g in work)
        if self.substrate != "auto":
            return frozenset()
        return frozenset(
            g.index
            for g in work
            if g.resources.requires_gpu
            or g.timeout_s is not None
            or (not g.releases_gil and not g.is_async and self.workers > 1)
        )

    def _substrate(
        self,
        specs: dict[int, GroupSpec],
        places: RunPaths,
        in_processes: frozenset[int],
        movable: frozenset[int],
        run: Run,
    ) -> Substrate:
        if self.substrate == "inline":
            return InlineSubstrate(specs, places, run)
        threads = ThreadSubstrate(specs, places)
        if not in_processes | movable:
            return threads
        process_specs = {i: s for i, s in specs.items() if i in in_processes | movable}
        processes = ProcessSubstrate(process_specs, places, places.payloads)
        if in_processes:
            _ = processes.stages  # raises here if one cannot be sent
        return MixedSubstrate(threads, processes, in_processes)

    def _pools(self, plan: Plan, in_processes: frozenset[int]) -> list[Pool]:
        """Workers for threads, for processes, and for each group with a GPU, a number of workers or a time limit.

        The workers of GPU stages are started when there is work for them.
        """
        size = 1 if self.substrate == "inline" else self.workers
        work = [g for g in plan.groups if not g.is_source]
        gpu = [g for g in work if g.resources.requires_gpu]
        own = [g for g in work if g.workers or g.timeout_s is not None]
        fixed = [g for g in own if not g.resources.requires_gpu]
        pools = [Pool(frozenset({g.index}), 0, in_flight=g.in_flight) for g in gpu]
        pools += [self._pool_of(g, size) for g in fixed]
        bound = {g.index for g in (*gpu, *fixed)}
        for chosen in (in_processes - bound, {g.index for g in work} - in_processes - bound):
            if chosen:
                pools.append(Pool(frozenset(chosen), size))
        return pools

    def _pool_of(self, group: Group, size: int) -> Pool:
        """Dedicated workers of a group. Those of an ``async`` stage wait most of the time, so they reserve no core."""
        count = min(size, group.workers.most or size)
        if group.is_async:
            return Pool(frozenset({group.index}), count, reserved_cpus=0.0, in_flight=group.in_flight)
        return Pool(frozenset({group.index}), count)
