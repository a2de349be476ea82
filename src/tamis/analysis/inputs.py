"""The input of an analysis: the reader that fits the files, and which parts of them are read."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tamis.errors import ColumnError, DataError, PlanError, did_you_mean
from tamis.stages.base import SourceStage
from tamis.stages.io import CsvReader, FilePartitioningStage, JsonlReader, ParquetReader, TextReader
from tamis.stages.io.listing import Listing
from tamis.stages.io.paths import absolute, with_compressions
from tamis.stages.io.readers import Reader
from tamis.stages.mixing.row_keys import scrambled
from tamis.stages.text.statistics.websites import URL_FIELDS
from tamis.tasks import DocumentBatch, EmptyTask, FileGroup

FORMATS: Final = ("jsonl", "parquet", "csv", "tsv", "text")
"""The formats that can be named."""

SAMPLE_BLOCK: Final = "4MiB"
"""The size of a part when only some are read: small, so that the parts are spread over the input."""

LEAST_SPLITS: Final = 64
"""The fewest parts of a large input that are read."""

_ENDINGS: Final = {
    "jsonl": JsonlReader.extensions,
    "parquet": ParquetReader.extensions,
    "csv": (".csv",),
    "tsv": (".tsv",),
    "text": TextReader.extensions,
}
_TEXT_HINT: Final = "Name the column with the text: --text-field (text_field in Python)."

_ALL: Final = 2**64
_LOOKED_AT_FILES: Final = 1000
_MANY_SPLITS: Final = 8
"""How many parts an input must have for one of them to be read ahead, to estimate the number of documents."""

_SPARE: Final = 1.5
"""How many documents are prepared for each that is kept as an example, in case that there are fewer than thought."""


@dataclass(frozen=True)
class Coverage:
    """How much of an input is analyzed.

    Args:
        splits: Parts that the input is cut into.
        splits_read: Parts that are read.
        nbytes: Bytes of the input, as its files are; -1 when unknown.
        nbytes_read: Bytes of the parts that are read.
        fraction: The share of the documents in these parts that is analyzed.
        below: The parts whose hashed number is below this are read.
        sampled: The share of the analyzed documents that may be in the sample.
    """

    splits: int
    splits_read: int
    nbytes: int
    nbytes_read: int
    fraction: float = 1.0
    below: int = _ALL
    sampled: float = 1.0

    @property
    def is_whole(self) -> bool:
        """Whether every document is analyzed."""
        return self.splits_read == self.splits and self.fraction >= 1

    @property
    def share(self) -> float:
        """The share of the input that is analyzed, by bytes."""
        return self.fraction * (self.nbytes_read / self.nbytes if self.nbytes > 0 else 1.0)


@dataclass
class ChosenSplits(SourceStage[EmptyTask, FileGroup]):
    """Some of the parts that an input is cut into, spread evenly over it: their hashed numbers are below a limit."""

    partitioning: FilePartitioningStage
    below: int = _ALL

    @property
    def file_paths(self) -> Any:
        """What is read, for the check that nothing is written there."""
        return self.partitioning.file_paths

    @property
    def file_extensions(self) -> list[str] | None:
        """The endings that are looked for."""
        return self.partitioning.file_extensions

    def splits(self, scratch: str) -> Iterator[FileGroup]:
        for number, split in enumerate(self.partitioning.splits(scratch)):
            if _key(number) < self.below:
                yield split


def reader_for(
    paths: list[str], format_name: str | None, text_field: str, whole: bool, option: str = "--format"
) -> Reader:
    """The reader for some files.

    Args:
        paths: Files, directories and patterns.
        format_name: One of :data:`FORMATS`; the one of the first file when not given.
        text_field: The name of the column that text files become.
        whole: Whether everything is going to be read.
        option: What names the format on the command line.
    """
    if format_name is not None and format_name not in FORMATS:
        raise PlanError(
            f"format {format_name!r}: it must be one of {', '.join(FORMATS)}.{did_you_mean(format_name, FORMATS)}"
        )
    found = format_name or _format_of(paths, option)
    settings: dict[str, Any] = {"on_error": "quarantine", "blocksize": None if whole else SAMPLE_BLOCK}
    if found == "text":
        return TextReader(paths, **settings, text_field=text_field)
    if found in ("csv", "tsv"):
        return CsvReader(paths, **settings, delimiter="\t" if found == "tsv" else ",")
    return (JsonlReader if found == "jsonl" else ParquetReader)(paths, **settings)


def whole_blocks(reader: Reader) -> Reader:
    """The reader with blocks of the usual size, as a pipeline uses it that reads everything."""
    return replace(reader, blocksize=None)


def check_columns(reader: Reader, field: str, hint: str = _TEXT_HINT) -> list[str] | None:
    """The columns of the input, as far as its first file shows; an error if a column is not there.

    Args:
        reader: What reads it.
        field: The name of the column, by default that with the text.
        hint: What to do if it is not there.
    """
    columns = reader.columns() or []
    if columns and field not in columns:
        near = did_you_mean(field, columns)
        raise ColumnError(f"there is no column {field!r}, only {', '.join(columns)}.{near}\n  {hint}")
    return columns or None


def url_field_in(columns: list[str] | None) -> str | None:
    """The column that seems to hold the address of each document.

    >>> url_field_in(["text", "URL"])
    'URL'
    """
    by_name = {name.lower(): name for name in reversed(columns or [])}
    return next((by_name[name] for name in URL_FIELDS if name in by_name), None)


def choose(reader: Reader, sample: int | None, fraction: float | None, max_sample: int) -> Coverage:
    """Which parts of an input to read, and what share of the documents in them to analyze.

    Args:
        reader: What reads it.
        sample: About how many documents are wanted.
        fraction: The share of the documents that is wanted, instead; everything when neither is given.
        max_sample: How many documents the sample can have.
    """
    partitioning = partitioning_of(reader)
    splits, sizes, nbytes = 0, True, 0
    first: list[int] = []  # the smallest keys, with a minus: a heap gives up its smallest item
    for number, split in enumerate(partitioning.splits("")):
        splits += 1
        nbytes += split.weight
        sizes &= all(part.size >= 0 for part in split.slices)
        heapq.heappush(first, -_key(number))
        if len(first) > LEAST_SPLITS:
            heapq.heappop(first)
    documents = None
    if sample is not None or splits >= _MANY_SPLITS:
        documents = _estimated_documents(reader, splits, nbytes, min(-key for key in first))
    if sample is not None and documents:
        fraction = sample / documents
    fraction = 1.0 if fraction is None else min(fraction, 1.0)
    sampled = min(_SPARE * max_sample / (documents * fraction), 1.0) if documents else 1.0
    everything = Coverage(splits, splits, nbytes if sizes else -1, nbytes, sampled=sampled)
    if fraction >= 1:
        return everything
    below = min(max(int(fraction * _ALL), -first[0] + 1), _ALL)
    chosen = [split.weight for split in ChosenSplits(partitioning, below).splits("")]
    share = sum(chosen) / nbytes if sizes and nbytes else len(chosen) / splits
    fraction = min(fraction / share, 1.0)
    return replace(everything, splits_read=len(chosen), nbytes_read=sum(chosen), fraction=fraction, below=below)


def _estimated_documents(reader: Reader, splits: int, nbytes: int, first: int) -> float | None:
    """How many documents there are, going by the part of the input with the smallest key; ``None`` if that has none."""
    rows = weight = 0
    stage = reader.reader_stage()
    for split in ChosenSplits(partitioning_of(reader), first + 1).splits(""):
        weight += split.weight
        rows += sum(batch.num_items for batch in stage.process(split) if isinstance(batch, DocumentBatch))
    return rows * (nbytes / weight if weight else splits) or None


def partitioning_of(reader: Reader) -> FilePartitioningStage:
    """What cuts the input of a reader into parts."""
    stage = reader.decompose()[0]
    assert isinstance(stage, FilePartitioningStage)
    return stage


def _key(number: int) -> int:
    return int(scrambled(np.array([number + 1], np.uint64) * np.uint64(0x9E3779B97F4A7C15))[0])


def _format_of(paths: list[str], option: str) -> str:
    """The format of the files. Text beside other files (``README.md``) is not counted."""
    endings = {ending: name for name, known in _ENDINGS.items() for ending in with_compressions(known)}
    found: Counter[str] = Counter()
    for path in paths:
        for file in itertools.islice(Listing((absolute(path),), tuple(endings)).files(), _LOOKED_AT_FILES):
            ending = max((e for e in endings if file.path.lower().endswith(e)), key=len, default=None)
            if ending is None:
                hint = f"Name its format with {option} (format_name in Python): {', '.join(FORMATS)}."
                raise DataError("its name does not say what format it has", path=file.path, hint=hint)
            found[endings[ending]] += 1
    if len(found) > 1:
        del found["text"]
    if len(found) > 1:
        counts = ", ".join(f"{count} x {name}" for name, count in found.most_common())
        raise DataError(
            f"there are files of several formats: {counts}",
            path=", ".join(paths),
            hint=f"Choose one with {option} (format_name in Python).",
        )
    return next(iter(found))
