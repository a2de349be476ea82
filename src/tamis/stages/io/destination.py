"""Where output goes: the directory, the names in it, and how a file gets there whole or not at all."""

from __future__ import annotations

import bisect
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
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from tamis.errors import PlanError, did_you_mean, redacted
from tamis.stages.emit import Publish
from tamis.stages.io.arguments import check_choice
from tamis.stages.io.paths import (
    base_name,
    escaped,
    filesystem,
    is_local,
    is_utf8,
    join,
    make_directory,
    open_write,
    parent,
    protocol,
    remove_file,
    renames,
    writing,
)
from tamis.tasks import Task
from tamis.tasks.storage import format_order

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MODES", "Destination", "partition_directory"]

MODES = ("error", "overwrite", "append", "ignore")

_RUN = r"\d{8}-\d{6}-[0-9a-f]{8}"
"""What the id of a run looks like: its start, and a token of its own."""

_PLACEHOLDERS = {
    "order": rf"(?:{_RUN}-)?(?:s\d\d+-)*\d{{6,}}(?:-\d{{4,}})*",
    "task_id": r"[\w.-]+",
    "dataset": r"[^/]*",
    "source": r"[^/]*",
}
_NOT_IN_NAMES = re.compile(r"[/\\\x00-\x1f\x7f]")
_NULL = "__null__"
_COLUMN_BYTES, _VALUE_BYTES = 50, 200
"""Together with the ``=`` less than the 255 bytes that file systems allow for a name."""

TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
"""The names of files that are being written: the last 16 digits are the token of the run and one of the attempt."""


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
        ending: The ending of the names, such as ``".jsonl.gz"``.
        mode: What to do when the directory already holds files; see
            :class:`~tamis.stages.io.output_directory.OutputDirectory`.
        storage_options: For the fsspec file system.
    """

    path: str
    filename: str = "part-{order}"
    ending: str = ""
    mode: str = field(default="error", compare=False)
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_choice("writer", "mode", self.mode, MODES)
        if protocol(self.path) in ("http", "https"):
            raise PlanError(f"{redacted(self.path)}: a web server cannot be written to")
        if not is_utf8(self.path):
            raise PlanError(f"{escaped(self.path)}: the name of an output directory must be valid UTF-8")
        if _NOT_IN_NAMES.search(self.ending):
            raise PlanError(f"file_extension={self.ending!r}: must not contain '/', '\\' or control characters")
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
        if any(_NOT_IN_NAMES.search(literal) for literal, _ in parts) or self.filename[0] in "._":
            raise PlanError(
                f"filename={self.filename!r}: must not contain '/', '\\' or control characters, and must not start "
                "with '.' or '_'"
            )

    def name_for(self, task: Task[Any], run: str = "") -> str:
        """The name of the file for a task: a function of its place and source, and of the run where that is given."""
        values = {"order": format_order(task.order), "task_id": task.task_id, "dataset": task.dataset_name or "data"}
        if "{source" in self.filename:
            sources = task._metadata.get("source_files") or [""]
            values["source"] = base_name(str(sources[0])).partition(".")[0] or "data"
        if run:
            unique = "order" if "{order}" in self.filename else "task_id"
            values[unique] = f"{run}-{values[unique]}"
        name = self.filename.format(**{k: _NOT_IN_NAMES.sub("_", v) for k, v in values.items()})
        return name.lstrip("._") + self.ending

    def write(
        self,
        relative: str,
        rows: int,
        fill: Callable[[BinaryIO], object],
        run: str = "",
        schema: pa.Schema | None = None,
    ) -> Publish:
        """Write a file under a temporary name of its own, ready to be published.

        Args:
            relative: Its final path below the directory.
            rows: Rows in it.
            fill: Writes its content.
            run: The id of the run.
            schema: The schema of its rows, where all files of the output must have the same.
        """
        final = self._inside(relative)
        make_directory(parent(final), self.storage_options)
        with writing(final):
            if not renames(final):
                return Publish(final, final, rows, self._upload(final, fill), output=self.path, schema=schema)
            token = (run[-8:] or secrets.token_hex(4)) + secrets.token_hex(4)
            temporary = join(parent(final), f".{base_name(final)}.{token}.tmp")
            try:
                with open_write(temporary, self.storage_options) as sink:
                    fill(sink)
                    nbytes = sink.tell()
            except BaseException:
                remove_file(temporary, self.storage_options)
                raise
        needs_sync = is_local(temporary)
        return Publish(temporary, final, rows, nbytes, self.storage_options, needs_sync, self.path, schema)

    def _inside(self, relative: str) -> str:
        """The path of a file below the directory; an error if it is elsewhere, also by way of a link."""
        names = relative.split("/")
        final = join(self.path, *names)
        outside = any(name in ("", ".", "..") or os.path.isabs(name) for name in names)
        if is_local(final) and len(names) > 1 and not outside:
            root = os.path.realpath(self.path)
            outside = not os.path.realpath(parent(final)).startswith(os.path.join(root, ""))
        if outside:
            raise PlanError(f"{redacted(final)}: this output file would be outside of {redacted(self.path)}")
        return final

    def _upload(self, final: str, fill: Callable[[BinaryIO], object]) -> int:
        """Write to a local file first: closing a half-written object would make it look like a whole one."""
        fs, inner = filesystem(final, self.storage_options)
        with tempfile.NamedTemporaryFile() as local:
            fill(cast("BinaryIO", local.file))
            local.flush()
            fs.put_file(local.name, inner)
            return os.path.getsize(local.name)

    def own_names(self) -> str:
        """A pattern of the names that this writer gives its files, below the directory, with or without compression."""
        template = ""
        for literal, name, _, _ in string.Formatter().parse(self.filename):
            template += re.escape(literal) + (_PLACEHOLDERS[name] if name else "")
        plain = self.ending.removesuffix(".gz").removesuffix(".zst")
        return rf"(?:[^/=]+=[^/]*/)?(?:{template}{re.escape(plain)}(?:\.gz|\.zst)?|{TEMPORARY.pattern})"
