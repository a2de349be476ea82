"""Write the MinHash signatures of documents to files."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.arrays import arrow_array, numpy_array
from tamis.kernels.minhash import MinHash
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.column_values import read_column, text_values
from tamis.stages.deduplication.document_ids import AssignIds, NumberFiles
from tamis.stages.deduplication.file_reading import reader_for, reading_stage
from tamis.stages.deduplication.fuzzy.columns import CURATOR_DEFAULT_MINHASH_FIELD
from tamis.stages.deduplication.fuzzy.keyed_ids import integer_ids
from tamis.stages.deduplication.id_generator import CURATOR_DEDUP_ID_STR
from tamis.stages.deduplication.part_files import file_destination, part_encoder
from tamis.stages.emit import Publish
from tamis.stages.io.paths import join
from tamis.stages.io.sink import FileSink
from tamis.tasks import FileGroup, FileSlice, TableTask

__all__ = ["MinHashStage"]

_READ_BYTES: Final = "16MiB"
"""Input per batch: the signatures of short texts are several times larger than the texts."""

_ROWS_PER_FILE: Final = 2**16


@dataclass
class MinHashStage(CompositeStage[Any, FileGroup]):
    """Write the ids and the MinHash signatures of documents to ``<output_path>/MinHashStage/<task>.parquet``.

    It takes files, if ``read_format`` says how to read them, and gives their documents ids; or batches, which must have
    the column ``_curator_dedup_id``. Documents without text (null) are left out.

    Args:
        output_path: The directory above that of the signatures.
        text_field: The column with the text.
        minhash_field: The column for signatures.
        char_ngrams: How many characters an n-gram has.
        num_hashes: The length of a signature.
        seed: Of the hashes.
        use_64bit_hash: Whether signatures are made of numbers of 64 bits, not of 32.
        normalize_text: Whether case and white space do not count.
        read_format: ``"parquet"`` or ``"jsonl"`` for files.
        read_kwargs: Further arguments of the reader.
        write_kwargs: Further arguments of ``pyarrow.parquet.ParquetWriter``.
        pool: For NeMo Curator's GPU code; not used.
        scheme: How signatures are made, see :class:`tamis.kernels.minhash.MinHash`.
        ids_path: The JSON file that keeps which ids a file has; see
            :class:`~tamis.stages.deduplication.document_ids.NumberFiles`.
        storage_options: For the fsspec file system of ``ids_path``.

    >>> [stage.name for stage in MinHashStage("cache").decompose()]
    ['MinHashStage']
    """

    output_path: str
    text_field: str = "text"
    minhash_field: str = CURATOR_DEFAULT_MINHASH_FIELD
    char_ngrams: int = 24
    num_hashes: int = 260
    seed: int = 42
    use_64bit_hash: bool = False
    normalize_text: bool = False
    read_format: str | None = None
    read_kwargs: dict[str, Any] | None = None
    write_kwargs: dict[str, Any] | None = None
    pool: bool = True
    scheme: str = "fast"
    ids_path: str = ""
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    name: str = "MinHashStage"

    def __post_init__(self) -> None:
        self._minhash()
        if self.read_format is not None:
            reader_for(type(self).__name__, self.read_format)

    def _minhash(self) -> MinHash:
        return MinHash(
            num_hashes=self.num_hashes,
            ngram=self.char_ngrams,
            scheme=self.scheme,
            seed=self.seed,
            bits=64 if self.use_64bit_hash else 32,
            normalize=("lower", "whitespace") if self.normalize_text else (),
        )

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        destination = file_destination(join(self.output_path, type(self).__name__), self.write_kwargs)
        # Signatures are random numbers, which neither a dictionary nor compression makes smaller.
        settings = {"compression": None, "use_dictionary": False, **(self.write_kwargs or {})}
        encoder = part_encoder(settings)
        writing = WriteSignatures(destination, encoder, self._minhash(), self.text_field, self.minhash_field)
        if self.read_format is None:
            return [writing.with_(name=self.name)]
        owner = type(self).__name__
        reader = reading_stage(owner, self.read_format, [self.text_field], self.read_kwargs, _READ_BYTES)
        return [
            NumberFiles(self.ids_path, True, self.storage_options, name=f"{self.name} (files)"),
            reader.with_(name=f"{self.name} (read)"),
            AssignIds(name=f"{self.name} (ids)"),
            writing.with_(name=self.name),
        ]


@dataclass
class WriteSignatures(FileSink[TableTask]):
    """Write ids and signatures, some ten thousands of documents to a file."""

    minhash: MinHash
    text_field: str
    minhash_field: str

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [self.text_field, CURATOR_DEDUP_ID_STR]

    def text_columns(self) -> list[str]:
        return [self.text_field]

    def process(self, task: TableTask) -> Iterator[Publish | FileGroup]:
        table = task.columns([self.text_field, CURATOR_DEDUP_ID_STR])
        texts = text_values(read_column(table, self.text_field, self.name), self.text_field, self.name)
        present = np.flatnonzero(numpy_array(pc.is_valid(texts)))
        ids = integer_ids(table.column(CURATOR_DEDUP_ID_STR), CURATOR_DEDUP_ID_STR)
        slices = []
        for number, start in enumerate(range(0, len(present), _ROWS_PER_FILE)):
            rows = present[start : start + _ROWS_PER_FILE]
            signatures = self.minhash.signatures(texts.take(arrow_array(rows)))
            lists = pa.FixedSizeListArray.from_arrays(arrow_array(signatures.reshape(-1)), signatures.shape[1])
            made = pa.table({CURATOR_DEDUP_ID_STR: arrow_array(ids[rows]), self.minhash_field: lists})
            write = functools.partial(self.encoder.write, made)
            name = f"{task.task_id or 'task'}{f'-{number}' if number else ''}{self.destination.ending}"
            finished = self.write(name, made.num_rows, write, self.encoder.schema(made))
            slices.append(FileSlice(finished.final, size=finished.nbytes))
            yield finished
        if slices:
            yield FileGroup([file.path for file in slices], slices=tuple(slices), _metadata={"ids": len(present)})
