"""The members of a tar file, found by its headers; what is damaged is skipped and reported."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from tamis.stages.io.byte_streams import StreamFile, byte_stream
from tamis.stages.io.bytes_read import count_bytes
from tamis.stages.io.paths import compression_of, open_read, reading
from tamis.tasks import FileSlice

__all__ = ["Damage", "Member", "TarSource", "key_of", "members"]

_BLOCK = 512
_ZEROS = bytes(_BLOCK)
_NUL = b"\0"
_READ_BYTES = 2**20
_FILES = frozenset({b"0", b"\0", b"7"})
_HARD_LINK, _LINK, _SPARSE = b"1", b"2", b"S"
_SPARSE_CONTINUES, _SPARSE_CONTINUES_AGAIN = 482, 504
"""Where the header of a sparse file, and each block that continues it, says that another block does."""

_LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL = b"L", b"K", b"x", b"g"
_MOST_NAME_BYTES = 2**20
"""A longer name, or extended header, is taken for a damaged one."""

_KEY = re.compile(r"((?:.*/)?[^./][^./]*)\.([^/]+)", re.DOTALL)


def key_of(name: str) -> tuple[str, str] | None:
    """The key of a sample and what its member is, as WebDataset defines them: cut at the first dot of the base name.

    >>> key_of("a/0001.left.JPG"), key_of("a/.hidden"), key_of("README")
    (('a/0001', 'left.jpg'), None, None)
    """
    found = _KEY.fullmatch(name)
    return (found[1], found[2].lower()) if found else None


@dataclass(frozen=True)
class Member:
    """A file in a tar.

    Args:
        name: Its name.
        start: Where its header begins: that of its extended header, if it has one.
        data: Where its bytes begin.
        size: How many there are.
        problem: Why they cannot be read: the file is a link, or stored in a way that is not supported.
    """

    name: str
    start: int
    data: int
    size: int
    problem: str = ""

    @property
    def end(self) -> int:
        """Where the next header begins."""
        return self.data + -(-self.size // _BLOCK) * _BLOCK


@dataclass(frozen=True)
class Damage:
    """A part of a tar that cannot be read: from which byte to which, and why."""

    start: int
    stop: int
    problem: str


class TarSource:
    """The (decompressed) bytes of a tar, read from start to end. Use it as a context manager.

    Args:
        file: The file, or the range of it to read, which begins with a header.
        storage_options: For the fsspec file system.
        seeks: Whether most of it is skipped, so that nothing should be read in advance.
    """

    def __init__(self, file: FileSlice, storage_options: dict[str, Any], seeks: bool = False) -> None:
        self.path, self.at = file.path, 0
        self._skips = compression_of(file.path) is None
        self._opened: BinaryIO | None = None
        with reading(file.path):
            if self._skips:
                handle = self._opened = open_read(file.path, storage_options)
                is_raw = isinstance(handle, io.RawIOBase) and not seeks
                self._file: Any = io.BufferedReader(handle, _READ_BYTES) if is_raw else handle
                self.at = file.start
                self._file.seek(file.start)
            else:
                self._file = io.BufferedReader(StreamFile(byte_stream(file, storage_options)), _READ_BYTES)

    def __enter__(self) -> TarSource:
        return self

    def __exit__(self, *error: object) -> None:
        if self._opened is not None:
            self._opened.close()

    def take(self, size: int) -> bytes:
        """The next bytes; fewer at the end of the file."""
        pieces: list[bytes] = []
        with reading(self.path):
            while size > 0 and (piece := self._file.read(size)):
                pieces.append(piece)
                size -= len(piece)
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.at += len(data)
        if self._skips:
            count_bytes(len(data))
        return data

    def go_to(self, at: int) -> None:
        """Continue at a later byte."""
        if self._skips:
            with reading(self.path):
                self._file.seek(at)
            self.at = at
            return
        while self.at < at and self.take(min(at - self.at, _READ_BYTES)):
            pass


def members(source: TarSource, stop: int | None = None, size: int = -1) -> Iterator[Member | Damage]:
    """The files of a tar whose headers begin before a byte. The source is then where the bytes of the file begin.

    Whoever takes them may read from there, and nothing else has to be done before the next one is asked for. After a
    damaged header the next one is looked for, so that what follows it is not lost.

    Args:
        source: Where the first header begins.
        stop: Where to stop; the end of the file when not given.
        size: The size of the file, -1 if it is not known.
    """
    start = at = source.at
    name: str | None = None
    real_size: int | None = None
    ended = is_sparse = False
    while stop is None or at < stop:
        source.go_to(at)
        header = source.take(_BLOCK)
        if len(header) < _BLOCK:
            if header.strip(b"\0") or name is not None:
                yield Damage(start, at + len(header), "the tar is cut off in a header")
            elif not ended and stop is None:
                yield Damage(at, at + len(header), "the tar is cut off: the zeros that end it are missing")
            return
        if header == _ZEROS:  # the end, unless another tar was appended
            ended, at = True, at + _BLOCK
            start = at
            continue
        ended = False
        problem = _problem_of(header)
        if problem:
            found = _next_header(source, at + _BLOCK)
            yield Damage(start, found, problem)
            start, at, name, real_size, is_sparse = found, found, None, None, False
            ended = True  # whatever is wrong there was said
            continue
        kind, length = header[156:157], _number(header[124:136])
        data = at + _BLOCK
        if kind in (_LONG_NAME, _PAX, _PAX_GLOBAL, _LONG_LINK):
            extended = source.take(length) if length <= _MOST_NAME_BYTES else b""
            if len(extended) < length:
                yield Damage(start, source.at, "an extended header is cut off or has an impossible size")
                return
            if kind == _LONG_NAME:
                name = _text(extended.rstrip(b"\0"))
            elif kind == _PAX:
                fields = _pax(extended)
                name = fields.get("GNU.sparse.name", fields.get("path", name))
                is_sparse = any(field.startswith("GNU.sparse.") for field in fields)
                real_size = int(fields["size"]) if fields.get("size", "").isdigit() else real_size
            at = data + -(-length // _BLOCK) * _BLOCK
            continue
        length = real_size if real_size is not None else length
        if kind == _SPARSE:
            data = _end_of_sparse_header(source, header, data)
        problem = ""
        if kind == _SPARSE or is_sparse:
            problem = "it is stored as a sparse file, which is not supported"
        elif kind in (_HARD_LINK, _LINK):
            problem = f"it is a link to {_text(header[157:257].partition(_NUL)[0])!r}, and links are not followed"
        member = Member(name if name is not None else _name(header), start, data, length, problem)
        name, real_size, is_sparse = None, None, False
        if 0 <= size < data + length:
            yield Damage(member.start, size, f"the tar is cut off in the file {member.name!r}")
            return
        if (kind in _FILES or problem) and not member.name.endswith("/"):
            yield member
        start = at = member.end


def _end_of_sparse_header(source: TarSource, header: bytes, at: int) -> int:
    """Where the bytes of a sparse file of GNU's format begin: after the blocks that continue its header."""
    continues = header[_SPARSE_CONTINUES]
    while continues:
        block = source.take(_BLOCK)
        at += len(block)
        continues = len(block) == _BLOCK and block[_SPARSE_CONTINUES_AGAIN]
    return at


def _next_header(source: TarSource, at: int) -> int:
    """Where the next block is that is a header, or the end of the file."""
    source.go_to(at)
    for number in itertools.count():
        block = source.take(_BLOCK)
        if len(block) < _BLOCK:
            return at + number * _BLOCK + len(block)
        if block[257:262] == b"ustar" and not _problem_of(block):
            return at + number * _BLOCK
    raise AssertionError


def _problem_of(header: bytes) -> str:
    """What is wrong with a header; empty if nothing is."""
    try:
        wanted = _number(header[148:156])
        length = _number(header[124:136])
    except ValueError:
        return "this is not a header of a tar"
    total = sum(header) - sum(header[148:156]) + 8 * 32
    if total != wanted:
        return f"the header of a file is damaged: its checksum is {total}, and it says {wanted}"
    return "the header of a file has an impossible size" if length < 0 else ""


def _number(field: bytes) -> int:
    if field[:1] in (b"\x80", b"\xff"):
        return int.from_bytes(field[1:], "big") if field[:1] == b"\x80" else -1
    digits = field.strip(b"\0 ")
    return int(digits, 8) if digits else 0


def _name(header: bytes) -> str:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return _text(prefix + b"/" + name if prefix else name)


def _text(name: bytes) -> str:
    """A name as text. Bytes that are not UTF-8 become ``\\xe9``, so that different names stay different."""
    return name.decode("utf-8", "backslashreplace")


def _pax(data: bytes) -> dict[str, str]:
    """The fields of an extended header: ``length key=value`` each."""
    fields = {}
    while data:
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or not 0 < int(length) <= len(data):
            break
        record, data = data[: int(length)], data[int(length) :]
        key, _, value = record[len(length) + 1 : -1].partition(b"=")
        fields[_text(key)] = _text(value)
    return fields
