"""Places workers on nodes and cards.

Nodes in the same state are kept together (a :class:`NodeState`), so the cost of placement grows with the number of
different states, not with the number of nodes, cards or workers.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tamis.stages.resources import Resources

__all__ = [
    "EPSILON",
    "Cores",
    "Node",
    "NodeState",
    "Slot",
    "card_gb",
    "card_share",
    "count_workers",
    "least_share",
    "node_states_of",
    "place_workers",
    "shared_cpus",
    "size",
    "slots_of",
]

EPSILON = 1e-9
_UNKNOWN_CARD_GB = 24.0

Cores = Literal["leave last", "free", "share"]
"""The cores of a node that a new worker may take: all free ones but the last, any free one, or reserved ones too."""


@dataclass(frozen=True)
class Node:
    """A machine of the cluster.

    Args:
        id: Its name.
        cpus: Its cores.
        gpus: Memory of each card in GB, 0.0 if it is not known; a card's id is its index in this tuple.
    """

    id: str
    cpus: float
    gpus: tuple[float, ...] = ()


@dataclass(frozen=True)
class Slot:
    """Where one worker runs: a node, and the cards it uses there, wholly or in part."""

    node: str
    gpu_ids: tuple[int, ...] = ()


@dataclass(slots=True)
class NodeState:
    """Nodes in the same state. Immutable: a change makes a new one.

    Args:
        nodes: Their names.
        cpus: Cores of each node.
        memory: Memory of each card in GB.
        free_cpus: Cores of each node that no worker has reserved; below zero where workers share cores.
        free: The part of each card that is free.
        placed: The workers on each node: group, cards, how many.
    """

    nodes: tuple[str, ...]
    cpus: float
    memory: tuple[float, ...]
    free_cpus: float
    free: tuple[float, ...]
    placed: tuple[tuple[int, tuple[int, ...], int], ...] = ()

    @property
    def last_cpu(self) -> float:
        """The cores of each node that always remain for general workers."""
        return min(1.0, self.cpus)

    def with_worker(self, group: int, needs: Resources, gpu_ids: tuple[int, ...], count: int) -> NodeState:
        """The same nodes with ``count`` more workers on these cards, or fewer if it is negative."""
        return self.with_workers(group, needs, [(gpu_ids, count)])

    def with_workers(self, group: int, needs: Resources, there: Sequence[tuple[tuple[int, ...], int]]) -> NodeState:
        """The same nodes with more workers: for each entry of ``there``, its cards and how many."""
        free, total = list(self.free), 0
        placed = {(g, ids): n for g, ids, n in self.placed}
        for gpu_ids, count in there:
            total += count
            placed[group, gpu_ids] = placed.get((group, gpu_ids), 0) + count
            for card in gpu_ids:
                share = 1.0 if needs.gpus >= 1 else card_share(needs, self.memory[card])
                free[card] = round(free[card] - share * count, 9)
        return NodeState(
            self.nodes,
            self.cpus,
            self.memory,
            round(self.free_cpus - needs.cpus * total, 9),
            tuple(free),
            tuple([(g, ids, n) for (g, ids), n in placed.items() if n]),
        )

    def of(self, nodes: tuple[str, ...]) -> NodeState:
        """The same state for some of its nodes."""
        return NodeState(nodes, self.cpus, self.memory, self.free_cpus, self.free, self.placed)


def card_gb(memory_gb: float) -> float:
    """A card's memory in GB, a typical size if it is not known (a logical GPU)."""
    return memory_gb or _UNKNOWN_CARD_GB


def card_share(needs: Resources, memory_gb: float) -> float:
    """The part of a card with this memory that one worker takes; infinite if it does not fit.

    >>> card_share(Resources(gpu_memory_gb=12), 0.0), card_share(Resources(gpu_memory_gb=40), 24.0)
    (0.5, inf)
    """
    if not needs.gpu_memory_gb:
        return needs.gpus
    memory_gb = card_gb(memory_gb)
    return math.inf if needs.gpu_memory_gb > memory_gb else needs.gpu_fraction(memory_gb)


def least_share(needs: Resources, cards: Iterable[float]) -> float:
    """How many cards one worker takes, or the smallest part of one of these cards."""
    if needs.gpus or not needs.requires_gpu:
        return needs.gpus
    return min((card_share(needs, memory) for memory in set(cards)), default=math.inf)


def size(needs: Resources, cards: Iterable[float]) -> tuple[bool, float, float, float]:
    """A sort key, the hardest to place first: fits on some cards only, many cards, large parts of one, many cores."""
    shares = [card_share(needs, memory) for memory in cards] if needs.requires_gpu else []
    fits = [share for share in shares if share <= 1] if needs.gpus < 1 else [needs.gpus]
    picky = any(math.isinf(share) for share in shares)
    return not picky, -max(fits, default=0.0), -needs.gpu_memory_gb, -needs.cpus


def node_states_of(
    nodes: Sequence[Node], placed: Mapping[int, Sequence[Slot]], needs: Mapping[int, Resources]
) -> list[NodeState]:
    """The cluster with these workers on it, without those whose node or card is gone or full."""
    on_node: dict[str, Counter[tuple[int, tuple[int, ...]]]] = defaultdict(Counter)
    for group, slots in placed.items():
        for slot in slots:
            on_node[slot.node][group, slot.gpu_ids] += 1
    same_state: dict[tuple[object, ...], list[str]] = defaultdict(list)
    for node in nodes:
        same_state[node.cpus, node.gpus, tuple(sorted(on_node[node.id].items()))].append(node.id)
    by_name = {node.id: node for node in nodes}
    node_states = []
    for names in same_state.values():
        node = by_name[names[0]]
        node_state = NodeState(tuple(names), node.cpus, node.gpus, node.cpus, (1.0,) * len(node.gpus))
        for (group, gpu_ids), count in sorted(on_node[node.id].items()):
            node_state = node_state.with_worker(
                group, needs[group], gpu_ids, _that_fit(node_state, needs[group], gpu_ids, count)
            )
        node_states.append(node_state)
    return node_states


def _that_fit(node_state: NodeState, needs: Resources, gpu_ids: tuple[int, ...], count: int) -> int:
    cards = max(1, int(needs.gpus)) if needs.requires_gpu else 0
    if len(set(gpu_ids)) != cards or any(card >= len(node_state.free) for card in gpu_ids):
        return 0
    for card in gpu_ids:
        share = 1.0 if needs.gpus >= 1 else card_share(needs, node_state.memory[card])
        count = min(count, math.floor(node_state.free[card] / share + EPSILON))
    return count


def slots_of(node_states: Iterable[NodeState]) -> dict[int, Counter[Slot]]:
    """How many workers each group has in each slot."""
    slots: dict[int, Counter[Slot]] = defaultdict(Counter)
    for node_state in node_states:
        for group, gpu_ids, count in node_state.placed:
            for node in node_state.nodes:
                slots[group][Slot(node, gpu_ids)] += count
    return slots


# --- finding free room ----------------------------------------------------------------------------------------------


def place_workers(node_states: list[NodeState], group: int, needs: Resources, count: int, cores: Cores = "free") -> int:
    """Place up to ``count`` workers in free room; return how many found none.

    A part of a card is taken from the fullest card where it fits, whole cards from the nodes with the fewest empty
    ones. Workers without cards go to nodes without cards first, and take a node's last core last.

    Args:
        node_states: The cluster; changed in place.
        group: The group of the workers.
        needs: What each worker needs.
        count: How many workers.
        cores: Which cores they may take. Cards are never overcommitted.
    """
    if needs.requires_gpu:
        passes: list[tuple[_Chooser, Cores]] = [(_on_empty_cards, cores)]
        if needs.gpus < 1:
            passes.insert(0, (_on_shared_cards, cores))
    elif cores == "share":
        # One at a time to the least crowded node, to spread them.
        while count and not _pack_pass(node_states, group, needs, 1, _least_crowded, cores):
            count -= 1
        return count
    else:
        passes = (
            [(_anywhere, "leave last")] if cores == "leave last" else [(_anywhere, "leave last"), (_anywhere, cores)]
        )
    for choose, which in passes:
        count = _pack_pass(node_states, group, needs, count, choose, which)
    return count


_Chooser = Callable[[NodeState, Resources], tuple[tuple[float, ...], list[int]] | None]
"""Returns how well a node suits (lowest is best) and its cards in the order of use; ``None`` if it has no room."""


def _anywhere(node_state: NodeState, needs: Resources) -> tuple[tuple[float, ...], list[int]] | None:
    return (float(len(node_state.memory) > 0), -node_state.free_cpus), []


def _least_crowded(node_state: NodeState, needs: Resources) -> tuple[tuple[float, ...], list[int]] | None:
    return (-node_state.free_cpus / max(node_state.cpus, EPSILON), float(len(node_state.memory) > 0)), []


def _on_empty_cards(node_state: NodeState, needs: Resources) -> tuple[tuple[float, ...], list[int]] | None:
    """Empty cards, small ones first, to keep the large ones for workers that need them.

    Likewise whole cards are taken on nodes with few free cores: several workers on one card need more cores.
    """
    cards = [
        (card_gb(node_state.memory[card]), card)
        for card, free in enumerate(node_state.free)
        if free >= 1 - EPSILON and (needs.gpus or card_share(needs, node_state.memory[card]) <= 1)
    ]
    if len(cards) < needs.gpus or not cards:
        return None
    cards.sort()
    cores = node_state.free_cpus if needs.gpus >= 1 else -node_state.free_cpus
    return (cards[max(1, int(needs.gpus)) - 1][0], len(cards), cores), [card for _, card in cards]


def _on_shared_cards(node_state: NodeState, needs: Resources) -> tuple[tuple[float, ...], list[int]] | None:
    cards = [
        (free, card)
        for card, free in enumerate(node_state.free)
        if EPSILON < free < 1 - EPSILON and card_share(needs, node_state.memory[card]) <= free + EPSILON
    ]
    if not cards:
        return None
    cards.sort()
    return (cards[0][0], -node_state.free_cpus), [card for _, card in cards]


def _pack_pass(
    node_states: list[NodeState], group: int, needs: Resources, count: int, choose: _Chooser, cores: Cores
) -> int:
    if not count:
        return 0
    found = []
    for number, node_state in enumerate(node_states):
        room = _cpu_room(node_state, needs, count, cores)
        if room > 0 and (choice := choose(node_state, needs)) is not None:
            found.append((choice[0], number, room, choice[1]))
    for _, number, room, cards in sorted(found):
        node_state = node_states[number]
        rest = node_state.nodes
        while rest and count:
            filled, taken = _fill(node_state, group, needs, min(room, count), cards)
            if not taken:
                break
            filled_nodes = min(len(rest), count // taken)
            node_states.append(filled.of(rest[:filled_nodes]))
            rest, count = rest[filled_nodes:], count - filled_nodes * taken
        node_states[number] = node_state.of(rest)
        if not count:
            break
    node_states[:] = [node_state for node_state in node_states if node_state.nodes]
    return count


def _cpu_room(node_state: NodeState, needs: Resources, count: int, cores: Cores) -> int:
    if cores == "share":
        return count if needs.cpus <= node_state.cpus + EPSILON else 0
    if not needs.cpus:
        return count
    keep = node_state.last_cpu if cores == "leave last" else 0.0
    return max(0, min(count, math.floor((node_state.free_cpus - keep) / needs.cpus + EPSILON)))


def _fill(node_state: NodeState, group: int, needs: Resources, count: int, cards: list[int]) -> tuple[NodeState, int]:
    """One node with up to ``count`` more workers on these cards, and how many were added."""
    if not needs.requires_gpu:
        return node_state.with_worker(group, needs, (), count), count
    there: list[tuple[tuple[int, ...], int]] = []
    if needs.gpus >= 1:
        each = int(needs.gpus)
        for nth in range(min(count, len(cards) // each)):
            there.append((tuple(sorted(cards[nth * each : (nth + 1) * each])), 1))
        return node_state.with_workers(group, needs, there), len(there)
    left = count
    for card in cards:
        fits = math.floor(node_state.free[card] / card_share(needs, node_state.memory[card]) + EPSILON)
        if fits := min(fits, left):
            there.append(((card,), fits))
            left -= fits
    return node_state.with_workers(group, needs, there), count - left


def shared_cpus(node_states: Iterable[NodeState]) -> float:
    """Cores for general workers: those that no worker has reserved, and on each node at least the last one."""
    return sum(len(node_state.nodes) * max(node_state.free_cpus, node_state.last_cpu) for node_state in node_states)


def count_workers(node_states: Iterable[NodeState]) -> Counter[int]:
    """Workers of each group."""
    found = Counter[int]()
    for node_state in node_states:
        for group, _, count in node_state.placed:
            found[group] += count * len(node_state.nodes)
    return found
