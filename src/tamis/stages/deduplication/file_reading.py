"""Read the files of a task, for stages and workflows that take files: by the name of the format."""

from __future__ import annotations

from typing import Any, Final

from tamis.errors import PlanError, did_you_mean
from tamis.stages.io.jsonl import JsonlReader
from tamis.stages.io.parquet import ParquetReader
from tamis.stages.io.readers import Reader, ReaderStage

__all__ = ["FILE_TYPES", "reader_for", "reading_stage"]

FILE_TYPES: Final[dict[str, type[Reader]]] = {"jsonl": JsonlReader, "parquet": ParquetReader}
"""The reader of each ``input_filetype``."""


def reader_for(owner: str, file_type: str) -> type[Reader]:
    """The reader of a file type; an error if there is none."""
    found = FILE_TYPES.get(file_type)
    if found is None:
        known = ", ".join(map(repr, FILE_TYPES))
        raise PlanError(
            f"{owner}: {file_type!r} is not a file type, only {known}.{did_you_mean(file_type, FILE_TYPES)}"
        )
    return found


def reading_stage(
    owner: str, file_type: str, fields: list[str] | None, read_kwargs: dict[str, Any] | None, blocksize: str = "64MiB"
) -> ReaderStage:
    """A stage that reads the files of a task.

    Args:
        owner: Who reads, for messages.
        file_type: ``"parquet"`` or ``"jsonl"``.
        fields: Columns to read; all of them when not given.
        read_kwargs: Further arguments of the reader.
        blocksize: About how many bytes a batch has; larger files become several batches.

    >>> reading_stage("example", "jsonl", ["text"], None).known_columns()
    ['text']
    """
    reader = reader_for(owner, file_type)
    return reader("-", fields=fields, read_kwargs=read_kwargs, blocksize=blocksize).reader_stage()
