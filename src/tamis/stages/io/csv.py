"""Read CSV: every column as text unless its type is given, so that nothing is guessed and nothing is lost."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from tamis.errors import DataError, PlanError, did_you_mean
from tamis.kernels.lines import line_starts
from tamis.sizes import size_text
from tamis.stages.emit import BadRow, BadRows
from tamis.stages.io.arguments import parse_types
from tamis.stages.io.blocks import QUARANTINE_HINT, LineNumbers, Part, line_parts
from tamis.stages.io.byte_streams import BOM, StreamFile, byte_stream, head, whole_lines
from tamis.stages.io.positions import all_line_starts, names_in_part
from tamis.stages.io.readers import Reader, TableReaderStage
from tamis.tasks import FileSlice, RowNames

__all__ = ["CsvReader", "CsvReaderStage"]

_PARSER_ARGUMENTS = ("double_quote", "escape_char", "ignore_empty_lines", "quote_char")


@dataclass
class CsvReaderStage(TableReaderStage):
    """Read the CSV files of a task.

    Args:
        delimiter: The character between values.
        newlines_in_values: Whether quoted values may contain line breaks.
        types: Arrow types by column; the others are text.
        read_kwargs: Further arguments of ``pyarrow.csv.ParseOptions``.

    >>> import fsspec
    >>> from tamis.tasks import FileGroup
    >>> fsspec.filesystem("memory").pipe_file("/csv/a.csv", b'text,n\\n"a, b",007\\n')
    >>> [batch] = CsvReaderStage().process(FileGroup(["memory://csv/a.csv"]))
    >>> batch.data.to_pylist()
    [{'text': 'a, b', 'n': '007'}]
    """

    delimiter: str = ","
    newlines_in_values: bool = True
    types: dict[str, str] = field(default_factory=dict)
    read_kwargs: dict[str, Any] = field(default_factory=dict)

    def read_file(self, file: FileSlice) -> Iterator[pa.Table | BadRows]:
        start = head(file, self.storage_options)
        names = self._header(file, start)
        for name in [*(self.fields or ()), *self.types] if names else ():
            if name not in names:
                raise DataError(
                    f"there is no column {name!r}, only {', '.join(names)}.{did_you_mean(name, names)}", path=file.path
                )
        if names:
            if self.newlines_in_values:
                yield from self._streamed(file, names)
            else:
                yield from self._by_line(file, names, start.find(b"\n", _blank(start)) + 1 or len(start))

    def _header(self, file: FileSlice, start: bytes) -> list[str]:
        """The names in the first row that is not blank, from the first bytes of the file."""
        text = start.decode("utf-8", "surrogateescape")
        line = 1 + start.count(b"\n", 0, _blank(start))
        try:
            names: list[str] = next((row for row in self._rows(io.StringIO(text, newline="")) if row), [])
        except csv.Error as e:
            raise DataError(f"the header cannot be read: {e}", path=file.path, line=line) from e
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise DataError(f"the header names {twice[0]!r} twice", path=file.path, line=line)
        if any("\udc80" <= c <= "\udcff" for name in names for c in name):
            raise DataError("the header is not valid UTF-8", path=file.path, line=line)
        return names

    def _rows(self, lines: Iterable[str]) -> Any:
        """Python's own reader, for what Arrow does not report."""
        quote = self.read_kwargs.get("quote_char", '"')
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=quote or None,
            quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
            doublequote=self.read_kwargs.get("double_quote", True),
            escapechar=self.read_kwargs.get("escape_char") or None,
        )

    def _options(self, names: list[str], broken: list[Any]) -> dict[str, Any]:
        """Arrow's options for parsing and converting; rows that do not fit end up in ``broken``."""
        import pyarrow.csv as pa_csv

        def set_aside(row: Any) -> str:
            broken.append(row)
            return "error" if self.on_error == "raise" else "skip"

        parse = pa_csv.ParseOptions(
            delimiter=self.delimiter,
            newlines_in_values=self.newlines_in_values,
            invalid_row_handler=set_aside,
            # In a file of a single column an empty line is a null.
            **{"ignore_empty_lines": len(names) > 1, **self.read_kwargs},
        )
        # Bytes first: Arrow would stop at the first invalid text without saying where.
        convert = pa_csv.ConvertOptions(
            column_types={name: pa.large_binary() for name in names},
            include_columns=self.fields or names,
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        )
        return {"parse_options": parse, "convert_options": convert}

    def _streamed(self, file: FileSlice, names: list[str]) -> Iterator[pa.Table | BadRows]:
        """A file in which a value may span several lines: it can only be read from its start."""
        import pyarrow.csv as pa_csv

        broken: list[Any] = []
        ends: list[BadRow] = []
        pieces = byte_stream(file, self.storage_options)
        if self.on_error == "quarantine":
            pieces = whole_lines(file.path, pieces, ends, self.max_row_bytes)
        read = pa_csv.ReadOptions(
            column_names=names, skip_rows_after_names=1, block_size=max(self.block_bytes, 4096), encoding="utf8"
        )
        try:
            stream = pa.PythonFile(io.BufferedReader(StreamFile(_framed(_from_header(pieces))), 2**20), mode="r")
            count = 0
            for batch in pa_csv.open_csv(stream, read_options=read, **self._options(names, broken)):
                numbered = RowNames((file.path,), count + np.arange(batch.num_rows))
                yield from self._as_text(pa.Table.from_batches([batch]), numbered, file)
                count += batch.num_rows
        except pa.ArrowInvalid as e:
            if broken and self.on_error == "raise":
                raise self._broken_rows_error(self._find_broken(file, names), broken[0], file) from e
            if str(e) != "Empty CSV file":
                if "straddl" in str(e):
                    limit = max(self.block_bytes, 4096)
                    raise DataError(
                        f"a row is larger than {size_text(limit)} (blocksize={limit})",
                        path=file.path,
                        hint="Give a larger blocksize, or look for a quote that is not closed.",
                    ) from e
                raise DataError(str(e), path=file.path) from e
        if broken:
            yield BadRows(tuple(_matched(file.path, self._find_broken(file, names), broken)))
        if ends:
            yield BadRows(tuple(ends))

    def _find_broken(self, file: FileSlice, names: list[str]) -> list[BadRow]:
        """Rows with the wrong number of values, found by going through the whole file with Python's reader."""
        lines = whole_lines(file.path, byte_stream(file, self.storage_options), [], self.max_row_bytes)
        stream = io.BufferedReader(StreamFile(_framed(lines)), 2**20)
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="surrogateescape", newline="")
        found: list[BadRow] = []
        line = 1
        try:
            for row in (rows := self._rows(text)):
                if row and len(row) != len(names):
                    found.append(BadRow(file.path, line, None, _wrong_count(len(row), len(names))))
                    if self.on_error == "raise":
                        break
                line = rows.line_num + 1
        except (csv.Error, DataError):  # the parsers disagree on this file, or it breaks off: no more lines
            pass
        return found

    def _by_line(self, file: FileSlice, names: list[str], header: int) -> Iterator[pa.Table | BadRows]:
        """A file, or a range of one, in which each line is a row, after the first ``header`` bytes of the text."""
        import pyarrow.csv as pa_csv

        for part in line_parts(file, self.block_bytes, self.storage_options, self.on_error, self.max_row_bytes):
            if isinstance(part, BadRows):
                yield part
                continue
            rows = part
            if part.byte < len(BOM) + header:
                mark = 0 if head(file, self.storage_options, len(BOM)) else len(BOM)
                cut = min(max(mark + header - part.byte, 0), len(part.data))
                line = part.line and part.line + part.data.count(b"\n", 0, cut)
                rows = Part(part.path, part.byte + cut, part.data[cut:], line)
            if not (rows.data if len(names) == 1 else rows.data.strip(b"\r\n")):
                continue
            broken: list[Any] = []
            try:
                table = pa_csv.read_csv(
                    pa.BufferReader(rows.data),
                    read_options=pa_csv.ReadOptions(column_names=names),
                    **self._options(names, broken),
                )
            except pa.ArrowInvalid as e:
                if broken:
                    raise self._broken_rows_error(self._broken_lines(rows, names), broken[0], file) from e
                raise DataError(str(e), path=file.path, byte=rows.byte) from e
            found = self._broken_lines(rows, names) if broken else []
            starts = all_line_starts(rows.data) if len(names) == 1 else line_starts(rows.data)
            starts = np.setdiff1d(starts, [row.byte - rows.byte for row in found if row.byte is not None])
            if len(starts) != table.num_rows:  # the parsers do not agree on what a row is: these are numbered
                starts = np.arange(table.num_rows)
            yield from self._as_text(table, names_in_part(rows, starts), file)
            if broken:
                yield BadRows(tuple(_matched(file.path, found, broken)))

    def _broken_lines(self, part: Part, names: list[str]) -> list[BadRow]:
        """The lines of a part that have the wrong number of values."""
        numbers = LineNumbers(self.storage_options, patient=self.on_error == "raise")
        found, at = [], 0
        for line in part.data.split(b"\n"):
            values: list[str] = next(iter(self._rows([line.decode("utf-8", "surrogateescape")])), [])
            if line.strip() and len(values) != len(names):
                problem = _wrong_count(len(values), len(names))
                found.append(BadRow(part.path, numbers.of(part, at), part.byte + at, problem, line))
                if self.on_error == "raise":
                    break
            at += len(line) + 1
        return found

    def _broken_rows_error(self, found: list[BadRow], row: Any, file: FileSlice) -> DataError:
        where = found[0] if found else BadRow(file.path, None, None, "")
        problem = f"{_wrong_count(row.actual_columns, row.expected_columns)}: {row.text[:80]}"
        return DataError(problem, path=file.path, line=where.line, byte=where.byte, hint=QUARANTINE_HINT)

    def _as_text(self, table: pa.Table, rows: RowNames, file: FileSlice) -> Iterator[pa.Table | BadRows]:
        """Convert bytes to text and to the requested types; value by value where that fails."""
        types = parse_types(self.name, self.types)
        columns: list[Any] = []
        bad: dict[int, str] = {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            kind = types.get(name, pa.large_string())
            try:
                columns.append(column.cast(pa.large_string()).cast(kind))
            except pa.ArrowInvalid as e:
                values, problems = _cast_each(column, kind)
                columns.append(values)
                for row, problem in problems.items():
                    bad.setdefault(row, f"column {name!r}: {problem}")
                if self.on_error == "raise":
                    byte = _invalid_utf8(byte_stream(file, self.storage_options))
                    numbers = LineNumbers(self.storage_options, patient=True)
                    line = None if byte is None else numbers.of(Part(file.path, byte, b""), 0)
                    raise DataError(bad[min(bad)], path=file.path, line=line, byte=byte, hint=QUARANTINE_HINT) from e
        result = rows.added_to(pa.table(columns, names=table.column_names))
        if bad:
            raw = {row: self.delimiter.encode().join(c[row].as_py() or b"" for c in table.columns) for row in bad}
            yield BadRows(tuple(BadRow(file.path, None, None, bad[row], raw[row]) for row in sorted(bad)))
            result = result.filter(pa.array([row not in bad for row in range(table.num_rows)]))
        yield result


def _wrong_count(values: int, columns: int) -> str:
    return f"the row has {values} values, the header {columns}"


def _matched(path: str, found: list[BadRow], broken: list[Any]) -> Iterator[BadRow]:
    """Arrow's broken rows, with the lines of those that Python's reader found, where both found the same."""
    agree = len(found) == len(broken)
    for i, row in enumerate(broken):
        line, byte = (found[i].line, found[i].byte) if agree else (None, None)
        problem = _wrong_count(row.actual_columns, row.expected_columns)
        yield BadRow(path, line, byte, problem, row.text.encode("utf-8", "surrogateescape"))


def _cast_each(column: Any, kind: pa.DataType) -> tuple[Any, dict[int, str]]:
    """Cast value by value: the array, with null for each value that does not fit, and the reasons."""
    values, problems = [], {}
    for row, value in enumerate(column.to_pylist()):
        try:
            text = None if value is None else value.decode("utf-8")
            values.append(pa.scalar(text, pa.large_string()).cast(kind))
        except UnicodeDecodeError as e:
            problems[row] = f"invalid UTF-8: byte {value[e.start]:#04x}"
            values.append(pa.scalar(None, kind))
        except pa.ArrowInvalid:
            problems[row] = f"{text!r} is not a valid {kind}"
            values.append(pa.scalar(None, kind))
    return pa.array([v.as_py() for v in values], kind), problems


def _invalid_utf8(pieces: Iterable[bytes]) -> int | None:
    """Where a stream stops being UTF-8."""
    decoder, at = codecs.getincrementaldecoder("utf-8")(), 0
    for piece in pieces:
        held = len(decoder.getstate()[0])
        try:
            decoder.decode(piece)
        except UnicodeDecodeError as e:
            return at - held + e.start
        at += len(piece)
    return None


def _blank(start: bytes) -> int:
    """How many bytes of empty lines come first."""
    return len(start) - len(start.lstrip(b"\r\n"))


def _from_header(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """A stream without the byte order mark and the empty lines before its header: Arrow counts them as rows."""
    piece = next(pieces, b"").removeprefix(BOM).lstrip(b"\r\n")
    while not piece and (following := next(pieces, b"")):
        piece = following.lstrip(b"\r\n")
    if piece:
        yield piece
        yield from pieces


def _framed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """A stream without a byte order mark, and with a newline at its end: Arrow refuses a header without one."""
    piece = next(pieces, b"").removeprefix(BOM)
    while piece:
        following = next(pieces, b"")
        yield piece if following or piece.endswith(b"\n") else piece + b"\n"
        piece = following


@dataclass
class CsvReader(Reader):
    """Read CSV files with a header.

    CSV has no types, so every column is text unless ``types`` says otherwise; an empty value is null, a quoted empty
    one is empty text. Empty lines are skipped, except that in a file of a single column each is a null.

    The other arguments are those of every :class:`~tamis.stages.io.readers.Reader`.

    Args:
        blocksize: Bytes of input per task, as a number or as ``"64MiB"``; 32 MiB by default. With line breaks in
            values no row may be larger.
        read_kwargs: Further arguments of ``pyarrow.csv.ParseOptions``.
        file_extensions: Endings to look for in directories; ``.csv`` by default, ``.tsv`` when the delimiter is a tab.
        delimiter: The character between values.
        newlines_in_values: Whether quoted values may contain line breaks. ``False`` allows a large file to be read in
            ranges by several workers.
        types: Arrow types by column, such as ``{"score": "float64"}``.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe_file("/tables/a.csv", b"text,lang\\nhello,en\\n")
    >>> CsvReader("memory://tables").columns()
    ['text', 'lang']
    """

    delimiter: str = ","
    newlines_in_values: bool = True
    types: dict[str, str] | None = None

    parser_arguments: ClassVar[tuple[str, ...]] = _PARSER_ARGUMENTS

    def __post_init__(self) -> None:
        if len(self.delimiter) != 1:
            raise PlanError(f"CsvReader(delimiter={self.delimiter!r}): must be one character")
        if self.file_extensions is None:
            self.file_extensions = [".tsv"] if self.delimiter == "\t" else [".csv"]
        super().__post_init__()
        parse_types("CsvReader", self.types)

    def splittable(self) -> bool:
        return not self.newlines_in_values

    def reader_stage(self) -> CsvReaderStage:
        return CsvReaderStage(
            **self._stage_settings(),
            delimiter=self.delimiter,
            newlines_in_values=self.newlines_in_values,
            types=self.types or {},
            read_kwargs=self._parser_settings(),
        )

    def peek(self, file: FileSlice) -> pa.Schema | None:
        names = self.reader_stage()._header(file, head(file, self._options()))
        types = parse_types(self.name, self.types)
        return pa.schema([(name, types.get(name, pa.large_string())) for name in names]) if names else None
