"""How many workers each stage should have, and on which nodes and cards, computed from measurements.

The rate of a stage is the number of its workers divided by the seconds it spends per task of the input. The slowest
stage limits the pipeline, so its rate is raised (max-min, "water filling") until something it needs runs out. The
stages that general workers run count as one stage, which uses all cores that no worker has reserved.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from tamis.backends.demand import UNLIMITED_WORKERS, Demand, check_fits, hard_to_place_first, minimum
from tamis.backends.gpu_placement import (
    EPSILON,
    Cores,
    Node,
    NodeState,
    Slot,
    count_workers,
    least_share,
    node_states_of,
    place_workers,
    shared_cpus,
    slots_of,
)
from tamis.backends.relocation import Relocation

__all__ = ["Demand", "Node", "Slot", "check_fits", "lay_out"]

_WORTHWHILE = 1.05
_NEARLY_SLOWEST = 1.15
_ROUNDS = 8
_ROUNDING = 1e-6


def lay_out(
    nodes: Sequence[Node],
    demands: Sequence[Demand],
    shared_cpu_s: float | None,
    current: Mapping[int, Sequence[Slot]],
    horizon_s: float = 60.0,
) -> dict[int, list[Slot]]:
    """Decide where the workers of each group should be.

    Workers in ``current`` stay where they are unless another group needs their room and moving them pays off. The
    layout is stable: called again with its own result as ``current``, it returns the same.

    Args:
        nodes: The cluster.
        demands: The stages with dedicated workers.
        shared_cpu_s: CPU seconds that all other stages together need per task of the input; ``None``: not known yet,
            0: there are none.
        current: Where the workers are now, without those that are draining.
        horizon_s: Restarting workers must pay off within this many seconds.

    >>> from tamis.stages.resources import Resources
    >>> nodes = [Node("a", cpus=16, gpus=(0.0,) * 4)]
    >>> demands = [Demand(2, "gpu", Resources(cpus=1, gpus=1), service_s=0.25)]
    >>> lay_out(nodes, demands, shared_cpu_s=2.3, current={})
    {2: [Slot(node='a', gpu_ids=(0,)), Slot(node='a', gpu_ids=(1,))]}
    """
    active = [demand for demand in demands if demand.limit > 0]
    kept = {demand.group: _within_limit(demand, current.get(demand.group, ())) for demand in active}
    plan = _Planner(nodes, active, shared_cpu_s, horizon_s)
    node_states = plan.with_minimum(node_states_of(nodes, kept, plan.needs))
    cold = not any(kept.values())
    # One step may make the next possible; a few rounds reach a stable layout.
    for _ in range(_ROUNDS):
        before = node_states
        node_states = plan.seeded(node_states)
        best = plan.fresh(node_states)
        if cold and best is not None and plan.rate(best) > plan.rate(node_states):
            node_states = best
        node_states, cold = plan.improved(node_states, best), False
        if slots_of(before) == slots_of(node_states):
            break
    slots = slots_of(node_states)
    return {d.group: _in_order(current.get(d.group, ()), slots.get(d.group, Counter())) for d in demands}


def _within_limit(demand: Demand, slots: Sequence[Slot]) -> list[Slot]:
    """The slots to keep, at most the limit; workers that share a card with few others leave first."""
    excess = len(slots) - demand.limit
    if excess <= 0:
        return list(slots)
    workers_in = Counter(slots)
    leaving = sorted(range(len(slots)), key=lambda i: (workers_in[slots[i]], -i))[:excess]
    return [slot for i, slot in enumerate(slots) if i not in set(leaving)]


def _in_order(current: Sequence[Slot], wanted: Counter[Slot]) -> list[Slot]:
    """The wanted slots: first the current ones in their order, then the new ones."""
    wanted, slots = Counter(wanted), []
    for slot in current:
        if wanted[slot] > 0:
            wanted[slot] -= 1
            slots.append(slot)
    return slots + sorted(wanted.elements(), key=lambda slot: (slot.node, slot.gpu_ids))


class _Planner:
    """Makes one decision; holds the numbers that stay the same meanwhile."""

    def __init__(
        self, nodes: Sequence[Node], demands: Sequence[Demand], shared_cpu_s: float | None, horizon_s: float
    ) -> None:
        self.shared_cpu_s, self.horizon_s = shared_cpu_s, horizon_s
        self.cards = [memory for node in nodes for memory in node.gpus]
        self.order = hard_to_place_first(demands, nodes)
        self.needs = {d.group: d.resources for d in self.order}
        self.setup_s = {d.group: d.setup_s for d in self.order}
        self.empty = node_states_of(nodes, {}, {})
        self.cpus = sum(node.cpus for node in nodes)
        self.last_cpus = sum(min(1.0, node.cpus) for node in nodes)
        self.least = {d.group: d.least for d in self.order}
        self.most = {d.group: self._most(d) for d in self.order}
        # A stage that was not measured keeps its workers. So does one without a GPU, until the CPU time of the general
        # stages is known.
        self.weight = {
            d.group: d.service_s * d.share
            for d in self.order
            if d.service_s is not None and (shared_cpu_s is not None or d.resources.requires_gpu)
        }
        self.unseen = [d for d in self.order if d.service_s is None and d.resources.requires_gpu]
        self.cores: Cores = "free" if shared_cpu_s is not None else "leave last"
        self._fresh: tuple[dict[int, int], list[NodeState] | None] | None = None

    def _most(self, demand: Demand) -> int:
        if not demand.resources.requires_gpu and not demand.resources.cpus:
            room = max(1, int(self.cpus))  # they reserve nothing, but more workers than cores are useless
        else:
            room = UNLIMITED_WORKERS - place_workers(
                list(self.empty), demand.group, demand.resources, UNLIMITED_WORKERS
            )
        return max(demand.least, min(demand.limit, room))

    # --- rates

    def rate(self, node_states: Sequence[NodeState], counts: Mapping[int, int] | None = None) -> float:
        """Tasks of the input per second at the slowest stage; infinite if nothing was measured."""
        counts = count_workers(node_states) if counts is None else counts
        rates = [counts.get(group, 0) / weight for group, weight in self.weight.items() if weight > 0]
        if self.shared_cpu_s:
            rates.append(shared_cpus(node_states) / self.shared_cpu_s)
        return min(rates, default=math.inf)

    def wanted(self, rate: float, have: Mapping[int, int]) -> dict[int, int]:
        """The workers each group needs for a rate."""
        wanted = {}
        for demand in self.order:
            group = demand.group
            if group in self.weight:
                enough = math.ceil(rate * self.weight[group] * (1 - 1e-12) - EPSILON)
                wanted[group] = min(max(self.least[group], enough), self.most[group])
            else:
                wanted[group] = have.get(group, 0)
        return wanted

    def highest_rate(self) -> float:
        """An upper bound of the rate: it takes all cards, all cores or all workers that are allowed."""
        weights = {group: weight for group, weight in self.weight.items() if weight > 0}
        rates = [self.most[group] / weight for group, weight in weights.items()]
        gpus = sum(weight * least_share(self.needs[group], self.cards) for group, weight in weights.items())
        cpus = sum(weight * self.needs[group].cpus for group, weight in weights.items()) + (self.shared_cpu_s or 0.0)
        rates += [len(self.cards) / gpus] if gpus else []
        rates += [(self.cpus + self.last_cpus) / cpus] if cpus else []
        return min(rates, default=math.inf)

    # --- layouts

    def with_minimum(self, node_states: list[NodeState]) -> list[NodeState]:
        """The layout with the minimum of each group added, or as much of it as fits."""
        have = count_workers(node_states)
        if all(have[group] >= least for group, least in self.least.items()):
            return node_states
        made = Relocation(node_states, self.order, self.least).result()
        if made is None:
            made = minimum(self.empty, self.order, self.least)
        if made is None:
            made = list(node_states)
            for demand in self.order:
                missing = max(0, self.least[demand.group] - have[demand.group])
                left = place_workers(made, demand.group, demand.resources, missing)
                left = place_workers(made, demand.group, demand.resources, left, "share")
                self.least[demand.group] -= left
        return made

    def seeded(self, node_states: list[NodeState]) -> list[NodeState]:
        """The layout with free cards given evenly to GPU stages that were not measured: those start slowly."""
        if not self.unseen:
            return node_states
        cores: Cores = "free" if self.shared_cpu_s == 0.0 else "leave last"
        have, best = count_workers(node_states), node_states
        share = {d.group: least_share(d.resources, self.cards) for d in self.unseen}
        low, high = 0.0, float(len(self.cards))
        each = high
        while True:
            wanted = {g: min(self.most[g], max(have[g], int(each / share[g] + EPSILON))) for g in share}
            tried = self._with_more(node_states, have, wanted, cores)
            if tried is None:
                high = each
            else:
                best, low = tried, each
            if high - low < min(share.values()) / 4:
                break
            each = (low + high) / 2
        best, have = list(best), count_workers(best)
        for demand in sorted(self.unseen, key=lambda d: have[d.group] * share[d.group]):
            place_workers(best, demand.group, demand.resources, self.most[demand.group] - have[demand.group], cores)
        return best

    def _with_more(
        self, node_states: Sequence[NodeState], have: Mapping[int, int], wanted: Mapping[int, int], cores: Cores
    ) -> list[NodeState] | None:
        made = list(node_states)
        for demand in self.order:
            missing = wanted.get(demand.group, 0) - have.get(demand.group, 0)
            if missing > 0 and place_workers(made, demand.group, demand.resources, missing, cores):
                return None
        return made

    def raised(
        self, start: list[NodeState], bases: Sequence[tuple[list[NodeState], Mapping[int, int]]]
    ) -> list[NodeState]:
        """The fastest layout that adds workers to one of ``bases``; ``start`` if none of them is faster."""
        best, low, high = start, self.rate(start), self.highest_rate()
        have = count_workers(start)
        if low <= 0 or math.isinf(high):
            return start
        rate = high
        while high > low * (1 + 4 * EPSILON):
            wanted, slower = self.wanted(rate, have), low
            for node_states, there in bases:
                tried = self._with_more(node_states, there, wanted, self.cores)
                if tried is not None and (reached := self.rate(tried)) > low * (1 + EPSILON):
                    best, low = tried, reached
                    break
            if low == slower or low < rate * (1 - _ROUNDING):  # that rate is out of reach
                high = rate
            if low == slower and rate <= low * (1 + 3 * EPSILON):
                break
            # Once the bounds are one worker of the slowest stage apart, try that worker.
            next_worker = low * (1 + 3 * EPSILON)
            last = self.wanted(next_worker, have) == self.wanted(high, have)
            rate = next_worker if last else (low + high) / 2
        return best

    def fresh(self, node_states: list[NodeState]) -> list[NodeState] | None:
        """The fastest layout on an empty cluster; stages that were not measured keep their number of workers."""
        have = count_workers(node_states)
        held = {group: have[group] for group in self.least if group not in self.weight}
        if self._fresh is None or self._fresh[0] != held:
            start = minimum(self.empty, self.order, self.least)
            if start is not None:
                start = self._with_more(start, count_workers(start), held, "free")
            if start is not None:
                start = self.raised(start, [(start, count_workers(start)), (self.empty, {})])
            self._fresh = held, start
        return self._fresh[1]

    def improved(self, node_states: list[NodeState], best: list[NodeState] | None) -> list[NodeState]:
        """The next step towards ``best``, if it is worthwhile."""
        have, now = count_workers(node_states), self.rate(node_states)
        if not 0 < now < math.inf:
            return node_states
        grown = self.raised(node_states, [(node_states, have)])
        chosen = grown if self.rate(grown) >= _WORTHWHILE * now else node_states
        goal = 0.0 if best is None else self.rate(best)
        if best is not None and goal >= _WORTHWHILE * self.rate(chosen):
            moved = (
                Relocation(node_states, self.order, self.wanted(goal, have)).result(goal * (self.shared_cpu_s or 0.0))
                or best
            )
            better = self.rate(moved) >= _WORTHWHILE * self.rate(chosen)
            if better and self._tasks_done(node_states, moved) > self._tasks_done(node_states, chosen):
                chosen = moved
        # A spare worker must not take room that the slowest stage could use.
        return node_states if chosen is node_states and grown is not node_states else self.with_spares(chosen)

    def _tasks_done(self, before: list[NodeState], after: list[NodeState]) -> float:
        """Tasks of the input until the horizon with ``after``: until all workers are ready, only the old ones work."""
        old, new = slots_of(before), slots_of(after)
        staying = {group: (slots & old.get(group, Counter())).total() for group, slots in new.items()}
        starting = [group for group, slots in new.items() if slots.total() > staying[group]]
        wait_s = min(self.horizon_s, max((self.setup_s[group] for group in starting), default=0.0))
        rate = self.rate(after)
        return wait_s * min(rate, self.rate(after, staying)) + (self.horizon_s - wait_s) * rate

    def with_spares(self, node_states: list[NodeState]) -> list[NodeState]:
        """The layout with one more worker for each stage that is nearly the slowest, in room that no other needs."""
        rate = self.rate(node_states)
        if not 0 < rate < math.inf:
            return node_states
        have = count_workers(node_states)
        enough = self.wanted(rate, have)
        for group, weight in self.weight.items():
            near = rate * (1 + EPSILON) * weight < have[group] < _NEARLY_SLOWEST * rate * weight
            if near and have[group] <= enough[group] and have[group] < self.most[group]:
                tried = list(node_states)
                if not place_workers(tried, group, self.needs[group], 1, self.cores) and self.rate(tried) >= rate * (
                    1 - EPSILON
                ):
                    node_states = tried
        return node_states
