"""Starts and stops the workers of a cluster while a run goes on.

Most groups share general workers: each takes the most downstream batch that is ready, so they move between stages with
every task, and nothing has to be predicted. Groups with a GPU, a number of workers, a runtime environment, a time limit
or ``async`` stages have dedicated workers: :mod:`tamis.backends.balance` computes from measurements how many, and
where. No worker is stopped in the middle of a task.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tamis.backends.balance import Demand, Node, Slot, lay_out
from tamis.backends.demand import hard_to_place_first, minimum
from tamis.backends.gpu_placement import card_share, node_states_of
from tamis.backends.worker_registry import Worker, WorkerRegistry
from tamis.errors import ResourceError
from tamis.plan import Group, Plan

if TYPE_CHECKING:
    from tamis.backends.coordinator import Coordinator

SHARED_TICK_S = 0.2
"""How often general workers are added or stopped."""

DEDICATED_TICK_S = 1.0
"""How often dedicated workers are balanced."""

DEDICATED_PER_GENERAL = 2
"""At first there is one general worker for this many dedicated ones."""

CORES_AT_FIRST = 0.25
"""At first the general workers may use at least this share of the cores."""

STARVED_S = 1.0
"""The period, roughly, over which the time that dedicated workers wait for general ones is averaged."""

STARVED, STARVING = 0.45, 0.9
"""More general workers are started above this share of time waited: STARVING while some are starting, else STARVED."""

LOAD_S = 5.0
"""The period, roughly, over which the number of busy general workers is averaged."""

SPARE = 1.3
"""General workers may be this many times as many as are busy on average, plus one."""

CALM_S = 15.0
"""How long there must have been too many general workers before one is stopped. Doubles if more are needed later."""

LONGEST_CALM_S = 600.0
"""The limit of this doubling."""

PATIENCE = 2
"""How many times in a row a worker must have been surplus before it is stopped."""

TELLING_AGE_S = 2.0
"""Before a group's first task is finished, the age of a running task counts as its service time, from this age on."""

AVOIDED_S = 2.0
"""How long a machine gets no new workers after one failed to start there. Doubles with each failure in a row."""

LONGEST_AVOIDED_S = 8.0
"""The limit of this doubling."""

NO_ROOM_S = 60.0
"""How long a group with work may be without a worker before the run fails: a lost machine may come back."""

START_S = 600.0
"""How long a group's workers may take to start before the run fails: packages may have to be installed."""


def has_dedicated_workers(group: Group) -> bool:
    """Whether a group has workers that run nothing else."""
    reasons = (
        group.resources.requires_gpu,
        group.workers,
        group.runtime_env,
        group.timeout_s is not None,
        group.is_async,
    )
    return any(map(bool, reasons))


class Autoscaler:
    """Starts and stops workers.

    Args:
        plan: The groups.
        registry: The workers. Dedicated workers are in a pool with one group.
        nodes: Returns the machines there are now.
        now: The clock, in seconds.
        cores: Returns how many cores a machine really has. At most this many processes of each kind start there at a
            time: the first are ready sooner, and by then the others may not be needed.
    """

    def __init__(
        self,
        plan: Plan,
        registry: WorkerRegistry,
        nodes: Callable[[], Sequence[Node]],
        now: Callable[[], float],
        cores: Callable[[str], float] = lambda node: math.inf,
    ) -> None:
        self._plan, self._registry, self._nodes, self._now, self._cores = plan, registry, nodes, now, cores
        work = [g for g in plan.groups if not g.is_source]
        self._dedicated = [g for g in work if has_dedicated_workers(g)]
        self._shared = [g for g in work if not has_dedicated_workers(g)]
        self._next_shared = self._next_dedicated = -math.inf
        self._looked = now()
        self._load = 0.0  # busy general workers, on average
        self._starved = 0.0  # the share of time that dedicated workers wait for general ones
        self._crowded_since: float | None = None
        self._calm_s, self._stopped_some, self._first_are_started = CALM_S, False, False
        self._setup_s: dict[int, float] = {}
        self._surplus: Counter[int] = Counter()  # how often in a row a worker was surplus
        self._stuck_since: dict[int, float] = {}
        self._reported: set[int] = set()  # groups whose missing workers were reported to the user
        self._starting: list[Worker] = []
        # Machines where workers failed to start: avoided until when, and for how long.
        self._avoided: dict[str, tuple[float, float]] = {}

    def up(self, worker: Worker) -> None:
        """The process of a worker has started, so others may start."""
        self._next_dedicated = self._next_shared = self._now()

    def ready(self, worker: Worker, seconds: float) -> None:
        """A worker is ready, after this many seconds."""
        for group in self._registry.groups_of(worker):
            self._setup_s[group] = seconds
        self._avoided.pop(worker.node, None)
        self._next_dedicated = min(self._next_dedicated, self._now())

    def adjust(self, coordinator: Coordinator) -> None:
        """Start and stop workers, as the work of the groups requires."""
        now = self._now()
        if now < min(self._next_shared, self._next_dedicated):
            return
        nodes = self._nodes()
        self._registry.cpus = {n.id: n.cpus for n in nodes}
        self._note_failed_starts(now)
        if self._dedicated and now >= self._next_dedicated:
            self._next_dedicated = now + DEDICATED_TICK_S
            self._balance(coordinator, nodes, now)
        if self._shared and now >= self._next_shared:
            self._next_shared = now + SHARED_TICK_S
            team = [w for w in self._registry.of_pool(self._registry.pool_for(self._shared[0].index)) if not w.draining]
            self._add_shared(coordinator, team, nodes, now)
            self._stop_idle(team, now)
            self._looked = now
            self._watch(coordinator, self._shared, now)

    def _note_failed_starts(self, now: float) -> None:
        """Avoid machines where a worker was lost before it was ready: the machine may be gone."""
        failed = {
            w.node for w in self._starting if not w.ready and not w.draining and w.index not in self._registry.workers
        }
        for node in failed:
            wait_s = min(2 * self._avoided[node][1], LONGEST_AVOIDED_S) if node in self._avoided else AVOIDED_S
            self._avoided[node] = now + wait_s, wait_s
        self._starting = [w for w in self._starting if not w.ready and w.index in self._registry.workers]

    def _start(self, pool: int, node: str, gpu_ids: tuple[int, ...] = ()) -> None:
        self._starting.append(self._registry.start_worker(pool, node, gpu_ids))

    def _can_start(self, node: str, now: float, *, dedicated: bool) -> bool:
        """Whether one more process may be started on a machine."""
        if node in self._avoided and now < self._avoided[node][0]:
            return False
        starting = [w for w in self._starting if w.node == node and not w.up and w.index in self._registry.workers]
        same_kind = sum(self._is_general(w) is not dedicated for w in starting)
        return same_kind < max(2.0, self._cores(node))

    def _is_general(self, worker: Worker) -> bool:
        return bool(self._shared) and worker.pool == self._registry.pool_for(self._shared[0].index)

    # -- general workers ---------------------------------------------------------------------------------------------

    def _add_shared(self, coordinator: Coordinator, team: list[Worker], nodes: Sequence[Node], now: float) -> None:
        states = [coordinator.scheduler.groups[g.index] for g in self._shared]
        wanted = sum(len(s.ready) + s.running for s in states)
        pool = self._registry.pool_for(self._shared[0].index)
        here = Counter(w.node for w in team)
        missing = wanted - here.total()
        if not self._would_more_help(coordinator, team, now):
            if self._first_are_started and team:
                return
            first = math.ceil(self._enough_at_first(nodes)) - here.total()
            missing, self._first_are_started = min(missing, first), self._first_are_started or first <= 0
        if missing <= 0:
            return
        if self._stopped_some:
            self._stopped_some, self._calm_s = False, min(2 * self._calm_s, LONGEST_CALM_S)
        each = min(max(coordinator.limits.least_cpus, g.resources.cpus) for g in self._shared)
        able = [n.id for n in nodes if n.cpus > 0]
        room = {node: max(1, int(self._registry.unreserved(node) / each + 1e-9)) - here[node] for node in able}
        while missing > 0 and room:
            node = max(room, key=lambda name: room[name])
            if room[node] <= 0:
                return
            if not self._can_start(node, now, dedicated=False):
                del room[node]
                continue
            self._start(pool, node)
            room[node] -= 1
            missing -= 1

    def _enough_at_first(self, nodes: Sequence[Node]) -> float:
        dedicated = [w.node for w in self._registry.workers.values() if not self._is_general(w) and not w.draining]
        cores = sum(min(n.cpus, self._cores(n.id)) for n in nodes)
        return max(2.0, len(dedicated) / DEDICATED_PER_GENERAL, len(set(dedicated)), CORES_AT_FIRST * cores)

    def _would_more_help(self, coordinator: Coordinator, team: list[Worker], now: float) -> bool:
        """Whether more general workers would help, averaged over the last ticks. Call once per tick.

        They help if a dedicated worker is idle, since it waits for the outputs of general workers or for room for its
        own, and every general worker is busy.
        """
        scheduler = coordinator.scheduler
        active = [g for g in self._dedicated if scheduler.expects_work(scheduler.groups[g.index])]
        if not active:
            return True
        waiting = any(w.ready and not w.tickets for g in active for w in self._workers_of(g))
        starved = waiting and all(w.tickets for w in team if w.ready) and self._first_are_started
        self._starved += (starved - self._starved) * self._passed(now, STARVED_S)
        return self._starved > (STARVED if all(w.ready for w in team) else STARVING)

    def _passed(self, now: float, period_s: float) -> float:
        """The weight of the time since the last tick in an average over a period."""
        return -math.expm1((self._looked - now) / period_s)

    def _stop_idle(self, team: list[Worker], now: float) -> None:
        """Stop a general worker if there have been too many for some time: an idle process costs memory, too."""
        busy = sum(bool(w.tickets) for w in team)
        self._load += (busy - self._load) * self._passed(now, LOAD_S)
        if len(team) <= math.ceil(SPARE * self._load + 1) or busy == len(team):
            self._crowded_since = None
            return
        if self._crowded_since is None:
            self._crowded_since = now
        if now - self._crowded_since < self._calm_s:
            return
        on_node = Counter(w.node for w in team)  # every machine keeps one, for the data that lies there
        idle = [w for w in team if w.ready and not w.tickets and on_node[w.node] > 1]
        if idle:
            self._stopped_some = True
            self._registry.drain(max(idle, key=lambda w: on_node[w.node]))

    # -- dedicated workers -------------------------------------------------------------------------------------------

    def _balance(self, coordinator: Coordinator, nodes: Sequence[Node], now: float) -> None:
        shares = self._shares(coordinator)
        active = [
            g for g in self._dedicated if coordinator.scheduler.expects_work(coordinator.scheduler.groups[g.index])
        ]
        spread = {g.index: _on_each(g, nodes) for g in active if _is_spread(g)}
        rest = _without(nodes, [(g, spread[g.index]) for g in active if g.index in spread])
        others = [g for g in active if g.index not in spread]
        demands = _that_fit(rest, [self._demand(coordinator, g, shares[g.index], nodes, now) for g in others])
        workers = {g.index: self._workers_of(g) for g in self._dedicated}
        current = {i: [Slot(w.node, w.gpu_ids) for w in there] for i, there in workers.items()}
        target = spread | lay_out(
            rest, demands, self._shared_cpu_s(coordinator, shares), {d.group: current[d.group] for d in demands}
        )
        most = {d.group: d.max_workers for d in demands}
        open_slots: list[tuple[int, Group, Slot]] = []
        for group in self._dedicated:
            wanted = Counter(target.get(group.index, []))
            self._drain_surplus(workers[group.index], wanted, at_once=group not in active)
            has, limit = len(workers[group.index]), most.get(group.index)
            slots = list(wanted.elements())
            if limit is not None:  # draining workers count too
                slots = slots[
                    : max(0, limit - sum(1 for _ in self._registry.of_pool(self._registry.pool_for(group.index))))
                ]
            open_slots += [(has + n, group, slot) for n, slot in enumerate(slots)]
        self._start_workers(open_slots, nodes, now)
        self._watch(coordinator, active, now)

    def _workers_of(self, group: Group) -> list[Worker]:
        """The workers of a group that are not draining, those that hold work first."""
        there = [w for w in self._registry.of_pool(self._registry.pool_for(group.index)) if not w.draining]
        return sorted(there, key=lambda w: (not w.ready, -len(w.tickets)))

    def _drain_surplus(self, workers: list[Worker], wanted: Counter[Slot], *, at_once: bool) -> None:
        """Remove from ``wanted`` the slots that workers have already; drain the workers that are not wanted."""
        for worker in workers:
            slot = Slot(worker.node, worker.gpu_ids)
            if wanted[slot] > 0:
                wanted[slot] -= 1
                self._surplus.pop(worker.index, None)
                continue
            self._surplus[worker.index] += 1
            if at_once or self._surplus[worker.index] >= PATIENCE:
                del self._surplus[worker.index]
                self._registry.drain(worker)

    def _start_workers(self, open_slots: list[tuple[int, Group, Slot]], nodes: Sequence[Node], now: float) -> None:
        """Start workers in the free slots, first for the groups with the fewest workers."""
        memory = {n.id: n.gpus for n in nodes}
        for _, group, slot in sorted(open_slots, key=lambda entry: entry[0]):
            free = all(self._card_is_free(group, slot.node, card, memory) for card in slot.gpu_ids)
            if free and self._can_start(slot.node, now, dedicated=True):
                self._start(self._registry.pool_for(group.index), slot.node, slot.gpu_ids)

    def _card_is_free(self, group: Group, node: str, card: int, memory: dict[str, tuple[float, ...]]) -> bool:
        taken = min(1.0, card_share(group.resources, memory[node][card]))
        for other in self._dedicated:
            there = self._registry.of_pool(self._registry.pool_for(other.index))
            workers = sum(w.node == node and card in w.gpu_ids for w in there)
            if workers:
                taken += workers * min(1.0, card_share(other.resources, memory[node][card]))
        return taken <= 1 + 1e-9

    def _demand(
        self, coordinator: Coordinator, group: Group, share: float, nodes: Sequence[Node], now: float
    ) -> Demand:
        state = coordinator.scheduler.groups[group.index]
        left = coordinator.scheduler.work_left(state)
        least, most = group.workers.least or 1, group.workers.most
        if group.workers.per_node is not None:
            suitable = sum(bool(n.gpus) or not group.resources.requires_gpu for n in nodes if n.cpus > 0)
            least = most = max(1, math.ceil(group.workers.per_node * suitable))
        return Demand(
            group.index,
            self._plan.vertices[group.entry].name,
            group.resources,
            service_s=self._service_s(coordinator, group, now),
            share=share,
            setup_s=self._setup_s.get(group.index, 0.0),
            min_workers=least,
            max_workers=most,
            work_left=None if left is None else math.ceil(left / min(group.batch_size or 1, max(1, left))),
        )

    def _service_s(self, coordinator: Coordinator, group: Group, now: float) -> float | None:
        measured = coordinator.timings[group.index].service.per_task
        if measured is not None:
            return measured / group.in_flight
        age = max((w.busy_s(now) for w in self._registry.of_pool(self._registry.pool_for(group.index))), default=0.0)
        return age if age >= TELLING_AGE_S else None

    def _shared_cpu_s(self, coordinator: Coordinator, shares: list[float]) -> float | None:
        """CPU seconds per task of the input that general workers need, as far as it was measured."""
        active = [g for g in self._shared if coordinator.scheduler.expects_work(coordinator.scheduler.groups[g.index])]
        if not active:
            return 0.0
        times = [(coordinator.timings[g.index].service.per_task, g) for g in active]
        known = [
            s * shares[g.index] * max(coordinator.limits.least_cpus, g.resources.cpus)
            for s, g in times
            if s is not None
        ]
        return sum(known) if known else None

    def _shares(self, coordinator: Coordinator) -> list[float]:
        """Tasks of each group per task of their source, so far."""
        shares = [0.0] * len(self._plan.groups)
        for state in coordinator.scheduler.groups:
            index = state.group.index
            if state.group.is_source or not state.group.inputs:
                shares[index] = 1.0
            for target in state.group.targets:
                each = state.sent.get(target, 0) / state.done if state.done else 1.0
                if not self._plan.groups[target].is_source:
                    shares[target] += shares[index] * each
        return shares

    def _watch(self, coordinator: Coordinator, groups: list[Group], now: float) -> None:
        """Fail the run when a group with work has had no worker for a long time, or none that has started."""
        for group in groups:
            workers = self._workers_of(group)
            if coordinator.scheduler.groups[group.index].live == 0 or any(w.up for w in workers):
                self._stuck_since.pop(group.index, None)
                continue
            waited = now - self._stuck_since.setdefault(group.index, now)
            if waited <= NO_ROOM_S:
                continue
            name = self._plan.vertices[group.entry].name
            if not workers and has_dedicated_workers(group):
                raise ResourceError(
                    f"stage {name!r} has work, but no machine has had room for one of its workers for {NO_ROOM_S:g} s "
                    f"({group.resources}): a machine of the cluster may be gone"
                )
            env = f"its runtime_env {dict(group.runtime_env)}" if group.runtime_env else "the runtime_env of the run"
            why = f"{env} may take long to install, or cannot be installed; see Ray's logs"
            if not workers:
                why = "the cluster has no machine for it"
            if waited > START_S:
                raise ResourceError(f"stage {name!r} has work, but none of its workers started in {START_S:g} s: {why}")
            if group.index not in self._reported:
                self._reported.add(group.index)
                coordinator.tell(f"no worker of stage {name!r} has started in {NO_ROOM_S:g} s: {why}")


def _is_spread(group: Group) -> bool:
    """Whether a group has a fixed number of workers on each machine. With GPUs, only the total is fixed."""
    return group.workers.per_node is not None and not group.resources.requires_gpu


def _on_each(group: Group, nodes: Sequence[Node]) -> list[Slot]:
    """The same number of workers on every machine; for a fraction, one on this share of the machines."""
    each = group.workers.per_node or 0.0
    able = sorted((n for n in nodes if n.cpus > 0), key=lambda n: n.id)
    if each < 1:
        able = able[: max(1, math.ceil(each * len(able)))]
    return [Slot(n.id) for n in able for _ in range(max(1, math.ceil(each)))]


def _without(nodes: Sequence[Node], taken: list[tuple[Group, list[Slot]]]) -> list[Node]:
    """The machines without the cores that these workers reserve."""
    held = Counter[str]()
    for group, slots in taken:
        for slot in slots:
            held[slot.node] += group.resources.cpus  # type: ignore[assignment]  # cores may be fractions
    return [replace(n, cpus=max(0.0, n.cpus - held[n.id])) for n in nodes]


def _that_fit(nodes: Sequence[Node], demands: list[Demand]) -> list[Demand]:
    """The demands, with a minimum of one worker each if there is no room for all minimums."""
    order = hard_to_place_first(demands, nodes)
    if minimum(node_states_of(nodes, {}, {}), order, {d.group: d.least for d in order}) is not None:
        return demands
    return [replace(d, min_workers=1) for d in demands]
