"""Read plain text: a row per file, per line or per paragraph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.arrays import text_scalar
from tamis.errors import DataError, PlanError
from tamis.kernels.lines import line_starts
from tamis.stages.emit import BadRow, BadRows
from tamis.stages.io.arguments import check_choice
from tamis.stages.io.blocks import QUARANTINE_HINT, LineNumbers, Part, line_parts, too_long
from tamis.stages.io.byte_streams import BOM, byte_stream
from tamis.stages.io.positions import all_line_starts, names_in_part
from tamis.stages.io.readers import Reader, TableReaderStage
from tamis.tasks import FileSlice

__all__ = ["TextReader", "TextReaderStage"]

_UNITS = ("file", "line", "paragraph")
_BLANK_LINES = r"\n(?:[ \t]*\n)+"


@dataclass
class TextReaderStage(TableReaderStage):
    """Read the text files of a task.

    Args:
        unit: What a row is: ``"file"``, ``"line"`` or ``"paragraph"``.
        text_field: Name of the column.

    >>> import fsspec
    >>> from tamis.tasks import FileGroup
    >>> fsspec.filesystem("memory").pipe_file("/text/a.txt", b"one\\ntwo\\n\\nthree\\n")
    >>> for unit in ("file", "line", "paragraph"):
    ...     [batch] = TextReaderStage(unit=unit).process(FileGroup(["memory://text/a.txt"]))
    ...     batch.data["text"].to_pylist()
    ['one\\ntwo\\n\\nthree\\n']
    ['one', 'two', '', 'three']
    ['one\\ntwo', 'three']
    """

    unit: str = "file"
    text_field: str = "text"

    def known_columns(self) -> list[str] | None:
        return [self.text_field, *([self.include_path] if self.include_path else [])]

    def read_file(self, file: FileSlice) -> Iterator[pa.Table | BadRows]:
        for part in self._parts(file):
            if isinstance(part, BadRows):
                yield part
                continue
            if not part.data and self.unit != "file":
                continue
            try:
                texts = self._split(_as_text(part.data, without_last=self.unit == "line"))
                starts = self._starts(part.data)
            except pa.ArrowInvalid:
                texts, starts, bad = self._split_slowly(part)
                yield bad
            yield names_in_part(part, starts).added_to(pa.table([texts], names=[self.text_field]))

    def _starts(self, data: bytes) -> NDArray[np.int64]:
        """Where each unit starts."""
        if self.unit == "file":
            return np.zeros(1, np.int64)
        starts = all_line_starts(data)
        if self.unit == "line":
            return starts
        is_filled = np.isin(starts, line_starts(data))
        begins: NDArray[np.int64] = starts[is_filled & ~np.concatenate([[False], is_filled[:-1]])]
        return begins

    def _parts(self, file: FileSlice) -> Iterator[Part | BadRows]:
        """Whole units, as many as make about a block."""
        if self.unit == "line":
            yield from self._line_parts(file)
        elif self.unit == "file":
            data = self._whole(file)
            bare = data.removeprefix(BOM)
            yield Part(file.path, len(data) - len(bare), bare, 1)
        else:
            yield from self._paragraph_parts(file)

    def _line_parts(self, file: FileSlice) -> Iterator[Part | BadRows]:
        return line_parts(file, self.block_bytes, self.storage_options, self.on_error, self.max_row_bytes)

    def _whole(self, file: FileSlice) -> bytes:
        pieces, held = [], 0
        for piece in byte_stream(file, self.storage_options):
            pieces.append(piece)
            held += len(piece)
            if held > self.max_row_bytes:
                raise too_long("text of this file", self.max_row_bytes, file.path)
        return b"".join(pieces)

    def _paragraph_parts(self, file: FileSlice) -> Iterator[Part | BadRows]:
        rest = Part(file.path, 0, b"", 1)
        for part in self._line_parts(file):
            if isinstance(part, BadRows):
                yield part
                continue
            if not rest.data:
                rest = part
            else:
                rest = Part(file.path, rest.byte, rest.data + part.data, rest.line)
            ends = max(rest.data.rfind(b"\n\n") + 2, rest.data.rfind(b"\n\r\n") + 3)
            if ends > 2:
                yield Part(file.path, rest.byte, rest.data[:ends], rest.line)
                rest = Part(file.path, rest.byte + ends, rest.data[ends:])
            if len(rest.data) > self.max_row_bytes:
                raise too_long("paragraph", self.max_row_bytes, file.path, line=rest.line, byte=rest.byte)
        if rest.data:
            yield rest

    def _split(self, text: pa.Array) -> pa.Array:
        """The units of a text, which is an array of one value."""
        import pyarrow.compute as pc

        if self.unit == "file":
            return text
        if self.unit == "line":
            return pc.split_pattern(text, "\n").flatten()
        edge = text_scalar("")
        framed = pc.binary_join_element_wise(edge, text, edge, text_scalar("\n"))
        paragraphs = pc.utf8_trim(pc.split_pattern_regex(framed, _BLANK_LINES).flatten(), "\n")
        return paragraphs.filter(pc.greater(pc.binary_length(paragraphs), 0))

    def _split_slowly(self, part: Part) -> tuple[pa.Array, NDArray[np.int64], BadRows]:
        """Unit by unit, where one of them is not valid UTF-8."""
        good: list[bytes] = []
        starts: list[int] = []
        bad: list[BadRow] = []
        numbers = LineNumbers(self.storage_options, patient=self.on_error == "raise")
        for start, unit in self._units(part.data):
            try:
                unit.decode("utf-8")
                good.append(unit.replace(b"\r\n", b"\n").removesuffix(b"\r"))
                starts.append(start)
            except UnicodeDecodeError as e:
                at = start + e.start
                problem = f"invalid UTF-8: byte {unit[e.start]:#04x}"
                line = numbers.of(part, at)
                if self.on_error == "raise":
                    raise DataError(
                        problem, path=part.path, line=line, byte=part.byte + at, hint=QUARANTINE_HINT
                    ) from None
                bad.append(BadRow(part.path, line, part.byte + at, problem, unit))
        texts = pa.array(good, pa.large_binary()).cast(pa.large_string())
        return texts, np.array(starts, np.int64), BadRows(tuple(bad))

    def _units(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Each unit of some bytes, with its offset."""
        if self.unit == "file":
            yield 0, data
            return
        pattern = rb"[^\n]*(?:\n|\Z)" if self.unit == "line" else rb"(?:[^\n]*[^ \t\r\n][^\n]*(?:\n|\Z))+"
        for found in re.finditer(pattern, data):
            if found.start() < len(data):
                yield found.start(), found[0].removesuffix(b"\n")


def _as_text(data: bytes, without_last: bool) -> pa.Array:
    """Bytes as an array of one text, checked, with ``\\n`` as line end (the last one left out if asked); no copy."""
    if b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
    offsets = np.array([0, len(data) - (without_last and data.endswith(b"\n"))], dtype=np.int64)
    whole = pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return whole.cast(pa.large_string())


@dataclass
class TextReader(Reader):
    """Read text files: a row per file, per line or per paragraph, in the column ``text``.

    Line ends become ``\\n``. A line is a row even if it is empty; a paragraph ends at a blank line.

    The other arguments are those of every :class:`~tamis.stages.io.readers.Reader`.

    Args:
        fields: Not used: there is one column.
        read_kwargs: Not used.
        file_extensions: Endings to look for in directories; ``.txt`` and ``.md`` by default.
        unit: What a row is: ``"file"``, ``"line"`` or ``"paragraph"``.
        text_field: Name of the column.

    >>> TextReader("notes", include_path="path").columns()
    ['text', 'path']
    """

    unit: str = "file"
    text_field: str = "text"

    extensions: ClassVar[tuple[str, ...]] = (".txt", ".md")

    def __post_init__(self) -> None:
        check_choice("TextReader", "unit", self.unit, _UNITS)
        if self.fields is not None and list(self.fields) != [self.text_field]:
            raise PlanError(f"TextReader(fields={self.fields!r}): text files have one column, {self.text_field!r}")
        super().__post_init__()

    def splittable(self) -> bool:
        return self.unit == "line"

    def reader_stage(self) -> TextReaderStage:
        return TextReaderStage(**self._stage_settings(), unit=self.unit, text_field=self.text_field)
