"""Where files are: local paths and fsspec addresses, sizes in words, and the one rename that makes a file output."""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from tamis.errors import DataError, MissingExtraError, PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fsspec import AbstractFileSystem

    from tamis.stages.emit import Publish

__all__ = ["publish"]

COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz"}
"""File name endings that mean a compressed stream, and what to call it."""

_EXTRAS = {
    "http": ("aiohttp", "http"),
    "https": ("aiohttp", "http"),
    "s3": ("s3fs", "s3"),
    "s3a": ("s3fs", "s3"),
    "gs": ("gcsfs", "gcs"),
    "gcs": ("gcsfs", "gcs"),
}
_OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "r2", "hf", "http", "https"}
)


def protocol(path: str) -> str:
    """The fsspec protocol of an address; ``"file"`` for a local path.

    >>> protocol("s3://bucket/a"), protocol("data/a")
    ('s3', 'file')
    """
    scheme, found, _ = path.partition("://")
    return scheme.rpartition("::")[2] if found else "file"


def is_local(path: str) -> bool:
    """Whether the path is one of this machine's file system."""
    return protocol(path) in ("file", "local")


def absolute(path: str | os.PathLike[str]) -> str:
    """A local path in full, so that it means the same to every worker; an fsspec address as it is.

    >>> absolute("memory://data/")
    'memory://data'
    """
    text = os.fspath(path)
    if not is_local(text):
        return text.rstrip("/") if protocol(text) not in ("http", "https") else text
    return os.path.abspath(os.path.expanduser(text.partition("://")[2] if "://" in text else text))


def join(directory: str, *names: str) -> str:
    """A path below a directory, for local paths and addresses alike."""
    if is_local(directory):
        return os.path.join(directory, *names)
    return "/".join([directory.rstrip("/") if not directory.endswith("://") else directory[:-1], *names])


def parent(path: str) -> str:
    """The directory a path is in."""
    return os.path.dirname(path) if is_local(path) else path.rpartition("/")[0]


def base_name(path: str) -> str:
    """The last part of a path; for web addresses without the query."""
    if protocol(path) in ("http", "https"):
        path = path.partition("?")[0]
    return path.replace(os.sep, "/").rstrip("/").rpartition("/")[2]


def compression_of(path: str) -> str | None:
    """What the file name says about compression: ``"gzip"``, ``"zstd"``, ... or ``None``.

    >>> compression_of("a.jsonl.gz"), compression_of("a.jsonl")
    ('gzip', None)
    """
    return COMPRESSED.get(os.path.splitext(base_name(path))[1].lower())


def with_compressions(extensions: Iterable[str]) -> tuple[str, ...]:
    """File name endings, each also with the ending of a compression behind it."""
    plain = [e.lower() if e.startswith(".") else f".{e.lower()}" for e in extensions]
    return tuple(plain + [e + c for e in plain for c in COMPRESSED])


def filesystem(path: str, storage_options: dict[str, Any] | None = None) -> tuple[AbstractFileSystem, str]:
    """The fsspec file system of an address, and the path in it."""
    import fsspec

    scheme = protocol(path)
    try:
        fs, inner = fsspec.core.url_to_fs(path, **(storage_options or {}))
    except ImportError as e:
        package, extra = _EXTRAS.get(scheme, (e.name or scheme, scheme))
        raise MissingExtraError(f"reading {scheme}:// addresses", package=package, extra=extra) from e
    except ValueError as e:
        raise PlanError(f"{path}: {e}") from e
    return fs, str(inner)


def renames(path: str) -> bool:
    """Whether a file is written under a temporary name first. Object stores have no rename: an upload is atomic."""
    return protocol(path) not in _OBJECT_STORES


def make_directory(path: str, storage_options: dict[str, Any] | None = None) -> None:
    """Make a directory and those above it; nothing to do on an object store."""
    if is_local(path):
        try:
            os.makedirs(path, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as e:
            raise PlanError(f"{path}: output needs a directory, and {e.filename} is a file. Choose another path") from e
        except PermissionError as e:
            raise PlanError(f"{path}: the directory cannot be made: {e.strerror}") from e
    elif renames(path):
        fs, inner = filesystem(path, storage_options)
        fs.makedirs(inner, exist_ok=True)


def open_read(path: str, storage_options: dict[str, Any] | None = None) -> BinaryIO:
    """Open a file to read its bytes; a missing or forbidden file is a :class:`DataError`."""
    try:
        if is_local(path):
            return cast("BinaryIO", io.FileIO(path))
        fs, inner = filesystem(path, storage_options)
        return cast("BinaryIO", fs.open(inner, "rb"))
    except (FileNotFoundError, PermissionError, IsADirectoryError) as e:
        raise unreadable(path, e) from e


def open_write(path: str, storage_options: dict[str, Any] | None = None) -> BinaryIO:
    """Open a file to write bytes."""
    if is_local(path):
        return Path(path).open("wb")
    fs, inner = filesystem(path, storage_options)
    return cast("BinaryIO", fs.open(inner, "wb"))


def unreadable(path: str, error: OSError) -> DataError:
    """The error a user sees for a file that is not there or not theirs."""
    words = {FileNotFoundError: "there is no such file (any more)", PermissionError: "reading it is not permitted"}
    return DataError(words.get(type(error), error.strerror or str(error)), path=path)


def publish(finished: Publish) -> None:
    """Give a finished file its final name. Doing it again changes nothing.

    >>> import fsspec
    >>> from tamis.stages.emit import Publish
    >>> _ = fsspec.filesystem("memory").pipe_file("/pub/.a.tmp", b"x")
    >>> publish(Publish("memory://pub/.a.tmp", "memory://pub/a", rows=1, nbytes=1))
    >>> fsspec.filesystem("memory").cat_file("/pub/a")
    b'x'
    """
    if finished.temporary == finished.final:
        return
    if is_local(finished.final):
        if os.path.exists(finished.temporary) or not os.path.exists(finished.final):
            os.replace(finished.temporary, finished.final)
        return
    fs, temporary = filesystem(finished.temporary, dict(finished.storage_options))
    _, final = filesystem(finished.final, dict(finished.storage_options))
    if fs.exists(temporary) or not fs.exists(final):
        fs.mv(temporary, final)


def sync(finished: Publish) -> Publish:
    """Force the data of a finished file to disk, if that is needed; returns the file without the need."""
    if not finished.needs_sync:
        return finished
    file = os.open(finished.temporary, os.O_RDWR)
    try:
        os.fsync(file)
    finally:
        os.close(file)
    return replace(finished, needs_sync=False)


def remove_unpublished(finished: Publish) -> None:
    """Remove a finished file that will not be published; one that has its final name already stays."""
    if finished.temporary == finished.final:
        return
    with contextlib.suppress(FileNotFoundError):
        if is_local(finished.temporary):
            os.unlink(finished.temporary)
        else:
            fs, temporary = filesystem(finished.temporary, dict(finished.storage_options))
            fs.rm_file(temporary)
