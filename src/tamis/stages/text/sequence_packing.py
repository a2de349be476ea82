"""Pack token ids into sequences of a fixed length."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import PlanError
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.column_values import read_column
from tamis.stages.io.arguments import check_choice
from tamis.stages.io.writers import ParquetWriter
from tamis.stages.text.tokenization import Tokenize
from tamis.tasks import DocumentBatch, FileGroup

__all__ = ["PackSequences", "PackedParquetWriter"]

STRATEGIES = ("concat", "best_fit")

Positions = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """Which tokens go where: pieces of documents, one after the other, in sequences. For each piece its first token and
    one past its last; for each sequence how many pieces it has.
    """

    starts: Positions
    ends: Positions
    counts: Positions


@dataclass(repr=False)
class PackSequences(CompositeStage[DocumentBatch, DocumentBatch]):
    """Pack the tokens of documents into sequences of a fixed length. No token is lost.

    The result has one row per sequence: its tokens, and where the documents in it begin and end. Other columns are
    dropped, as a sequence may hold several documents. Sequences are filled across batches: consecutive batches of about
    ``group_tokens`` tokens are packed together, the same ones for any number of workers.

    Args:
        sequence_length: Length of a sequence, in tokens.
        tokens_field: The column with the token ids of each document, as :class:`Tokenize` writes it.
        strategy: ``"concat"`` joins all documents and cuts every ``sequence_length`` tokens, in the middle of documents
            too: only the last sequence of a group is not full. ``"best_fit"`` cuts only documents that are longer than
            a sequence, and puts each into the fullest sequence that has room for it, longest first (Ding et al., "Fewer
            Truncations Improve Language Modeling", 2024).
        pad_token_id: Fills up a sequence that is not full; when not given, that sequence is shorter.
        cu_seqlens_field: The column that says where documents begin in a sequence, and where the last one ends:
            ``[0, 5, 8]`` for one of five and one of three tokens. Padding comes after that.
        position_ids_field: A column for the position of each token in its document's piece, from 0; none when not
            given.
        segment_ids_field: A column for the number of each token's document in the sequence, from 1, and 0 for padding;
            none when not given.
        group_tokens: About how many tokens are packed together. A worker needs some 20 bytes of memory for each.

    >>> batch = DocumentBatch({"input_ids": [[1, 2, 3], [4, 5], [6]]})
    >>> PackSequences(4).process(batch).data.to_pylist()
    [{'input_ids': [1, 2, 3, 4], 'cu_seqlens': [0, 3, 4]}, {'input_ids': [5, 6], 'cu_seqlens': [0, 1, 2]}]
    >>> PackSequences(4, strategy="best_fit").process(batch).data["input_ids"].to_pylist()
    [[1, 2, 3, 6], [4, 5]]
    """

    sequence_length: int
    tokens_field: str = "input_ids"
    strategy: str = "concat"
    pad_token_id: int | None = None
    cu_seqlens_field: str = "cu_seqlens"
    position_ids_field: str | None = None
    segment_ids_field: str | None = None
    group_tokens: int = 2**24
    name: str = "PackSequences"

    def __post_init__(self) -> None:
        check_choice("PackSequences", "strategy", self.strategy, STRATEGIES)
        for parameter in ("sequence_length", "group_tokens"):
            if getattr(self, parameter) < 1:
                raise PlanError(f"PackSequences({parameter}={getattr(self, parameter)}): must be at least 1")
        names = self._names()
        if len(set(names)) < len(names):
            raise PlanError(f"PackSequences: the columns {', '.join(names)} must have different names")

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.tokens_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], self._names()

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        return [
            _SelectTokens(self.tokens_field).with_(name=f"{self.name} (tokens)"),
            _PackGroup(self).with_(name=self.name),
        ]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Pack the documents of one batch."""
        return self.pack(task)[0]

    def pack(self, batch: DocumentBatch) -> tuple[DocumentBatch, dict[str, int]]:
        """The sequences that the documents of a batch are packed into, and counts for the run's statistics."""
        offsets, tokens = _flat(read_column(batch.data, self.tokens_field, self.name), self.tokens_field)
        lay_out = concatenated if self.strategy == "concat" else best_fit
        layout = lay_out(offsets, self.sequence_length)
        documents = np.searchsorted(offsets, layout.starts, side="right") - 1  # that the pieces are of
        packed, names = batch.with_table(self._table(tokens, layout)), batch.names
        if names is not None:
            firsts = np.cumsum(layout.counts) - layout.counts
            packed = packed.named(names.divided(documents).joined(firsts, layout.counts))
        cut = int((np.bincount(documents) > 1).sum()) if len(documents) else 0
        return packed, {"tokens": len(tokens), "sequences": len(layout.counts), "documents cut": cut}

    def _names(self) -> list[str]:
        names = [self.tokens_field, self.cu_seqlens_field, self.position_ids_field, self.segment_ids_field]
        return [name for name in names if name is not None]

    def _table(self, tokens: NDArray[np.int32], layout: Layout) -> pa.Table:
        lengths = layout.ends - layout.starts
        sizes = _sums(lengths, layout.counts)
        if not (layout.starts[1:] == layout.ends[:-1]).all():
            tokens = tokens[_ranges(layout.starts, lengths)]
        columns = {self.tokens_field: self._lists(tokens, sizes, self.pad_token_id)}
        edges = np.insert(_restarting_sums(lengths, layout.counts), np.cumsum(layout.counts) - layout.counts, 0)
        columns[self.cu_seqlens_field] = _list_array(edges.astype(np.int32), layout.counts + 1)
        if self.position_ids_field is not None:
            within = _ranges(np.zeros(len(lengths), np.int64), lengths)
            columns[self.position_ids_field] = self._lists(within.astype(np.int32), sizes, 0)
        if self.segment_ids_field is not None:
            numbers = _ranges(np.ones(len(layout.counts), np.int64), layout.counts)
            columns[self.segment_ids_field] = self._lists(np.repeat(numbers, lengths).astype(np.int32), sizes, 0)
        return pa.table(columns)

    def _lists(self, values: NDArray[np.int32], sizes: Positions, filling: int | None) -> pa.LargeListArray:
        """One list per sequence, filled up if the sequences are."""
        if self.pad_token_id is None:
            return _list_array(values, sizes)
        filled = np.full((len(sizes), self.sequence_length), filling, np.int32)
        filled[np.arange(self.sequence_length) < sizes[:, None]] = values
        return _list_array(filled.reshape(-1), np.full(len(sizes), self.sequence_length, np.int64))


@dataclass(repr=False)
class _SelectTokens(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Leave nothing but token ids, in one form: so the size of a batch follows from its tokens alone."""

    tokens_field: str

    releases_gil: ClassVar[bool] = True
    internal: ClassVar[bool] = True

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.tokens_field]

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.tokens_field]

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return frozenset([self.tokens_field])

    def process(self, task: DocumentBatch) -> DocumentBatch:
        offsets, tokens = _flat(read_column(task.data, self.tokens_field, self.name), self.tokens_field)
        return task.with_same_rows(pa.table({self.tokens_field: _list_array(tokens, np.diff(offsets))}))


@dataclass(repr=False)
class _PackGroup(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Pack consecutive batches together. They come in the order of the input."""

    packing: PackSequences

    releases_gil: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    makes_rows = "joined"

    @property
    def batch_bytes(self) -> int:  # type: ignore[override]  # it follows from another parameter
        """How much input a call of :meth:`process_batch` is to be given, in bytes."""
        return self.packing.group_tokens * np.dtype(np.int32).itemsize

    def inputs(self) -> tuple[list[str], list[str]]:
        return self.packing.inputs()

    def outputs(self) -> tuple[list[str], list[str]]:
        return self.packing.outputs()

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return frozenset(self.outputs()[1])

    def process(self, task: DocumentBatch) -> DocumentBatch:
        packed, counts = self.packing.pack(task)
        for name, count in counts.items():
            self.log_metric(name, count)
        return packed

    def process_batch(self, tasks: list[DocumentBatch]) -> Iterator[DocumentBatch]:
        yield self.process(DocumentBatch.concat(tasks))


def concatenated(offsets: Positions, length: int) -> Layout:
    """Documents joined, cut every ``length`` tokens.

    >>> concatenated(np.array([0, 3, 3, 6]), 4).starts.tolist()
    [0, 3, 4]
    """
    total = int(offsets[-1])
    edges = np.unique(np.concatenate([offsets, np.arange(0, total, length)]))
    starts, ends = edges[:-1], edges[1:]
    return Layout(starts, ends, np.bincount(starts // length, minlength=-(-total // length)))


def best_fit(offsets: Positions, length: int) -> Layout:
    """Each document, or what is left of one that was too long, in the fullest sequence that has room for it.

    >>> layout = best_fit(np.array([0, 3, 5, 6]), 4)
    >>> layout.starts.tolist(), layout.counts.tolist()
    ([0, 5, 3], [2, 1])
    """
    lengths = np.diff(offsets)
    parts = -(-lengths // length)
    starts = _ranges(np.zeros(len(parts), np.int64), parts) * length + np.repeat(offsets[:-1], parts)
    sizes = np.minimum(starts + length, np.repeat(offsets[1:], parts)) - starts
    sequence = _best_fit_decreasing(sizes, length)
    # Sequences in the order of their first pieces, and in each the pieces in the order of the input.
    _, first, number = np.unique(sequence, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))[number]
    order = np.argsort(rank, kind="stable")
    return Layout(starts[order], (starts + sizes)[order], np.bincount(rank))


def _best_fit_decreasing(sizes: Positions, length: int) -> Positions:
    """The sequence of each piece: from the longest to the shortest, the fullest one with room, or a new one."""
    sequence = np.empty(len(sizes), np.int64)
    rooms: list[int] = []  # the amounts of room that some sequence has, ascending
    with_room: dict[int, list[int]] = {}
    count = 0
    for piece in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[piece])
        at = bisect.bisect_left(rooms, size)
        if at == len(rooms):
            chosen, room, count = count, length, count + 1
        else:
            room = rooms[at]
            chosen = with_room[room].pop()
            if not with_room[room]:
                del with_room[room], rooms[at]
        sequence[piece] = chosen
        left = room - size
        if left and left not in with_room:
            bisect.insort(rooms, left)
        if left:
            with_room.setdefault(left, []).append(chosen)
    return sequence


def _flat(column: pa.ChunkedArray, name: str) -> tuple[Positions, NDArray[np.int32]]:
    """Where the tokens of each document begin, and all tokens."""
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    has_ids = is_list and (pa.types.is_integer(kind.value_type) or pa.types.is_null(kind.value_type))
    if not has_ids and not pa.types.is_null(kind):
        raise TypeError(f"PackSequences: the column {name!r} must hold lists of token ids, it holds {kind}")
    lists = column.cast(pa.large_list(pa.int32())).combine_chunks()
    lengths = lists.value_lengths().fill_null(0).to_numpy()
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]), lists.flatten().to_numpy()


def _ranges(starts: Positions, lengths: Positions) -> Positions:
    """The numbers from each start on, as many as the length says."""
    before = np.cumsum(lengths) - lengths
    numbers: Positions = np.arange(int(lengths.sum())) + np.repeat(starts - before, lengths)
    return numbers


def _sums(values: Positions, counts: Positions) -> Positions:
    running = np.concatenate([np.zeros(1, np.int64), np.cumsum(values)])
    ends = np.cumsum(counts)
    sums: Positions = running[ends] - running[ends - counts]
    return sums


def _restarting_sums(values: Positions, counts: Positions) -> Positions:
    """Running sums that begin anew with each group."""
    running = np.cumsum(values)
    before = np.concatenate([np.zeros(1, np.int64), running])[np.cumsum(counts) - counts]
    sums: Positions = running - np.repeat(before, counts)
    return sums


def _list_array(values: NDArray[np.int32], lengths: Positions) -> pa.LargeListArray:
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))


@dataclass(repr=False)
class PackedParquetWriter(CompositeStage[DocumentBatch, FileGroup]):
    """Tokenise documents, pack them into sequences of a fixed length and write them as Parquet.

    It stands for :class:`Tokenize`, :class:`PackSequences` and :class:`ParquetWriter`, which do the same one by one.

    Args:
        path: The directory, or any fsspec address.
        model_identifier: The tokenizer: a ``tokenizer.json``, a directory it was saved in, or a name on the Hugging
            Face hub.
        sequence_length: Length of a sequence, in tokens.
        strategy: ``"concat"`` cuts documents wherever a sequence is full; ``"best_fit"`` cuts only those that are
            longer than a sequence (see :class:`PackSequences`).
        text_field: The column with the text.
        append_eos: Whether each document ends with the tokenizer's end-of-text token.
        eos_token: That token, where the tokenizer does not name it or another one is wanted.
        pad_token_id: What fills up a sequence that is not full; when not given, it is shorter.
        position_ids_field: A column for the place of each token in its document's piece; none when not given.
        segment_ids_field: A column for the number of each token's document in its sequence; none when not given.
        tokenization_batch_size: How many texts are encoded at once.
        cache_dir: Where what is downloaded is kept; the hub's own cache when not given.
        hf_token: For models of the hub that ask for one. It is written nowhere: not into recipes, not into reports.
        transformers_init_kwargs: Further arguments of ``transformers.AutoTokenizer.from_pretrained``.
        mode: What to do when the directory already holds files, as for :class:`ParquetWriter`.
        compression: ``"zstd"``, ``"snappy"``, ``"gzip"``, ``"lz4"``, ``"brotli"`` or ``None``.
        filename: Template for names, as for :class:`ParquetWriter`.
        shard_bytes: Put the output together into files of about this size, as a number or as ``"512MB"``.
        storage_options: For the fsspec file system.

    >>> [stage.name for stage in PackedParquetWriter("memory://out", "gpt2", sequence_length=2048).decompose()]
    ['Tokenize', 'PackSequences', 'PackedParquetWriter']
    """

    path: str | os.PathLike[str]
    model_identifier: str
    sequence_length: int
    strategy: str = "concat"
    text_field: str = "text"
    append_eos: bool = True
    eos_token: str | None = None
    pad_token_id: int | None = None
    position_ids_field: str | None = None
    segment_ids_field: str | None = None
    tokenization_batch_size: int = 1000
    cache_dir: str | None = None
    hf_token: str | None = None
    transformers_init_kwargs: dict[str, Any] = field(default_factory=dict)
    mode: str = "error"
    compression: str | None = "zstd"
    filename: str = "part-{order}"
    shard_bytes: int | str | None = None
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    name: str = "PackedParquetWriter"

    is_sink_stage: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.path = os.fspath(self.path)
        self.decompose()

    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), "hf_token": None}  # a secret: not for recipes, reports and logs

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        tokenize, pack = Tokenize(**self._shared_with(Tokenize)), PackSequences(**self._shared_with(PackSequences))
        writer = ParquetWriter(**self._shared_with(ParquetWriter))
        writer.name = self.name
        return [tokenize, pack, *writer.decompose()]

    def _shared_with(self, stage: type[Any]) -> dict[str, Any]:
        """The parameters that one of the stages has under the same names."""
        own = {f.name for f in fields(self)} - {"name"}
        return {f.name: getattr(self, f.name) for f in fields(stage) if f.name in own}
