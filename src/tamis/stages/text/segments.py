"""Split documents into segments, and join segments into documents again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tamis.errors import DataError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.column_values import TextStage, read_column, text_values
from tamis.stages.exchange import ShuffleStage
from tamis.tasks import DocumentBatch

__all__ = ["DocumentJoiner", "DocumentSplitter"]

Positions = NDArray[np.int64]


@dataclass(repr=False)
class DocumentSplitter(TextStage):
    """Split the text of each document at a separator: one row for each segment.

    The other columns are repeated. A document without text (null) becomes one segment without text.

    Args:
        separator: What lies between segments, taken literally. It is in none of them.
        text_field: The column with the text.
        segment_id_field: The column that gets the number of each segment in its document, from 0.

    >>> batch = DocumentBatch({"id": [7], "text": ["a\\n\\nb"]})
    >>> DocumentSplitter("\\n\\n").process(batch).data.to_pylist()
    [{'id': 7, 'text': 'a', 'segment_id': 0}, {'id': 7, 'text': 'b', 'segment_id': 1}]
    """

    separator: str
    text_field: str = "text"
    segment_id_field: str = "segment_id"
    name: str = "DocumentSplitter"

    releases_gil: ClassVar[bool] = True
    makes_rows = "split"

    def __post_init__(self) -> None:
        if not self.separator:
            raise ValueError('DocumentSplitter(separator=""): there must be something to split at')
        if self.segment_id_field == self.text_field:
            raise ValueError(f"DocumentSplitter: text_field and segment_id_field are both {self.text_field!r}")

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field, self.segment_id_field]

    def adds_columns(self) -> list[str]:
        return [self.segment_id_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        table = task.data
        texts = self.texts(task)
        missing = pc.is_null(texts)
        lists = pc.split_pattern(pc.fill_null(texts, ""), self.separator)
        counts = pc.list_value_length(lists).to_numpy().astype(np.int64)
        document = np.repeat(np.arange(table.num_rows), counts)
        segments = pc.list_flatten(lists)
        if texts.null_count:
            segments = pc.if_else(missing.take(pa.array(document)), pa.scalar(None, segments.type), segments)
        numbers = np.arange(len(document)) - (np.cumsum(counts) - counts)[document]
        made = {self.text_field: segments, self.segment_id_field: pa.array(numbers)}
        others = table.select([name for name in table.column_names if name not in made]).take(pa.array(document))
        names = dict.fromkeys([*table.column_names, *made])
        columns = {name: made[name] if name in made else others[name] for name in names}
        return task.derived(pa.table(columns), document)


@dataclass(repr=False)
class DocumentJoiner(CompositeStage[DocumentBatch, DocumentBatch]):
    """Join the segments of each document: rows with the same document id, in the order of their segment ids.

    Of the other columns, each joined row has the values of its first segment. Segments without text (null) add nothing,
    a row without document id stays as it is. Documents come in the order of their first segments.

    The segments of a document may lie in different batches: they are brought together by a shuffle, so documents come
    out by partition. Where each document is known to be in one batch (as right after
    :class:`DocumentSplitter`), ``across_batches=False`` saves the shuffle.

    Args:
        separator: What is put between segments.
        text_field: The column with the text.
        segment_id_field: The column with the number of each segment in its document.
        document_id_field: The column that says which document a segment is of.
        drop_segment_id_field: Whether the column of segment numbers goes. If it stays, a joined row has the number of
            its first segment; with ``max_length``, the parts of a document are numbered from 0.
        max_length: Largest length of what is joined, in the unit of ``length_field``. A document that is longer comes
            in several parts, each with as many segments as fit. A segment that is longer by itself is its own part.
        length_field: The column with the length of each segment. It gets the length of what is joined; a separator
            counts as many as it has characters. Needed with ``max_length``, and only there.
        across_batches: Whether the segments of a document may lie in different batches.
        partitions: How many parts the shuffle is done in; as many can be worked on at the same time.

    >>> segments = {"id": [1, 2, 1], "segment_id": [1, 0, 0], "text": ["b", "c", "a"]}
    >>> DocumentJoiner("+").process(DocumentBatch(segments)).data.to_pylist()
    [{'id': 1, 'text': 'a+b'}, {'id': 2, 'text': 'c'}]
    """

    separator: str = "\n\n"
    text_field: str = "text"
    segment_id_field: str = "segment_id"
    document_id_field: str = "id"
    drop_segment_id_field: bool = True
    max_length: int | None = None
    length_field: str | None = None
    across_batches: bool = True
    partitions: int = 16
    name: str = "DocumentJoiner"

    def __post_init__(self) -> None:
        if (self.max_length is None) != (self.length_field is None):
            raise ValueError("DocumentJoiner: set both max_length and length_field, or neither")
        if self.max_length is not None and self.max_length < 1:
            raise ValueError(f"DocumentJoiner(max_length={self.max_length}): must be at least 1")
        if self.partitions < 1:
            raise ValueError(f"DocumentJoiner(partitions={self.partitions}): must be at least 1")

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], _needed(self)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        if self.across_batches:
            return _JoinAcross([self.document_id_field], self.partitions, name=self.name, joiner=self).decompose()
        return [_JoinWithin(self).with_(name=self.name)]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Join the segments of one batch, independently of others."""
        for column in _needed(self):
            read_column(task.data, column, self.name)
        if not task.num_items:
            return task
        table, order, starts = _joined(task.data, self)
        names, joined = task.names, task.with_table(table)
        if names is None:
            return joined
        return joined.named(names.take(order).joined(starts, np.diff(starts, append=len(order))))


def _needed(joiner: DocumentJoiner) -> list[str]:
    columns = [joiner.text_field, joiner.segment_id_field, joiner.document_id_field]
    return columns if joiner.length_field is None else [*columns, joiner.length_field]


@dataclass(repr=False)
class _JoinWithin(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Join the segments of one batch."""

    joiner: DocumentJoiner

    releases_gil: ClassVar[bool] = True
    makes_rows = "joined"

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], _needed(self.joiner)

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        if available is None or not self.joiner.drop_segment_id_field:
            return available
        return available - {self.joiner.segment_id_field}

    def process(self, task: DocumentBatch) -> DocumentBatch:
        return self.joiner.process(task)


@dataclass(repr=False)
class _JoinAcross(ShuffleStage):
    """Bring the segments of each document together and join them."""

    joiner: DocumentJoiner = field(default_factory=DocumentJoiner)

    releases_gil: ClassVar[bool] = True

    def reduce(self, partition: DocumentBatch) -> DocumentBatch:
        return self.joiner.process(partition)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], _needed(self.joiner)


def _joined(table: pa.Table, joiner: DocumentJoiner) -> tuple[pa.Table, Positions, Positions]:
    """The segments of a table, joined; the order they are joined in, and where in it each joined row begins."""
    documents = _document_numbers(table.column(joiner.document_id_field))
    keys = pa.table({"document": documents, "segment": table.column(joiner.segment_id_field)})
    in_order = pc.sort_indices(keys, sort_keys=[("document", "ascending"), ("segment", "ascending")])
    order = in_order.to_numpy().astype(np.int64)
    table, documents = table.take(in_order), documents[order]
    first = np.flatnonzero(np.diff(documents, prepend=-1))
    if joiner.length_field is not None and joiner.max_length is not None:
        lengths = _lengths(table.column(joiner.length_field), joiner.length_field)
        starts = _parts(first, lengths, joiner.max_length, len(joiner.separator))
        of_document = np.searchsorted(starts, first)  # the first part of each document
        numbers = np.arange(len(starts)) - of_document[documents[starts]]
        counts = np.diff(starts, append=len(documents))
        sums = np.add.reduceat(lengths, starts) + (counts - 1) * len(joiner.separator)
        made = {joiner.length_field: pa.array(sums), joiner.segment_id_field: pa.array(numbers)}
    else:
        starts, made = first, {}
    made[joiner.text_field] = _texts(table.column(joiner.text_field), starts, joiner)
    heads = table.take(pa.array(starts))
    for name, values in made.items():
        heads = heads.set_column(heads.column_names.index(name), name, values)
    if joiner.drop_segment_id_field:
        heads = heads.drop_columns([joiner.segment_id_field])
    return heads, order, starts


def _document_numbers(ids: pa.ChunkedArray) -> Positions:
    """A number for each document, in the order of appearance; a row without id is a document of its own."""
    coded = ids.combine_chunks().dictionary_encode() if not pa.types.is_dictionary(ids.type) else ids.combine_chunks()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    codes = pc.fill_null(coded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False).copy()
    alone = codes < 0
    codes[alone] = len(coded.dictionary) + np.arange(int(alone.sum()))
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    numbers: Positions = rank[inverse]
    return numbers


def _lengths(column: pa.ChunkedArray, name: str) -> Positions:
    if not pa.types.is_integer(column.type) or column.null_count:
        raise DataError(f"DocumentJoiner(length_field={name!r}): every row must have a whole number, not {column.type}")
    lengths: Positions = column.to_numpy().astype(np.int64)
    if len(lengths) and lengths.min() < 0:
        raise DataError(f"DocumentJoiner(length_field={name!r}): a segment has a negative length")
    return lengths


def _parts(first: Positions, lengths: Positions, max_length: int, separator: int) -> Positions:
    """Where each part begins, given where each document does: as many segments as fit, one after the other."""
    # With a separator in front of every segment, the length of segments i..j is running[j + 1] - running[i] less one.
    running = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths + separator, out=running[1:])
    ends = np.append(first[1:], len(lengths))
    starts, found = first, [first]
    while len(starts):  # one part of every document that is not at its end, at a time
        fitting = np.searchsorted(running, running[starts] + max_length + separator, side="right") - 1
        following = np.maximum(fitting, starts + 1)
        unfinished = following < ends
        starts, ends = following[unfinished], ends[unfinished]
        found.append(starts)
    return np.sort(np.concatenate(found))


def _texts(column: pa.ChunkedArray, starts: Positions, joiner: DocumentJoiner) -> pa.Array:
    texts = text_values(column, joiner.text_field, joiner.name).combine_chunks()
    present = np.asarray(pc.is_valid(texts))
    before = np.concatenate([[0], np.cumsum(present)])
    offsets = before[np.append(starts, len(texts))]
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), texts.filter(pa.array(present)))
    joined = pc.binary_join(lists, pa.scalar(joiner.separator, texts.type))
    nothing = pa.array(np.diff(offsets) == 0)
    return pc.if_else(nothing, pa.scalar(None, joined.type), joined)
