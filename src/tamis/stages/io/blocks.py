"""Bytes of files, cut into blocks of whole lines: ranges, compressed streams, many small files in one block."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, cast

from tamis.errors import DataError
from tamis.stages.emit import BadRow, BadRows
from tamis.stages.io.paths import compression_of, filesystem, is_local, open_read, unreadable
from tamis.tasks import FileSlice

__all__ = ["Block", "LineNumbers", "Part", "block_of", "byte_stream", "head", "line_blocks", "line_parts"]

QUARANTINE_HINT = 'on_error="quarantine" sets such rows aside and goes on.'

BOM = b"\xef\xbb\xbf"
_FED_BYTES = 32 * 1024
"""Compressed bytes handed to the decompressor at once: bounds what a very compressible stream can blow up to."""

_LOOK_BYTES = 64 * 1024
"""How far to look for the end of a line in the first go."""

_COUNTED_BYTES = 256 * 2**20
"""Quarantined rows further into a file than this are located by byte only: counting lines up to each of them would
read the file again and again."""


@dataclass(frozen=True)
class Part:
    """Whole lines of one file.

    Args:
        path: The file.
        byte: Where the lines start in the (decompressed) file.
        data: The lines.
        line: Line number of the first of them, counted from 1, where it is known.
    """

    path: str
    byte: int
    data: bytes
    line: int | None = None


@dataclass(frozen=True)
class Block:
    """Whole lines that are parsed at once, possibly of several files.

    Args:
        data: The lines.
        parts: Where they come from.
        starts: Where each part starts in ``data``.
    """

    data: bytes
    parts: list[Part]
    starts: list[int]

    def locate(self, offset: int) -> tuple[Part, int]:
        """The part that a byte of the block is in, and the byte's offset in that part."""
        import bisect

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
    """Finds the number of a line, on the error path only.

    Args:
        storage_options: For the fsspec file system.
        patient: Count however far into the file the line is.
    """

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


def line_blocks(
    slices: Iterable[FileSlice], block_bytes: int, storage_options: dict[str, Any], on_error: str
) -> Iterator[Block | BadRows]:
    """Blocks of at most about ``block_bytes``, each of whole lines; what breaks off is raised or yielded."""
    held: list[Part] = []
    held_bytes = 0
    for file in slices:
        try:
            for part in line_parts(file, block_bytes, storage_options, on_error):
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
            if on_error == "raise":
                raise
            yield BadRows((BadRow(e.path, e.line, e.byte, e.problem),))
    if held:
        yield block_of(held)


def line_parts(
    file: FileSlice, block_bytes: int, storage_options: dict[str, Any], on_error: str
) -> Iterator[Part | BadRows]:
    """The lines of one file or range, in parts of about ``block_bytes``."""
    compressed = compression_of(file.path) is not None
    size = file.size if file.stop is None else file.stop
    unsized = size < 0 or _hides_its_size(file)
    if compressed or unsized or (not is_local(file.path) and file.is_whole and size > block_bytes):
        yield from _streamed_parts(file, block_bytes, storage_options, on_error)
        return
    for start in range(file.start, max(size, file.start + 1), block_bytes):
        stop = min(start + block_bytes, size)
        yield _range_part(file, start, stop, storage_options)


def _hides_its_size(file: FileSlice) -> bool:
    """Whether a local file says that it is empty, as those in ``/proc`` do whatever is in them."""
    return file.size == 0 and is_local(file.path) and os.path.exists(file.path) and os.path.getsize(file.path) == 0


def _range_part(file: FileSlice, start: int, stop: int, storage_options: dict[str, Any]) -> Part:
    """The lines that start in ``[start, stop)``, read with one exact read."""
    try:
        read, close = _random_reader(file, storage_options)
        try:
            first = start if start == 0 else _line_start(read, start - 1, file.size)
            last = file.size if stop >= file.size else _line_start(read, stop - 1, file.size)
            data = read(first, last) if first < stop else b""
        finally:
            close()
    except (FileNotFoundError, PermissionError, IsADirectoryError) as e:
        raise unreadable(file.path, e) from e
    if first == 0 and data.startswith(BOM):
        return Part(file.path, len(BOM), data[len(BOM) :], 1)
    return Part(file.path, first, data, 1 if first == 0 else None)


def _line_start(read: Callable[[int, int], bytes], byte: int, size: int) -> int:
    """One past the first newline at or after ``byte``; the end of the file when there is none."""
    look = _LOOK_BYTES
    while byte < size:
        piece = read(byte, min(byte + look, size))
        found = piece.find(b"\n")
        if found >= 0:
            return byte + found + 1
        if not piece:
            break
        byte += len(piece)
        look *= 4
    return size


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
    file: FileSlice, block_bytes: int, storage_options: dict[str, Any], on_error: str
) -> Iterator[Part | BadRows]:
    """Cut a stream that can only be read from its start: compressed, or of unknown size."""
    count = on_error == "quarantine"
    byte, line, pieces, held = 0, 1, [], 0
    first, broken = True, None
    stream = byte_stream(file, storage_options)
    while True:
        try:
            piece = next(stream, b"")
        except DataError as e:
            if on_error == "raise":
                raise
            broken, piece = e, b""
        pieces.append(piece)
        held += len(piece)
        if piece and (held < block_bytes or b"\n" not in piece):
            continue
        data = b"".join(pieces)
        if first and data.startswith(BOM):
            byte, data = len(BOM), data[len(BOM) :]
        # The rest of a stream that broke off is no whole line, even if it looks like one.
        ends = len(data) if not piece and broken is None else data.rfind(b"\n") + 1
        for lines in _cut(data[:ends], block_bytes):
            yield Part(file.path, byte, lines, line if count or first else None)
            first = False
            byte += len(lines)
            line += lines.count(b"\n") if count else 0
        first = False
        pieces, held = [data[ends:]], len(data) - ends
        if broken is not None:
            yield BadRows((BadRow(file.path, line, byte, broken.problem, data[ends:]),))
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


class _Decompressor(Protocol):
    """What zlib, bz2, lzma and both zstd modules have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _new_decompressor(kind: str) -> _Decompressor:
    if kind == "gzip":
        return zlib.decompressobj(wbits=31)
    if kind == "bzip2":
        import bz2

        return bz2.BZ2Decompressor()
    if kind == "xz":
        import lzma

        return lzma.LZMADecompressor()
    try:
        import zstandard
    except ImportError:  # in the standard library from Python 3.14 on
        from compression import zstd  # type: ignore[import-not-found]  # not there in older versions

        return cast("_Decompressor", zstd.ZstdDecompressor())
    return cast("_Decompressor", zstandard.ZstdDecompressor().decompressobj())


def byte_stream(file: FileSlice, storage_options: dict[str, Any]) -> Iterator[bytes]:
    """The (decompressed) bytes of a whole file, in non-empty pieces.

    Several compressed streams in one file, one after the other, are one file. A stream that ends early or is damaged
    is a :class:`DataError`, raised after everything before it was yielded.
    """
    kind = compression_of(file.path)
    with open_read(file.path, storage_options) as handle:
        if kind is None:
            while piece := handle.read(2**20):
                yield piece
        else:
            yield from _decompressed(file.path, kind, handle)


def _decompressed(path: str, kind: str, handle: BinaryIO) -> Iterator[bytes]:
    stream, began, done, out = _new_decompressor(kind), False, 0, 0
    while fed := handle.read(_FED_BYTES):
        while fed:
            if stream.eof:
                # gzip files may be padded with zeros; anything else behind a stream must be another one.
                fed = fed.lstrip(b"\0") if kind == "gzip" else fed
                if not fed:
                    break
                stream, began = _new_decompressor(kind), False
            try:
                piece = stream.decompress(fed)
            except Exception as e:
                if isinstance(e, MemoryError):
                    raise
                raise DataError(
                    f"the {kind} stream is damaged near byte {done} of the compressed file: {e}",
                    path=path,
                    byte=out,
                    hint='on_error="quarantine" keeps what comes before.',
                ) from e
            began = True
            rest = stream.unused_data if stream.eof else b""
            done += len(fed) - len(rest)
            out += len(piece)
            fed = rest
            if piece:
                yield piece
    if began and not stream.eof:
        raise DataError(
            f"the {kind} stream ends early, after {done} compressed bytes: the file is cut off",
            path=path,
            byte=out,
            hint='on_error="quarantine" keeps what comes before.',
        )


def head(file: FileSlice, storage_options: dict[str, Any], at_most: int = 2**20) -> bytes:
    """The first bytes of a file, decompressed, without a byte order mark; as far as they can be read."""
    pieces: list[bytes] = []
    try:
        for piece in byte_stream(file, storage_options):
            pieces.append(piece)
            if sum(map(len, pieces)) >= at_most:
                break
    except DataError:
        if not pieces:
            raise
    return b"".join(pieces)[:at_most].removeprefix(BOM)


def whole_lines(path: str, pieces: Iterator[bytes], broken: list[BadRow]) -> Iterator[bytes]:
    """A stream up to where it breaks off: that is noted in ``broken``, with the unfinished last line."""
    rest, byte = b"", 0
    while True:
        try:
            piece = next(pieces, b"")
        except DataError as e:
            broken.append(BadRow(path, None, byte, e.problem, rest))
            return
        ends = piece.rfind(b"\n") + 1 if piece else 0
        if ends or not piece:
            byte += len(rest) + ends
            yield rest + piece[:ends]
            rest = b""
        if not piece:
            return
        rest += piece[ends:]


class StreamFile(io.RawIOBase):
    """Pieces of bytes as a file that can be read once, from start to end."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        if not self._rest:
            self._rest = next(self._pieces, b"")
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
