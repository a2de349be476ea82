"""Tokenise documents and write them as Megatron-LM reads them."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from tamis.models.tokenizers import Tokenizer, load_tokenizer
from tamis.stages.base import CompositeStage, NodeInfo, ProcessingStage, WorkerMetadata
from tamis.stages.column_values import read_column, text_values
from tamis.stages.emit import Publish
from tamis.stages.io.destination import Destination
from tamis.stages.io.encoders import Encoder
from tamis.stages.io.megatron import token_type, write_index
from tamis.stages.io.paths import absolute, path_text
from tamis.stages.io.sink import FileSink
from tamis.stages.text.tokenization import check_tokenizing, require_eos, with_last
from tamis.tasks import DocumentBatch, FileGroup, FileSlice

__all__ = ["MegatronTokenizerWriter"]


@dataclass(repr=False)
class MegatronTokenizerWriter(CompositeStage[DocumentBatch, FileGroup]):
    """Tokenise documents and write a pair of files per task: ids in ``.bin``, their places in ``.idx``.

    Each document is one sequence. Ids are two bytes each if the vocabulary has at most 65,536, else four. No special
    tokens are added but the one at the end, if asked for. :func:`tamis.stages.io.megatron.merge_file_prefixes` puts
    pairs together.

    Args:
        path: The directory, or any fsspec address.
        model_identifier: The tokenizer: a ``tokenizer.json``, a directory it was saved in, or a name on the Hugging
            Face hub.
        cache_dir: Where what is downloaded is kept; the hub's own cache when not given.
        hf_token: For models of the hub that ask for one. It is written nowhere: not into recipes, not into reports.
        text_field: The column with the text. A document without text (null) is a sequence without tokens.
        tokenization_batch_size: How many texts are encoded at once.
        append_eod: Whether each document ends with the tokenizer's end-of-text token.
        transformers_init_kwargs: Further arguments of ``transformers.AutoTokenizer.from_pretrained``.
        eos_token: The end-of-text token, where the tokenizer does not name it or another one is wanted.
        mode: What to do when the directory already holds files, as for :class:`~tamis.stages.io.JsonlWriter`.
        filename: Template for names, as for :class:`~tamis.stages.io.JsonlWriter`.
        storage_options: For the fsspec file system.

    >>> MegatronTokenizerWriter("memory://out", "gpt2", append_eod=True).decompose()[0].name
    'MegatronTokenizerWriter'
    """

    path: str | os.PathLike[str]
    model_identifier: str
    cache_dir: str | None = None
    hf_token: str | None = None
    text_field: str = "text"
    tokenization_batch_size: int = 1000
    append_eod: bool = False
    transformers_init_kwargs: dict[str, Any] = field(default_factory=dict)
    eos_token: str | None = None
    mode: str = "error"
    filename: str = "part-{order}"
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    name: str = "MegatronTokenizerWriter"

    releases_gil: ClassVar[bool] = True
    is_sink_stage: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.path = path_text(self.path)
        check_tokenizing("MegatronTokenizerWriter", self.model_identifier, self.tokenization_batch_size)
        self.decompose()

    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), "hf_token": None}  # a secret: not for recipes, reports and logs

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        destination = PairDestination(absolute(self.path), self.filename, ".bin", self.mode, self.storage_options)
        return [MegatronWriterStage(destination, MegatronEncoder(), self).with_(name=self.name)]


@dataclass(frozen=True)
class PairDestination(Destination):
    """A directory for pairs of files that differ in their endings."""

    def own_names(self) -> str:
        own = (Destination(self.path, self.filename, ending).own_names() for ending in (".bin", ".idx"))
        return "|".join(f"(?:{pattern})" for pattern in own)


@dataclass(frozen=True)
class MegatronEncoder(Encoder):
    """Token ids, one after the other.

    Args:
        token_bytes: Bytes per id: 2 or 4.
    """

    token_bytes: int = 2

    extension: ClassVar[str] = "bin"

    def write(self, table: pa.Table, sink: BinaryIO) -> int:
        kind = "<u2" if self.token_bytes == 2 else "<i4"
        for chunk in table.column("tokens").chunks:
            sink.write(chunk.flatten().to_numpy().astype(kind).tobytes())
        return 0


@dataclass(repr=False)
class MegatronWriterStage(FileSink[DocumentBatch]):
    """Write a pair of files per task."""

    writer: MegatronTokenizerWriter

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.writer.text_field]

    def text_columns(self) -> list[str]:
        return [self.writer.text_field]

    def setup_on_node(self, node_info: NodeInfo | None = None, worker_metadata: WorkerMetadata | None = None) -> None:
        if not os.path.exists(self.writer.model_identifier):
            self._load()  # once, so that the workers need not all download it

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        self._tokenizer = self._load()
        self._kind = token_type(self._tokenizer.vocab_size)
        self._eod = require_eos(self._tokenizer, f"{self.name}(append_eod=True)") if self.writer.append_eod else None
        self.encoder = MegatronEncoder(token_bytes=self._kind.itemsize)

    def process(self, task: DocumentBatch) -> Iterator[Publish | FileGroup]:
        column = read_column(task.data, self.writer.text_field, self.name)
        texts = text_values(column, self.writer.text_field, self.name)
        stem = self.name_for(task).removesuffix(self.destination.ending)
        lengths: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        tokens = self.write(f"{stem}.bin", task.num_items, functools.partial(self._fill, texts, lengths))
        yield tokens
        every = np.concatenate(lengths)
        index = self.write(f"{stem}.idx", 0, lambda sink: write_index(sink, every, self._kind))
        yield index
        self.log_metric("tokens", int(every.sum()))
        slices = tuple(FileSlice(done.final, size=done.nbytes) for done in (tokens, index))
        yield FileGroup(
            [s.path for s in slices], dataset_name=task.dataset_name, slices=slices, _metadata=dict(task._metadata)
        )

    def _fill(self, texts: pa.ChunkedArray, lengths: list[np.ndarray[Any, np.dtype[np.int64]]], sink: BinaryIO) -> None:
        """Write the ids of some texts, one batch of the tokenizer's after the other, and note how many there are."""
        size = self.writer.tokenization_batch_size
        for start in range(0, len(texts), size):
            tokens = self._tokenizer.encode_column(texts.slice(start, size), batch_size=size)
            tokens = tokens if self._eod is None else with_last(tokens, self._eod)
            self.encoder.write(pa.table({"tokens": tokens}), sink)
            lengths.append(tokens.value_lengths().to_numpy())

    def _load(self) -> Tokenizer:
        return load_tokenizer(
            self.writer.model_identifier,
            cache_dir=self.writer.cache_dir,
            hf_token=self.writer.hf_token,
            eos_token=self.writer.eos_token,
            transformers_init_kwargs=self.writer.transformers_init_kwargs,
        )
