"""Connected components of a graph whose nodes do not fit into memory: two passes over ranges of nodes on disk.

Ids are cut into ranges so that the nodes of a range fit. An edge is kept with the range of its greater end.

1. From the last range to the first: the edges inside the range are joined in memory. A set of nodes that they connect
   may have edges to smaller nodes in earlier ranges: the set gets a link to the smallest of those, and for each other
   one an edge between it and the smallest is kept with an earlier range. So what was connected through this range stays
   connected without it.
2. From the first range to the last: a set without a link has no smaller nodes, so its label is its smallest node. A set
   with a link has the label of the node that it links to, which is in an earlier range and known.

Every edge is read once for each range that it passes, and a node is in memory only with its range.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.union_find import Forest, NodeIndex, smallest_nodes

__all__ = ["Chunks", "Pairs"]

Ids = NDArray[np.uint64]

_PAIR_BYTES: Final = 16

_NONE: Final = np.uint64(2**64 - 1)
"""No link. It is the greatest id, and a link leads to a node that is smaller than another."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of ids, as rows of two columns.

    Args:
        rows: The pairs.
    """

    rows: NDArray[np.uint64]

    @classmethod
    def of(cls, first: Ids, second: Ids) -> Pairs:
        """Pairs of the members of two arrays."""
        return cls(np.stack([first, second], axis=1))

    @property
    def first(self) -> Ids:
        """The first member of each pair."""
        return np.ascontiguousarray(self.rows[:, 0])

    @property
    def second(self) -> Ids:
        """The second member of each pair."""
        return np.ascontiguousarray(self.rows[:, 1])

    def in_order(self) -> Pairs:
        """The pairs sorted by their first members, without most of those that occur several times."""
        rows = self.rows[np.argsort(self.rows[:, 0])]
        is_new = np.ones(len(rows), np.bool_)
        is_new[1:] = (rows[1:, 0] != rows[:-1, 0]) | (rows[1:, 1] != rows[:-1, 1])
        return Pairs(rows[is_new])


@dataclass(frozen=True)
class _File:
    """Pairs in a file, which need not exist. They are read in blocks, not mapped, so that memory holds a block only.

    Args:
        path: The file.
        start: The first pair that counts.
        stop: One past the last pair that counts; ``None`` is the end of the file.
    """

    path: str
    start: int = 0
    stop: int | None = None

    def __len__(self) -> int:
        if self.stop is not None:
            return self.stop - self.start
        return (os.path.getsize(self.path) // _PAIR_BYTES if os.path.exists(self.path) else 0) - self.start

    def blocks(self, size: int) -> Iterator[Pairs]:
        """The pairs, so many at a time."""
        for start in range(0, len(self), size):
            yield self.read(start, min(size, len(self) - start))

    def read(self, start: int = 0, count: int | None = None) -> Pairs:
        """Some of the pairs, all by default."""
        count = len(self) - start if count is None else count
        if not count:
            return Pairs(np.empty((0, 2), np.uint64))
        place = (self.start + start) * _PAIR_BYTES
        return Pairs(np.fromfile(self.path, np.uint64, 2 * count, offset=place).reshape(-1, 2))

    def between(self, places: Sequence[int]) -> list[_File]:
        """The parts of the file between places, the first one from its begin and the last one to its end."""
        return [_File(self.path, *ends) for ends in itertools.pairwise([0, *places, len(self)])]

    def places_of(self, ids: Ids) -> list[int]:
        """Where pairs begin whose first member is not less than each of some ids, in a sorted file."""
        if not len(self):
            return [0] * len(ids)
        rows = np.memmap(self.path, np.uint64, mode="r").reshape(-1, 2)
        return [int(place) for place in np.searchsorted(rows[:, 0], ids)]

    def remove(self) -> None:
        """Remove the file if there is one."""
        if os.path.exists(self.path):
            os.remove(self.path)


class Chunks:
    """Files of edges from each node of a part of a graph to the smallest node of its component, sorted by node.

    Args:
        folder: Where the files are kept: an empty directory.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._files: list[_File] = []

    def add(self, edges: Pairs) -> None:
        """Write a chunk."""
        path = os.path.join(self.folder, f"chunk-{len(self._files)}")
        edges.rows.tofile(path)
        self._files.append(_File(path))

    def members(self, most_nodes: int, block: int) -> Iterator[tuple[Ids, Ids]]:
        """All nodes in ascending order and their labels, one range of nodes at a time.

        Args:
            most_nodes: How many nodes fit into memory.
            block: How many edges are read at once.
        """
        ranges = _Ranges(self.folder, self._files, _bounds(self._files, most_nodes, block), block)
        for number in reversed(range(len(ranges))):
            ranges.contract(number)
        for number in range(len(ranges)):
            yield ranges.labels(number)


def _bounds(chunks: Sequence[_File], most_nodes: int, block: int) -> Ids:
    """The first id of each range but the first, so that a range has half as many nodes as fit, give or take a few.

    Nodes are sampled by their hash, so one that is in many chunks counts once. The sample is all nodes if they fit;
    else it is thinned out until it fits, and still has so many nodes of each range that in practice no range has twice
    as many nodes as intended.
    """
    sample, halvings = np.empty(0, np.uint64), 0
    for chunk in chunks:
        parts = [blocks.first for blocks in chunk.blocks(block)]
        sample = _merged([sample, *(nodes[_in_sample(nodes, halvings)] for nodes in parts)])
        while len(sample) > most_nodes:
            halvings += 1
            sample = sample[_in_sample(sample, halvings)]
    per_range = max(1, (most_nodes // 2) >> halvings)
    return sample[per_range::per_range]


def _merged(parts: Sequence[Ids]) -> Ids:
    """The ids of sorted arrays, sorted, each once."""
    ids = np.sort(np.concatenate(parts), kind="stable")  # which merges runs that are sorted
    is_new = np.ones(len(ids), np.bool_)
    is_new[1:] = ids[1:] != ids[:-1]
    return ids[is_new]


def _in_sample(nodes: Ids, halvings: int) -> NDArray[np.bool_]:
    """Of all nodes, one in 2 ** halvings: those whose hash ends in so many zeros."""
    mixed = (nodes ^ (nodes >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xD6E8FEB86659FD93)
    is_in: NDArray[np.bool_] = (mixed >> np.uint64(32)) & np.uint64((1 << halvings) - 1) == 0
    return is_in


class _Ranges:
    """The ranges of nodes, and the files that belong to each.

    Args:
        folder: Where the files are kept.
        chunks: The edges of the graph.
        bounds: The first id of each range but the first.
        block: How many edges are read at once.
    """

    def __init__(self, folder: str, chunks: Sequence[_File], bounds: Ids, block: int) -> None:
        self._folder, self._bounds, self._block = folder, bounds, block
        self._chunks = [chunk.between(chunk.places_of(bounds)) for chunk in chunks]

    def __len__(self) -> int:
        return len(self._bounds) + 1

    def contract(self, number: int) -> None:
        """Join the nodes of a range, and pass the edges to smaller nodes on to the ranges of those."""
        first = self._bounds[number - 1] if number else np.uint64(0)
        index, forest = NodeIndex(), Forest(0)
        for edges in self._edges(number):
            inside = edges.second >= first
            ends = index.number(edges.first)[inside], index.number(edges.second[inside])
            forest.grow(len(index))
            forest.join(*ends, marks=False)
        roots = forest.roots()[: len(index)]
        links = np.full(len(index), _NONE)
        for edges in self._edges(number):
            outside = edges.second < first
            np.minimum.at(links, roots[index.number(edges.first[outside])], edges.second[outside])
        for edges in self._edges(number):
            outside = edges.second < first
            nearest, others = links[roots[index.number(edges.first[outside])]], edges.second[outside]
            is_other = others != nearest
            self._append("edges", Pairs.of(others[is_other], nearest[is_other]).in_order())
        self._file("edges", number).remove()
        nodes, labels, smallest = smallest_nodes(index.nodes, roots)
        Pairs.of(nodes, labels).rows.tofile(self._file("sets", number).path)
        linked = np.flatnonzero(links != _NONE)
        linked = linked[np.argsort(links[linked], kind="stable")]
        self._append("questions", Pairs.of(links[linked], smallest[linked]))

    def labels(self, number: int) -> tuple[Ids, Ids]:
        """The nodes of a range and their labels, once all ranges before have theirs."""
        sets = self._file("sets", number).read()
        nodes, labels = sets.first, sets.second
        answers = self._file("answers", number).read().in_order()
        asked, given = answers.first, answers.second
        if len(asked):
            place = np.minimum(np.searchsorted(asked, labels), len(asked) - 1)
            labels = np.where(asked[place] == labels, given[place], labels)
        for questions in self._file("questions", number).blocks(self._block):
            found = labels[np.searchsorted(nodes, questions.first)]
            self._append("answers", Pairs.of(questions.second, found).in_order())
        for kind in ("sets", "questions", "answers"):
            self._file(kind, number).remove()
        return nodes, labels

    def _edges(self, number: int) -> Iterator[Pairs]:
        """The edges whose greater end is in a range, which comes first."""
        for parts in self._chunks:
            yield from parts[number].blocks(self._block)
        yield from self._file("edges", number).blocks(self._block)

    def _append(self, kind: str, pairs: Pairs) -> None:
        """Write pairs, which are sorted, to the files of the ranges of their first members."""
        edges = [0, *np.searchsorted(pairs.rows[:, 0], self._bounds).tolist(), len(pairs.rows)]
        for number in np.flatnonzero(np.diff(edges)).tolist():
            with open(self._file(kind, number).path, "ab") as file:  # noqa: PTH123 - a path is a string here
                pairs.rows[edges[number] : edges[number + 1]].tofile(file)

    def _file(self, kind: str, number: int) -> _File:
        return _File(os.path.join(self._folder, f"{kind}-{number}"))
