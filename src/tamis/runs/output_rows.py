"""Finds the row of an output that was made of a row of the input: by the values that both have."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tamis.errors import DataError
from tamis.runs.source_rows import format_of
from tamis.stages.io.byte_streams import byte_stream
from tamis.stages.io.paths import is_local
from tamis.tasks import FileSlice

__all__ = ["OutputRow", "find_output_rows", "output_rows"]

SEARCHED_BYTES: Final = 2**30
"""How many bytes of output files are searched for one row."""


@dataclass(frozen=True)
class OutputRow:
    """A row of an output file.

    Args:
        path: The file.
        line: The number of the line, or of the row in a Parquet file, from 1.
        values: The values by column.
    """

    path: str
    line: int
    values: dict[str, Any] = field(default_factory=dict)


def find_output_rows(values: Mapping[str, Any], files: Sequence[Mapping[str, Any]]) -> list[OutputRow]:
    """The rows with the most values in common with a row of the input; several if they cannot be told apart.

    Args:
        values: The row of the input.
        files: The files to search: ``path`` and ``bytes``. None is searched if they are too large.
    """
    if sum(int(file["bytes"]) for file in files) > SEARCHED_BYTES:
        return []
    best: list[OutputRow] = []
    most = 0
    for file in files:
        for row in output_rows(str(file["path"])):
            common = sum(
                1 for name, value in values.items() if value is not None and _same(value, row.values.get(name))
            )
            if common > most:
                best, most = [], common
            if common == most and most and len(best) < 100:
                best.append(row)
    return best


def output_rows(path: str) -> Iterator[OutputRow]:
    """The rows of an output file on this machine; none if its format does not say what a row is."""
    row_format = format_of(path)
    if row_format is None or not is_local(path):
        return
    try:
        if row_format.kind == "parquet":
            yield from _parquet_rows(path)
        elif row_format.kind == "jsonl":
            for number, line in enumerate(_lines(path), 1):
                yield OutputRow(path, number, json.loads(line))
        elif row_format.kind == "csv":
            text = io.TextIOWrapper(io.BytesIO(b"".join(byte_stream(FileSlice(path), {}))), "utf-8", newline="")
            for number, row in enumerate(csv.DictReader(text, delimiter=row_format.delimiter), 1):
                yield OutputRow(path, number + 1, dict(row))
    except (OSError, ValueError, DataError):
        return  # the file was changed or removed since: then nothing is found in it


def _same(value: Any, written: Any) -> bool:
    return bool(value == written) if type(value) is type(written) else str(value) == str(written)


def _lines(path: str) -> Iterator[bytes]:
    held = b""
    for piece in byte_stream(FileSlice(path), {}):
        *lines, held = (held + piece).split(b"\n")
        yield from lines
    if held:
        yield held


def _parquet_rows(path: str) -> Iterator[OutputRow]:
    import pyarrow.parquet as pq

    number = 0
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                number += 1
                yield OutputRow(path, number, row)
