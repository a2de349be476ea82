"""Write batches: a file per task, or shards of about equal size."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from tamis.arrays import arrow_array, numpy_array
from tamis.errors import ColumnError, DataError, PlanError, did_you_mean
from tamis.sizes import byte_size
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.emit import Publish
from tamis.stages.io.arguments import check_arguments, check_names
from tamis.stages.io.destination import Destination, partition_directory
from tamis.stages.io.encoders import CsvEncoder, Encoder, JsonlEncoder, ParquetEncoder, TextEncoder
from tamis.stages.io.paths import absolute, path_text
from tamis.stages.io.sink import FileSink
from tamis.tasks import DocumentBatch, FileGroup, FileSlice
from tamis.tasks.base import digest

__all__ = ["CsvWriter", "JsonlWriter", "ParquetWriter", "TextWriter", "Writer", "WriterStage"]


def chosen_columns(task: DocumentBatch, fields: list[str] | None, partition_by: str | None) -> pa.Table:
    """The columns to write; :class:`ColumnError` for one that is not there."""
    there = task.get_columns()
    for name in [*(fields or ()), *([partition_by] if partition_by else ())]:
        if name not in there:
            raise ColumnError(
                f"there is no column {name!r} to write, only {', '.join(there)}.{did_you_mean(name, there)}"
            )
    return task.data if fields is None else task.columns(fields)


def partitions(task: DocumentBatch, column: str | None) -> Iterator[tuple[str, pa.Array | None]]:
    """The directory of each value of a column and the numbers of its rows (``None`` for all of them)."""
    if not task.num_items:
        return
    if column is None:
        yield "", None
        return
    values_of_rows = task.columns([column]).column(0)
    try:
        codes = values_of_rows.cast(pa.large_string()).combine_chunks().dictionary_encode("encode")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise DataError(f"partition_by={column!r}: {values_of_rows.type} values cannot be names of directories") from e
    codes = codes.combine_chunks() if isinstance(codes, pa.ChunkedArray) else codes
    values = codes.dictionary.to_pylist()
    of_row = numpy_array(codes.indices)
    order = np.argsort(of_row, kind="stable")
    edges = np.searchsorted(of_row[order], np.arange(len(values) + 1))
    for i in sorted(range(len(values)), key=lambda i: (values[i] is None, values[i])):
        yield partition_directory(column, values[i]), arrow_array(order[edges[i] : edges[i + 1]])


@dataclass
class WriterStage(FileSink[DocumentBatch]):
    """Write one file per task, or one per value of a column.

    A file is written under a temporary name and announced with a :class:`Publish`; the driver gives it its final name
    once the task is recorded. Batches without rows write nothing.

    Args:
        destination: The directory and the names in it.
        encoder: The format.
        fields: Columns to write; all of them when not given.
        partition_by: A column; each of its values has a directory ``column=value``. The column stays in the files.

    >>> from tamis.runs.publication import publish
    >>> stage = WriterStage(Destination("memory://written", ending=".jsonl"), JsonlEncoder())
    >>> finished, group = stage.process(DocumentBatch({"text": ["a"]}, order=(3,)))
    >>> publish(finished)
    >>> group.data
    ['memory://written/part-000003.jsonl']
    """

    fields: list[str] | None = None
    partition_by: str | None = None

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], [*(self.fields or ()), *([self.partition_by] if self.partition_by else ())]

    def process(self, task: DocumentBatch) -> Iterator[Publish | FileGroup]:
        columns = chosen_columns(task, self.fields, self.partition_by)
        name = self.name_for(task)
        slices = []
        for directory, rows in partitions(task, self.partition_by):
            part = columns if rows is None else columns.take(rows)
            finished = self.write(
                f"{directory}/{name}" if directory else name,
                part.num_rows,
                functools.partial(self.encoder.write, part),
                self.encoder.schema(part),
            )
            slices.append(FileSlice(finished.final, size=finished.nbytes))
            yield finished
        if slices:
            yield FileGroup(
                [s.path for s in slices],
                dataset_name=task.dataset_name,
                slices=tuple(slices),
                _metadata=dict(task._metadata),
            )


@dataclass
class Writer(CompositeStage[DocumentBatch, FileGroup]):
    """Write batches into a directory. The base of every writer; all writers take these arguments.

    Args:
        path: The directory, or any fsspec address.
        fields: Columns to write; all of them when not given.
        mode: What to do when the directory already holds files. ``"error"`` refuses to start, unless they are the
            output of the same pipeline over the same input: then they are replaced. ``"overwrite"`` removes earlier
            output of such a writer (and refuses if there is anything else). ``"append"`` adds files whose names
            contain the id of the run. ``"ignore"`` adds files and replaces those of the same names.
        file_extension: Ending of the files; that of the format when not given.
        compression: ``None``, ``"gz"`` or ``"zst"``.
        compression_level: 4 for gzip and 1 for zstd when not given.
        filename: Template for names: ``{order}`` is the task's place in the input, ``{task_id}`` its id,
            ``{dataset}`` its dataset, ``{source}`` the name of the (first) file it was read from.
        partition_by: A column; each of its values has a directory ``column=value``. The column stays in the files.
        shard_bytes: Merge the output into files of about this size, in the order of the input, as a number or as
            ``"512MB"``; a file per task when not given.
        storage_options: For the fsspec file system.
        write_kwargs: Only ``storage_options`` in it is used.
    """

    path: str | os.PathLike[str]
    fields: list[str] | None = None
    mode: str = "error"
    file_extension: str | None = None
    compression: str | None = None
    compression_level: int | None = None
    filename: str = "part-{order}"
    partition_by: str | None = None
    shard_bytes: int | str | None = None
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    write_kwargs: dict[str, Any] = field(default_factory=dict)

    releases_gil: ClassVar[bool] = True
    is_sink_stage: ClassVar[bool] = True
    format_arguments: ClassVar[tuple[str, ...] | None] = ()
    """Names allowed in ``write_kwargs``; ``None`` leaves the check to the format."""

    def __post_init__(self) -> None:
        owner = type(self).__name__
        self.path = path_text(self.path)
        check_names(owner, "fields", self.fields)
        if self.partition_by is not None and not isinstance(self.partition_by, str):
            raise PlanError(f"{owner}(partition_by={self.partition_by!r}): give the name of one column")
        if self.format_arguments is not None:
            check_arguments(owner, "write_kwargs", self.write_kwargs, ("storage_options", *self.format_arguments))
        self.decompose()

    def encoder(self) -> Encoder:
        """The format."""
        raise NotImplementedError

    def destination(self) -> Destination:
        """The directory and the names in it."""
        encoder = self.encoder()
        extension = (self.file_extension or encoder.extension).lstrip(".")
        options = self.storage_options or self.write_kwargs.get("storage_options") or {}
        return Destination(absolute(self.path), self.filename, f".{extension}{encoder.suffix()}", self.mode, options)

    def decompose(self) -> list[ProcessingStage[Any, Any]]:
        from tamis.stages.io.shards import MergeShards, WritePieces

        destination, encoder = self.destination(), self.encoder()
        if self.shard_bytes is None:
            return [WriterStage(destination, encoder, self.fields, self.partition_by).with_(name=self.name)]
        size = byte_size(self.shard_bytes)
        return [
            WritePieces(encoder, size, self.fields, self.partition_by, digest(destination.path, self.filename)).with_(
                name=f"{self.name}.pieces"
            ),
            MergeShards(destination, encoder, size).with_(name=self.name),
        ]


@dataclass
class JsonlWriter(Writer):
    """Write JSON lines: one object per line, in UTF-8.

    Floats that JSON cannot express (NaN, infinite) become null; dates and times become ISO 8601 text, decimals text.
    Columns of bytes are refused.

    The other arguments are those of every :class:`Writer`.

    Args:
        write_kwargs: For scripts written for NeMo Curator; only ``storage_options`` in it is used.

    >>> JsonlWriter("memory://out", fields=["text"], compression="zst").decompose()[0].name
    'JsonlWriter'
    """

    format_arguments: ClassVar[tuple[str, ...] | None] = ("lines", "orient", "force_ascii", "index")

    def __post_init__(self) -> None:
        asked = {**_JSONL_IS, **self.write_kwargs}
        for name, value in _JSONL_IS.items():
            if asked[name] not in (value, None):
                raise PlanError(f"JsonlWriter(write_kwargs={{{name!r}: {asked[name]!r}}}): always {value!r} here")
        super().__post_init__()

    def encoder(self) -> JsonlEncoder:
        return JsonlEncoder(self.compression, self.compression_level)


_JSONL_IS = {"lines": True, "orient": "records", "force_ascii": False, "index": False}
"""Arguments of pandas' writer that scripts written for NeMo Curator pass, and their only possible values here."""


@dataclass
class ParquetWriter(Writer):
    """Write Parquet files. All files of an output have one schema.

    Types that differ between batches (null here and text there) are unified when the run is done; where that is not
    possible, the run stops with an error that names the column. A struct without fields, JSON's ``{}``, is written
    with one field of nulls, ``__empty__``, because Parquet has no other way to hold it.

    The other arguments are those of every :class:`Writer`.

    Args:
        compression: ``"zstd"``, ``"snappy"``, ``"gzip"``, ``"lz4"``, ``"brotli"`` or ``None``.
        compression_level: Arrow's default when not given.
        write_kwargs: Further arguments of ``pyarrow.parquet.ParquetWriter``, and ``row_group_size`` in rows.

    >>> ParquetWriter("memory://out", shard_bytes="512MB").decompose()[1].batch_bytes
    512000000
    """

    compression: str | None = "zstd"

    format_arguments: ClassVar[tuple[str, ...] | None] = None

    def encoder(self) -> ParquetEncoder:
        settings = {k: v for k, v in self.write_kwargs.items() if k not in ("storage_options", "compression", "index")}
        compression = self.write_kwargs.get("compression", self.compression)
        return ParquetEncoder(compression, self.compression_level, settings)


@dataclass
class CsvWriter(Writer):
    """Write CSV files with a header. Text is quoted, so that null (nothing) and empty text (``""``) differ.

    The other arguments are those of every :class:`Writer`.

    Args:
        delimiter: The character between values.

    >>> CsvWriter("memory://out", delimiter="\\t").encoder().delimiter
    '\\t'
    """

    delimiter: str = ","

    def encoder(self) -> CsvEncoder:
        return CsvEncoder(self.compression, self.compression_level, self.delimiter)


@dataclass
class TextWriter(Writer):
    """Write the text of each row, followed by a separator.

    The other arguments are those of every :class:`Writer`.

    Args:
        fields: Not used: only the text is written.
        text_field: The column with the text.
        separator: The text after each row. Rows that contain it cannot be told apart afterwards.

    >>> TextWriter("memory://out", separator="\\n\\n").encoder().separator
    '\\n\\n'
    """

    text_field: str = "text"
    separator: str = "\n"

    def __post_init__(self) -> None:
        if self.fields is not None and list(self.fields) != [self.text_field]:
            raise PlanError(f"TextWriter(fields={self.fields!r}): only the column {self.text_field!r} is written")
        self.fields = [self.text_field]
        super().__post_init__()

    def encoder(self) -> TextEncoder:
        return TextEncoder(self.compression, self.compression_level, self.text_field, self.separator)
