"""The texts of benchmarks: where they lie, and how they are read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import PlanError
from tamis.stages.base import emissions
from tamis.stages.column_values import holds_text, read_column, text_values
from tamis.stages.io.arguments import check_choice, check_names
from tamis.stages.io.csv import CsvReader
from tamis.stages.io.jsonl import JsonlReader
from tamis.stages.io.parquet import ParquetReader
from tamis.stages.io.readers import Reader
from tamis.stages.io.text import TextReader
from tamis.stages.text.decontamination.ngrams import NgramIndex
from tamis.tasks import DocumentBatch, FileSlice

__all__ = ["Benchmark", "load_index"]

FORMATS: dict[str, type[Reader]] = {
    "jsonl": JsonlReader,
    "parquet": ParquetReader,
    "csv": CsvReader,
    "text": TextReader,
}
_ENDINGS = {".parquet": "parquet", ".csv": "csv", ".tsv": "csv", ".txt": "text", ".md": "text"}
_COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz")


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: files with an example in each row (of text files: in each line).

    Args:
        path: A file, a directory, a pattern, or any fsspec address.
        fields: The columns with text, such as ``["question", "answer"]``. Each is a text of its own: no n-gram reaches
            from one into the next. Of a column of lists, so is each item.
        format: ``"jsonl"``, ``"parquet"``, ``"csv"`` or ``"text"``; by the ending of the path when not given.

    >>> Benchmark("gsm8k/test.parquet", fields=["question"]).kind
    'parquet'
    """

    path: str
    fields: list[str] = field(default_factory=lambda: ["text"])
    format: str | None = None

    def __post_init__(self) -> None:
        check_names("Benchmark", "fields", self.fields)
        check_choice("Benchmark", "format", self.format, [None, *FORMATS])

    @property
    def kind(self) -> str:
        """The format."""
        if self.format is not None:
            return self.format
        name = self.path.lower()
        for ending in _COMPRESSIONS:
            name = name.removesuffix(ending)
        return next((kind for ending, kind in _ENDINGS.items() if name.endswith(ending)), "jsonl")

    def reader(self) -> Reader:
        """What reads it."""
        if self.kind == "text":
            return TextReader(self.path, unit="line")
        return FORMATS[self.kind](self.path, fields=list(self.fields))

    def files(self) -> tuple[FileSlice, ...]:
        """Its files, with what changes when they change."""
        return tuple(self.reader()._partitioning().files())

    def texts(self) -> Iterator[tuple[pa.Array, pa.Array]]:
        """Texts, and the number of the example each is of."""
        reader = self.reader()
        reader.columns()  # refuses fields that are not there
        listing, reading = reader.decompose()
        first = 0
        for group in listing.splits(""):  # type: ignore[attr-defined]  # a reader begins with a listing
            for batch in emissions(reading.process(group)):
                if isinstance(batch, DocumentBatch):
                    for name in ["text"] if self.kind == "text" else self.fields:
                        texts, rows = _texts(read_column(batch.data, name, f"Benchmark({self.path!r})"), name)
                        yield texts, pc.add(rows, first)
                    first += batch.num_items


def _texts(column: pa.ChunkedArray, name: str) -> tuple[pa.Array, pa.Array]:
    """The texts of a column, and the rows they are in."""
    rows = pa.array(range(len(column)), pa.int64())
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        lists = column.combine_chunks()
        rows = rows.take(pc.list_parent_indices(lists))
        column = pa.chunked_array([pc.list_flatten(lists)])
    if not holds_text(column.type) and not pa.types.is_null(column.type):
        if pa.types.is_nested(column.type):
            raise PlanError(f"Benchmark(fields=[{name!r}]): it holds {column.type}; give columns of text")
        column = column.cast(pa.large_string())
    return text_values(column, name, "Benchmark").cast(pa.large_string()).combine_chunks(), rows


_LOG = logging.getLogger("tamis")
_LOADED: dict[tuple[object, ...], NgramIndex] = {}
_LOADING = threading.Lock()


def load_index(benchmarks: Mapping[str, Benchmark], n: int) -> NgramIndex:
    """The n-grams of benchmarks. The workers of one process share the last index that was loaded."""
    files = tuple((name, repr(benchmark), benchmark.files()) for name, benchmark in benchmarks.items())
    for name, _, found in files:
        if not found:
            raise PlanError(f"Decontaminate: there are no files of the benchmark {name!r}: {benchmarks[name].path}")
    with _LOADING:
        if (files, n) not in _LOADED:
            _LOADED.clear()
            index = NgramIndex.build({name: b.texts() for name, b in benchmarks.items()}, n)
            for name, examples, short in zip(index.names, index.examples, index.too_short, strict=True):
                if short:
                    message = (
                        "benchmark %s: %d of %d examples have no %d-gram, so they are never found; n may be smaller"
                    )
                    _LOG.warning(message, name, short, examples, n)
            _LOADED[files, n] = index
        return _LOADED[files, n]
