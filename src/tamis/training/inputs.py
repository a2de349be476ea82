"""What models are trained on: rows of files, with a text and perhaps a label."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.analysis.inputs import check_columns, partitioning_of, reader_for
from tamis.errors import ColumnError, DataError, did_you_mean
from tamis.kernels.hashing import hash_text_64
from tamis.kernels.unit_vectors import unit_rows
from tamis.kernels.utf8 import WHITE_SPACE
from tamis.stages.column_values import read_column, text_values
from tamis.stages.deduplication.semantic.vectors import vector_column
from tamis.stages.emit import BadRows
from tamis.stages.flow import Route
from tamis.stages.vectors import vectors_of
from tamis.tasks import DocumentBatch
from tamis.training.sample import content_keys

__all__ = ["InputRows", "RowCounts", "VectorsOfTexts"]


@dataclass
class RowCounts:
    """What became of the rows that were read.

    Args:
        rows: Rows read.
        without_text: Of them, those whose text is null or has nothing but white space.
        without_label: Those whose label is null or empty.
        unreadable: Rows that could not be read; they are not among the others.
    """

    rows: int = 0
    without_text: int = 0
    without_label: int = 0
    unreadable: int = 0

    def __add__(self, other: RowCounts) -> RowCounts:
        mine, others = dataclasses.astuple(self), dataclasses.astuple(other)
        return RowCounts(*(one + another for one, another in zip(mine, others, strict=True)))


@dataclass
class InputRows:
    """Rows of files, read one block after another.

    Args:
        paths: Files, directories and patterns.
        text_field: The column with the text.
        label_field: The column with the label.
        label_where: Instead, a condition such as ``"stars >= 4"``: the labels are then ``"true"`` and ``"false"``.
        label: Instead, the label of all rows.
        format_name: The format of the files; by their names when not given.
    """

    paths: list[str]
    text_field: str = "text"
    label_field: str | None = None
    label_where: str | None = None
    label: str | None = None
    format_name: str | None = None
    counts: RowCounts = field(default_factory=RowCounts, init=False)

    def batches(self) -> Iterator[tuple[pa.Array, pa.Array | None]]:
        """Texts and labels of the rows that have them, as ``large_string``. Adds to :attr:`counts`."""
        for table in self._tables([self.text_field, *self._label_columns()]):
            yield self._chosen(table)

    def add_vectors(self, found: VectorsOfTexts, embedding_field: str, seed: int) -> None:
        """Read the vectors of some texts.

        Args:
            found: Which texts; gets the vectors.
            embedding_field: The column with the vectors.
            seed: That of the keys of the texts.
        """
        for table in self._tables([self.text_field, embedding_field]):
            texts = self._texts(table)
            vectors, missing = vectors_of(table.column(embedding_field), embedding_field)
            _, has_direction = unit_rows(vectors)
            usable = np.flatnonzero(has_direction & ~missing)
            found.add(content_keys(texts, seed)[usable], vectors[usable], embedding_field)

    def _tables(self, wanted: list[str]) -> Iterator[pa.Table]:
        reader = reader_for(self.paths, self.format_name, self.text_field, whole=True)
        columns = check_columns(reader, self.text_field)
        for name in wanted:
            if columns is not None and name not in columns:
                near = did_you_mean(name, columns)
                raise ColumnError(f"there is no column {name!r}, only {', '.join(columns)}.{near}")
        if hasattr(reader, "fields") and columns is not None:
            reader = dataclasses.replace(reader, fields=list(dict.fromkeys(wanted)))
        stage = reader.reader_stage()
        for split in partitioning_of(reader).splits(""):
            for found in stage.process(split):
                if isinstance(found, BadRows):
                    self.counts.unreadable += len(found.rows)
                elif isinstance(found, DocumentBatch):
                    yield found.data

    def _label_columns(self) -> list[str]:
        if self.label_where is not None:
            condition = Route(self.label_where, {"true": []}).condition
            if condition is None:
                raise DataError(
                    f"{self.label_where!r} is not a condition", hint='Write a column, a sign and a value: "stars >= 4".'
                )
            return [condition[0]]
        return [] if self.label_field is None else [self.label_field]

    def _chosen(self, table: pa.Table) -> tuple[pa.Array, pa.Array | None]:
        texts = self._texts(table)
        has_text = pc.fill_null(pc.not_equal(pc.utf8_trim(texts, characters=WHITE_SPACE), ""), False)
        self.counts.rows += len(texts)
        self.counts.without_text += len(texts) - (pc.sum(has_text).as_py() or 0)
        labels = self._labels(table)
        if labels is None:
            return texts.filter(has_text), None
        has_label = pc.fill_null(pc.not_equal(labels, ""), False)
        has_both = pc.and_(has_text, has_label)
        self.counts.without_label += len(labels) - (pc.sum(has_label).as_py() or 0)
        return texts.filter(has_both), labels.filter(has_both)

    def _texts(self, table: pa.Table) -> pa.Array:
        try:
            return _joined(text_values(read_column(table, self.text_field, "training"), self.text_field, "training"))
        except TypeError as error:
            raise DataError(str(error), hint="Is it the column with the text? Name another one: --text NAME.") from None

    def _labels(self, table: pa.Table) -> pa.Array | None:
        if self.label is not None:
            return pa.repeat(pa.scalar(self.label, pa.large_string()), table.num_rows)
        if self.label_where is not None:
            (field,) = self._label_columns()
            column = table.column(field)
            try:
                holds = Route(self.label_where, {"true": []}).labels(table)
            except pa.ArrowException:
                raise DataError(
                    f"the column {field!r} holds {column.type}, which cannot be compared as in {self.label_where!r}"
                ) from None
            return _joined(pc.if_else(column.is_valid(), pc.cast(holds, pa.large_string()), None))
        if self.label_field is None:
            return None
        column = read_column(table, self.label_field, "training")
        try:
            labels = _joined(pc.cast(column, pa.large_string()))
        except pa.ArrowException:
            raise DataError(
                f"the column {self.label_field!r} holds {column.type}, but a label is a text, a number or a truth value"
            ) from None
        return pc.utf8_trim(labels, characters=WHITE_SPACE)


class VectorsOfTexts:
    """Collects the vectors of some texts. Of rows with the same text one counts, whatever their order.

    Args:
        keys: The keys of the texts, sorted: see :func:`~tamis.training.sample.content_keys`.

    >>> found = VectorsOfTexts(np.array([1, 5, 5], np.uint64))
    >>> found.add(np.array([5, 7], np.uint64), np.eye(2, dtype=np.float32), "embeddings")
    >>> [part.tolist() for part in found.finish()]
    [[[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]], [False, True, True]]
    """

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        self._keys = keys
        self._hashes = np.zeros(len(keys), np.uint64)
        self._matrix: NDArray[np.float32] = np.zeros((len(keys), 0), np.float32)
        self._is_there = np.zeros(len(keys), np.bool_)

    def add(self, keys: NDArray[np.uint64], vectors: NDArray[np.float32], name: str) -> None:
        """Add vectors of the column with a name, and the keys of their texts."""
        if not len(keys) or not len(self._keys):
            return
        if not self._matrix.shape[1]:
            self._matrix = np.zeros((len(self._keys), vectors.shape[1]), np.float32)
        if vectors.shape[1] != self._matrix.shape[1]:
            lengths = f"{self._matrix.shape[1]} and {vectors.shape[1]}"
            raise DataError(f"the column {name!r} has vectors of different lengths: {lengths}")
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        rows = np.flatnonzero(self._keys[places] == keys)
        hashes = hash_text_64(vector_column(vectors[rows]))
        order = np.lexsort((hashes, places[rows]))
        firsts = order[np.unique(places[rows][order], return_index=True)[1]]
        at, rows, hashes = places[rows[firsts]], rows[firsts], hashes[firsts]
        better = ~self._is_there[at] | (hashes < self._hashes[at])
        at = at[better]
        self._matrix[at], self._hashes[at], self._is_there[at] = vectors[rows[better]], hashes[better], True

    def finish(self) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """The vectors, one in each row, and which texts have one."""
        firsts = np.searchsorted(self._keys, self._keys)  # a text with two labels is there twice
        return self._matrix[firsts], self._is_there[firsts]


def _joined(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)
    return array if pa.types.is_large_string(array.type) else array.cast(pa.large_string())
