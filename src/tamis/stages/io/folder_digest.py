"""Names, sizes and times of the files below local directories as one digest: shows quickly that none has changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter

import xxhash

__all__ = ["FolderDigest", "folder_digest"]


@dataclass(frozen=True)
class FolderDigest:
    """What was found below some directories.

    Args:
        text: The digest.
        files: How many files there are.
        nbytes: Their size together.
    """

    text: str
    files: int
    nbytes: int


def folder_digest(paths: Iterable[str], leave_out: frozenset[str] = frozenset()) -> FolderDigest | None:
    """The digest of what is below some directories. Names that start with ``.`` are left out.

    Args:
        paths: Directories and files of this machine. One that is missing is noted as missing.
        leave_out: Names that are left out as well.

    Returns:
        ``None`` if something is there that takes a closer look, such as a link to a directory.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     before = folder_digest([folder])
    ...     _ = pathlib.Path(folder, "a.jsonl").write_bytes(b"{}")
    ...     after = folder_digest([folder])
    >>> before == after, after.files, after.nbytes
    (False, 1, 2)
    """
    content = xxhash.xxh3_128()
    files = nbytes = 0
    for path in paths:
        try:
            for found, sizes in _described(path, leave_out):
                content.update(found.encode("utf-8", "surrogateescape"))
                files += len(sizes)
                nbytes += sum(sizes)
        except _NeedsCloserLookError:
            return None
    return FolderDigest(content.hexdigest(), files, nbytes)


class _NeedsCloserLookError(Exception):
    """The tree is not a plain one."""


def _described(path: str, leave_out: frozenset[str]) -> Iterator[tuple[str, list[int]]]:
    """A text about each directory, in a stable order, and the sizes of the files in it."""
    if not os.path.isdir(path):
        try:
            status = os.stat(path)
        except FileNotFoundError:
            yield f"{path}\0missing\n", []
            return
        yield f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n", [status.st_size]
        return
    waiting = [path]
    while waiting:
        directory = waiting.pop()
        lines, sizes, below = [f"{directory}\0directory\n"], [], []
        try:
            with os.scandir(directory) as found:
                entries = sorted(found, key=attrgetter("name"))
        except OSError as e:
            raise _NeedsCloserLookError from e
        for entry in entries:
            name = entry.name
            if name[0] == "." or name in leave_out:
                continue
            if entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
                continue
            if entry.is_symlink():
                raise _NeedsCloserLookError
            status = entry.stat()
            sizes.append(status.st_size)
            lines.append(f"{name}\0{status.st_size}\0{status.st_mtime_ns}\n")
        yield "".join(lines), sizes
        waiting += reversed(below)
