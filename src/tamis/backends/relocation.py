"""Making room on nodes: which workers leave, and where those that are still needed move to."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tamis.backends.demand import Demand
from tamis.backends.gpu_placement import EPSILON, NodeState, card_share, count_workers, place_workers, shared_cpus
from tamis.stages.resources import Resources

__all__ = ["Eviction", "Relocation", "evict"]


class Relocation:
    """Changes a layout so that each group has as many workers as wanted.

    Workers leave only to make room: first those beyond the wanted number, then those of groups that are easier to
    place, which are placed again elsewhere.

    Args:
        node_states: The layout.
        order: The groups, the hardest to place first.
        wanted: Workers of each group.
    """

    def __init__(self, node_states: Sequence[NodeState], order: Sequence[Demand], wanted: Mapping[int, int]) -> None:
        self._node_states, self._order, self._wanted = list(node_states), order, wanted
        self._place = {demand.group: place for place, demand in enumerate(order)}
        self._needs = {demand.group: demand.resources for demand in order}
        self._setup_s = {demand.group: demand.setup_s for demand in order}
        have = count_workers(node_states)
        self._surplus = {group: max(0, have[group] - count) for group, count in wanted.items()}
        self._missing = {group: max(0, count - have[group]) for group, count in wanted.items()}

    def result(self, shared: float = 0.0) -> list[NodeState] | None:
        """The new layout, ``None`` if there is none.

        Args:
            shared: Cores that general workers should have, as far as possible.
        """
        if not all(self._place_group(demand) for demand in self._order):
            return None
        return self._with_cores_freed(shared)

    def _place_group(self, demand: Demand) -> bool:
        group, needs = demand.group, demand.resources
        left = place_workers(self._node_states, group, needs, self._missing[group])
        known: dict[int, tuple[NodeState, Eviction | None]] = {}
        while left:
            found = self._cheapest_eviction(group, known)
            if found is None:
                # Only the minimum may share cores.
                must = min(left, demand.least - (self._wanted[group] - left))
                return left == must and not place_workers(self._node_states, group, needs, must, "share")
            left -= self._carry_out(*found, left)
            left = place_workers(self._node_states, group, needs, left)
        return True

    def _cheapest_eviction(
        self, group: int, known: dict[int, tuple[NodeState, Eviction | None]]
    ) -> tuple[int, Eviction] | None:
        def cost_of(other: int, leaving: int) -> float:
            if other != group and self._surplus[other] > leaving:
                return 1e-3
            return 1.0 + self._setup_s[other] if self._place[other] > self._place[group] else math.inf

        costs = []
        for number, node_state in enumerate(self._node_states):
            if id(node_state) not in known:
                known[id(node_state)] = node_state, evict(node_state, group, self._needs, cost_of)
            if (before := known[id(node_state)][1]) is not None:
                costs.append((before.cost, number))
        heapq.heapify(costs)
        while costs:
            # An eviction found earlier may cost more by now, since fewer workers are to spare.
            cost, number = heapq.heappop(costs)
            node_state = self._node_states[number]
            found = evict(node_state, group, self._needs, cost_of)
            known[id(node_state)] = node_state, found
            if found is not None and found.cost <= cost + EPSILON:
                return number, found
            if found is not None:
                heapq.heappush(costs, (found.cost, number))
        return None

    def _carry_out(self, number: int, eviction: Eviction, left: int) -> int:
        """Evict from as many of the nodes as needed; return their number."""
        nodes = self._node_states[number].nodes
        affected = min(
            [len(nodes), left, *(max(1, self._surplus[g] // count) for g, count in eviction.leaving.items())]
        )
        for group, count in eviction.leaving.items():
            spared = min(self._surplus[group], count * affected)
            self._surplus[group] -= spared
            self._missing[group] += count * affected - spared
        self._node_states[number] = self._node_states[number].of(nodes[affected:])
        self._node_states.append(eviction.node_state.of(nodes[:affected]))
        self._node_states[:] = [node_state for node_state in self._node_states if node_state.nodes]
        return affected

    def _with_cores_freed(self, shared: float) -> list[NodeState]:
        """The layout without surplus workers whose cores the general workers need."""
        short = shared - shared_cpus(self._node_states)
        pending = sorted(self._node_states, key=lambda node_state: -node_state.free_cpus)
        done: list[NodeState] = []
        while pending:
            node_state = pending.pop(0)
            spared = next(
                ((g, ids) for g, ids, _ in node_state.placed if self._surplus[g] > 0 and self._needs[g].cpus > 0), None
            )
            if short <= EPSILON or spared is None:
                done.append(node_state)
                continue
            if len(node_state.nodes) > 1:
                pending.insert(0, node_state.of(node_state.nodes[1:]))
            one = node_state.of(node_state.nodes[:1])
            less = one.with_worker(spared[0], self._needs[spared[0]], spared[1], -1)
            short -= shared_cpus([less]) - shared_cpus([one])
            self._surplus[spared[0]] -= 1
            pending.insert(0, less)
        return done


@dataclass(frozen=True)
class Eviction:
    """The workers that leave one node so that another fits.

    Args:
        cost: What it costs.
        node_state: The node afterwards.
        leaving: How many workers of each group leave.
    """

    cost: float
    node_state: NodeState
    leaving: dict[int, int]


def evict(
    node_state: NodeState, group: int, needs: Mapping[int, Resources], cost_of: Callable[[int, int], float]
) -> Eviction | None:
    """The cheapest way to place one worker of ``group`` on a node in this state; ``None`` if there is none.

    Args:
        node_state: The node.
        group: The group that needs room.
        needs: What a worker of each group needs.
        cost_of: Called with a group and how many of its workers already leave: the cost of losing one more, infinite
            if it must stay.
    """
    mine = needs[group]
    if mine.cpus > node_state.cpus + EPSILON:
        return None
    best: Eviction | None = None
    for cards in _card_choices(node_state, mine, needs, cost_of):
        found = _clear(node_state, group, cards, needs, cost_of)
        if found is not None and (best is None or found.cost < best.cost):
            best = found
    return best


def _card_choices(
    node_state: NodeState, mine: Resources, needs: Mapping[int, Resources], cost_of: Callable[[int, int], float]
) -> Iterable[tuple[int, ...]]:
    if not mine.requires_gpu:
        return [()]
    if mine.gpus < 1:
        return [(card,) for card, memory in enumerate(node_state.memory) if card_share(mine, memory) <= 1]
    price = [0.0] * len(node_state.free)
    for other, gpu_ids, count in node_state.placed:
        for card in gpu_ids:
            price[card] += cost_of(other, 0) * count
    cheapest = sorted(range(len(price)), key=lambda card: (price[card], card))[: int(mine.gpus)]
    return [tuple(sorted(cheapest))] if len(cheapest) == mine.gpus else []


def _clear(
    node_state: NodeState,
    group: int,
    cards: tuple[int, ...],
    needs: Mapping[int, Resources],
    cost_of: Callable[[int, int], float],
) -> Eviction | None:
    """Free these cards as far as needed, then the cores that are still missing."""
    mine, cost, leaving = needs[group], 0.0, Counter[int]()

    def evict_while(short: Callable[[], bool], card: int | None) -> bool:
        nonlocal node_state, cost
        while short():
            candidates = [
                (cost_of(other, leaving[other]), -needs[other].cpus, other, gpu_ids)
                for other, gpu_ids, _ in node_state.placed
                if (card in gpu_ids if card is not None else needs[other].cpus > 0)
            ]
            if not candidates or math.isinf(min(candidates)[0]):
                return False
            price, _, other, gpu_ids = min(candidates)
            node_state = node_state.with_worker(other, needs[other], gpu_ids, -1)
            cost += price
            leaving[other] += 1
        return True

    for card in cards:
        share = 1.0 if mine.gpus >= 1 else card_share(mine, node_state.memory[card])
        if not evict_while(
            lambda card=card, share=share: node_state.free[card] < share - EPSILON,  # type: ignore[misc]
            card,
        ):
            return None
    if not evict_while(lambda: node_state.free_cpus < mine.cpus - EPSILON, None):
        return None
    return Eviction(cost, node_state.with_worker(group, mine, cards, 1), dict(leaving))
