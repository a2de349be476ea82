"""Read JSON lines: plain or compressed, whole files or ranges of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import arrow_array
from tamis.errors import DataError
from tamis.stages.emit import BadRow, BadRows
from tamis.stages.io.arguments import parse_types
from tamis.stages.io.blocks import QUARANTINE_HINT, Block, LineNumbers, line_blocks
from tamis.stages.io.byte_streams import head
from tamis.stages.io.json_lines import BrokenLine, ParsedLines, parse_json_lines
from tamis.stages.io.positions import names_in_block
from tamis.stages.io.readers import Reader, ReaderStage
from tamis.tasks import FileSlice, RowNames

__all__ = ["JsonlReader", "JsonlReaderStage"]

_EXCERPT = 80


@dataclass
class JsonlReaderStage(ReaderStage):
    """Read the JSON lines of a task.

    Args:
        types: Arrow types by column; those of other columns are inferred.

    >>> import fsspec
    >>> from tamis.tasks import FileGroup
    >>> fsspec.filesystem("memory").pipe_file("/jsonl/a.jsonl", b'{"text": "a"}\\n{"text": "b", "n": 1}\\n')
    >>> [batch] = JsonlReaderStage().process(FileGroup(["memory://jsonl/a.jsonl"]))
    >>> batch.data.to_pylist()
    [{'text': 'a', 'n': None}, {'text': 'b', 'n': 1}]
    """

    types: dict[str, str] = field(default_factory=dict)

    def tables(self, slices: Sequence[FileSlice]) -> Iterator[tuple[pa.Table, RowNames] | BadRows]:
        types = parse_types(self.name, self.types)
        for block in line_blocks(slices, self.block_bytes, self.storage_options, self.on_error, self.max_row_bytes):
            if isinstance(block, BadRows):
                yield block
                continue
            table, starts, broken = self.parse_block(block, types)
            yield table, names_in_block(block, starts)
            if broken:
                yield BadRows(tuple(self._bad_row(block, line) for line in broken))

    def parse_block(self, block: Block, types: dict[str, pa.DataType]) -> ParsedLines:
        """The rows of a block, where each begins in it, and the lines that cannot be read, in order."""
        try:
            parsed = parse_json_lines(block.data, self.fields)
        except DataError as e:
            raise DataError(e.problem, path=block.parts[0].path, byte=block.parts[0].byte, hint=e.hint) from None
        if parsed.broken and self.on_error == "raise":
            raise self._error(block, parsed.broken[0])
        table, starts, misfits = _cast(parsed.table, parsed.starts, types, block)
        if misfits and self.on_error == "raise":
            raise self._error(block, misfits[0])
        if self.include_path is not None:
            counts = np.diff(np.searchsorted(starts, block.starts), append=len(starts)).tolist()
            paths = [part.path for part in block.parts]
            table = self.with_path(table, list(zip(paths, counts, strict=True)))
        return ParsedLines(table, starts, sorted([*parsed.broken, *misfits], key=lambda line: line.start))

    def _error(self, block: Block, broken: BrokenLine) -> DataError:
        part, offset = block.locate(broken.start)
        line = block.data[broken.start : broken.stop]
        excerpt = line[:_EXCERPT].decode("utf-8", "replace") + ("..." if len(line) > _EXCERPT else "")
        hint = QUARANTINE_HINT
        if line.strip() in (b"{", b"[") or (part.byte + offset == 0 and line.lstrip().startswith(b"[")):
            hint = "The file seems to hold one JSON value over several lines; JSON lines have one object per line."
        return DataError(
            f"{broken.reason}: {excerpt}",
            path=part.path,
            line=LineNumbers(self.storage_options, patient=True).of(part, offset),
            byte=part.byte + offset,
            hint=hint,
        )

    def _bad_row(self, block: Block, broken: BrokenLine) -> BadRow:
        part, offset = block.locate(broken.start)
        line = LineNumbers(self.storage_options, patient=False).of(part, offset)
        return BadRow(part.path, line, part.byte + offset, broken.reason, block.data[broken.start : broken.stop])


def _cast(
    table: pa.Table, starts: NDArray[np.int64], types: dict[str, pa.DataType], block: Block
) -> tuple[pa.Table, NDArray[np.int64], list[BrokenLine]]:
    """Give columns the types that were asked for; one that is not there becomes a null column.

    Returns:
        The rows whose values have or can be given these types, where they begin, and the lines of the others.
    """
    problems: dict[int, str] = {}
    for name, kind in types.items():
        if name in table.column_names:
            for row in _misfits(table.column(name), kind):
                value = str(table.column(name)[row])[:_EXCERPT]
                problems.setdefault(row, f"column {name!r}: {value!r} is not a valid {kind}")
    misfits = []
    if problems:
        for row in sorted(problems):
            begin = int(starts[row])
            end = block.data.find(b"\n", begin)
            misfits.append(BrokenLine(begin, end if end >= 0 else len(block.data), problems[row]))
        fits = np.ones(len(starts), np.bool_)
        fits[list(problems)] = False
        table, starts = table.filter(arrow_array(fits)), starts[fits]
    for name, kind in types.items():
        if name in table.column_names:
            at = table.column_names.index(name)
            table = table.set_column(at, name, _try_cast(table.column(at), kind))
        else:
            table = table.append_column(name, pa.nulls(table.num_rows, kind))
    return table, starts, misfits


def _try_cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """The column in another type; ``None`` when some value does not fit."""
    if column.null_count == len(column):  # also where there is no way from one type to the other
        return pa.chunked_array([pa.nulls(len(column), kind)])
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None


def _misfits(column: pa.ChunkedArray, kind: pa.DataType, first: int = 0) -> Iterator[int]:
    """The rows whose values cannot be cast, found by halving: few of them cost little."""
    if _try_cast(column, kind) is not None:
        return
    half = len(column) // 2
    if not half:
        yield first
        return
    yield from _misfits(column.slice(0, half), kind, first)
    yield from _misfits(column.slice(half), kind, first + half)


@dataclass
class JsonlReader(Reader):
    """Read JSON lines: one object per line, plain or compressed (``.gz``, ``.zst``, ``.bz2``, ``.xz``).

    Large uncompressed files are read in ranges by several workers, small ones are put together. Nothing is lost or
    changed on the way: a column whose values differ in kind (numbers here, text there) becomes text, in which a
    value that was not a string is its JSON; integers and floats together become floats. Integers of more than 64 bits
    and what is nested more than 30 levels deep become JSON text. A key that occurs twice in one object, half a
    surrogate pair, an integer of more than 4,300 digits, more than 500 levels of nesting and a line that is not an
    object are errors. ``NaN`` and ``Infinity``, which Python writes, are read as floats.

    The other arguments are those of every :class:`~tamis.stages.io.readers.Reader`.

    Args:
        fields: Keys to read; all of them when not given. A key that a block does not have is a null column.
        read_kwargs: Only there for scripts written for NeMo Curator; ``storage_options`` in it is used.
        file_extensions: Endings to look for in directories; ``.jsonl``, ``.ndjson`` and ``.json`` by default.
        types: Arrow types by column, such as ``{"score": "float64"}``. Without, they are found for each block on its
            own, so a column may be integers in one batch and floats in the next.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe_file("/docs/a.jsonl", b'{"text": "a", "lang": "en"}\\n')
    >>> JsonlReader("memory://docs").columns()
    ['text', 'lang']
    """

    types: dict[str, str] | None = None

    extensions: ClassVar[tuple[str, ...]] = (".jsonl", ".ndjson", ".json")

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_types(type(self).__name__, self.types)

    def reader_stage(self) -> JsonlReaderStage:
        return JsonlReaderStage(**self._stage_settings(), types=self.types or {})

    def peek(self, file: FileSlice) -> pa.Schema | None:
        data = head(file, self._options())
        table = parse_json_lines(data[: data.rfind(b"\n") + 1] or data).table
        if not table.num_rows:
            return None
        types = dict(zip(table.schema.names, table.schema.types, strict=True))
        return pa.schema(list({**types, **parse_types(self.name, self.types)}.items()))
