"""The name of a row: the source it comes from and its position there.

A name is the same on every executor and at every block size, and it stays with the row through selection, fusion,
processes, clusters and shuffles. Drops, quarantine, deduplication, sampling and reports use it and no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array, numpy_array, one_array, text_array

__all__ = ["NAME_COLUMNS", "RowNames", "missing_rows"]

SOURCE, POSITION, PART = "_tamis_source", "_tamis_position", "_tamis_part"

NAME_COLUMNS = (SOURCE, POSITION, PART)
"""The columns that hold the names of rows in files between stages."""

Rows = Sequence[int] | NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RowNames:
    """The names of the rows of one batch.

    Args:
        sources: The distinct sources: the paths of files, or the stage that made the rows.
        positions: The position of each row in its source: the byte where its line starts, or the number of the row.
        codes: For each row the index of its source; ``None`` when all rows are of the first.
        parts: For rows that were split or joined, what follows the name: ``"/2"`` is the third piece of a row.

    >>> names = RowNames(("a.jsonl",), np.array([0, 120]))
    >>> names.to_texts()
    ['a.jsonl:0', 'a.jsonl:120']
    """

    sources: tuple[str, ...]
    positions: NDArray[np.int64]
    codes: NDArray[np.int32] | None = None
    parts: pa.Array | None = None

    @classmethod
    def numbered(cls, source: str, count: int) -> RowNames:
        """Names for rows of one source that are counted from 0.

        >>> RowNames.numbered("a.parquet", 2).to_texts()
        ['a.parquet:0', 'a.parquet:1']
        """
        return cls((source,), np.arange(count, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def nbytes(self) -> int:
        """Memory that the names take, in bytes."""
        optional = (self.codes, self.parts)
        return int(self.positions.nbytes) + sum(int(part.nbytes) for part in optional if part is not None)

    def take(self, rows: Rows) -> RowNames:
        """The names of some of the rows, in the order given."""
        chosen = np.asarray(rows, np.int64)
        codes = None if self.codes is None else self.codes[chosen]
        parts = None if self.parts is None else self.parts.take(arrow_array(chosen))
        return RowNames(self.sources, self.positions[chosen], codes, parts)

    def divided(self, parents: NDArray[np.int64]) -> RowNames:
        """The names of rows made of these: row ``i`` is made of ``parents[i]``. Pieces of one row are numbered.

        >>> RowNames.numbered("a", 2).divided(np.array([0, 0, 1])).to_texts()
        ['a:0/0', 'a:0/1', 'a:1']
        """
        taken = self.take(parents)
        counts = np.bincount(parents, minlength=len(self))
        if not len(parents) or counts.max() <= 1:
            return taken
        import pyarrow.compute as pc

        by_parent = np.argsort(parents, kind="stable")
        firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        piece = np.empty(len(parents), np.int64)
        piece[by_parent] = np.arange(len(parents)) - firsts[parents[by_parent]]
        earlier = taken._parts_or_empty()
        numbered = pc.binary_join_element_wise(earlier, arrow_array(piece).cast(pa.string()), "/")
        parts = pc.if_else(arrow_array(counts[parents] > 1), numbered, earlier)
        return RowNames(taken.sources, taken.positions, taken.codes, _empty_as_null(parts))

    def joined(self, firsts: NDArray[np.int64], counts: NDArray[np.int64]) -> RowNames:
        """The names of rows that are several of these each: the first one's name, and how many more there are.

        Pieces of one row that are put together again get the name of that row.

        >>> RowNames.numbered("a", 3).joined(np.array([0, 2]), np.array([2, 1])).to_texts()
        ['a:0+1', 'a:2']
        >>> RowNames.numbered("a", 1).divided(np.array([0, 0])).joined(np.array([0]), np.array([2])).to_texts()
        ['a:0']
        """
        taken = self.take(firsts)
        if not len(counts) or counts.max() <= 1:
            return taken
        import pyarrow.compute as pc

        part, is_joined = taken._parts_or_empty(), arrow_array(counts > 1)
        counted = pc.binary_join_element_wise(part, arrow_array(counts - 1).cast(pa.string()), "+")
        whole = pc.utf8_slice_codeunits(part, 0, -2)  # of a row whose first piece this is
        parts = pc.if_else(is_joined, pc.if_else(pc.ends_with(part, "/0"), whole, counted), part)
        return RowNames(taken.sources, taken.positions, taken.codes, _empty_as_null(parts))

    def _parts_or_empty(self) -> pa.Array:
        return pa.repeat("", len(self)) if self.parts is None else self.parts.fill_null("")

    @classmethod
    def concat(cls, pieces: Sequence[RowNames]) -> RowNames:
        """The names of several batches, one after the other.

        >>> RowNames.concat([RowNames.numbered("a", 1), RowNames.numbered("b", 2)]).to_texts()
        ['a:0', 'b:0', 'b:1']
        """
        if len(pieces) == 1:
            return pieces[0]
        positions = np.concatenate([piece.positions for piece in pieces])
        source = pieces[0].sources
        if len(source) == 1 and all(p.sources is source and p.codes is p.parts is None for p in pieces):
            return cls(source, positions)
        known: dict[str, int] = {}
        codes = []
        for piece in pieces:
            own = np.array([known.setdefault(source, len(known)) for source in piece.sources], np.int32)
            codes.append(np.full(len(piece), own[0], np.int32) if piece.codes is None else own[piece.codes])
        parts = None
        if any(piece.parts is not None for piece in pieces):
            parts = pa.concat_arrays(
                [pa.nulls(len(piece), pa.string()) if piece.parts is None else piece.parts for piece in pieces]
            )
        return cls(tuple(known), positions, np.concatenate(codes) if len(known) > 1 else None, parts)

    # -- as columns and as text --------------------------------------------------------------------------------------

    def source_column(self) -> pa.Array:
        """The source of each row, as a dictionary of the distinct ones."""
        codes = np.zeros(len(self), np.int32) if self.codes is None else self.codes
        return pa.DictionaryArray.from_arrays(arrow_array(codes), text_array(list(self.sources)))

    def added_to(self, table: pa.Table) -> pa.Table:
        """A table of the rows with their names in columns of their own, for files and other processes."""
        columns = {SOURCE: self.source_column(), POSITION: arrow_array(np.ascontiguousarray(self.positions))}
        if self.parts is not None:
            columns[PART] = self.parts
        for name, column in columns.items():
            table = table.append_column(name, column)
        return table

    @classmethod
    def taken_from(cls, table: pa.Table) -> tuple[pa.Table, RowNames | None]:
        """The reverse of :meth:`added_to`: the table without the columns of names, and the names.

        >>> table, names = RowNames.taken_from(RowNames.numbered("a", 1).added_to(pa.table({"text": ["x"]})))
        >>> table.column_names, names.to_texts()
        (['text'], ['a:0'])
        """
        if SOURCE not in table.column_names:
            return table, None
        chunked = table.column(SOURCE).unify_dictionaries()
        encoded = chunked.combine_chunks() if chunked.num_chunks != 1 else chunked.chunk(0)
        if not pa.types.is_dictionary(encoded.type):
            encoded = encoded.dictionary_encode()
        encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
        sources = tuple(encoded.dictionary.to_pylist()) or ("",)
        codes = numpy_array(encoded.indices.cast(pa.int32())) if len(sources) > 1 else None
        positions = _whole(table.column(POSITION))
        parts = one_array(table.column(PART)) if PART in table.column_names else None
        kept = [name for name in table.column_names if name not in NAME_COLUMNS]
        return table.select(kept), cls(sources, positions, codes, parts)

    def text(self, row: int) -> str:
        """The name of one row, as text."""
        return self.take([row]).to_texts()[0]

    def to_texts(self) -> list[str]:
        """The names as text, ``source:position`` and the part, if there is one: for messages, not for loops."""
        codes = [0] * len(self) if self.codes is None else self.codes.tolist()
        parts = [None] * len(self) if self.parts is None else self.parts.to_pylist()
        return [
            f"{self.sources[code]}:{position}{part or ''}"
            for code, position, part in zip(codes, self.positions.tolist(), parts, strict=True)
        ]


def missing_rows(before: RowNames, after: Sequence[RowNames]) -> NDArray[np.int64]:
    """The numbers of the rows of ``before`` that are in none of ``after``, neither whole nor in pieces.

    >>> missing_rows(RowNames.numbered("a", 3), [RowNames.numbered("a", 3).take([1])]).tolist()
    [0, 2]
    """
    made = RowNames.concat([before, *after])
    if before.parts is not None:
        texts = made.to_texts()
        present = {prefix for text in texts[len(before) :] for prefix in _prefixes(text)}
        return np.array([row for row, text in enumerate(texts[: len(before)]) if text not in present], np.int64)
    keys = made.positions
    if made.codes is not None:
        codes, span = made.codes.astype(np.int64), int(keys.max(initial=0)) + 1
        if span * len(made.sources) < 2**63 and keys.min(initial=0) >= 0:
            keys = codes * span + keys
        else:
            keys = np.unique(np.stack([codes, keys]), axis=1, return_inverse=True)[1].reshape(-1)
    return np.flatnonzero(~np.isin(keys[: len(before)], keys[len(before) :]))


def _prefixes(name: str) -> Iterator[str]:
    """A name, and the names of the rows that it is a piece of: ``a:0/1/2``, ``a:0/1``, ``a:0``."""
    yield name
    base = name.rfind(":")
    while (cut := name.rfind("/")) > base:
        name = name[:cut]
        yield name


def _empty_as_null(parts: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.if_else(pc.equal(parts, ""), pa.scalar(None, pa.string()), parts)


def _whole(column: pa.ChunkedArray) -> NDArray[np.int64]:
    values: NDArray[np.int64] = np.asarray(numpy_array(one_array(column)), np.int64)
    return values
