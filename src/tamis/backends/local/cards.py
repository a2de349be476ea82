"""Assigns the GPUs of this machine to the workers of stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tamis.backends.balance import lay_out
from tamis.backends.demand import Demand, check_fits, concurrent_groups
from tamis.backends.gpu_placement import Node
from tamis.backends.worker_registry import Worker, WorkerRegistry
from tamis.core.host import Gpu
from tamis.errors import ResourceError
from tamis.plan import Group, Plan

if TYPE_CHECKING:
    from tamis.backends.coordinator import Coordinator

__all__ = ["CardManager", "Cards", "place_on_cards"]

Cards = dict[int, list[tuple[int, ...]]]
"""For each group, the cards of each of its workers."""


def place_on_cards(plan: Plan, cards: Sequence[Gpu], most_workers: int) -> Cards:
    """Decide which worker is given which cards, packed as on a cluster.

    Stages that run at the same time never overcommit a card. Stages with a barrier between them may be given the same
    cards, one after the other.

    Args:
        plan: The groups.
        cards: The cards of this machine.
        most_workers: The most workers of one group.
    """
    found: Cards = {}
    # Cores are not counted here: the local executor shares them between all workers.
    node = Node("", 0.0, tuple(card.memory_gb for card in cards))
    for together in concurrent_groups(plan):
        demands = [_demand(plan, g, most_workers) for g in together if g.resources.requires_gpu]
        if not demands:
            continue
        if not cards:
            names = " and ".join(repr(d.name) for d in demands)
            raise ResourceError(
                f"stage {names} asks for a GPU ({demands[0].resources}), but this machine has none that can be used. "
                "`tamis doctor` shows what it has"
            )
        check_fits([node], demands, "this machine")
        for group, slots in lay_out([node], demands, shared_cpu_s=0.0, current={}).items():
            found[group] = [tuple(cards[i].index for i in slot.gpu_ids) for slot in slots]
    return found


def _demand(plan: Plan, group: Group, most_workers: int) -> Demand:
    name = " + ".join(plan.vertices[v].name for v in group.vertices)
    wanted = group.workers.least or 1
    if group.workers.per_node is not None:
        wanted = most_workers = max(1, round(group.workers.per_node))
    most = min(group.workers.most or most_workers, most_workers)
    return Demand(
        group.index, name, replace(group.resources, cpus=0.0), min_workers=min(wanted, most), max_workers=most
    )


@dataclass
class CardManager:
    """Starts the workers of GPU stages when there is work for them, and stops them when there is no more.

    Workers of stages after a barrier are started once the cards that they need are free.

    Args:
        plan: The groups.
        registry: The workers.
        cards: The cards of each worker.
    """

    plan: Plan
    registry: WorkerRegistry
    cards: Cards

    def adjust(self, coordinator: Coordinator) -> None:
        """Start and stop workers."""
        taken = {card: group for group in self.cards for w in self._workers(group) for card in w.gpu_ids}
        for group, slots in self.cards.items():
            state, workers = coordinator.scheduler.groups[group], self._workers(group)
            if state.complete:
                for worker in workers:
                    self.registry.drain(worker)
            elif not workers and coordinator.scheduler.expects_work(state):
                ended = {g for g in self.cards if coordinator.scheduler.groups[g].complete}
                if not any(taken.get(card) in ended for slot in slots for card in slot):
                    for slot in slots:
                        self.registry.ready(self.registry.start_worker(self.registry.pool_for(group), gpu_ids=slot))

    def _workers(self, group: int) -> list[Worker]:
        return list(self.registry.of_pool(self.registry.pool_for(group)))

    def up(self, worker: Worker) -> None:
        """The process of a worker has started."""

    def ready(self, worker: Worker, seconds: float) -> None:
        """A worker is ready."""
