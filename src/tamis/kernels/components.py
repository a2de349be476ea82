"""The connected components of a graph that is given by its edges, in memory or with a budget of memory.

The label of a component is its smallest node, so labels depend on the graph alone: not on the order of the edges.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.component_files import Chunks, Pairs
from tamis.kernels.union_find import Forest, NodeIndex, smallest_nodes

__all__ = ["Components", "components_of", "connected_components", "spanning_forest"]

Ids = NDArray[np.uint64]

_BLOCK_EDGES: Final = 2**18
"""How many edges are worked on at once: their numbers stay in the cache."""

_NODE_BYTES: Final = 64
"""Memory that a node takes while components are found, at its peak: id, parent, places of the table, and sorting."""

_FEWEST_NODES: Final = 256


def components_of(left: NDArray[Any], right: NDArray[Any], node_count: int) -> NDArray[Any]:
    """The label of each node ``0`` to ``node_count - 1``: the smallest node of its component.

    Nodes take four bytes each (``int32``) where their numbers fit, else eight (``int64``).

    Args:
        left: One end of each edge.
        right: The other end of each edge.
        node_count: How many nodes there are.

    >>> components_of(np.array([3, 2]), np.array([1, 0]), 5).tolist()
    [0, 1, 0, 1, 4]
    """
    _check_edges(left, right)
    forest = Forest(node_count)
    for start in range(0, len(left), _BLOCK_EDGES):
        block = slice(start, start + _BLOCK_EDGES)
        forest.join(left[block], right[block], marks=False)
    return forest.roots()


def connected_components(left: NDArray[Any], right: NDArray[Any]) -> tuple[Ids, Ids]:
    """The nodes of a graph, in ascending order, and for each the smallest node of its component.

    Args:
        left: One end of each edge: any whole numbers from 0 to 2 ** 64 - 1.
        right: The other end of each edge.

    >>> nodes, labels = connected_components(np.array([9, 70, 9]), np.array([12, 71, 8]))
    >>> nodes.tolist(), labels.tolist()
    ([8, 9, 12, 70, 71], [8, 8, 8, 70, 70])
    """
    graph = _Graph()
    for _ in graph.join(*_as_edges(left, right), marks=False):
        pass
    return graph.components()


def spanning_forest(left: NDArray[Any], right: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The edges that joined two components, in their order: the fewest that give the same components.

    An edge between nodes that earlier edges already connect is left out, and so is one from a node to itself. Use it to
    shrink a list of edges before it is sent on.

    Args:
        left: One end of each edge: any whole numbers from 0 to 2 ** 64 - 1.
        right: The other end of each edge.

    >>> some, others = spanning_forest(np.array([1, 2, 3, 4]), np.array([2, 3, 1, 4]))
    >>> some.tolist(), others.tolist()
    ([1, 2], [2, 3])
    """
    marks = list(_Graph().join(*_as_edges(left, right), marks=True))
    kept = np.concatenate([np.zeros(0, np.bool_), *marks])
    return left[kept], right[kept]


class Components:
    """Connected components of a graph of any size, within a budget of memory.

    Edges are added in batches and not kept: as long as the nodes fit, memory holds the nodes only. Beyond that, what is
    known so far is written to files below ``folder``, in the form of one edge for each node, and the components are
    found from there: see :mod:`tamis.kernels.component_files`. The result is the same.

    Args:
        memory_bytes: Memory for nodes: 64 bytes for each node. Blocks of edges take some 30 MB more at most.
        folder: An existing directory on a local disk; used only if the nodes do not fit.

    >>> with tempfile.TemporaryDirectory() as folder, Components(2**20, folder) as components:
    ...     components.add(np.array([5, 7]), np.array([6, 8]))
    ...     components.add(np.array([8]), np.array([6]))
    ...     [(nodes.tolist(), labels.tolist()) for nodes, labels in components.members()]
    [([5, 6, 7, 8], [5, 5, 5, 5])]
    """

    def __init__(self, memory_bytes: int, folder: str | os.PathLike[str]) -> None:
        self._most = memory_bytes // _NODE_BYTES
        if self._most < _FEWEST_NODES:
            raise ValueError(f"memory_bytes={memory_bytes}: must be at least {_FEWEST_NODES * _NODE_BYTES}")
        # A block may have two new nodes for each edge: so memory is at least half full when its nodes are written.
        self._block = min(_BLOCK_EDGES, self._most // 4)
        self._folder = os.fspath(folder)
        self._graph = _Graph()
        self._chunks: Chunks | None = None
        self._is_closed = False

    def add(self, left: NDArray[Any], right: NDArray[Any]) -> None:
        """Add edges. An edge from a node to itself adds the node.

        Args:
            left: One end of each edge: any whole numbers from 0 to 2 ** 64 - 1.
            right: The other end of each edge.
        """
        if self._is_closed:
            raise RuntimeError("edges were added after members() was called")
        left, right = _as_edges(left, right)
        for start in range(0, len(left), self._block):
            if len(self._graph) + 2 * self._block > self._most:
                self._write_graph()
            some = slice(start, start + self._block)
            for _ in self._graph.join(left[some], right[some], marks=False):
                pass

    def members(self, batch_nodes: int = 2**20) -> Iterator[tuple[Ids, Ids]]:
        """All nodes in ascending order, each with the smallest node of its component, in batches. Call it once.

        Args:
            batch_nodes: How many nodes a batch has at most.
        """
        self._is_closed = True
        if self._chunks is not None:
            self._write_graph()
        parts = [self._graph.components()] if self._chunks is None else self._chunks.members(self._most, self._block)
        for nodes, labels in parts:
            for start in range(0, len(nodes), batch_nodes):
                some = slice(start, start + batch_nodes)
                yield nodes[some], labels[some]

    def close(self) -> None:
        """Remove the files."""
        self._is_closed = True
        if self._chunks is not None:
            shutil.rmtree(self._chunks.folder, ignore_errors=True)

    def __enter__(self) -> Components:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write_graph(self) -> None:
        """Write one edge for each node, to the smallest node of its component, and forget them."""
        if self._chunks is None:
            self._chunks = Chunks(tempfile.mkdtemp(prefix="components-", dir=self._folder))
        graph, self._graph = self._graph, _Graph()
        if len(graph):
            self._chunks.add(Pairs.of(*graph.components()))


class _Graph:
    """The nodes seen so far, and which of them are connected."""

    def __init__(self) -> None:
        self._index, self._forest = NodeIndex(), Forest(0)

    def __len__(self) -> int:
        return len(self._index)

    def join(self, left: Ids, right: Ids, marks: bool) -> Iterator[NDArray[np.bool_]]:
        """Add edges; says of each block of them which joined two components, if that is wanted."""
        for start in range(0, len(left), _BLOCK_EDGES):
            block = slice(start, start + _BLOCK_EDGES)
            ends = self._index.number(left[block]), self._index.number(right[block])
            self._forest.grow(len(self._index))
            yield self._forest.join(*ends, marks=marks)

    def components(self) -> tuple[Ids, Ids]:
        """All nodes in ascending order, and the smallest node of the component of each."""
        nodes, labels, _ = smallest_nodes(self._index.nodes, self._forest.roots()[: len(self)])
        return nodes, labels


def _as_edges(left: NDArray[Any], right: NDArray[Any]) -> tuple[Ids, Ids]:
    _check_edges(left, right)
    for name, ends in (("left", left), ("right", right)):
        if ends.dtype.kind == "i" and len(ends) and ends.min() < 0:
            raise ValueError(f"{name}: {ends.min()} is not a node: nodes are from 0 to 2 ** 64 - 1")
    return left.astype(np.uint64, copy=False), right.astype(np.uint64, copy=False)


def _check_edges(left: NDArray[Any], right: NDArray[Any]) -> None:
    for name, ends in (("left", left), ("right", right)):
        if ends.dtype.kind not in "iu" or ends.ndim != 1:
            raise TypeError(f"{name} must be a flat array of whole numbers, not {ends.ndim}-dimensional {ends.dtype}")
    if len(left) != len(right):
        raise ValueError(f"left has {len(left):,} nodes and right has {len(right):,}: an edge needs both")
