"""Reads rows back from their source by their names: ``read_rows("data/a.jsonl", [0, 120])``.

Drops, quarantine and samples name rows and do not keep them. This module finds such rows again: the line that starts at
a byte of JSON lines, CSV or text, plain or compressed, the row of some number of a Parquet, Arrow or CSV file, and the
image at a byte of a tar archive.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tamis.errors import DataError, TamisError
from tamis.runs.image_rows import image_file, tar_rows
from tamis.runs.thumbnails import Thumbnail
from tamis.sizes import size_text
from tamis.stages.image.io.samples import IMAGE_ENDINGS
from tamis.stages.io.byte_streams import BOM, byte_stream
from tamis.stages.io.paths import COMPRESSED, COMPRESSED_TARS, base_name, compression_of, is_local, open_read, reading
from tamis.tasks import FileSlice

__all__ = ["KINDS", "ReadLimits", "RowFormat", "SourceRow", "format_of", "read_rows"]

Kind = Literal["jsonl", "parquet", "arrow", "csv", "text", "tar", "image"]

KINDS: Final[dict[str, Kind]] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".md": "text",
    **dict.fromkeys((".tar", *COMPRESSED_TARS), "tar"),
    **dict.fromkeys(IMAGE_ENDINGS, "image"),
}
"""The format that the ending of a file's name stands for, before the ending of a compression."""


@dataclass(frozen=True)
class RowFormat:
    """How the rows of a source were read.

    Args:
        kind: The format of the file.
        delimiter: For CSV, the character between values.
        newlines_in_values: For CSV, whether a value may span lines. Then the position of a row is its number, otherwise
            the byte where its line starts.
        unit: For text, what a row is: ``"file"``, ``"line"`` or ``"paragraph"``.
        text_field: For text, the name of the column.
    """

    kind: Kind
    delimiter: str = ","
    newlines_in_values: bool = True
    unit: Literal["file", "line", "paragraph"] = "file"
    text_field: str = "text"


@dataclass(frozen=True)
class ReadLimits:
    """How much is read at most, so that looking at a few rows stays cheap.

    Args:
        row_bytes: Bytes of one row; of a longer one only the beginning is read, which for JSON means that it cannot be
            shown by column.
        scan_bytes: Bytes, decompressed, that are passed over to reach a row, where there is no way to seek.
        value_characters: Characters of one value; longer texts are cut.
        group_bytes: The largest row group of a Parquet file that is read, in bytes as stored.
        media_bytes: The largest image that is read; none when 0.
    """

    row_bytes: int = 4 * 2**20
    scan_bytes: int = 256 * 2**20
    value_characters: int = 20_000
    group_bytes: int = 512 * 2**20
    media_bytes: int = 0


@dataclass(frozen=True)
class SourceRow:
    """One row of a source.

    Args:
        source: The file.
        position: The byte or the number of the row there.
        values: The values by column; empty if it could not be read.
        problem: Why it could not be read, in words; empty if it was.
        is_cut: Whether a value was too long and only its beginning is here.
        picture: A small picture of the image in it, where one was asked for.
    """

    source: str
    position: int
    values: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    is_cut: bool = False
    picture: Thumbnail | None = None


def format_of(source: str) -> RowFormat | None:
    """The format of a file by the ending of its name; ``None`` if the ending says nothing.

    >>> format_of("a.jsonl.gz"), format_of("a.tsv").delimiter, format_of("crawl.warc")
    (RowFormat(kind='jsonl', delimiter=',', newlines_in_values=True, unit='file', text_field='text'), '\\t', None)
    """
    name = base_name(source).lower()
    for ending in COMPRESSED:
        name = name.removesuffix(ending)
    ending = os.path.splitext(name)[1]
    kind = KINDS.get(ending)
    return None if kind is None else RowFormat(kind, delimiter="\t" if ending == ".tsv" else ",")


def read_rows(
    source: str,
    positions: Sequence[int],
    columns: Sequence[str] | None = None,
    *,
    row_format: RowFormat | None = None,
    limits: ReadLimits | None = None,
    changed_after: float | None = None,
    storage_options: Mapping[str, Any] | None = None,
    allow_remote: bool = False,
) -> list[SourceRow]:
    """Read rows of a source by their positions. What cannot be read is reported in the row, nothing is raised.

    Args:
        source: The file: a local path, or an fsspec address if ``allow_remote``.
        positions: The positions of rows, as in their names.
        columns: Columns to read; all of them when not given. One that is not there is left out.
        row_format: How the rows were read; by the ending of the file's name when not given.
        limits: How much is read at most.
        changed_after: A moment, in seconds since 1970. A file that changed later than that is not read, since other
            rows may be at the same positions now.
        storage_options: For the fsspec file system.
        allow_remote: Whether an address of another machine may be opened.

    Returns:
        A row for each position, in the order of the positions.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "a.jsonl")
    ...     _ = path.write_text('{"text": "one"}\\n{"text": "two"}\\n')
    ...     [row.values for row in read_rows(str(path), [16, 0])]
    [{'text': 'two'}, {'text': 'one'}]
    """
    limits = limits or ReadLimits()
    wanted = sorted(set(positions))
    try:
        row_format = row_format or format_of(source)
        problem = _unreadable(source, row_format, changed_after, allow_remote)
        if problem or row_format is None:
            return [SourceRow(source, position, problem=problem) for position in positions]
        found = _read(source, wanted, columns, row_format, limits, dict(storage_options or {}))
        rows = {position: _row(source, position, values, limits) for position, values in found}
    except (TamisError, OSError, ValueError, KeyError) as error:
        problem = error.problem if isinstance(error, DataError) else str(error) or type(error).__name__
        return [SourceRow(source, position, problem=problem) for position in positions]
    return [rows.get(p) or SourceRow(source, p, problem=_missing(source, p, limits)) for p in positions]


def _missing(source: str, position: int, limits: ReadLimits) -> str:
    if compression_of(source) is not None and position > limits.scan_bytes:
        return _too_far(limits)
    return "no row starts at this position: the source has changed since the run"


def _too_far(limits: ReadLimits) -> str:
    return f"the row is more than {size_text(limits.scan_bytes)} into a file that can only be read from its start"


_Found = Iterator[tuple[int, dict[str, Any] | str]]
"""Positions, each with the values of the row or with what is wrong with it."""


def _unreadable(source: str, row_format: RowFormat | None, changed_after: float | None, allow_remote: bool) -> str:
    """Why a source is not even opened."""
    if row_format is None:
        return "rows cannot be read back from a source of this kind"
    if not is_local(source):
        return "" if allow_remote else "the source is not on this machine"
    try:
        status = os.stat(source)
    except FileNotFoundError:
        return "the source is gone: there is no such file any more"
    except (OSError, ValueError) as error:
        return f"the source cannot be read: {getattr(error, 'strerror', None) or error}"
    if not stat.S_ISREG(status.st_mode):
        return "the source is not a file"
    if changed_after is not None and status.st_mtime > changed_after:
        return "the source has changed since the run"
    return ""


def _read(
    source: str,
    positions: list[int],
    columns: Sequence[str] | None,
    row_format: RowFormat,
    limits: ReadLimits,
    storage_options: dict[str, Any],
) -> _Found:
    if row_format.kind == "parquet":
        return _parquet_rows(source, positions, columns, limits, storage_options)
    if row_format.kind == "arrow":
        return _arrow_rows(source, positions, columns, limits, storage_options)
    if row_format.kind == "tar":
        return _tar_rows(source, positions, limits, storage_options)
    if row_format.kind == "image":
        return ((position, image_file(source, limits.media_bytes)) for position in positions)
    if row_format.kind == "csv" and row_format.newlines_in_values:
        return _numbered_csv_rows(source, positions, columns, row_format, limits, storage_options)
    units = _units(source, positions, row_format, limits, storage_options)
    if row_format.kind == "csv":
        return _csv_lines(source, units, columns, row_format, storage_options)
    if row_format.kind == "text":
        return ((position, {row_format.text_field: _text(data)}) for position, data, _ in units)
    return _json_lines(units, columns)


# --- lines at bytes -------------------------------------------------------------------------------------------------

_LINE_END: Final = re.compile(rb"\n")
_PARAGRAPH_END: Final = re.compile(rb"\n[ \t\r]*\n")
_FILE_END: Final = re.compile(rb"\Z(?!)")  # found nowhere
_FIRST_BYTES: Final = 64 * 1024

_Bytes = Iterator[tuple[int, bytes, bytes]]
"""Positions, each with the byte before it and the bytes from there on."""


def _units(
    source: str, positions: list[int], row_format: RowFormat, limits: ReadLimits, storage_options: dict[str, Any]
) -> Iterator[tuple[int, bytes, bool]]:
    """The lines (paragraphs, files) that start at some bytes, and whether each is there as a whole."""
    end = _LINE_END
    if row_format.kind == "text":
        end = {"file": _FILE_END, "paragraph": _PARAGRAPH_END}.get(row_format.unit, end)
    if compression_of(source) is None:
        found = _seeking(source, positions, end, limits, storage_options)
    else:
        found = _streaming(source, positions, limits, storage_options)
    for position, before, data in found:
        if not data or not (before == b"\n" or position in (0, len(BOM))):
            continue  # no row starts here
        data = data.removeprefix(BOM) if position == 0 else data
        stop = end.search(data)
        is_whole = stop is not None or len(data) < limits.row_bytes
        yield position, (data if stop is None else data[: stop.start()]).rstrip(b"\r\n"), is_whole


def _seeking(
    source: str, positions: list[int], end: re.Pattern[bytes], limits: ReadLimits, storage_options: dict[str, Any]
) -> _Bytes:
    """Read at the positions: little at first, since a line is usually short."""
    with open_read(source, storage_options) as handle, reading(source):
        for position in positions:
            if position < 0:
                continue
            handle.seek(max(position - 1, 0))
            data, more = b"", _FIRST_BYTES
            while piece := handle.read(min(more, limits.row_bytes + 1 - len(data))):
                data += piece
                more *= 4
                if end.search(data, 1):
                    break
            yield (position, data[:1], data[1:]) if position else (0, b"", data)


def _streaming(source: str, positions: list[int], limits: ReadLimits, storage_options: dict[str, Any]) -> _Bytes:
    """The same for a file that can only be read from its start."""
    held, start = b"", 0  # bytes of the file, and where they start
    waiting = [position for position in positions if 0 <= position <= limits.scan_bytes]
    for piece in byte_stream(FileSlice(source), storage_options):
        held += piece
        while waiting and start + len(held) - waiting[0] > limits.row_bytes:
            yield _cut(held, start, waiting.pop(0), limits)
        if not waiting:
            return
        before = max(min(waiting[0] - 1, start + len(held)), start)
        held, start = held[before - start :], before
    for position in waiting:
        yield _cut(held, start, position, limits)


def _cut(held: bytes, start: int, position: int, limits: ReadLimits) -> tuple[int, bytes, bytes]:
    at = position - start
    return position, held[at - 1 : at] if at else b"", held[at : at + limits.row_bytes]


def _json_lines(units: Iterator[tuple[int, bytes, bool]], columns: Sequence[str] | None) -> _Found:
    for position, line, is_whole in units:
        try:
            values = json.loads(line)
        except (ValueError, RecursionError):
            problem = "not a JSON object: the source has changed since the run"
            yield position, problem if is_whole else "the row is too long to be shown"
            continue
        if not isinstance(values, dict):
            yield position, "not a JSON object: the source has changed since the run"
            continue
        yield position, values if columns is None else {c: values[c] for c in columns if c in values}


# --- CSV ------------------------------------------------------------------------------------------------------------


def _csv_stage(row_format: RowFormat, storage_options: dict[str, Any]) -> Any:
    from tamis.stages.io.csv import CsvReaderStage

    return CsvReaderStage(
        on_error="quarantine",
        storage_options=storage_options,
        delimiter=row_format.delimiter,
        newlines_in_values=row_format.newlines_in_values,
    )


def _numbered_csv_rows(
    source: str,
    positions: list[int],
    columns: Sequence[str] | None,
    row_format: RowFormat,
    limits: ReadLimits,
    storage_options: dict[str, Any],
) -> _Found:
    """Rows by their number: read the way the run read them, from the start up to the last one."""
    from tamis.stages.emit import BadRows
    from tamis.tasks import RowNames

    passed = 0
    for table in _csv_stage(row_format, storage_options).read_file(FileSlice(source)):
        if isinstance(table, BadRows):
            continue
        rows, names = RowNames.taken_from(table)
        numbers = names.positions.tolist() if names is not None else []
        places = {number: place for place, number in enumerate(numbers)}
        for position in positions:
            if position in places:
                yield position, _chosen(rows.slice(places[position], 1), columns)
        passed += table.nbytes
        if not numbers or numbers[-1] >= positions[-1]:
            return
        if passed > limits.scan_bytes:
            for position in positions:
                if position > numbers[-1]:
                    yield position, _too_far(limits)
            return


def _csv_lines(
    source: str,
    units: Iterator[tuple[int, bytes, bool]],
    columns: Sequence[str] | None,
    row_format: RowFormat,
    storage_options: dict[str, Any],
) -> _Found:
    from tamis.stages.io.byte_streams import head

    stage = _csv_stage(row_format, storage_options)
    file = FileSlice(source)
    names = stage._header(file, head(file, storage_options))
    for position, line, _ in units:
        values: list[str] = next(iter(stage._rows([line.decode("utf-8", "replace")])), [])
        if len(values) != len(names):
            yield position, "not a row with the columns of the header: the source has changed since the run"
            continue
        row = {name: value or None for name, value in zip(names, values, strict=True)}
        yield position, row if columns is None else {c: row[c] for c in columns if c in row}


# --- Parquet --------------------------------------------------------------------------------------------------------


def _parquet_rows(
    source: str,
    positions: list[int],
    columns: Sequence[str] | None,
    limits: ReadLimits,
    storage_options: dict[str, Any],
) -> _Found:
    """Rows by their number: only the row groups that hold them are read, and of those only the columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(open_read(source, storage_options))
        try:
            file = stack.enter_context(pq.ParquetFile(source if is_local(source) else handle))
            chosen = None if columns is None else [c for c in columns if c in file.schema_arrow.names]
            first = 0
            for group in range(file.num_row_groups):
                metadata = file.metadata.row_group(group)
                inside = [p for p in positions if first <= p < first + metadata.num_rows]
                if inside and metadata.total_byte_size > limits.group_bytes:
                    yield from ((p, "the row group is too large to look for one row") for p in inside)
                elif inside:
                    table = file.read_row_group(group, columns=chosen)
                    yield from ((p, _chosen(table.slice(p - first, 1), columns)) for p in inside)
                first += metadata.num_rows
        except pa.ArrowException as error:
            raise DataError(f"not a Parquet file that can be read: {error}", path=source) from error


def _arrow_rows(
    source: str,
    positions: list[int],
    columns: Sequence[str] | None,
    limits: ReadLimits,
    storage_options: dict[str, Any],
) -> _Found:
    """Rows by their number: read from the start up to the last one."""
    import pyarrow as pa

    from tamis.stages.io.arrow import opened_arrow

    first = passed = 0
    with opened_arrow(source, storage_options) as (_, batches):
        try:
            for batch in batches:
                for position in positions:
                    if first <= position < first + batch.num_rows:
                        yield position, _chosen(pa.table(batch.slice(position - first, 1)), columns)
                first += batch.num_rows
                passed += batch.nbytes
                if first > positions[-1]:
                    return
                if passed > limits.scan_bytes:
                    yield from ((position, _too_far(limits)) for position in positions if position >= first)
                    return
        except pa.ArrowException as error:
            raise DataError(f"not an Arrow file that can be read: {error}", path=source) from error


def _tar_rows(source: str, positions: list[int], limits: ReadLimits, storage_options: dict[str, Any]) -> _Found:
    """The images at some bytes of a tar archive."""
    if compression_of(source) is not None:
        yield from ((position, "images are not read back from a compressed archive") for position in positions)
        return
    with open_read(source, storage_options) as handle, reading(source):
        yield from tar_rows(handle, positions, limits.media_bytes)


# --- values ---------------------------------------------------------------------------------------------------------


def _chosen(table: Any, columns: Sequence[str] | None) -> dict[str, Any]:
    """A table of one row as a mapping."""
    there = table.column_names if columns is None else [c for c in columns if c in table.column_names]
    row: dict[str, Any] = table.select(there).to_pylist()[0] if there else {}
    return row


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\r\n", "\n").strip("\n")


def _row(source: str, position: int, found: dict[str, Any] | str, limits: ReadLimits) -> SourceRow:
    if isinstance(found, str):
        return SourceRow(source, position, problem=found)
    most: dict[type, int] = {str: limits.value_characters, bytes: max(limits.value_characters, limits.media_bytes)}
    is_cut = any(len(v) > most[type(v)] for v in found.values() if type(v) in most)
    cut = {k: v[: most[type(v)]] if type(v) in most else v for k, v in found.items()}
    return SourceRow(source, position, cut, is_cut=is_cut)
