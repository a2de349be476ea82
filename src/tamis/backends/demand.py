"""What a stage needs, and whether the machines have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tamis.backends.gpu_placement import (
    EPSILON,
    Cores,
    Node,
    NodeState,
    card_gb,
    least_share,
    node_states_of,
    place_workers,
    size,
)
from tamis.errors import ResourceError
from tamis.plan import Group, Plan
from tamis.stages.resources import Resources

__all__ = ["UNLIMITED_WORKERS", "Demand", "check_fits", "concurrent_groups", "hard_to_place_first", "minimum"]

UNLIMITED_WORKERS = 1_000_000
"""More workers than any cluster has room for."""


@dataclass(frozen=True)
class Demand:
    """What is known of a stage with dedicated workers.

    Args:
        group: The number of its group.
        name: Its name, for messages.
        resources: What one worker needs.
        service_s: Busy seconds of one worker per task, or the age of a task that still runs; ``None``: not known.
        share: Tasks of this stage per task of the input.
        setup_s: How long a new worker takes before its first task, in seconds.
        min_workers: The fewest workers, at least one while there is work.
        max_workers: The most workers; ``None``: no limit.
        work_left: The most tasks that can still come, and so the most workers; ``None``: not known.

    >>> Demand(0, "embed", Resources(gpus=0.5), service_s=2.0).min_workers
    1
    """

    group: int
    name: str
    resources: Resources
    service_s: float | None = None
    share: float = 1.0
    setup_s: float = 0.0
    min_workers: int = 1
    max_workers: int | None = None
    work_left: int | None = None

    @property
    def limit(self) -> int:
        """The most workers it may have."""
        least = max(1, self.min_workers)
        most = UNLIMITED_WORKERS if self.max_workers is None else max(least, self.max_workers)
        return most if self.work_left is None else min(most, self.work_left)

    @property
    def least(self) -> int:
        """The fewest workers it must have."""
        return min(max(1, self.min_workers), self.limit)


def hard_to_place_first(demands: Iterable[Demand], nodes: Sequence[Node]) -> list[Demand]:
    """The demands in the order in which their workers are placed."""
    kinds = {memory for node in nodes for memory in node.gpus}
    return sorted(demands, key=lambda demand: (size(demand.resources, kinds), demand.group))


def minimum(empty: Sequence[NodeState], order: Sequence[Demand], least: Mapping[int, int]) -> list[NodeState] | None:
    """A layout with the least workers of each group, ``None`` if there are too few cards. Too few cores are shared."""
    attempts: tuple[tuple[Cores, ...], ...] = (("free", "share"), ("share",))
    for attempt in attempts:
        node_states, left = list(empty), 0
        for demand in order:
            missing = least[demand.group]
            for cores in attempt:
                missing = place_workers(node_states, demand.group, demand.resources, missing, cores)
            left += missing
        if not left:
            return node_states
    return None


def concurrent_groups(plan: Plan) -> list[list[Group]]:
    """Groups that run at the same time, since no barrier is between them."""
    segment: dict[int, int] = {}
    for group in plan.groups:
        before = [segment[i] for i in group.inputs]
        segment[group.index] = group.index if group.is_source or not before else min(before)
    found: dict[int, list[Group]] = {}
    for group in plan.groups:
        if not group.is_source:
            found.setdefault(segment[group.index], []).append(group)
    return list(found.values())


def check_fits(nodes: Sequence[Node], demands: Sequence[Demand], where: str = "the cluster") -> None:
    """Refuse stages for which there is no room, alone or together, and show the arithmetic.

    Too few cores are shared; cards are never overcommitted.

    Args:
        nodes: The machines.
        demands: The stages.
        where: What the machines are called in messages.

    >>> check_fits([Node("a", cpus=2)], [Demand(n, f"s{n}", Resources(cpus=1)) for n in range(5)])
    >>> try:
    ...     check_fits([Node("a", cpus=2)], [Demand(0, "big", Resources(cpus=4))])
    ... except ResourceError as error:
    ...     print(str(error).split(". ")[0])
    stage 'big' asks for 4 CPUs for each worker, the largest node has 2 (node a: 2 CPUs)
    """
    for demand in demands:
        _check_alone(nodes, demand, where)
    asking = [demand for demand in demands if demand.resources.requires_gpu and demand.limit > 0]
    order = hard_to_place_first(asking, nodes)
    if minimum(node_states_of(nodes, {}, {}), order, {demand.group: demand.least for demand in order}) is not None:
        return
    cards = [memory for node in nodes for memory in node.gpus]
    total = sum(demand.least * least_share(demand.resources, cards) for demand in asking)
    terms = [_term(demand) for demand in asking]
    needed = f"GPU stages need at least {' + '.join(terms)} = {total:g} GPU{'s' * (total != 1)} at the same time"
    fits_in_total = total <= len(cards) + EPSILON
    reason = ", but a share must be on one card, and the cards of a worker on one node" if fits_in_total else ""
    raise ResourceError(
        f"{needed}, {where} has {len(cards)}{_cards(nodes)}{reason}. Give stages a smaller fraction of a GPU or "
        'fewer workers (num_workers), or run one stage after the other with execution_mode="batch"'
    )


def _check_alone(nodes: Sequence[Node], demand: Demand, where: str) -> None:
    """Refuse a stage if no node has room for one worker."""
    needs, stage = demand.resources, f"stage {demand.name!r} asks for"
    most_cpus = max(nodes, key=lambda node: node.cpus)
    if needs.cpus > most_cpus.cpus + EPSILON:
        raise ResourceError(
            f"{stage} {needs.cpus:g} CPUs for each worker, the largest node has {most_cpus.cpus:g} "
            f"(node {most_cpus.id}: {most_cpus.cpus:g} CPUs). "
            f"Give it fewer: .with_(resources=Resources(cpus={most_cpus.cpus:g}{_gpu_part(needs)}))"
        )
    if not needs.requires_gpu:
        return
    if not any(node.gpus for node in nodes):
        raise ResourceError(f"{stage} {_each(needs)} for each worker, but no node of {where} has a GPU")
    able = [node for node in nodes if len(node.gpus) >= needs.gpus]
    if not able:
        largest_node = "all on one node; the largest node" if len(nodes) > 1 or nodes[0].id else where
        raise ResourceError(
            f"{stage} {_each(needs)} for each worker, {largest_node} has "
            f"{max(len(node.gpus) for node in nodes)}{_cards(nodes)}"
        )
    largest = max((card_gb(memory) for node in able for memory in node.gpus), default=0.0)
    if needs.gpu_memory_gb > largest:
        raise ResourceError(f"{stage} {_each(needs)} for each worker, the largest card of {where} has {largest:g} GB")
    able = [node for node in able if any(card_gb(memory) >= needs.gpu_memory_gb for memory in node.gpus)]
    roomy = max(able, key=lambda node: node.cpus)
    if needs.cpus > roomy.cpus + EPSILON:
        raise ResourceError(
            f"{stage} {needs.cpus:g} CPUs and {_each(needs)} for each worker; of the nodes with such GPUs the largest "
            f"has {roomy.cpus:g} CPUs (node {roomy.id}). Give it fewer CPUs"
        )


def _each(needs: Resources) -> str:
    if needs.gpu_memory_gb:
        return f"{needs.gpu_memory_gb:g} GB of GPU memory"
    return f"{needs.gpus:g} GPU{'s' * (needs.gpus > 1)}"


def _gpu_part(needs: Resources) -> str:
    if needs.gpu_memory_gb:
        return f", gpu_memory_gb={needs.gpu_memory_gb:g}"
    return f", gpus={needs.gpus:g}" if needs.gpus else ""


def _term(demand: Demand) -> str:
    needs = demand.resources
    each = f"{needs.gpu_memory_gb:g} GB" if needs.gpu_memory_gb else f"{needs.gpus:g}"
    return f"{each} ({demand.name})" if demand.least == 1 else f"{demand.least} x {each} ({demand.name})"


def _cards(nodes: Sequence[Node]) -> str:
    """The number of cards of the largest nodes, in words; empty for a single machine without a name."""
    if len(nodes) == 1 and not nodes[0].id:
        return ""
    largest = sorted((n for n in nodes if n.gpus), key=lambda n: -len(n.gpus))
    shown = [f"node {n.id}: {len(n.gpus)}" for n in largest[:4]]
    return f" ({', '.join(shown + [f'{len(largest) - 4} more nodes'] * (len(largest) > 4)) or 'no node has any'})"
