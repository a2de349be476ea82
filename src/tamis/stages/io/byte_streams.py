"""The bytes of a file as a stream of pieces: decompressed, and never more than a bounded amount at once."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, Protocol, cast

from tamis.errors import DataError
from tamis.stages.emit import BadRow
from tamis.stages.io.bytes_read import count_bytes
from tamis.stages.io.paths import COMPRESSED, compression_of, open_read, reading
from tamis.tasks import FileSlice

__all__ = ["BOM", "StreamFile", "byte_stream", "check_plain", "head", "whole_lines"]

BOM = b"\xef\xbb\xbf"

_PIECE_BYTES = 2**20
_FED_BYTES = {"gzip": 32 * 1024, "zstd": 1024}
"""Compressed bytes handed to a decompressor at once where it cannot be told how much to return: a gzip stream grows by
a factor of 1,032 at most, a zstd stream by about 32,800, so that neither returns more than 34 MB."""

_XZ_MEMORY_BYTES = 256 * 2**20
"""Memory that an xz stream may ask for; ``xz -9`` asks for 65 MiB."""

_FIRST_BYTES = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd", "xz": b"\xfd7zXZ\x00", "bzip2": b"BZh"}
"""How compressed files begin. Only bzip2 begins with valid UTF-8."""

_ENDINGS = {kind: ending for ending, kind in COMPRESSED.items()}


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

        return lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES)
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
    with open_read(file.path, storage_options) as handle, reading(file.path):
        if kind is not None:
            yield from _decompressed(file.path, kind, handle)
            return
        first = True
        while piece := handle.read(_PIECE_BYTES):
            count_bytes(len(piece))
            if first:
                check_plain(file.path, piece)
            first = False
            yield piece


def check_plain(path: str, start: bytes) -> None:
    """Refuse a compressed file whose name does not say so."""
    for kind, magic in _FIRST_BYTES.items():
        if start.startswith(magic) and (kind != "bzip2" or start[4:10] == b"1AY&SY"):
            ending = _ENDINGS[kind]
            raise DataError(
                f"this is a {kind} file, but its name does not end in {ending}",
                path=path,
                hint=f"Rename it so that it ends in {ending}: it is then decompressed while it is read.",
            )


def _decompressed(path: str, kind: str, handle: BinaryIO) -> Iterator[bytes]:
    buffered = io.BufferedReader(handle, _PIECE_BYTES) if isinstance(handle, io.RawIOBase) else handle
    stream, began, done, out = _new_decompressor(kind), False, 0, 0
    while fed := buffered.read(_FED_BYTES.get(kind, _PIECE_BYTES)):
        count_bytes(len(fed))
        while fed:
            if stream.eof:
                # gzip files may be padded with zeros; anything else after a stream must be another one.
                fed = fed.lstrip(b"\0") if kind == "gzip" else fed
                if not fed:
                    break
                stream, began = _new_decompressor(kind), False
            try:
                for piece in _bounded(stream, fed):
                    out += len(piece)
                    yield piece
            except _errors(kind) as e:
                problem = f"the {kind} stream is damaged near byte {done} of the compressed file: {e}"
                if not done and not fed.startswith(_FIRST_BYTES[kind]):
                    problem = f"this is not a {kind} file, although its name ends in {_ENDINGS[kind]}"
                hint = 'on_error="quarantine" keeps what comes before.'
                raise DataError(problem, path=path, byte=out, hint=hint) from e
            began = True
            rest = stream.unused_data if stream.eof else b""
            done += len(fed) - len(rest)
            fed = rest
    if began and not stream.eof:
        raise DataError(
            f"the {kind} stream ends early, after {done} compressed bytes: the file is cut off",
            path=path,
            byte=out,
            hint='on_error="quarantine" keeps what comes before.',
        )


def _bounded(stream: Any, fed: bytes) -> Iterator[bytes]:
    """What a decompressor makes of some bytes, in non-empty pieces of bounded size."""
    if not hasattr(stream, "needs_input"):  # bounded by what it is fed
        if piece := stream.decompress(fed):
            yield piece
        return
    if piece := stream.decompress(fed, _PIECE_BYTES):
        yield piece
    while not stream.eof and not stream.needs_input:
        if piece := stream.decompress(b"", _PIECE_BYTES):
            yield piece


def _errors(kind: str) -> tuple[type[Exception], ...]:
    """What a decompressor raises for a damaged stream."""
    usual = (OSError, EOFError, ValueError, zlib.error)
    if kind == "xz":
        import lzma

        return (*usual, lzma.LZMAError)
    if kind == "zstd":
        try:
            import zstandard
        except ImportError:
            from compression import zstd

            return (*usual, zstd.ZstdError)
        return (*usual, zstandard.ZstdError)
    return usual


def head(file: FileSlice, storage_options: dict[str, Any], at_most: int = 2**20) -> bytes:
    """The first bytes of a file, decompressed, without a byte order mark; as far as they can be read."""
    pieces: list[bytes] = []
    try:
        for piece in byte_stream(file, storage_options):
            pieces.append(piece)
            if sum(map(len, pieces)) >= at_most:
                break
    except DataError as e:
        if not pieces or e.transient:
            raise
    return b"".join(pieces)[:at_most].removeprefix(BOM)


def whole_lines(path: str, pieces: Iterator[bytes], broken: list[BadRow], max_row_bytes: int) -> Iterator[bytes]:
    """A stream up to where it breaks off: that is noted in ``broken``, with the unfinished last line.

    A line of more than ``max_row_bytes`` also ends it: without lines of bounded length there is nothing to hold on to.
    """
    rest: list[bytes] = []
    held, byte = 0, 0
    while True:
        try:
            piece = next(pieces, b"")
        except DataError as e:
            if e.transient:
                raise
            broken.append(BadRow(path, None, byte, e.problem, b"".join(rest)))
            return
        ends = piece.rfind(b"\n") + 1 if piece else 0
        if ends or not piece:
            byte += held + ends
            yield b"".join([*rest, piece[:ends]])
            rest, held = [], 0
        if not piece:
            return
        rest.append(piece[ends:])
        held += len(piece) - ends
        if held > max_row_bytes:
            problem = f"a line is longer than {max_row_bytes} bytes (max_row_bytes); the rest of the file is left out"
            broken.append(BadRow(path, None, byte, problem, b"".join(rest)[:1000]))
            return


class StreamFile(io.RawIOBase):
    """Pieces of bytes as a file that can be read once, from start to end."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        if not self._rest:
            self._rest = memoryview(next(self._pieces, b""))
        count = min(len(target), len(self._rest))
        target[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
