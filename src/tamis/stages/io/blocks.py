"""Bytes of files, cut into blocks of whole lines: ranges, compressed streams, many small files in one block."""

from __future__ import annotations

import bisect
import io
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tamis.errors import DataError
from tamis.sizes import size_text
from tamis.stages.emit import BadRow, BadRows
from tamis.stages.io.byte_streams import BOM, byte_stream, check_plain
from tamis.stages.io.bytes_read import count_bytes
from tamis.stages.io.paths import compression_of, filesystem, is_local, reading
from tamis.tasks import FileSlice

MAX_ROW_BYTES = 256 * 2**20
"""Largest line or row that is read unless the user asks for more."""

QUARANTINE_HINT = 'on_error="quarantine" sets such rows aside and goes on.'

_LOOK_BYTES = 64 * 1024
"""How much is read at first to find the end of a line; four times as much at each further attempt."""

_MOST_LOOK_BYTES = 16 * 2**20

_COUNTED_BYTES = 256 * 2**20
"""Quarantined rows further into a file than this are located by byte only: counting lines up to each of them would
read the file again and again."""

_SHOWN_BYTES = 1000
"""How much of a line that is too long is kept in the quarantine."""


@dataclass(frozen=True)
class Part:
    """Whole lines of one file: where they start in the (decompressed) file, the lines, and the number of the first of
    them, counted from 1, where it is known.
    """

    path: str
    byte: int
    data: bytes
    line: int | None = None


@dataclass(frozen=True)
class Block:
    """Whole lines that are parsed at once, the parts of files they come from, and where each part starts in them."""

    data: bytes
    parts: list[Part]
    starts: list[int]

    def locate(self, offset: int) -> tuple[Part, int]:
        """The part that a byte of the block is in, and the byte's offset in that part."""
        at = bisect.bisect_right(self.starts, offset) - 1
        return self.parts[at], offset - self.starts[at]


def block_of(parts: list[Part]) -> Block:
    """Put parts together; nothing is copied for a single one."""
    if len(parts) == 1:
        return Block(parts[0].data, parts, [0])
    pieces, starts, at = [], [], 0
    for part in parts:
        starts.append(at)
        pieces.append(part.data)
        at += len(part.data)
        if not part.data.endswith(b"\n"):
            pieces.append(b"\n")
            at += 1
    return Block(b"".join(pieces), parts, starts)


@dataclass(frozen=True)
class LineNumbers:
    """Finds the number of a line, on the error path only; of a line far into the file only if it is ``patient``."""

    storage_options: dict[str, Any]
    patient: bool

    def of(self, part: Part, offset: int) -> int | None:
        """The number of the line that contains byte ``offset`` of the part."""
        first = part.line
        if first is None:
            if part.byte > _COUNTED_BYTES and not self.patient:
                return None
            first, left = 1, part.byte
            for piece in byte_stream(FileSlice(part.path), self.storage_options):
                first += piece.count(b"\n", 0, left)
                left -= len(piece)
                if left <= 0:
                    break
        return first + part.data.count(b"\n", 0, offset)


def too_long(what: str, limit: int, path: str, **place: int | None) -> DataError:
    """The error for a line, row or file that is larger than a reader accepts."""
    return DataError(
        f"the {what} is larger than {size_text(limit)} (max_row_bytes={limit})",
        path=path,
        hint=f'max_row_bytes="{size_text(4 * limit).replace(" ", "")}" of the reader allows more; {QUARANTINE_HINT}',
        **place,
    )


def refused(error: DataError, on_error: str, raw: bytes = b"") -> BadRows:
    """Raise an error, or turn it into an entry for the quarantine, as a reader's ``on_error`` says."""
    if on_error == "raise" or error.transient:
        raise error
    return BadRows((BadRow(error.path, error.line, error.byte, error.problem, raw),))


def line_blocks(
    slices: Iterable[FileSlice],
    block_bytes: int,
    storage_options: dict[str, Any],
    on_error: str,
    max_row_bytes: int = MAX_ROW_BYTES,
) -> Iterator[Block | BadRows]:
    """Blocks of at most about ``block_bytes``, each of whole lines; what cannot be read is raised or yielded."""
    held: list[Part] = []
    held_bytes = 0
    for file in slices:
        try:
            for part in line_parts(file, block_bytes, storage_options, on_error, max_row_bytes):
                if isinstance(part, BadRows):
                    yield part
                    continue
                if held and held_bytes + len(part.data) > block_bytes:
                    yield block_of(held)
                    held, held_bytes = [], 0
                if part.data:
                    held.append(part)
                    held_bytes += len(part.data)
        except DataError as e:
            yield refused(e, on_error)
    if held:
        yield block_of(held)


def line_parts(
    file: FileSlice,
    block_bytes: int,
    storage_options: dict[str, Any],
    on_error: str,
    max_row_bytes: int = MAX_ROW_BYTES,
) -> Iterator[Part | BadRows]:
    """The lines of one file or range, in parts of about ``block_bytes``."""
    compressed = compression_of(file.path) is not None
    size = file.size if file.stop is None else file.stop
    unsized = size < 0 or _hides_its_size(file)
    if compressed or unsized or (not is_local(file.path) and file.is_whole and size > block_bytes):
        yield from _streamed_parts(file, block_bytes, storage_options, on_error, max_row_bytes)
        return
    for start in range(file.start, max(size, file.start + 1), block_bytes):
        stop = min(start + block_bytes, size)
        part, cut_off = _range_part(file, start, stop, storage_options, max_row_bytes)
        yield from _checked(part, on_error, max_row_bytes)
        if cut_off is not None:
            error = too_long("line", max_row_bytes, file.path, line=cut_off.line, byte=cut_off.byte)
            yield refused(error, on_error, cut_off.data)


def _hides_its_size(file: FileSlice) -> bool:
    """Whether a local file reports a size of zero, as those in ``/proc`` do whatever they contain."""
    return file.size == 0 and is_local(file.path) and os.path.exists(file.path) and os.path.getsize(file.path) == 0


def _checked(part: Part, on_error: str, max_row_bytes: int) -> Iterator[Part | BadRows]:
    """A part without the lines that are too long; those are raised or yielded."""
    if len(part.data) <= max_row_bytes:
        yield part
        return
    line = part.line
    for start, stop, fits in _lines_by_length(part.data, max_row_bytes):
        data = part.data[start:stop]
        if fits:
            yield Part(part.path, part.byte + start, data, line)
        else:
            error = too_long("line", max_row_bytes, part.path, line=line, byte=part.byte + start)
            yield refused(error, on_error, data[:_SHOWN_BYTES])
        line = line and line + data.count(b"\n")


def _lines_by_length(data: bytes, limit: int) -> Iterator[tuple[int, int, bool]]:
    """Stretches of lines of at most ``limit`` bytes, and each longer line on its own: start, stop, whether it fits.

    Only about one byte in ``limit`` is looked at.

    >>> list(_lines_by_length(b"ab\\nabcdef\\nc\\n", 3))
    [(0, 3, True), (3, 10, False), (10, 12, True)]
    """
    start = at = 0
    while len(data) - at > limit:
        newline = data.rfind(b"\n", at, at + limit + 1)
        if newline >= 0:
            at = newline + 1
            continue
        if at > start:
            yield start, at, True
        stop = data.find(b"\n", at) + 1 or len(data)
        yield at, stop, False
        start = at = stop
    if start < len(data):
        yield start, len(data), True


def _range_part(
    file: FileSlice, start: int, stop: int, storage_options: dict[str, Any], max_row_bytes: int
) -> tuple[Part, Part | None]:
    """The lines that start in ``[start, stop)``, and the beginning of the last one if its end is too far away."""
    with reading(file.path):
        read, close = _random_reader(file, storage_options)
        try:
            first = start if start == 0 else _after_newline(read, start - 1, stop - 1)
            if first is None or first >= stop:
                return Part(file.path, stop, b""), None
            furthest = min(stop + max_row_bytes, file.size)
            last = file.size if stop >= file.size else _after_newline(read, stop - 1, furthest)
            is_cut_off = last is None and furthest < file.size
            data = read(first, stop if is_cut_off else last or file.size)
            count_bytes(len(data))
        finally:
            close()
    if first == 0:
        check_plain(file.path, data)
    number = 1 if first == 0 else None
    cut_off = None
    if is_cut_off:
        ends = data.rfind(b"\n") + 1
        line = number and number + data.count(b"\n", 0, ends)
        cut_off = Part(file.path, first + ends, data[ends : ends + _SHOWN_BYTES], line)
        data = data[:ends]
    if first == 0 and data.startswith(BOM):
        return Part(file.path, len(BOM), data[len(BOM) :], number), cut_off
    return Part(file.path, first, data, number), cut_off


def _after_newline(read: Callable[[int, int], bytes], byte: int, stop: int) -> int | None:
    """One past the first newline in ``[byte, stop)``; ``None`` when there is none."""
    look = _LOOK_BYTES
    while byte < stop:
        piece = read(byte, min(byte + look, stop))
        found = piece.find(b"\n")
        if found >= 0:
            return byte + found + 1
        if not piece:
            break
        byte += len(piece)
        look = min(look * 4, _MOST_LOOK_BYTES)
    return None


def _random_reader(
    file: FileSlice, storage_options: dict[str, Any]
) -> tuple[Callable[[int, int], bytes], Callable[[], None]]:
    """A function that reads a range of a file, and one that closes it."""
    if not is_local(file.path):
        fs, inner = filesystem(file.path, storage_options)

        def fetch(start: int, stop: int) -> bytes:
            whole = start == 0 and stop >= file.size
            data: bytes = fs.cat_file(inner) if whole else fs.cat_file(inner, start=start, end=stop)
            return data

        return fetch, lambda: None
    handle = io.FileIO(file.path)
    now = os.fstat(handle.fileno()).st_size
    if now != file.size:
        handle.close()
        raise DataError(f"it changed while the run read it: {file.size} bytes when listed, {now} now", path=file.path)

    def read(start: int, stop: int) -> bytes:
        handle.seek(start)
        data = handle.read(stop - start) or b""
        while len(data) < stop - start:
            more = handle.read(stop - start - len(data))
            if not more:
                break
            data += more
        return data

    return read, handle.close


def _streamed_parts(
    file: FileSlice, block_bytes: int, storage_options: dict[str, Any], on_error: str, max_row_bytes: int
) -> Iterator[Part | BadRows]:
    """Cut a stream that can only be read from its start: compressed, or of unknown size."""
    count = on_error == "quarantine"
    byte, line, pieces, held = 0, 1, list[bytes](), 0
    first, skipping = True, False
    broken: DataError | None = None
    stream = byte_stream(file, storage_options)
    while True:
        try:
            piece = next(stream, b"")
        except DataError as e:
            if on_error == "raise" or e.transient:
                raise
            broken, piece = e, b""
        if skipping and piece:  # inside a line that is too long
            newline = piece.find(b"\n") + 1
            byte += newline or len(piece)
            if not newline:
                continue
            line, skipping, piece = line + 1, False, piece[newline:]
            if not piece:
                continue
        pieces.append(piece)
        held += len(piece)
        if piece and (held < block_bytes or b"\n" not in piece) and held <= max_row_bytes:
            continue
        data = b"".join(pieces)
        if first and data.startswith(BOM):
            byte, data = len(BOM), data[len(BOM) :]
        # The rest of a stream that broke off is not a whole line, even if it looks like one.
        ends = len(data) if not piece and broken is None else data.rfind(b"\n") + 1
        for lines in _cut(data[:ends], block_bytes):
            yield from _checked(Part(file.path, byte, lines, line if count or first else None), on_error, max_row_bytes)
            first = False
            byte += len(lines)
            line += lines.count(b"\n") if count else 0
        number = line if count or first else None
        first = False
        pieces, held = [data[ends:]], len(data) - ends
        if held > max_row_bytes:
            error = too_long("line", max_row_bytes, file.path, line=number, byte=byte)
            yield refused(error, on_error, data[ends : ends + _SHOWN_BYTES])
            byte, pieces, held, skipping = byte + held, [], 0, True
        if broken is not None:
            raw = b"" if skipping else data[ends:]
            yield BadRows((BadRow(file.path, line, byte, broken.problem, raw),))
        if not piece:
            return


def _cut(lines: bytes, block_bytes: int) -> Iterator[bytes]:
    """Lines in portions of about a block: a very compressible stream comes in large pieces."""
    start = 0
    while 2 * (len(lines) - start) > 3 * block_bytes:
        stop = lines.rfind(b"\n", start, start + block_bytes) + 1 or lines.find(b"\n", start + block_bytes) + 1
        yield lines[start : stop or len(lines)]
        start = stop or len(lines)
    if start < len(lines):
        yield lines[start:] if start else lines
