"""Union-find over numbered nodes, and numbers for nodes with arbitrary 64-bit ids."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels import native

__all__ = ["MOST_NUMBERED", "Forest", "NodeIndex", "smallest_nodes"]

MOST_NUMBERED: Final = 2**31 - 2
"""How many nodes a :class:`NodeIndex` can number: each number and one more than it fit into 32 bits."""

_FIRST_NODES: Final = 1024


class Forest:
    """Nodes ``0`` to ``node_count - 1`` in trees that edges join. The root of a tree is its smallest node.

    Args:
        node_count: How many nodes there are.

    >>> forest = Forest(4)
    >>> forest.join(np.array([3, 1, 3]), np.array([1, 3, 2])).tolist()
    [True, False, True]
    >>> forest.roots().tolist()
    [0, 1, 1, 1]
    """

    def __init__(self, node_count: int) -> None:
        dtype = np.int32 if node_count <= np.iinfo(np.int32).max else np.int64
        self._parents: NDArray[Any] = np.arange(node_count, dtype=dtype)

    def __len__(self) -> int:
        return len(self._parents)

    def grow(self, node_count: int) -> None:
        """Add trees of one node each: at least up to a number of nodes, and so many that this is seldom needed."""
        count = len(self._parents)
        if node_count > count:
            added = np.arange(count, min(max(node_count, 2 * count), MOST_NUMBERED), dtype=np.int32)
            self._parents = np.concatenate([self._parents, added])

    def join(self, left: NDArray[Any], right: NDArray[Any], marks: bool = True) -> NDArray[np.bool_]:
        """Join the ends of edges, in their order; says of each edge whether it joined two trees.

        Args:
            left: One end of each edge.
            right: The other end of each edge.
            marks: Whether the result is wanted; without it the array returned is empty.
        """
        joined = np.zeros(len(left) if marks else 0, np.uint8)
        left, right = (np.ascontiguousarray(ends, self._parents.dtype) for ends in (left, right))
        wrong = self._run(left, right, joined, flatten=False)
        if wrong is not None:
            ends = f"({left[wrong]}, {right[wrong]})"
            raise ValueError(f"edge {wrong} {ends}: the nodes must be from 0 to {len(self) - 1}")
        return joined.view(np.bool_)

    def roots(self) -> NDArray[Any]:
        """The root of each node. The array is the forest's own: copy it before the next edges."""
        none = np.zeros(0, self._parents.dtype)
        self._run(none, none, np.zeros(0, np.uint8), flatten=True)
        return self._parents

    def _run(self, left: NDArray[Any], right: NDArray[Any], joined: NDArray[np.uint8], flatten: bool) -> int | None:
        """Join edges, then flatten the trees if wanted. Returns the first edge that names no node, if there is one."""
        kernel = native.load("components_32" if self._parents.dtype == np.int32 else "components")
        if kernel is None:
            return _plain(left, right, self._parents, joined, flatten)
        marks = int(len(joined) > 0)
        result = kernel(left, right, len(left), self._parents, len(self), joined, marks, int(flatten))
        return None if result >= 0 else -1 - result


def _plain(
    left: NDArray[Any], right: NDArray[Any], parents: NDArray[Any], joined: NDArray[np.uint8], flatten: bool
) -> int | None:
    """What the kernel does: the greater of two roots gets the smaller one as its parent."""
    trees, count = parents.tolist(), len(parents)
    for edge, (one, other) in enumerate(zip(left.tolist(), right.tolist(), strict=True)):
        if not (0 <= one < count and 0 <= other < count):
            return edge
        one, other = _root(trees, one), _root(trees, other)
        trees[max(one, other)] = min(one, other)
        if len(joined):
            joined[edge] = one != other
    if flatten:
        for node in range(count):
            trees[node] = trees[trees[node]]
    parents[:] = trees
    return None


def _root(trees: list[int], node: int) -> int:
    while trees[node] != node:
        trees[node] = node = trees[trees[node]]
    return node


class NodeIndex:
    """Numbers for 64-bit ids, in the order in which they are first seen.

    Args:
        most: How many different ids it may hold.

    >>> index = NodeIndex()
    >>> index.number(np.array([70, 5, 70], np.uint64)).tolist(), index.nodes.tolist()
    ([0, 1, 0], [70, 5])
    """

    def __init__(self, most: int = MOST_NUMBERED) -> None:
        self._most = min(most, MOST_NUMBERED)
        self._kernel = native.load("node_index")
        self._known: dict[int, int] = {}  # without a kernel
        self._count = np.zeros(1, np.int64)
        self._nodes = np.empty(0, np.uint64)
        self._table = np.empty(0, np.int32)
        self._room = 0

    def __len__(self) -> int:
        return int(self._count[0]) if self._kernel is not None else len(self._known)

    @property
    def nodes(self) -> NDArray[np.uint64]:
        """The ids by their number."""
        if self._kernel is None:
            return np.fromiter(self._known, np.uint64, len(self._known))
        return self._nodes[: len(self)]

    def number(self, ids: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The number of each id; an id that is not known gets the next number.

        Raises ``OverflowError`` if there are more different ids than the index may hold.
        """
        numbers = np.empty(len(ids), np.int32)
        if self._kernel is None:
            known = self._known
            numbers[:] = [known.setdefault(node, len(known)) for node in ids.tolist()]
            if len(known) > self._most:
                raise OverflowError(f"there are more than {self._most:,} nodes")
            return numbers
        ids = np.ascontiguousarray(ids)
        done = self._fill(ids, 0, numbers) if self._room else 0
        while done < len(ids):
            self._grow()
            done = self._fill(ids, done, numbers)
        return numbers

    def _fill(self, ids: NDArray[np.uint64], first: int, numbers: NDArray[np.int32]) -> int:
        assert self._kernel is not None
        places = len(self._table)
        return self._kernel(
            *(ids, len(ids), first, self._table, places, 65 - places.bit_length()),
            *(self._nodes, self._count, self._room, numbers),
        )

    def _grow(self) -> None:
        """Make room for twice as many ids in a table that is at most two thirds full."""
        count = len(self)
        if count >= self._most:
            raise OverflowError(f"there are more than {self._most:,} nodes")
        self._room = min(self._most, max(_FIRST_NODES, 2 * count))
        known = self.nodes
        self._nodes = np.empty(self._room, np.uint64)
        self._nodes[:count] = known
        places = 1 << (self._room * 3 // 2).bit_length()
        if places != len(self._table):
            self._table = np.zeros(0, np.int32)  # frees the old one before there is a new one
            self._table = np.zeros(places, np.int32)
            self._count[0] = 0
            self._fill(known, 0, np.empty(count, np.int32))


def smallest_nodes(nodes: NDArray[np.uint64], roots: NDArray[Any]) -> tuple[NDArray[np.uint64], ...]:
    """The nodes in ascending order, the smallest node of the tree of each, and the smallest node of each root.

    Args:
        nodes: The ids of the nodes by their number.
        roots: The root of each, as a number. What the result says of a number that is not a root means nothing.

    >>> [each.tolist() for each in smallest_nodes(np.array([70, 5, 9], np.uint64), np.array([0, 0, 2]))[:2]]
    [[5, 9, 70], [5, 9, 5]]
    """
    order = np.argsort(nodes)
    nodes, roots = nodes[order], roots[order]
    smallest = np.zeros(len(nodes), np.uint64)
    smallest[roots[::-1]] = nodes[::-1]  # of several nodes with one root the last assigned counts: the smallest
    return nodes, smallest[roots], smallest
