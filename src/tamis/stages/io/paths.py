"""Where files are: local paths and fsspec addresses, and what is said when one cannot be read or written."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from tamis.errors import DataError, MissingExtraError, PlanError, StorageError, TamisError, redacted
from tamis.stages.io.retries import causes, may_pass

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz"}
"""File name endings that mean a compressed stream, and the name of its format."""

COMPRESSED_TARS = {".tgz": "gzip", ".tzst": "zstd", ".tbz2": "bzip2", ".txz": "xz"}
"""The same for tars, in one ending."""

_EXTRAS = {
    "http": ("aiohttp", "http"),
    "https": ("aiohttp", "http"),
    "s3": ("s3fs", "s3"),
    "s3a": ("s3fs", "s3"),
    "gs": ("gcsfs", "gcs"),
    "gcs": ("gcsfs", "gcs"),
    "hf": ("huggingface_hub", "hf"),
}
_OBJECT_STORES = frozenset(
    {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "r2", "hf", "http", "https"}
)
_ADDRESS_OF_PATH = re.compile(r"[a-z][a-z0-9+]+:/[^/]")
"""What ``pathlib.Path`` makes of an address: it drops one of the two slashes."""

_WRITE_PROBLEMS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "writing there is not permitted",
    errno.EPERM: "writing there is not permitted",
    errno.EFBIG: "the file is larger than the limit for files",
    errno.EISDIR: "there is a directory of this name",
    errno.ENOTDIR: "a part of this path is a file, not a directory",
    errno.ENAMETOOLONG: "the file name is too long",
}


def protocol(path: str) -> str:
    """The fsspec protocol of an address; ``"file"`` for a local path.

    >>> protocol("s3://bucket/a"), protocol("data/a")
    ('s3', 'file')
    """
    scheme, found, _ = path.partition("://")
    return scheme.rpartition("::")[2] if found else "file"


def is_local(path: str) -> bool:
    """Whether the path is in this machine's file system."""
    return "://" not in path or protocol(path) in ("file", "local")


def path_text(path: str | os.PathLike[str]) -> str:
    """A path as text, as it was given.

    >>> from pathlib import Path
    >>> path_text(Path("data/a")), path_text("s3://bucket/a")
    ('data/a', 's3://bucket/a')
    """
    if not isinstance(path, str | os.PathLike):
        raise PlanError(f"{path!r} is not a path: give text or a pathlib.Path")
    text = os.fspath(path)
    if not isinstance(text, str):
        raise PlanError(f"{text!r}: give the path as text, not as bytes")
    if not isinstance(path, str) and _ADDRESS_OF_PATH.match(text):
        raise PlanError(
            f"{text}: a pathlib.Path cannot hold an address. Give it as text: {text.replace(':/', '://')!r}"
        )
    return text


def absolute(path: str | os.PathLike[str]) -> str:
    """A local path in full, so that it means the same to every worker; an fsspec address as it is.

    >>> absolute("memory://data/")
    'memory://data'
    """
    text = path_text(path)
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
    if "://" in path and protocol(path) in ("http", "https"):
        path = path.partition("?")[0]
    return path.replace(os.sep, "/").rstrip("/").rpartition("/")[2]


def is_utf8(path: str) -> bool:
    """Whether a path is valid UTF-8. Python represents the other bytes of a local file name by lone surrogates."""
    return path.isascii() or not any("\ud800" <= character <= "\udfff" for character in path)


def escaped(path: str) -> str:
    r"""A path with the bytes that are not UTF-8 written as ``\xff``."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def compression_of(path: str) -> str | None:
    """The compression that the file name's ending stands for: ``"gzip"``, ``"zstd"``, ... or ``None``.

    >>> compression_of("a.jsonl.gz"), compression_of("a.jsonl")
    ('gzip', None)
    """
    ending = os.path.splitext(base_name(path))[1].lower()
    return COMPRESSED.get(ending) or COMPRESSED_TARS.get(ending)


def with_compressions(extensions: Iterable[str]) -> tuple[str, ...]:
    """File name endings, each also followed by the ending of a compression."""
    plain = [e.lower() if e.startswith(".") else f".{e.lower()}" for e in extensions]
    return tuple(plain + [e + c for e in plain for c in COMPRESSED])


def filesystem(path: str, storage_options: dict[str, Any] | None = None) -> tuple[AbstractFileSystem, str]:
    """The fsspec file system of an address, and the path in it."""
    import fsspec

    scheme = protocol(path)
    if scheme == "tamis-objects":
        fsspec.register_implementation(scheme, "tamis.stages.io.object_store.ObjectFileSystem", clobber=True)
    try:
        fs, inner = fsspec.core.url_to_fs(path, **(storage_options or {}))
    except ImportError as e:
        package, extra = _EXTRAS.get(scheme, (e.name or _package_for(scheme), ""))
        raise MissingExtraError(f"reading {scheme}:// addresses", package=package, extra=extra) from e
    except ValueError as e:
        raise PlanError(redacted(f"{path}: {e}")) from e
    return fs, str(inner)


def _package_for(scheme: str) -> str:
    """The package that fsspec's own list of protocols names, such as ``adlfs`` for ``az``."""
    from fsspec.registry import known_implementations

    return str(known_implementations.get(scheme, {}).get("class", scheme)).partition(".")[0]


def renames(path: str) -> bool:
    """Whether a file is written under a temporary name first. Object stores have no rename: an upload is atomic."""
    return protocol(path) not in _OBJECT_STORES


def make_directory(path: str, storage_options: dict[str, Any] | None = None) -> None:
    """Make a directory and its parents; nothing to do on an object store."""
    if is_local(path):
        try:
            if not os.path.isdir(path):
                os.makedirs(path, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as e:
            raise PlanError(f"{path}: output needs a directory, and {e.filename} is a file. Choose another path") from e
        except OSError as e:
            raise cannot_write(path, e, "this directory cannot be made") from e
    elif renames(path):
        fs, inner = filesystem(path, storage_options)
        with writing(path):
            fs.makedirs(inner, exist_ok=True)


def remove_directory(path: str) -> None:
    """Remove a directory and what is in it. It may be gone already."""
    if is_local(path):
        shutil.rmtree(path, ignore_errors=True)
        return
    fs, inner = filesystem(path)
    fs.invalidate_cache()
    with contextlib.suppress(FileNotFoundError):
        fs.rm(inner, recursive=True)


def directory_bytes(path: str) -> int:
    """The size of all files below a directory; 0 if it is not there or cannot be reached."""
    try:
        fs, inner = filesystem(path)
        return int(fs.du(inner)) if fs.exists(inner) else 0
    except (OSError, TamisError):
        return 0


def open_read(path: str, storage_options: dict[str, Any] | None = None) -> BinaryIO:
    """Open a file to read its bytes; :class:`DataError` if that is not possible."""
    with reading(path):
        if is_local(path):
            return cast("BinaryIO", io.FileIO(path))
        fs, inner = filesystem(path, storage_options)
        return cast("BinaryIO", fs.open(inner, "rb"))


def open_write(path: str, storage_options: dict[str, Any] | None = None) -> BinaryIO:
    """Open a file to write bytes."""
    if is_local(path):
        return io.BufferedWriter(io.FileIO(path, "wb"))
    fs, inner = filesystem(path, storage_options)
    return cast("BinaryIO", fs.open(inner, "wb"))


def remove_file(path: str, storage_options: Mapping[str, Any] | None = None) -> None:
    """Remove a file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        if is_local(path):
            os.unlink(path)
        else:
            fs, inner = filesystem(path, dict(storage_options or {}))
            fs.rm_file(inner)


def reading(path: str) -> contextlib.AbstractContextManager[None]:
    """Turn what a file system raises for a path into a :class:`DataError` that names it."""
    return _explained(path, cannot_read)


def writing(path: str) -> contextlib.AbstractContextManager[None]:
    """Turn what a file system raises for a path into a :class:`StorageError` that names it."""
    return _explained(path, cannot_write)


@contextlib.contextmanager
def _explained(path: str, explain: Callable[[str, Exception], TamisError]) -> Iterator[None]:
    try:
        yield
    except TamisError:
        raise
    except Exception as e:
        if is_local(path) and not isinstance(e, OSError):
            raise
        raise explain(path, e) from _without_secrets(e)


def cannot_read(path: str, error: Exception) -> DataError:
    """The error a user sees for a file that cannot be read."""
    explained = _unreadable(path, error)
    explained.transient = not is_local(path) and may_pass(error)
    return explained


def _unreadable(path: str, error: Exception) -> DataError:
    chain = list(causes(error))
    for cause in chain:
        if isinstance(cause, ConnectionError | socket.gaierror | TimeoutError):
            why = cause.strerror or str(cause) or "no answer in time"
            hint = "Check the address and the network."
            return DataError(f"the server cannot be reached: {redacted(why)}", path=path, hint=hint)
        status = getattr(cause, "status", None)
        if isinstance(status, int) and status not in (404, 410):
            return DataError(f"the server answers {status} {getattr(cause, 'message', '')}".rstrip(), path=path)
    if isinstance(error, FileNotFoundError):
        return DataError("there is no such file (any more)", path=path)
    if isinstance(error, PermissionError):
        return DataError("reading it is not permitted", path=path)
    if isinstance(error, OSError) and error.strerror:
        return DataError(error.strerror, path=path)
    return DataError(f"it cannot be read: {type(error).__name__}: {redacted(str(error))}", path=path)


def cannot_write(path: str, error: Exception, problem: str = "this cannot be written") -> StorageError:
    """The error a user sees for a file or directory that cannot be written."""
    explained = StorageError(redacted(f"{path}: {problem}: {write_problem(error)}"))
    explained.transient = not is_local(path) and may_pass(error)
    return explained


def write_problem(error: Exception) -> str:
    """Why something cannot be written, in words.

    >>> write_problem(OSError(errno.ENOSPC, "No space left on device"))
    'the disk is full'
    """
    number = error.errno if isinstance(error, OSError) else None
    why = _WRITE_PROBLEMS.get(number or 0) or getattr(error, "strerror", None)
    return why or f"{type(error).__name__}: {error}"


def _without_secrets(error: Exception) -> Exception | None:
    """The exception as the cause of another; ``None`` if a traceback would show a password or a signature."""
    return None if any(redacted(str(e)) != str(e) for e in causes(error)) else error
