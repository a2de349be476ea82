"""Which files an address stands for: files, directories (with everything below them) and patterns, in a stable order.

Everything is a generator: a directory is read when the walk reaches it, and only the names in one directory are held.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tamis.errors import DataError, did_you_mean
from tamis.stages.io.card_files import is_card_file
from tamis.stages.io.paths import base_name, escaped, filesystem, is_local, is_utf8, join, parent, protocol, reading
from tamis.stages.io.retries import with_retries
from tamis.tasks import FileSlice

__all__ = ["Listing"]

_MAGIC = re.compile(r"[*?\[]")
_OURS = re.compile(r"\.tamis\.|\..+\.[0-9a-f]{16}\.tmp$")
"""Hidden files that writers leave in a directory: not worth a remark."""

_PATIENCE_S = 30.0
"""For how many seconds a server that is busy is asked again: a user may wait for the answer."""

_READERS = {
    ".jsonl": "JsonlReader",
    ".ndjson": "JsonlReader",
    ".json": "JsonlReader",
    ".parquet": "ParquetReader",
    ".arrow": "ArrowReader",
    ".csv": "CsvReader",
    ".tsv": "CsvReader",
    ".txt": "TextReader",
    ".md": "TextReader",
}


@dataclass(frozen=True)
class Listing:
    """The files below some addresses.

    A file that is named is always taken. A directory is searched for files with the endings; names that start with
    ``.`` or ``_`` are left out. A pattern means what it says: ``*`` and ``**`` match every name except those that start
    with ``.``, as in a shell. A data card that a run wrote (``RUN.json``, ``README.md``) is only taken if it is named.

    Args:
        paths: Files, directories and patterns.
        endings: File name endings to look for in directories, and in patterns that do not spell out an ending; empty
            takes every file.
        storage_options: For fsspec file systems.

    Attributes:
        left_out: How many files and directories were left out, by the reason. Complete when the listing is.
    """

    paths: tuple[str, ...]
    endings: tuple[str, ...] = ()
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    left_out: Counter[str] = field(default_factory=Counter, init=False, repr=False, compare=False)

    def files(self) -> Iterator[FileSlice]:
        """The files, in order: as the addresses were given, sorted by name inside each directory.

        A file that two addresses stand for comes twice, and the second time as another version: it is another task.
        """
        earlier = _Addresses()
        for path in self.paths:
            tree: _Tree = _LocalTree() if is_local(path) else _RemoteTree(path, self.storage_options)
            found = False
            for entry in self._matches(tree, path):
                found = True
                again = earlier.that_stand_for(entry.path)
                yield replace(entry, version=f"{entry.version} again {again}") if again else entry
            if not found:
                raise self._nothing_found(tree, path)
            earlier.add(path)

    def _matches(self, tree: _Tree, path: str) -> Iterator[FileSlice]:
        kind = tree.kind(path)
        if kind == "file":
            yield tree.file(path)
        elif kind == "directory":
            yield from self._below(tree, path, (tree.real(path),))
        elif _MAGIC.search(path):
            yield from self._pattern(tree, path)

    def _below(self, tree: _Tree, directory: str, above: tuple[str, ...]) -> Iterator[FileSlice]:
        """The files below a directory; ``above`` has the real paths on the way to it, and its own."""
        names, directories = tree.names(directory)
        for name in names:
            if name[0] in "._":
                self._leave_out(name, name in directories)
            elif name in directories:
                real = tree.real(join(directory, name), above[-1])
                if not _is_loop(real, above):
                    yield from self._below(tree, join(directory, name), (*above, real))
            elif self._wanted(name) and not self._is_card(join(directory, name)):
                yield tree.file(join(directory, name))

    def _wanted(self, name: str) -> bool:
        if not self.endings or name.lower().endswith(self.endings):
            return True
        ending = os.path.splitext(name)[1].lower()
        self.left_out[f"ending in {ending}" if ending else "without an ending"] += 1
        return False

    def _is_card(self, path: str) -> bool:
        """Whether a file describes an output directory of an earlier run."""
        return is_card_file(path, self.storage_options)

    def _leave_out(self, name: str, is_directory: bool) -> None:
        """Count a name that starts with ``.`` or ``_``."""
        if not _OURS.match(name):
            kind = "hidden" if name[0] == "." else "starting with '_'"
            self.left_out[f"{kind} (directories)" if is_directory else kind] += 1

    def _pattern(self, tree: _Tree, pattern: str) -> Iterator[FileSlice]:
        """Match a pattern one directory level at a time, so that only directories that can match are read."""
        scheme, _, rest = pattern.rpartition("://")
        parts = rest.split("/")
        first = next(i for i, part in enumerate(parts) if _MAGIC.search(part))
        root = "/".join(parts[:first]) or ("" if scheme else "/")
        levels = [p for i, p in enumerate(parts[first:]) if p != "**" or i == 0 or parts[first + i - 1] != "**"]
        # A pattern that spells out its ending ("*.txt") decides alone; for "data/*" the endings count as well.
        spelt_out = bool(os.path.splitext(levels[-1])[1]) and not _MAGIC.search(os.path.splitext(levels[-1])[1])
        seen: set[str] | None = set() if levels.count("**") > 1 else None
        # After "**" the files of a directory that "*" matches are matched themselves.
        descends = not ("**" in levels and levels[-1] in ("*", "**"))
        root = f"{scheme}://{root}" if scheme else root
        for path, is_directory in self._expand(tree, root, levels, (tree.real(root),)):
            if seen is not None:
                if path in seen:
                    continue
                seen.add(path)
            if is_directory:
                if descends:
                    yield from self._below(tree, path, (tree.real(path),))
            elif (spelt_out or self._wanted(base_name(path))) and not self._is_card(path):
                yield tree.file(path)

    def _expand(
        self, tree: _Tree, directory: str, levels: list[str], above: tuple[str, ...]
    ) -> Iterator[tuple[str, bool]]:
        level, rest = levels[0], levels[1:]
        if tree.kind(directory) != "directory":
            return
        names, directories = tree.names(directory)
        if level == "**":
            yield from self._expand(tree, directory, rest or ["*"], above)
            for name in names:
                if name not in directories:
                    continue
                if name[0] == ".":
                    self._leave_out(name, is_directory=True)
                    continue
                real = tree.real(join(directory, name), above[-1])
                if not _is_loop(real, above):
                    yield from self._expand(tree, join(directory, name), levels, (*above, real))
            return
        for name in names:
            if name[0] == "." and level[0] != ".":
                continue
            if fnmatch.fnmatchcase(name, level):
                if rest and name in directories:
                    real = tree.real(join(directory, name), above[-1])
                    yield from self._expand(tree, join(directory, name), rest, (*above, real))
                elif not rest:
                    yield join(directory, name), name in directories

    def _nothing_found(self, tree: _Tree, path: str) -> DataError:
        wanted = f" ending in {', '.join(e for e in self.endings if e.count('.') == 1)}" if self.endings else ""
        if tree.kind(path) == "missing" and not _MAGIC.search(path):
            beside = tree.names(parent(path))[0] if tree.kind(parent(path)) == "directory" else []
            hint = did_you_mean(base_name(path), beside).strip()
            return DataError("there is no such file or directory", path=path, hint=hint)
        if _MAGIC.search(path):
            return DataError(f"no file{wanted} matches this pattern", path=path)
        there: Counter[str] = Counter()
        for entry in Listing((path,), (), self.storage_options)._matches(tree, path):
            there[os.path.splitext(entry.path)[1].lower() or "no ending"] += 1
            if there.total() >= 1000:
                break
        if not there and self.left_out:
            counts = ", ".join(f"{n} {reason}" for reason, n in self.left_out.most_common(4))
            return DataError(
                f"no file{wanted} is in this directory, apart from what is left out: {counts}",
                path=path,
                hint="A pattern such as '**/_*' reads names that start with '_'.",
            )
        if not there:
            return DataError(f"no file{wanted} is in this directory: it is empty", path=path)
        known = [_READERS[e] for e, _ in there.most_common() if e in _READERS]
        counts = ", ".join(f"{n} x {e}" for e, n in there.most_common(4))
        hint = f"Use {known[0]}" if known else "Name the endings to read"
        return DataError(
            f"no file{wanted} is in this directory, but {counts}",
            path=path,
            hint=f'{hint}, or give file_extensions=["{there.most_common(1)[0][0]}"].',
        )


class _Addresses:
    """Addresses that were listed before."""

    def __init__(self) -> None:
        self._plain: Counter[str] = Counter()
        self._patterns: list[str] = []

    def add(self, address: str) -> None:
        """Add one."""
        if _MAGIC.search(address):
            self._patterns.append(address)
        self._plain[address.rstrip("/")] += 1

    def that_stand_for(self, path: str) -> int:
        """How many of them may have given a file: by its name, a directory above it, or a pattern."""
        count = sum(fnmatch.fnmatchcase(path, pattern) for pattern in self._patterns)
        above = path
        while self._plain:
            count += self._plain.get(above, 0)
            if parent(above) in (above, ""):
                break
            above = parent(above)
        return count


def _is_loop(real: str, above: tuple[str, ...]) -> bool:
    """Whether a directory is, or contains, one of those on the way to it: a link leads in a circle."""
    return any((a + os.sep).startswith(real.rstrip(os.sep) + os.sep) for a in above)


class _LocalTree:
    """How the file system of this machine is walked."""

    def kind(self, path: str) -> str:
        """``"file"``, ``"directory"`` or ``"missing"``."""
        return "directory" if os.path.isdir(path) else "file" if os.path.exists(path) else "missing"

    def names(self, directory: str) -> tuple[list[str], set[str]]:
        """The names in a directory, sorted, and those of them that are directories."""
        names, directories = [], set()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.is_dir():
                        directories.add(entry.name)
                    # Pipes, sockets and devices are not data. A link that leads nowhere is named: its file is missing.
                    elif not entry.is_file() and os.path.exists(entry.path):
                        continue
                    names.append(entry.name)
        except PermissionError as e:
            raise DataError("reading this directory is not permitted", path=directory) from e
        names.sort()
        return names, directories

    def file(self, path: str) -> FileSlice:
        """A file with its size and version."""
        if not is_utf8(path):
            raise DataError(
                "the name of this file is not valid UTF-8", path=escaped(path), hint="Rename it, or leave it out."
            )
        try:
            status = os.stat(path)
        except FileNotFoundError as e:
            raise DataError("this is a link to a file that is not there", path=path) from e
        if not stat.S_ISREG(status.st_mode):
            raise DataError(
                "this is not a regular file but a pipe, a socket or a device",
                path=path,
                hint="Write what comes out of it to a file first.",
            )
        return FileSlice(path, 0, None, status.st_size, str(status.st_mtime_ns))

    def real(self, directory: str, parent_real: str | None = None) -> str:
        """A directory's path without links; cheap when that of its parent is given."""
        if parent_real is None or os.path.islink(directory):
            return os.path.realpath(directory)
        return os.path.join(parent_real, os.path.basename(directory))


class _RemoteTree:
    """The same for an fsspec file system. Of a directory's details only those of the one being walked are kept."""

    def __init__(self, path: str, storage_options: dict[str, Any]) -> None:
        self._fs, _ = filesystem(path, storage_options)
        self._fs.invalidate_cache()
        self._inner: Callable[[str], str] = self._fs._strip_protocol
        self._details: dict[str, dict[str, Any]] = {}

    def kind(self, path: str) -> str:
        if protocol(path) in ("http", "https"):
            return "directory" if path.endswith("/") else "missing" if "*" in path else "file"
        with reading(path):
            try:
                info = with_retries(lambda: self._fs.info(self._inner(path)), _PATIENCE_S)
            except FileNotFoundError:
                return "missing"
        return "directory" if info["type"] == "directory" else "file"

    def names(self, directory: str) -> tuple[list[str], set[str]]:
        inner = self._inner(directory)
        with reading(directory):
            listed = with_retries(lambda: self._fs.ls(inner, detail=True), _PATIENCE_S)
        entries = {base_name(i["name"]): i for i in listed if i["name"].rstrip("/") != inner}
        self._details = {join(directory, name): info for name, info in entries.items()}
        return sorted(n for n in entries if n), {n for n, info in entries.items() if info["type"] == "directory"}

    def file(self, path: str) -> FileSlice:
        info = self._details.get(path)
        if info is None or info.get("size") is None:
            with reading(path):
                info = with_retries(lambda: self._fs.info(self._inner(path)), _PATIENCE_S)
        changes = ("etag", "ETag", "md5Hash", "LastModified", "last_modified", "mtime", "modified", "created")
        version = next((str(info[c]) for c in changes if info.get(c)), "")
        size = info.get("size")
        return FileSlice(path, 0, None, -1 if size is None else int(size), version)

    def real(self, directory: str, parent_real: str | None = None) -> str:
        return directory


_Tree = _LocalTree | _RemoteTree
