"""Take the records out of a file, and the documents out of the records."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.errors import DataError, PlanError, TamisError
from tamis.stages.base import ProcessingStage
from tamis.stages.emit import BadRow, BadRows, Drop
from tamis.stages.io.arguments import check_choice
from tamis.stages.io.partitioning import DEFAULT_BLOCK_BYTES
from tamis.stages.io.paths import base_name
from tamis.stages.io.readers import ON_ERROR
from tamis.stages.text.download.base.extract import DocumentExtractor
from tamis.stages.text.forms import ShownWithParameters
from tamis.tasks import DocumentBatch, FileGroup, RowNames

__all__ = ["DocumentIterateExtractStage", "DocumentIterator", "filename_column"]

Record = dict[str, Any]

_ROW_BYTES = 100
"""What a row is taken to need beside its texts."""

_CONVERSION = (pa.ArrowException, UnicodeError, OverflowError, TypeError, ValueError)
"""What Arrow raises for values that it cannot hold."""


class DocumentIterator(ShownWithParameters, ABC):
    """Reads the records of a file, one after the other.

    >>> class Lines(DocumentIterator):
    ...     def iterate(self, file_path):
    ...         with open(file_path, encoding="utf-8") as file:
    ...             for line in file:
    ...                 yield {"text": line.rstrip()}
    ...     def output_columns(self):
    ...         return ["text"]
    >>> Lines().output_columns()
    ['text']
    """

    @abstractmethod
    def iterate(self, file_path: str) -> Iterator[Record]:
        """The records of a file. Best a generator: then only a block of them is held at a time."""

    @abstractmethod
    def output_columns(self) -> list[str]:
        """What its records have."""


def filename_column(add_filename_column: bool | str) -> str | None:
    """The name of the column for file names: ``True`` stands for ``"file_name"``, ``False`` for none.

    >>> filename_column(True), filename_column("source"), filename_column(False)
    ('file_name', 'source', None)
    """
    if isinstance(add_filename_column, str) and add_filename_column:
        return add_filename_column
    if isinstance(add_filename_column, bool):
        return "file_name" if add_filename_column else None
    raise PlanError(f"add_filename_column={add_filename_column!r}: give True, False or the name of the column")


class _Rows:
    """Records or documents, each with the file and the number of its record there, from 0."""

    def __init__(self) -> None:
        self.rows: list[Record] = []
        self._paths: dict[str, int] = {}
        self._codes: list[int] = []
        self._numbers: list[int] = []

    def add(self, row: Record, path: str, number: int) -> None:
        self.rows.append(row)
        self._codes.append(self._paths.setdefault(path, len(self._paths)))
        self._numbers.append(number)

    @property
    def names(self) -> RowNames:
        """The names of the rows."""
        codes = np.array(self._codes, np.int32) if len(self._paths) > 1 else None
        return RowNames(tuple(self._paths), np.array(self._numbers, np.int64), codes)


class _Block:
    """Documents that make a batch, and records that were dropped meanwhile."""

    def __init__(self) -> None:
        self.documents, self.left_out = _Rows(), _Rows()
        self.nbytes = 0

    def add(self, path: str, number: int, record: Record, document: Record | None) -> None:
        """A record, and the document it became, if it did."""
        if document is None:
            self.left_out.add(record, path, number)
        else:
            self.documents.add(document, path, number)
        held = record if document is None else document
        self.nbytes += _ROW_BYTES + sum(len(v) for v in held.values() if isinstance(v, str | bytes))


@dataclass
class DocumentIterateExtractStage(ProcessingStage[FileGroup, DocumentBatch]):
    """Read the records of a task's files and make documents of them, in batches of bounded size.

    A record that raises is set aside with its file and number, one for which the extractor returns ``None`` is dropped
    with a reason. If a file cannot be read to its end, the records before that are used.

    Args:
        iterator: Reads records.
        extractor: Makes documents of them; without one the records are the documents.
        record_limit: At most so many documents of each file.
        add_filename_column: Whether to add the name of the file as a column, ``file_name``; or the column's name.
        max_calls_per_worker: After so many tasks a worker process is replaced by a fresh one (only on Ray Data).
        on_error: ``"quarantine"`` sets aside what cannot be read and continues, ``"raise"`` stops.
        block_bytes: Documents per batch, in bytes of text.

    >>> class Numbers(DocumentIterator):
    ...     def iterate(self, file_path):
    ...         yield from ({"n": n} for n in range(5))
    ...     def output_columns(self):
    ...         return ["n"]
    >>> stage = DocumentIterateExtractStage(Numbers(), record_limit=2)
    >>> [batch.data.to_pylist() for batch in stage.process(FileGroup(["dir/a.txt"]))]
    [[{'n': 0, 'file_name': 'a.txt'}, {'n': 1, 'file_name': 'a.txt'}]]
    """

    iterator: DocumentIterator
    extractor: DocumentExtractor | None = None
    record_limit: int | None = None
    add_filename_column: bool | str = True
    max_calls_per_worker: int | None = None
    on_error: str = "quarantine"
    block_bytes: int = DEFAULT_BLOCK_BYTES

    def __post_init__(self) -> None:
        parts = [type(part).__name__.lower() for part in (self.iterator, self.extractor) if part is not None]
        self.name = "_".join(["iterate", *(["extract"] if self.extractor else []), *parts])
        check_choice(type(self).__name__, "on_error", self.on_error, ON_ERROR)
        for parameter in ("record_limit", "max_calls_per_worker"):
            value = getattr(self, parameter)
            if value is not None and value < 1:
                raise PlanError(f"{type(self).__name__}({parameter}={value}): must be at least 1, or None for no limit")
        self._filename_column = filename_column(self.add_filename_column)

    def inputs(self) -> tuple[list[str], list[str]]:
        return ["data"], []

    def outputs(self) -> tuple[list[str], list[str]]:
        maker = self.extractor or self.iterator
        return ["data"], [*maker.output_columns(), *([self._filename_column] if self._filename_column else [])]

    def columns_after(self, available: frozenset[str] | None) -> frozenset[str] | None:
        return frozenset(self.outputs()[1])

    def ray_stage_spec(self) -> dict[str, Any]:
        spec = super().ray_stage_spec()
        if self.max_calls_per_worker is not None:
            spec.setdefault("max_calls_per_worker", self.max_calls_per_worker)
        return spec

    def process(self, task: FileGroup) -> Iterator[DocumentBatch | Drop | BadRows]:
        """Batches of documents, as they are read."""
        block = _Block()
        for path in task.data:
            for found in self._documents(str(path)):
                if isinstance(found, BadRows):
                    yield found
                    continue
                block.add(str(path), *found)
                if block.nbytes >= self.block_bytes:
                    yield from self._batches(block, task)
                    block = _Block()
        yield from self._batches(block, task)

    def _documents(self, path: str) -> Iterator[tuple[int, Record, Record | None] | BadRows]:
        """The number of each record of a file, the record, and the document it became, if it did."""
        name = {self._filename_column: base_name(path)} if self._filename_column else {}
        made = 0
        for number, record in enumerate(self._records(path, name)):
            if isinstance(record, BadRows):
                yield record
                continue
            try:
                document = self.extractor.extract(record) if self.extractor else record
                found = number, record, None if document is None else {**document, **name}
            except Exception as e:  # noqa: BLE001 - whatever an extractor raises is about this record
                _raise_if_not_about_data(e)
                yield self._set_aside(path, f"record {number + 1} cannot be extracted: {_words(e)}", _shown(record), e)
                continue
            yield found
            made += document is not None
            if made == self.record_limit:
                return

    def _records(self, path: str, name: dict[str, str]) -> Iterator[Record | BadRows]:
        read = 0
        try:
            records = self.iterator.iterate(path)
            if records is None:
                raise TypeError("iterate() returned None")
            for record in records:
                yield {**record, **name}
                read += 1
        except Exception as e:  # noqa: BLE001 - whatever an iterator raises is about this file
            _raise_if_not_about_data(e)
            yield self._set_aside(path, f"it cannot be read further than {read} records: {_words(e)}", b"", e)

    def _set_aside(self, path: str, problem: str, raw: bytes = b"", cause: Exception | None = None) -> BadRows:
        """Raise an error, or make it something for the quarantine: as the stage was told."""
        if self.on_error == "raise":
            raise DataError(problem, path=path, hint='on_error="quarantine" sets it aside and continues.') from cause
        return BadRows((BadRow(path, None, None, problem, raw),))

    def _batches(self, block: _Block, task: FileGroup) -> Iterator[DocumentBatch | Drop | BadRows]:
        path = ", ".join(map(str, task.data))
        documents, left_out = block.documents, block.left_out
        table, fits = _table(documents.rows, self.outputs()[1], path)
        for row in np.flatnonzero(~fits).tolist():
            shown = _shown(documents.rows[row])
            yield self._set_aside(path, "this document has a value that an Arrow table cannot hold", shown)
        if table.num_rows:
            batch = DocumentBatch(table, task.dataset_name, _metadata=dict(task._metadata))
            yield batch.named(documents.names.take(np.flatnonzero(fits)))
        if left_out.rows and self.extractor is not None:
            dropped = DocumentBatch(_loose_table(left_out.rows), task.dataset_name).named(left_out.names)
            yield Drop(dropped, np.arange(dropped.num_items), self.extractor.reason())


def _table(rows: list[Record], declared: list[str], path: str) -> tuple[pa.Table, NDArray[np.bool_]]:
    """Rows as a table, and which of them a table can hold: not lone surrogates, numbers beyond 64 bits, odd objects."""
    names = dict.fromkeys([*declared, *(name for row in rows for name in row)])
    try:
        table = pa.table({name: [row.get(name) for row in rows] for name in names})
        return table, np.ones(len(rows), np.bool_)
    except _CONVERSION:
        fits = np.array([_fits(row) for row in rows], np.bool_)
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row, it_does in zip(rows, fits, strict=True) if it_does])
        except _CONVERSION as e:
            raise DataError(f"the values of {name!r} are not all of one kind: {e}", path=path) from e
    return pa.table(columns), fits


def _fits(row: Record) -> bool:
    try:
        pa.table({name: [value] for name, value in row.items()})
    except _CONVERSION:
        return False
    return True


def _loose_table(rows: list[Record]) -> pa.Table:
    """Rows as a table for people to read: values of a column that Arrow cannot hold are shown as text."""
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        try:
            columns[name] = pa.array(values)
        except _CONVERSION:
            columns[name] = pa.array([None if value is None else repr(value) for value in values])
    return pa.table(columns)


def _raise_if_not_about_data(error: Exception) -> None:
    """A package that is missing or memory that is full says nothing about the record that was being read."""
    if isinstance(error, ImportError | MemoryError) or (
        isinstance(error, TamisError) and not isinstance(error, DataError)
    ):
        raise error


def _words(error: Exception) -> str:
    return error.problem if isinstance(error, DataError) else f"{type(error).__name__}: {error}"


def _shown(record: Record) -> bytes:
    """The beginning of a record."""
    short = {name: value[:200] if isinstance(value, str | bytes) else value for name, value in record.items()}
    return json.dumps(short, default=str).encode()
