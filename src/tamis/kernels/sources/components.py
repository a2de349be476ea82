"""The kernel that joins the nodes of a graph along its edges: union-find by the algorithm of Rem, with splicing.

See Patwary, Blair and Manne, "Experiments on Union-Find Algorithms for the Disjoint-Set Data Structure" (2010). A
parent is never greater than its child, so the root of a tree is its smallest node, and one pass in ascending order
leads every node to its root. The time goes into waiting for memory: entries are fetched some edges ahead.
"""

from __future__ import annotations

from numpy import int64

from tamis.kernels.sources.primitives import prefetch

__all__ = ["kernel"]

_AHEAD = 16
"""How many edges ahead the entries are fetched: enough for the memory to answer, too few to fill the cache."""


def kernel(left, right, edge_count, parents, node_count, joined, marks, flatten):
    """Join the ends of edges. Returns how many edges joined two trees; -1 - edge for one that names no node.

    Args:
        parents: For each node a node of its tree that is not greater, itself at first. The caller vouches for this.
        joined: Set to 1 for each edge that joined two trees and to 0 for the others, if ``marks`` is 1.
        flatten: Whether to make the root the parent of every node, after the last edge.
    """
    count = int64(0)
    for edge in range(edge_count):
        if edge + _AHEAD < edge_count:
            prefetch(parents, left[edge + _AHEAD])
            prefetch(parents, right[edge + _AHEAD])
        one, other = int64(left[edge]), int64(right[edge])
        if one < 0 or other < 0 or one >= node_count or other >= node_count:
            return -1 - edge
        new = 0
        above_one, above_other = int64(parents[one]), int64(parents[other])
        while above_one != above_other:
            if above_one > above_other:
                parents[one] = above_other
                if one == above_one:
                    new = 1
                    break
                one = above_one
                above_one = int64(parents[one])
            else:
                parents[other] = above_one
                if other == above_other:
                    new = 1
                    break
                other = above_other
                above_other = int64(parents[other])
        count += new
        if marks != 0:
            joined[edge] = new
    if flatten != 0:
        for node in range(node_count):
            if node + _AHEAD < node_count:
                prefetch(parents, parents[node + _AHEAD])
            parents[node] = parents[parents[node]]
    return count
