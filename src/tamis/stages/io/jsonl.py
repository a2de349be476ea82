"""Read JSON lines: plain or compressed, whole files or ranges of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from tamis.errors import DataError
from tamis.stages.emit import BadRow, BadRows
from tamis.stages.io.arguments import parse_types
from tamis.stages.io.blocks import QUARANTINE_HINT, Block, LineNumbers, block_of, head, line_blocks
from tamis.stages.io.json_lines import BrokenLine, common_keys, parse_json_lines
from tamis.stages.io.readers import Reader, ReaderStage
from tamis.tasks import FileSlice

__all__ = ["JsonlReader", "JsonlReaderStage"]

_EXCERPT = 80


@dataclass
class JsonlReaderStage(ReaderStage):
    """Read the JSON lines of a task.

    Args:
        types: Arrow types by column, where they are not to be found out.

    >>> import fsspec
    >>> from tamis.tasks import FileGroup
    >>> fsspec.filesystem("memory").pipe_file("/jsonl/a.jsonl", b'{"text": "a"}\\n{"text": "b", "n": 1}\\n')
    >>> [batch] = JsonlReaderStage().process(FileGroup(["memory://jsonl/a.jsonl"]))
    >>> batch.data.to_pylist()
    [{'text': 'a', 'n': None}, {'text': 'b', 'n': 1}]
    """

    types: dict[str, str] = field(default_factory=dict)

    def tables(self, slices: Sequence[FileSlice]) -> Iterator[pa.Table | BadRows]:
        types = parse_types(self.name, self.types)
        for block in line_blocks(slices, self.block_bytes, self.storage_options, self.on_error):
            if isinstance(block, BadRows):
                yield block
                continue
            for table, broken in self._parse(block):
                yield _cast(table, types, block)
                if broken:
                    yield BadRows(tuple(broken))

    def _parse(self, block: Block) -> Iterator[tuple[pa.Table, list[BadRow]]]:
        table, broken = parse_json_lines(block.data, self.fields)
        if broken and self.on_error == "raise":
            raise self._error(block, broken[0])
        bad = [self._bad_row(block, line) for line in broken]
        if self.include_path is None:
            yield table, bad
            return
        rows = [(p.path, p.data.count(b"\n") + (not p.data.endswith(b"\n"))) for p in block.parts]
        if len(block.parts) > 1 and sum(n for _, n in rows) != table.num_rows:
            # Blank or broken lines: which file a row is from is only known file by file.
            for part in block.parts:
                yield from self._parse(block_of([part]))
            return
        if len(block.parts) == 1:
            rows = [(block.parts[0].path, table.num_rows)]
        yield self.with_path(table, rows), bad

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


def _cast(table: pa.Table, types: dict[str, pa.DataType], block: Block) -> pa.Table:
    """Give columns the types that were asked for; one that is not there becomes a null column."""
    for name, kind in types.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(table.num_rows, kind))
            continue
        at = table.column_names.index(name)
        try:
            table = table.set_column(at, name, table.column(at).cast(kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
            raise DataError(f"column {name!r} cannot be read as {kind}: {e}", path=block.parts[0].path) from e
    return table


@dataclass
class JsonlReader(Reader):
    """Read JSON lines: one object per line, plain or compressed (``.gz``, ``.zst``, ``.bz2``, ``.xz``).

    Large uncompressed files are read in ranges by several workers, small ones are put together. Nothing is lost or
    changed on the way: a column whose values differ in kind (numbers here, text there) becomes text, in which a
    value that was no string is its JSON; integers and floats together become floats. A key that occurs twice in one
    object, half a surrogate pair and a line that is no object are errors. ``NaN`` and ``Infinity``, which Python
    writes, are read as floats.

    Args:
        file_paths: A file, a directory (with all below it), a pattern such as ``"data/**/*.jsonl"``, or any fsspec
            address (``s3://``, ``gs://``, ``https://``, ...); or a list of those.
        files_per_partition: Whole files per task, instead of ``blocksize``.
        blocksize: Bytes of input per task, as a number or as ``"64MiB"``; 32 MiB by default.
        fields: Keys to read; all of them when not given. A key that a block does not have is a null column.
        read_kwargs: Only there for scripts written for NeMo Curator; ``storage_options`` in it is used.
        file_extensions: Endings to look for in directories; ``.jsonl``, ``.ndjson`` and ``.json`` by default.
        storage_options: For the fsspec file system.
        on_error: ``"raise"`` stops at a line that cannot be read, ``"quarantine"`` sets it aside and goes on.
        include_path: Name of a column that gets the path of each row's file; none when not given.
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

    def peek(self, file: FileSlice) -> list[str] | None:
        data = head(file, self._options())
        names = common_keys(data[: data.rfind(b"\n") + 1] or data)
        return names and [*names, *(name for name in self.types or {} if name not in names)]
