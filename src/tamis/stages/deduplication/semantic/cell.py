"""The similar rows of one cell, found in blocks: never all products at once, and never an edge for each pair.

A cell has the vectors that belong to one cluster, and copies of those of other clusters that are near to its border.
Rows are gone through in the order of their ranks. A row with a similar one before it that stays is removed: it stays in
no comparison with those that follow, so a thousand copies of a row cost one comparison each.

What is not known here is what other cells say. A row that has a copy elsewhere may have a similar row there. So it is
*open*, unless a row of this cell removes it already; and so is a row that has open ones before it. Of an open row, the
open rows before it are written down, and decided on when all cells are done.

A row whose vector is that of a row before it, bit by bit, never stays, and removes nothing that the other does not. So
nothing is compared with it, and a hundred thousand copies of an open row cost one comparison each, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tamis.kernels.hashing import hash_text_64
from tamis.kernels.products import Products
from tamis.kernels.unit_vectors import cosines, product_error
from tamis.stages.deduplication.semantic.vectors import vector_column

__all__ = ["KEPT", "OPEN", "REMOVED", "Cell", "SimilarRows", "find_similar"]

Vectors = NDArray[np.float32]
Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

OPEN: Final = 0
KEPT: Final = 1
REMOVED: Final = 2

_MOST_OPEN: Final = 32
"""Of an open row, so many open rows before it are written down: those with the best ranks."""


@dataclass(frozen=True)
class Cell:
    """The rows of a cell, in the order of their ranks.

    Args:
        take: The vectors of the rows with the given numbers.
        is_home: Which rows belong to the cluster; the others are copies, which are not compared with each other.
        is_shared: Which rows have a copy in another cell, or are one.
        dimensions: Numbers in a vector.
        held_bytes: Memory for vectors that are needed again and again; the others are taken again each time.
    """

    take: Callable[[Places], Vectors]
    is_home: Mask
    is_shared: Mask
    dimensions: int
    held_bytes: int = 2**30

    def __len__(self) -> int:
        return len(self.is_home)


@dataclass
class SimilarRows:
    """What was found in a cell.

    Args:
        state: For each row, whether it stays, is removed, or is open.
        later, earlier, similarity: Rows that are removed, each with the most similar row that stays and is before it;
            and pairs of open rows.
        is_decided: Of those, which are the former.
        is_cut: For each row, whether there are more open rows before it than were written down.
        pairs: All pairs that are similar enough, if they are recorded: ``(later, earlier, similarity)``.
    """

    state: NDArray[np.uint8]
    later: Places
    earlier: Places
    similarity: Vectors
    is_decided: Mask
    is_cut: Mask
    pairs: list[tuple[Places, Places, Vectors]] = field(default_factory=list)


def find_similar(
    cell: Cell,
    threshold: float,
    products: Products,
    *,
    known: NDArray[np.uint8] | None = None,
    all_remove: bool = False,
    record: bool = False,
) -> SimilarRows:
    """Find the rows of a cell that have a similar one before them.

    Args:
        cell: The cell.
        threshold: The least cosine of similar rows.
        products: Where products are computed.
        known: What was decided on earlier; rows that are not open keep it.
        all_remove: Whether rows that are removed themselves remove others, too.
        record: Whether to record all pairs, also of rows that are removed.
    """
    return _Search(cell, np.float32(threshold), products, known, all_remove, record).run()


class _Search:
    def __init__(
        self,
        cell: Cell,
        threshold: np.float32,
        products: Products,
        known: NDArray[np.uint8] | None,
        all_remove: bool,
        record: bool,
    ) -> None:
        count = len(cell)
        self._cell, self._threshold, self._products = cell, threshold, products
        self._all_remove, self._record, self._known = all_remove, record, known
        self._error = np.float32(product_error(cell.dimensions) * 2)
        self._homes, self._copies = (_Tiles(cell, products.pair_columns, share) for share in (0.5, 0.5))
        self._state = np.zeros(count, np.uint8) if known is None else known.copy()
        self._is_cut = np.zeros(count, np.bool_)
        self._is_repeat = np.zeros(count, np.bool_)
        self._seen = np.zeros(0, np.uint64)
        self._found: list[tuple[Places, Places, Vectors, Mask]] = []
        self._pairs: list[tuple[Places, Places, Vectors]] = []

    def run(self) -> SimilarRows:
        """Go through the rows."""
        count, step = len(self._cell), self._products.pair_rows
        for start in range(0, count, step):
            rows = np.arange(start, min(start + step, count))
            block = self._cell.take(rows)
            if not self._record:
                self._note_repeats(rows, block)
            self._block(rows, block)
            keeps = ~self._is_repeat[rows]
            if not (self._all_remove or self._record):
                keeps &= self._state[rows] != REMOVED
            is_home = self._cell.is_home[rows]
            for tiles, chosen in ((self._homes, keeps & is_home), (self._copies, keeps & ~is_home)):
                tiles.add(block[chosen], rows[chosen])
        empty = np.zeros(0, np.int64)
        nothing = (empty, empty, np.zeros(0, np.float32), np.zeros(0, np.bool_))
        later, earlier, similarity, decided = (np.concatenate(some) for some in zip(nothing, *self._found, strict=True))
        return SimilarRows(self._state, later, earlier, similarity, decided, self._is_cut, self._pairs)

    def _note_repeats(self, rows: Places, block: Vectors) -> None:
        """Note which rows of a block have the vector of a row before them, of the same kind."""
        hashes = hash_text_64(vector_column(block)) ^ self._cell.is_home[rows].astype(np.uint64)
        firsts = np.unique(hashes, return_index=True)[1]
        new = hashes[firsts]
        places = np.searchsorted(self._seen, new)
        is_new = np.ones(len(new), np.bool_)
        inside = places < len(self._seen)
        is_new[inside] = self._seen[places[inside]] != new[inside]
        self._seen = np.insert(self._seen, places[is_new], new[is_new])
        self._is_repeat[rows] = True
        self._is_repeat[rows[firsts[is_new]]] = False

    def _block(self, rows: Places, block: Vectors) -> None:
        """Decide on the rows of a block."""
        asked = np.ones(len(rows), np.bool_) if self._record or self._known is None else self._state[rows] == OPEN
        best = _Best(len(rows))
        notes = _OpenPairs(len(rows))
        for tiles, chosen in ((self._homes, asked), (self._copies, asked & self._cell.is_home[rows])):
            places = np.flatnonzero(chosen)
            held = self._products.hold(block[places])
            for tile, numbers in tiles if len(places) else ():
                found = self._similar(rows, block, places, held, tile, numbers)
                self._sort_out(found, rows, block, tile, numbers, best, notes)
        if not asked.any():
            return
        places = np.flatnonzero(asked)
        found = self._similar(rows, block, places, self._products.hold(block[places]), block, rows)
        if self._all_remove:
            self._offer(found, np.ones(len(found[0]), np.bool_), rows, block, block, best)
            was_known = self._state[rows] != OPEN
            self._state[rows] = np.where(was_known, self._state[rows], np.where(best.similarity >= 0, REMOVED, KEPT))
        else:
            self._within(found, rows, block, best, notes)
        self._write(rows, block, best, notes)

    def _similar(
        self, rows: Places, block: Vectors, places: Places, held: object, tile: Vectors, numbers: Places
    ) -> tuple[Places, Places, Vectors]:
        """Pairs of a row of the block, at some of the places, and one of the tile before it that are similar."""
        scores = self._products.multiply(held, self._products.hold(tile))
        bounds = np.full(len(places), self._threshold - self._error, np.float32)
        found, columns, values = self._products.from_bound(scores, bounds)
        found = places[found]
        home = self._cell.is_home
        fits = (numbers[columns] < rows[found]) & (home[rows[found]] | home[numbers[columns]])
        fits &= ~self._is_repeat[numbers[columns]]
        found, columns, values = found[fits], columns[fits], values[fits]
        unclear = np.flatnonzero(values < self._threshold + self._error)
        if len(unclear):
            is_similar = np.ones(len(found), np.bool_)
            exact = _cosines(block, tile, found[unclear], columns[unclear])
            is_similar[unclear] = exact >= self._threshold
            found, columns, values = found[is_similar], columns[is_similar], values[is_similar]
        if self._record and len(found):
            self._pairs.append((rows[found], numbers[columns], _cosines(block, tile, found, columns)))
        return found, columns, values

    def _sort_out(
        self,
        similar: tuple[Places, Places, Vectors],
        rows: Places,
        block: Vectors,
        tile: Vectors,
        numbers: Places,
        best: _Best,
        notes: _OpenPairs,
    ) -> None:
        """Of pairs with rows that were decided on before: the most similar row that stays, and the open ones."""
        found, columns, _ = similar
        if not len(found):
            return
        if self._all_remove:
            self._offer(similar, np.ones(len(found), np.bool_), numbers, block, tile, best)
            return
        state = self._state[numbers[columns]]
        self._offer(similar, state == KEPT, numbers, block, tile, best)
        is_open = (state == OPEN) & (best.similarity[found] < 0)
        notes.add(found[is_open], numbers[columns[is_open]])

    def _offer(
        self,
        similar: tuple[Places, Places, Vectors],
        chosen: Mask,
        numbers: Places,
        block: Vectors,
        tile: Vectors,
        best: _Best,
    ) -> None:
        """Look for the most similar row among some pairs, of those that are equally similar the first."""
        found, columns, values = similar[0][chosen], similar[1][chosen], similar[2][chosen]
        if not len(found):
            return
        starts = np.flatnonzero(np.append(True, found[1:] != found[:-1]))
        top = np.repeat(np.maximum.reduceat(values, starts), np.diff(np.append(starts, len(found))))
        near = np.flatnonzero(values >= top - self._error)
        near = near[np.unique(found[near], return_index=True)[1]]
        at, to = found[near], columns[near]
        best.offer(at, numbers[to], _cosines(block, tile, at, to))

    def _within(
        self,
        similar: tuple[Places, Places, Vectors],
        rows: Places,
        block: Vectors,
        best: _Best,
        notes: _OpenPairs,
    ) -> None:
        """Decide on the rows of the block, which may remove each other."""
        found, columns, _ = similar
        state = self._state[rows]
        was_known = state != OPEN
        state[(best.similarity >= 0) & ~was_known] = REMOVED
        certain = ~self._cell.is_shared[rows] if self._known is None else np.zeros(len(rows), np.bool_)
        has_open = notes.counts > 0
        while True:
            removed = np.zeros(len(rows), np.bool_)
            removed[found[state[columns] == KEPT]] = True
            blocked = has_open.copy()
            blocked[found[state[columns] != REMOVED]] = True
            changed = (state == OPEN) & (removed | (certain & ~blocked))
            if not changed.any():
                break
            state[changed] = np.where(removed[changed], REMOVED, KEPT)
        self._state[rows] = state
        self._offer(similar, (state[columns] == KEPT) & ~was_known[found], rows, block, block, best)
        is_open = (state[found] == OPEN) & (state[columns] == OPEN)
        notes.add(found[is_open], rows[columns[is_open]])

    def _write(self, rows: Places, block: Vectors, best: _Best, notes: _OpenPairs) -> None:
        """Write down what was found for the rows of a block."""
        state = self._state[rows]
        removed = np.flatnonzero((state == REMOVED) & (best.similarity >= 0))
        if len(removed):
            decided = np.ones(len(removed), np.bool_)
            self._found.append((rows[removed], best.earlier[removed], best.similarity[removed], decided))
        self._is_cut[rows] = notes.is_cut & (state == OPEN)
        later, earlier = notes.pairs()
        is_open = state[later] == OPEN
        later, earlier = later[is_open], earlier[is_open]
        for some in _slices(len(later)):
            similarity = cosines(block[later[some]], self._cell.take(earlier[some]))
            undecided = np.zeros(len(similarity), np.bool_)
            self._found.append((rows[later[some]], earlier[some], similarity, undecided))


class _OpenPairs:
    """The open rows before each row of a block: of each, so many as there is room for, the best ranks first."""

    def __init__(self, count: int) -> None:
        self.counts = np.zeros(count, np.int64)
        self.is_cut = np.zeros(count, np.bool_)
        self._later: list[Places] = []
        self._earlier: list[Places] = []

    def add(self, found: Places, earlier: Places) -> None:
        """Add pairs, row by row, with better ranks first, and worse ones than in the calls before."""
        if not len(found):
            return
        place = np.arange(len(found)) - np.searchsorted(found, found, side="left")
        fits = place + self.counts[found] < _MOST_OPEN
        self.is_cut[found[~fits]] = True
        self._later.append(found[fits])
        self._earlier.append(earlier[fits])
        self.counts += np.bincount(found[fits], minlength=len(self.counts))

    def pairs(self) -> tuple[Places, Places]:
        """The pairs."""
        empty = np.zeros(0, np.int64)
        return np.concatenate([empty, *self._later]), np.concatenate([empty, *self._earlier])


class _Best:
    """For each row of a block the most similar row that removes it."""

    def __init__(self, count: int) -> None:
        self.earlier = np.full(count, -1, np.int64)
        self.similarity = np.full(count, -1, np.float32)

    def offer(self, at: Places, earlier: Places, similarity: Vectors) -> None:
        """Consider pairs: of equal similarities the row with the best rank stays, which is offered first."""
        if not len(at):
            return
        order = np.lexsort((earlier, -similarity, at))
        firsts = order[np.unique(at[order], return_index=True)[1]]
        better = firsts[similarity[firsts] > self.similarity[at[firsts]]]
        self.earlier[at[better]], self.similarity[at[better]] = earlier[better], similarity[better]


class _Tiles:
    """Rows before a block that are compared with it, in pieces of a fixed size."""

    def __init__(self, cell: Cell, rows: int, share: float) -> None:
        self._cell, self._rows = cell, rows
        self._most = max(1, int(cell.held_bytes * share) // (4 * cell.dimensions * rows))
        self._vectors: list[Vectors] = []
        self._numbers: list[Places] = []
        self._used = rows

    def add(self, vectors: Vectors, numbers: Places) -> None:
        """Add rows behind the others."""
        done = 0
        while done < len(numbers):
            if self._used == self._rows:
                if len(self._vectors) < self._most:
                    self._vectors.append(np.empty((self._rows, self._cell.dimensions), np.float32))
                self._numbers.append(np.empty(self._rows, np.int64))
                self._used = 0
            fits = min(self._rows - self._used, len(numbers) - done)
            if len(self._vectors) == len(self._numbers):
                self._vectors[-1][self._used : self._used + fits] = vectors[done : done + fits]
            self._numbers[-1][self._used : self._used + fits] = numbers[done : done + fits]
            self._used, done = self._used + fits, done + fits

    def __iter__(self) -> Iterator[tuple[Vectors, Places]]:
        for place, numbers in enumerate(self._numbers):
            used = self._used if place == len(self._numbers) - 1 else self._rows
            if place < len(self._vectors):
                yield self._vectors[place][:used], numbers[:used]
            else:
                yield self._cell.take(numbers[:used]), numbers[:used]


def _cosines(left: Vectors, right: Vectors, rows: Places, columns: Places) -> Vectors:
    """The exact cosines of some pairs of rows."""
    found = [cosines(left[rows[some]], right[columns[some]]) for some in _slices(len(rows))]
    return np.concatenate([np.zeros(0, np.float32), *found])


def _slices(count: int) -> list[slice]:
    return [slice(start, start + 8192) for start in range(0, count, 8192)]
