"""Where output goes: the directory, the names in it, and how a file gets there whole or not at all."""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import itertools
import os
import re
import secrets
import string
import tempfile
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from tamis.errors import PlanError, did_you_mean
from tamis.stages.emit import Publish
from tamis.stages.io.arguments import check_choice
from tamis.stages.io.paths import (
    base_name,
    filesystem,
    is_local,
    join,
    make_directory,
    open_write,
    parent,
    protocol,
    renames,
)
from tamis.tasks import Task
from tamis.tasks.storage import format_order

__all__ = ["MODES", "Destination", "partition_directory"]

MODES = ("ignore", "overwrite", "error")

_PLACEHOLDERS = {
    "order": r"(?:s\d\d+-)*\d{6,}(?:-\d{4,})*",
    "task_id": r"[\w.-]+",
    "dataset": r"[^/]*",
    "source": r"[^/]*",
}
_NULL = "__null__"
_COLUMN_BYTES, _VALUE_BYTES = 50, 200
"""Together with the ``=`` less than the 255 bytes that file systems allow a name."""

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")


def partition_directory(column: str, value: str | None) -> str:
    """The directory of one value, in Hive's manner. A long value is cut and ends in ``+`` and a digest of the whole.

    >>> partition_directory("lang", "en"), partition_directory("site", "a/b é"), partition_directory("lang", None)
    ('lang=en', 'site=a%2Fb é', 'lang=__null__')
    """
    quoted = _NULL if value is None else _quoted(value, _VALUE_BYTES)
    return f"{_quoted(column, _COLUMN_BYTES)}={quoted.replace('_', '%5F', 1) if value == _NULL else quoted}"


def _quoted(text: str, most_bytes: int) -> str:
    """Text as part of a file name. Printable letters of any script stay; a ``+`` of the text itself is quoted."""
    characters = [c if c.isprintable() and not c.isascii() else urllib.parse.quote(c, safe=" ") for c in text]
    edges = list(itertools.accumulate(len(c.encode()) for c in characters))
    if not edges or edges[-1] <= most_bytes:
        return "".join(characters)
    ending = f"+{hashlib.blake2b(text.encode(), digest_size=10).hexdigest()}"
    return "".join(characters[: bisect.bisect_right(edges, most_bytes - len(ending))]) + ending


@dataclass(frozen=True)
class Destination:
    """A directory for output and the names of the files in it.

    Args:
        path: The directory, or any fsspec address.
        filename: Template for names, without the ending.
        ending: What follows, such as ``".jsonl.gz"``.
        mode: What to do with files that are there before the run.
        storage_options: For the fsspec file system.
    """

    path: str
    filename: str = "part-{order}"
    ending: str = ""
    mode: str = "ignore"
    storage_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.mode == "append":
            raise PlanError('mode="append": output files are never changed. mode="ignore" adds new ones beside them')
        check_choice("writer", "mode", self.mode, MODES)
        if protocol(self.path) in ("http", "https"):
            raise PlanError(f"{self.path}: a web server cannot be written to")
        try:
            parts = [(literal, name) for literal, name, _, _ in string.Formatter().parse(self.filename)]
        except ValueError as e:
            raise PlanError(f"filename={self.filename!r}: {e}") from e
        names = [name for _, name in parts if name is not None]
        for name in names:
            if name not in _PLACEHOLDERS:
                known = ", ".join(f"{{{p}}}" for p in _PLACEHOLDERS)
                near = did_you_mean(name, _PLACEHOLDERS)
                raise PlanError(f"filename={self.filename!r}: there is no {{{name}}}, only {known}.{near}")
        if "order" not in names and "task_id" not in names:
            raise PlanError(
                f"filename={self.filename!r}: every task would write the same file. Use {{order}} or {{task_id}} in it"
            )
        if any("/" in literal for literal, _ in parts) or self.filename[0] in "._":
            raise PlanError(f"filename={self.filename!r}: it must not contain '/' nor start with '.' or '_'")

    def name_for(self, task: Task[Any]) -> str:
        """The name of the file for a task: a function of its place and its source alone."""
        sources = task._metadata.get("source_files") or [""]
        values = {
            "order": format_order(task.order),
            "task_id": task.task_id,
            "dataset": task.dataset_name or "data",
            "source": base_name(str(sources[0])).partition(".")[0] or "data",
        }
        name = self.filename.format(**{k: v.replace("/", "_") for k, v in values.items()})
        return name.lstrip("._") + self.ending

    def write(self, relative: str, rows: int, fill: Callable[[BinaryIO], object]) -> Publish:
        """Write a file under a name of this attempt's own, ready to be published."""
        final = join(self.path, *relative.split("/"))
        make_directory(parent(final), self.storage_options)
        if not renames(final):
            return Publish(final, final, rows, self._upload(final, fill))
        temporary = join(parent(final), f".{base_name(final)}.{secrets.token_hex(8)}.tmp")
        try:
            with open_write(temporary, self.storage_options) as sink:
                fill(sink)
                nbytes = sink.tell()
        except BaseException:
            self._remove(temporary)
            raise
        return Publish(temporary, final, rows, nbytes, self.storage_options, needs_sync=is_local(temporary))

    def _upload(self, final: str, fill: Callable[[BinaryIO], object]) -> int:
        """Write to a local file first: closing a half-written object would make it look like a whole one."""
        fs, inner = filesystem(final, self.storage_options)
        with tempfile.NamedTemporaryFile() as local:
            fill(cast("BinaryIO", local.file))
            local.flush()
            fs.put_file(local.name, inner)
            return os.path.getsize(local.name)

    def _remove(self, path: str) -> None:
        if is_local(path):
            if os.path.exists(path):
                os.unlink(path)
            return
        fs, inner = filesystem(path, self.storage_options)
        if fs.exists(inner):
            fs.rm_file(inner)

    def prepare(self) -> None:
        """Get the directory ready, once, before a run starts.

        ``"ignore"`` leaves what is there; files of the same names are replaced. ``"error"`` refuses a directory with
        files in it. ``"overwrite"`` removes the files that a writer with this file name template can have written,
        with or without compression, in the directory and in ``column=value`` directories below it; if it finds any
        other file, it removes nothing and refuses. It never works on the file system's root, a home directory or a
        directory the process is in.
        """
        if self.mode != "ignore":
            names = self._existing()
            if self.mode == "error" and names:
                raise PlanError(
                    f'{self.path}: the directory already holds {len(names)} files, and mode="error" was asked for. '
                    'mode="overwrite" replaces them, mode="ignore" leaves them'
                )
            if self.mode == "overwrite":
                self._clear(names)
        make_directory(self.path, self.storage_options)

    def leftovers(self, before: float) -> list[str]:
        """Files with names of this writer's that are older than the given time (seconds since 1970); local ones only.

        A run that writes where an earlier one wrote replaces files of the same names. The others would look like
        output of both.
        """
        if not is_local(self.path):
            return []
        own = self._own_names()
        found = []
        for name in self._existing():
            path = join(self.path, *name.split("/"))
            # What cannot be looked at (a link that leads nowhere) or has just gone is no output.
            with contextlib.suppress(OSError):
                if base_name(name)[0] != "." and own.fullmatch(name) and os.path.getmtime(path) < before:
                    found.append(name)
        return sorted(found)

    def sweep(self) -> None:
        """Remove what killed workers left under temporary names of this writer's; local ones only."""
        if not is_local(self.path):
            return
        own = self._own_names()
        for name in self._existing():
            if _TEMPORARY.fullmatch(base_name(name)) and own.fullmatch(base_name(name)[1:].rsplit(".", 2)[0]):
                self._remove(join(self.path, *name.split("/")))

    def _clear(self, names: list[str]) -> None:
        if is_local(self.path):
            here = os.path.realpath(self.path)
            kept = [os.path.realpath(os.path.expanduser("~")), os.getcwd()]
            if any((k + os.sep).startswith(here.rstrip(os.sep) + os.sep) for k in kept):
                raise PlanError(f'{self.path}: mode="overwrite" does not work on a home or working directory')
        own = self._own_names()
        foreign = [name for name in names if not own.fullmatch(name)]
        if foreign:
            shown = ", ".join(sorted(foreign)[:3]) + (", ..." if len(foreign) > 3 else "")
            raise PlanError(
                f'{self.path}: mode="overwrite" removes earlier output, but there are files of another kind: {shown}. '
                "Nothing was removed; choose another directory or clear this one yourself"
            )
        for name in names:
            self._remove(join(self.path, *name.split("/")))

    def _own_names(self) -> re.Pattern[str]:
        """What the names of this writer's files look like, below the directory."""
        template = ""
        for literal, name, _, _ in string.Formatter().parse(self.filename):
            template += re.escape(literal) + (_PLACEHOLDERS[name] if name else "")
        plain = self.ending.removesuffix(".gz").removesuffix(".zst")
        return re.compile(rf"(?:[^/=]+=[^/]*/)?(?:{template}{re.escape(plain)}(?:\.gz|\.zst)?|{_TEMPORARY.pattern})")

    def _existing(self) -> list[str]:
        """Files in the directory and below it, by their relative names; hidden ones only if they are temporary."""
        if is_local(self.path):
            found = []
            for directory, below, names in os.walk(self.path):
                below[:] = [b for b in below if b[0] != "."]
                relative = os.path.relpath(directory, self.path)
                found += [n if relative == "." else f"{relative}/{n}" for n in names]
        else:
            fs, inner = filesystem(self.path, self.storage_options)
            fs.invalidate_cache()
            found = [name[len(inner) :].lstrip("/") for name in fs.find(inner)] if fs.exists(inner) else []
        return [n for n in found if base_name(n)[0] != "." or _TEMPORARY.fullmatch(base_name(n))]
