"""Finds the row of a run's input that a user means: by its name, by its line, or by the value of a column."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from tamis.errors import DataError, did_you_mean
from tamis.runs.lineage import InputFile, input_files
from tamis.runs.source_rows import RowFormat
from tamis.stages.io.byte_streams import BOM, byte_stream
from tamis.stages.io.paths import base_name, compression_of, is_local
from tamis.tasks import FileSlice

__all__ = [
    "RowName",
    "find_file",
    "has_byte_positions",
    "line_of",
    "near_rows",
    "parse_name",
    "row_at_line",
    "rows_with",
]

MOST_MATCHES: Final = 10
"""How many rows with the same value are looked for."""

_COUNTED_BYTES: Final = 2**30
_NAME: Final = re.compile(r"(?P<source>.+):(?P<position>\d+)(?P<part>(?:[/+]\d+)*)", re.DOTALL)
_PLAIN_VALUE: Final = re.compile(r"[\w.-]+", re.ASCII)


@dataclass(frozen=True)
class RowName:
    """The name of a row: where it comes from, its position there, and which piece of it is meant, if it was split."""

    source: str
    position: int
    part: str = ""

    def __str__(self) -> str:
        return f"{self.source}:{self.position}{self.part}"


def parse_name(text: str) -> RowName:
    """The name of a row from its text.

    >>> parse_name("data/a.jsonl:120"), parse_name("s3://b/a.jsonl:0/2").part
    (RowName(source='data/a.jsonl', position=120, part=''), '/2')
    """
    found = _NAME.fullmatch(text)
    if found is None:
        raise DataError(
            f"{text!r} is not the name of a row",
            hint="A name is the file and the position of the row in it, as reports show it: data/a.jsonl:120. With "
            "--line the number is that of a line, from 1; --id COLUMN=VALUE finds a row by a value.",
        )
    return RowName(found["source"], int(found["position"]), found["part"])


def find_file(run_dir: str, source: str) -> InputFile | None:
    """The input file that a user means: the path in full, relative to here, or its last parts.

    Returns:
        The file as the latest start of the run listed it; ``None`` for a run whose input is not files.

    Raises:
        DataError: The run did not read such a file, or several.
    """
    wanted = {source, os.path.abspath(source)} if is_local(source) else {source}
    ending = "/" + source.replace(os.sep, "/").lstrip("./")
    exact: InputFile | None = None
    alike: dict[str, InputFile] = {}
    near: dict[str, str] = {}
    count = 0
    for file in input_files(run_dir):
        count += 1
        if file.path in wanted:
            exact = file
        elif file.path.replace(os.sep, "/").endswith(ending) and len(alike) < MOST_MATCHES:
            alike[file.path] = file
        elif len(near) < 10_000:
            near[base_name(file.path)] = file.path
    if exact is not None or not count:
        return exact
    if len(alike) == 1:
        return next(iter(alike.values()))
    if alike:
        raise DataError(f"the run has read several files of this name: {', '.join(sorted(alike))}", path=source)
    likely = did_you_mean(base_name(source), near)
    raise DataError(
        f"the run did not read this file.{likely}",
        path=source,
        hint=f"It has read {count} files, such as {next(iter(near.values()), '')}.",
    )


def has_byte_positions(row_format: RowFormat | None) -> bool:
    """Whether the position of a row is the byte where it starts; else it is the number of the row, from 0."""
    if row_format is None or row_format.kind in ("parquet", "arrow"):
        return False
    return row_format.kind != "csv" or not row_format.newlines_in_values


def _has_lines(row_format: RowFormat | None) -> bool:
    """Whether a row of a file starts with a line of text."""
    return has_byte_positions(row_format) and row_format is not None and row_format.kind not in ("tar", "image")


def line_of(source: str, position: int, row_format: RowFormat | None) -> int | None:
    """The number of the line that starts at a byte, from 1; ``None`` where it cannot be counted."""
    if not _has_lines(row_format) or not is_local(source) or position > _COUNTED_BYTES:
        return None
    line, left = 1, position
    try:
        for piece in byte_stream(FileSlice(source), {}):
            line += piece.count(b"\n", 0, left)
            left -= len(piece)
            if left <= 0:
                return line
    except (OSError, DataError):
        return None
    return line if left <= 0 else None


def row_at_line(source: str, line: int, row_format: RowFormat | None) -> int:
    """The position of the row in a line, counted from 1; of a Parquet file, of the row of that number from 1."""
    if line < 1:
        raise DataError("lines are counted from 1", path=source)
    if row_format is not None and row_format.kind in ("parquet", "arrow"):
        return line - 1
    if has_byte_positions(row_format) and not _has_lines(row_format):
        raise DataError("the file has no lines", path=source, hint="Give the position, as reports show it.")
    if not has_byte_positions(row_format):
        raise DataError(
            "a value in this file may span lines, so its rows are known by their numbers and not by lines",
            path=source,
            hint="Leave out --line, and give the number of the row, from 0.",
        )
    if line == 1:
        return 0
    seen, position, last = 1, 0, b""
    for piece in byte_stream(FileSlice(source), {}):
        lines = piece.count(b"\n")
        if seen + lines >= line:
            at = -1
            for _ in range(line - seen):
                at = piece.index(b"\n", at + 1)
            return position + at + 1
        seen, position, last = seen + lines, position + len(piece), piece[-1:]
    seen -= last == b"\n"
    raise DataError(f"the file has only {seen} lines, there is no line {line}", path=source)


def near_rows(source: str, position: int, row_format: RowFormat | None) -> list[int]:
    """Where rows start near a byte at which none does: the one before it, and the next one."""
    if not _has_lines(row_format) or not is_local(source) or compression_of(source) is not None:
        return []
    try:
        size = os.path.getsize(source)
        begin = max(0, min(position, size) - 2**20)
        with open(source, "rb") as file:  # noqa: PTH123 - a name may have any bytes
            file.seek(begin)
            data = file.read(2 * 2**20)
    except OSError:
        return []
    at = min(position, size) - begin
    before = data.rfind(b"\n", 0, max(at - 1, 0)) + 1
    after = data.find(b"\n", at) + 1
    starts = [begin + before] if before or not begin else []
    return sorted({*starts, *([begin + after] if after and begin + after < size else [])})


def rows_with(run_dir: str, column: str, value: str, formats: Any) -> list[RowName]:
    """The rows of the input with a value in a column; up to :data:`MOST_MATCHES`. All of the input is read.

    Args:
        run_dir: The run's directory.
        column: The column.
        value: The value, as text.
        formats: Tells how the rows of a file were read.
    """
    found: dict[RowName, None] = {}
    for file in input_files(run_dir):
        for position in _positions_with(file.path, column, value, formats(file.path)):
            found[RowName(file.path, position)] = None
            if len(found) >= MOST_MATCHES:
                return list(found)
    return list(found)


def _positions_with(source: str, column: str, value: str, row_format: RowFormat | None) -> Iterator[int]:
    if row_format is None:
        return iter(())
    if row_format.kind == "parquet":
        return _parquet_positions(source, column, value)
    if row_format.kind == "jsonl":
        return _json_positions(source, column, value)
    raise DataError("--id looks into JSON lines and Parquet, not into files of this kind", path=source)


def _json_positions(source: str, column: str, value: str) -> Iterator[int]:
    # A value of plain characters is in the line as it is, so most lines need not be parsed.
    needle = value.encode() if _PLAIN_VALUE.fullmatch(value) else b""
    for position, line in _lines(source):
        if needle not in line:
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and column in row and _as_text(row[column]) == value:
            yield position


def _lines(source: str) -> Iterator[tuple[int, bytes]]:
    """The lines of a file, plain or compressed, and the byte where each starts."""
    held, start = b"", 0
    for piece in byte_stream(FileSlice(source), {}):
        *lines, held = (held + piece).split(b"\n")
        for line in lines:
            yield start, line.removeprefix(BOM) if not start else line
            start += len(line) + 1
    if held:
        yield start, held


def _parquet_positions(source: str, column: str, value: str) -> Iterator[int]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as file:
        if column not in file.schema_arrow.names:
            return
        first = 0
        for batch in file.iter_batches(columns=[column]):
            for number, cell in enumerate(batch.column(0).to_pylist()):
                if _as_text(cell) == value:
                    yield first + number
            first += batch.num_rows


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
